//! `conjure plugin dev`: each save is built, tried and loaded, into a session of its own or into hosts
//! that run; what does not build or load is told, and the next save goes on.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use conjure_kit::{Model, Running, Signal, Workspace};
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
fn dev(workspace: &Workspace, args: &str, env: &[(&str, String)]) -> Running {
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
    dev.wait_for_stdout("- dev-script_greet: ok").unwrap();
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
