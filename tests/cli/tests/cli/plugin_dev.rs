//! `conjure plugin dev`: each save is built, tried and loaded, into a session of its own or into hosts
//! that run; what does not build or load is told, and the next save goes on.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use conjure_kit::{Model, ProgramHandle, Signal, Workspace};
use serde_json::Value;

use crate::plugin_create::checkout;
use crate::plugin_test::with_rust;
use crate::stage::{asks, conjure, json_lines, workspace};

/// Makes a crate that is not built yet.
fn made(workspace: &Workspace, name: &str) -> PathBuf {
    let create = format!("plugin create skill {name} {}", checkout());
    let made = conjure(workspace, &create).run().unwrap();
    assert_eq!(made.code, Some(0), "{made:?}");
    workspace.work().join(name)
}

/// Starts the author's loop.
fn dev(workspace: &Workspace, args: &str, env: &[(&str, String)]) -> ProgramHandle {
    let mut program = with_rust(conjure(workspace, &format!("plugin dev --json {args}")));
    for (name, value) in env {
        program = program.env(name, value);
    }
    program.start().unwrap()
}

/// Changes a file as an editor does: another one takes its place.
fn save(file: &std::path::Path, change: impl Fn(String) -> String) {
    let text = change(fs::read_to_string(file).unwrap());
    let new = file.with_extension("new.tmp");
    fs::write(&new, text).unwrap();
    fs::rename(new, file).unwrap();
}

/// Waits until there is a file.
fn wait_for(file: &std::path::Path) {
    let begun = Instant::now();
    while !file.exists() {
        assert!(
            begun.elapsed() < Duration::from_secs(120),
            "{}",
            file.display()
        );
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn each_save_is_live_in_a_session_of_its_own_or_says_why_not() {
    let workspace = workspace(&[]);
    let dir = made(&workspace, "dev-one");
    let (source, manifest) = (dir.join("src/lib.rs"), dir.join("Cargo.toml"));
    let good = "fn skill() -> Skill {";
    let wrong = "fn skill() -> Skill {\n    oops;";
    save(&source, |text| text.replace(good, wrong));
    let begun = Instant::now();
    let dev = dev(&workspace, "dev-one", &[]);
    dev.wait_for_stdout("cannot find value `oops`").unwrap();
    save(&source, |text| text.replace(wrong, good));
    dev.wait_for_stdout("\"plugin\":\"dev-one 0.1.0\"").unwrap();
    dev.wait_for_stdout("- dev-one_greet: ok").unwrap();
    // What a host says of a build, and that the crate is called otherwise.
    save(&manifest, |text| text.replace("\"dev-one\"", "\"dev-two\""));
    dev.wait_for_stdout("calls itself `dev-one`").unwrap();
    save(&source, |text| text.replace("\"dev-one\"", "\"dev-two\""));
    dev.wait_for_stdout("- dev-two_greet: ok").unwrap();
    // A crash of what is tried ends neither this nor the round after it.
    save(&source, |text| {
        text.replace(good, "fn skill() -> Skill {\n    std::process::abort();")
    });
    dev.wait_for_stdout("SIGABRT").unwrap();
    save(&source, |text| {
        text.replace("\n    std::process::abort();", "")
            .replace("Greets somebody", "Greets anybody")
    });
    save(&manifest, |text| text.replace("0.1.0", "0.1.1"));
    dev.wait_for_stdout("\"plugin\":\"dev-two 0.1.1\"").unwrap();
    dev.signal(Signal::INT);
    let output = dev.wait().unwrap();
    assert_eq!(output.code, Some(130), "{output:?}");
    let rounds = json_lines(&output);
    let lasted = rounds
        .iter()
        .filter_map(|round| round["since_saved_ms"].as_u64());
    let lasted: Vec<u64> = lasted.collect();
    // Counted from the save, and so no longer than all of this.
    let all = u64::try_from(begun.elapsed().as_millis()).unwrap();
    assert!(
        !lasted.is_empty() && lasted.iter().all(|ms| *ms < all),
        "{lasted:?}"
    );
    let stages: Vec<&Value> = rounds.iter().map(|round| &round["stage"]).collect();
    assert!(stages.contains(&&"build".into()) && stages.contains(&&"check".into()));
}

#[test]
fn each_save_of_a_program_is_live_or_says_why_not() {
    let workspace = workspace(&[]);
    let create = "plugin create skill dev-script --lang python";
    let made = conjure(&workspace, create).run().unwrap();
    assert_eq!(made.code, Some(0), "{made:?}");
    let dir = workspace.work().join("dev-script");
    let description = dir.join("dev-script.plugin.toml");
    let program = dir.join("dev_script.py");
    let dev = dev(&workspace, "dev-script", &[]);
    let seen = dev.wait_for_stdout("- dev-script_greet: ok").unwrap();
    assert!(!seen.contains("\"warning\""), "{seen}");
    save(&program, |text| format!("oops(\n{text}"));
    dev.wait_for_stdout("\"ok\":false").unwrap();
    save(&program, |text| text.replacen("oops(\n", "", 1));
    save(&description, |text| text.replace("0.1.0", "0.1.1"));
    dev.wait_for_stdout("\"plugin\":\"dev-script 0.1.1\"")
        .unwrap();
    dev.signal(Signal::INT);
    let output = dev.wait().unwrap();
    assert_eq!(output.code, Some(130), "{output:?}");
}

#[test]
fn an_executor_is_tried_as_a_host_does_and_its_tools_are_called() {
    let workspace = workspace(&[]);
    let create = "plugin create executor dev-machine --lang python";
    let made = conjure(&workspace, create).run().unwrap();
    assert_eq!(made.code, Some(0), "{made:?}");
    for args in ["dev-machine", "dev-machine --serve"] {
        let dev = dev(&workspace, args, &[]);
        let seen = dev.wait_for_stdout("\"type\":\"round\"").unwrap();
        assert!(!seen.contains("\"stage\""), "{seen}");
        if args == "dev-machine" {
            dev.wait_for_stdout("- dev-machine_bash_tool: ").unwrap();
        }
        dev.signal(Signal::INT);
        let output = dev.wait().unwrap();
        assert_eq!(output.code, Some(130), "{output:?}");
        let rounds = json_lines(&output);
        let mut rounds = rounds.iter().filter(|line| line["type"] == "round");
        assert!(rounds.all(|round| round["ok"] == true), "{output:?}");
    }
}

#[test]
fn a_state_that_takes_long_holds_up_neither_what_is_told_nor_the_next_save() {
    let workspace = workspace(&[]);
    let program = made_in_python(&workspace, "dev-hangs").join("dev_hangs.py");
    let good = fs::read_to_string(&program).unwrap();
    // Whoever waited for it would wait for longer than this test may take.
    let taken = "call.state[:] = state";
    assert!(good.contains(taken));
    let hangs = good.replace(taken, "import time; time.sleep(600)");
    save(&program, |_| hangs.clone());
    let dev = dev(&workspace, "dev-hangs", &[]);
    dev.wait_for_stdout("\"type\":\"round\"").unwrap();
    save(&program, |_| good.clone());
    dev.wait_for_stdout("- dev-hangs_greet: ok").unwrap();
    dev.signal(Signal::INT);
    let output = dev.wait().unwrap();
    assert_eq!(output.code, Some(130), "{output:?}");
    // Nobody waits for what is out of date.
    assert!(!output.stdout.contains("does not take over"), "{output:?}");
}

#[test]
fn the_sdk_of_the_program_is_written_again_where_it_is_gone() {
    let workspace = workspace(&[]);
    let made = conjure(&workspace, "plugin create skill dev-again --json")
        .run()
        .unwrap();
    assert_eq!(made.code, Some(0), "{made:?}");
    let said: Value = serde_json::from_str(&made.stdout).unwrap();
    let (_, sdk) = said["sdk"]
        .as_str()
        .unwrap()
        .split_once(", path = ")
        .unwrap();
    let sdk = PathBuf::from(sdk.trim_matches('"'));
    fs::remove_dir_all(&sdk).unwrap();
    let dev = dev(&workspace, "dev-again", &[]);
    dev.wait_for_stdout("Building ").unwrap();
    dev.signal(Signal::INT);
    let output = dev.wait().unwrap();
    assert!(output.stderr.contains("is written into"), "{output:?}");
    assert!(sdk.join("Cargo.toml").is_file());
}

#[test]
fn what_cargo_builds_inside_the_crate_is_no_change() {
    let workspace = workspace(&[]);
    let dir = made(&workspace, "dev-inside");
    // Of a workspace, whose only plugin it is.
    let root = workspace.work().join("all");
    fs::create_dir_all(root.join(".cargo")).unwrap();
    fs::rename(&dir, root.join("dev-inside")).unwrap();
    let manifest = root.join("dev-inside/Cargo.toml");
    save(&manifest, |text| text.replace("[workspace]\n", ""));
    let profile = "\n[profile.dev]\ndebug = \"line-tables-only\"\n";
    let members = format!("[workspace]\nmembers = [\"dev-inside\"]\nresolver = \"2\"\n{profile}");
    fs::write(root.join("Cargo.toml"), members).unwrap();
    // Whose directory everybody else's builds are linked into.
    let built = root.join("dev-inside/built");
    std::os::unix::fs::symlink(conjure_kit::repo_root().join("target/plugin-new"), &built).unwrap();
    let env = [("CARGO_TARGET_DIR", built.display().to_string())];
    let dev = dev(&workspace, "all", &env);
    dev.wait_for_stdout("- dev-inside_greet: ok").unwrap();
    save(&manifest, |text| text.replace("0.1.0", "0.1.1"));
    dev.wait_for_stdout("dev-inside 0.1.1").unwrap();
    dev.signal(Signal::INT);
    let output = dev.wait().unwrap();
    let rounds = json_lines(&output);
    let rounds = rounds.iter().filter(|line| line["type"] == "round");
    assert_eq!(rounds.count(), 2, "{output:?}");
}

#[test]
fn of_two_saves_the_newer_one_is_built() {
    let workspace = workspace(&[]);
    let dir = made(&workspace, "dev-slow");
    let (source, mark) = (dir.join("src/lib.rs"), workspace.root().join("mark"));
    // A build that says when it begins, and takes its time while it is asked to.
    let script = "fn main() {\n    println!(\"cargo::rerun-if-changed=src\");\n\
        let mark = std::env::var(\"MARK\").unwrap();\n\
        if std::fs::read_to_string(\"src/lib.rs\").unwrap().contains(\"older\") {\n\
            std::fs::write(mark, \"\").unwrap();\n\
            std::thread::sleep(std::time::Duration::from_secs(200));\n    }\n}\n";
    fs::write(dir.join("build.rs"), script).unwrap();
    let env = [("MARK", mark.display().to_string())];
    let dev = dev(&workspace, "dev-slow", &env);
    dev.wait_for_stdout("- dev-slow_greet: ok").unwrap();
    save(&source, |text| text.replace("Greets people", "older"));
    wait_for(&mark);
    save(&source, |text| text.replace("older", "newer"));
    dev.wait_for_stdout("changed again while it was built")
        .unwrap();
    // Nobody waits for the build that is out of date, which would take longer than that.
    let begun = Instant::now();
    let is_live = |line: &str| {
        let line: Value = serde_json::from_str(line).unwrap_or_default();
        line["since_saved_ms"].is_number()
    };
    loop {
        let seen = dev.wait_for_stdout("since_saved_ms\":").unwrap();
        if seen.lines().any(is_live) {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(150), "{seen}");
        std::thread::sleep(Duration::from_millis(20));
    }
    dev.signal(Signal::TERM);
    assert_eq!(dev.wait().unwrap().code, Some(143));
}

#[test]
fn what_is_served_is_there_for_hosts_that_run_and_gone_at_the_end() {
    let workspace = workspace(&[]);
    made(&workspace, "dev-served");
    let model = Model::start().unwrap();
    let chat = asks(&workspace, &model, "chat --json --allow *", "");
    let mut chat = chat.deadline(Duration::from_secs(240)).start().unwrap();
    model.says(conjure_mock_llm::Message::new().text("after nothing"));
    chat.send_line("Hi.").unwrap();
    chat.wait_for_stdout("after nothing").unwrap();
    let dev = dev(&workspace, "dev-served --serve", &[]);
    dev.wait_for_stdout("\"plugin\":\"dev-served 0.1.0\"")
        .unwrap();
    chat.wait_for_stdout("dev-served_greet").unwrap();
    dev.signal(Signal::INT);
    let output = dev.wait().unwrap();
    assert_eq!(output.code, Some(130), "{output:?}");
    assert!(
        output.stdout.contains("dev-served is removed"),
        "{output:?}"
    );
    chat.wait_for_stdout("gone: dev-served_execute").unwrap();
    chat.close_stdin();
    assert_eq!(chat.wait().unwrap().code, Some(0));
    let left = conjure(&workspace, "plugin list").run().unwrap();
    assert!(left.stdout.starts_with("No plugins."), "{left:?}");
}

/// Makes a program that is a skill.
fn made_in_python(workspace: &Workspace, name: &str) -> PathBuf {
    let create = format!("plugin create skill {name} --lang python");
    let made = conjure(workspace, &create).run().unwrap();
    assert_eq!(made.code, Some(0), "{made:?}");
    workspace.work().join(name)
}

/// The versions of the plugins that are installed.
fn installed(workspace: &Workspace) -> Vec<String> {
    let listed = conjure(workspace, "plugin list --json").run().unwrap();
    let listed: Value = serde_json::from_str(&listed.stdout).unwrap();
    let plugins = listed["plugins"].as_array().unwrap().iter();
    plugins
        .map(|plugin| plugin["version"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn what_was_there_before_is_back_after_a_run_that_was_killed_and_two_do_not_fight() {
    let workspace = workspace(&[]);
    let dir = made_in_python(&workspace, "dev-kept");
    let add = "plugin add dev-kept/dev-kept.plugin.toml";
    let added = conjure(&workspace, add).run().unwrap();
    assert_eq!(added.code, Some(0), "{added:?}");
    save(&dir.join("dev-kept.plugin.toml"), |text| {
        text.replace("0.1.0", "0.2.0")
    });
    let live = "\"plugin\":\"dev-kept 0.2.0\"";
    let killed = dev(&workspace, "dev-kept --serve", &[]);
    killed.wait_for_stdout(live).unwrap();
    let second = dev(&workspace, "dev-kept --serve", &[]);
    let said = second.wait_for_stdout("is put into this data directory by process");
    assert!(said.unwrap().contains("dev-kept"));
    second.signal(Signal::INT);
    let second = second.wait().unwrap();
    assert!(!second.stdout.contains(live), "{second:?}");
    assert_eq!(installed(&workspace), ["0.2.0"]);
    killed.signal(Signal::KILL);
    assert_eq!(killed.wait().unwrap().code, None);
    assert_eq!(installed(&workspace), ["0.2.0"]);
    let next = dev(&workspace, "dev-kept --serve", &[]);
    let seen = next.wait_for_stdout(live).unwrap();
    assert!(seen.contains("dev-kept 0.1.0 is back"), "{seen}");
    next.signal(Signal::INT);
    let output = next.wait().unwrap();
    let back = output.stdout.matches("dev-kept 0.1.0 is back").count();
    assert_eq!(back, 2, "{output:?}");
    assert_eq!(installed(&workspace), ["0.1.0"]);
}

#[test]
fn what_makes_no_instance_is_not_installed_and_a_state_that_does_not_move_is_warned_of() {
    let workspace = workspace(&[]);
    let program = made_in_python(&workspace, "dev-tried").join("dev_tried.py");
    save(&program, |text| text.replace("return []", "return 1 / 0"));
    let dev = dev(&workspace, "dev-tried/dev-tried.plugin.toml --serve", &[]);
    let seen = dev.wait_for_stdout("\"stage\":\"check\"").unwrap();
    assert!(seen.contains("division by zero"), "{seen}");
    assert!(installed(&workspace).is_empty());
    save(&program, |text| {
        text.replace("return 1 / 0", "return []")
            .replace("call.state[:] = state", "raise ValueError(\"too old\")")
    });
    let seen = dev.wait_for_stdout("does not take over").unwrap();
    assert!(seen.contains("too old"), "{seen}");
    assert_eq!(installed(&workspace), ["0.1.0"]);
    dev.signal(Signal::INT);
    assert_eq!(dev.wait().unwrap().code, Some(130));
    assert!(installed(&workspace).is_empty());
}
