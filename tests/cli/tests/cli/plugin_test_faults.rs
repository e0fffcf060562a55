//! What `conjure plugin test` finds in plugins that do not hold their contract, and what no plugin does
//! to it: its verdicts are its own, it waits for nobody, and it leaves nothing.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use conjure_kit::{Signal, Workspace};
use serde_json::Value;

use crate::plugin_test::{built_with, failed, outcomes, tested};
use crate::stage::{conjure, json, workspace};

/// Makes a skill in Python with other code in its file.
fn python(workspace: &Workspace, name: &str, changes: &[(&str, &str)]) {
    let create = format!("plugin create skill {name} --lang python");
    let made = conjure(workspace, &create).run().unwrap();
    assert_eq!(made.code, Some(0), "{made:?}");
    let file = workspace.work().join(name);
    let file = file.join(format!("{}.py", name.replace('-', "_")));
    let mut text = fs::read_to_string(&file).unwrap();
    for (old, new) in changes {
        assert!(text.contains(old), "{old}");
        text = text.replace(old, new);
    }
    fs::write(file, text).unwrap();
}

/// The verdict of one check, with what is told of it.
fn verdict<'a>(said: &'a Value, check: &str) -> &'a Value {
    let mut checks = said["runs"][0]["checks"].as_array().unwrap().iter();
    checks.find(|it| it["check"] == check).unwrap()
}

#[test]
fn what_a_plugin_prints_is_no_verdict_and_what_it_leaves_running_is_not_waited_for() {
    let workspace = workspace(&[]);
    let forged = r#"println!("\n{{\"line\":\"done\",\"outcome\":{{\"check\":\"forged\",\"verdict\":\"passed\",\"took_ms\":0}}}}\n{{\"line\":\"end\"}}");
                print!("half a line");
                std::process::Command::new("sleep").arg("100").spawn().map_err(|_| "no sleep")?;"#;
    let greeted = "greeted.push(arguments.name.clone());";
    let all = format!("{forged}\n{greeted}");
    let library = built_with(&workspace, "skill", "loud-skill", &[(greeted, &all)]);
    let begun = Instant::now();
    let (output, said) = tested(
        &workspace,
        library.to_str().unwrap(),
        "--isolation in-process",
    );
    assert_eq!(output.code, Some(0), "{said:#}");
    let outcomes = outcomes(&said, 0);
    assert!(
        !outcomes.contains(&"passed forged".to_owned()),
        "{outcomes:?}"
    );
    let last = "passed example: `execute` {\"command\":\"sing\"}";
    assert_eq!(outcomes.last().map(String::as_str), Some(last));
    assert!(
        begun.elapsed() < Duration::from_secs(90),
        "waited for `sleep`"
    );
}

#[test]
fn an_executor_that_panics_or_shows_its_output_at_the_end_is_found_and_cleaned_up() {
    let workspace = workspace(&[]);
    let cleaned = workspace.root().join("cleaned");
    fs::create_dir_all(&cleaned).unwrap();
    let mark = format!(
        "fs::write(format!(\"{}/{{}}\", cx.session().unwrap_or_default()), \"\")?;",
        cleaned.display()
    );
    let changes = [
        // Nothing is passed on before the stream's end.
        (
            "let mut piece = [0; 8192];",
            "let mut held = Vec::new();\n            let mut piece = [0; 8192];",
        ),
        (
            "                show(piece);",
            "                held.extend_from_slice(piece);",
        ),
        (
            "let _ = at_end.send(());",
            "show(&held);\n            let _ = at_end.send(());",
        ),
        (
            "        cx.check()?;\n",
            "        assert!(!cx.cancelled(), \"no way out\");\n",
        ),
        (
            "        if self.let_go(cx)",
            &format!("        {mark}\n        if self.let_go(cx)"),
        ),
    ];
    let library = built_with(&workspace, "executor", "late-executor", &changes);
    let library = library.to_str().unwrap();
    let more = "--isolation in-process --only while";
    let (output, said) = tested(&workspace, library, more);
    assert_eq!(output.code, Some(1), "{said:#}");
    let late = failed(&said);
    assert_eq!(late[0].0, "output is shown while a command runs");
    assert!(late[0].1.contains("ms before the reply"), "{late:?}");
    let (output, said) = tested(
        &workspace,
        library,
        "--isolation in-process --only cancelled",
    );
    assert_eq!(output.code, Some(1), "{said:#}");
    let panicked = failed(&said);
    assert_eq!(panicked[0].1, "a panic");
    // Both ended their sessions, which have names of their own.
    let names: Vec<_> = fs::read_dir(&cleaned).unwrap().collect();
    assert_eq!(names.len(), 2, "{names:?}");
    for name in names {
        let name = name.unwrap().file_name().into_string().unwrap();
        assert!(
            name.starts_with("check-") && name.ends_with("-one"),
            "{name}"
        );
    }
}

#[test]
fn a_backend_has_its_secrets_while_it_is_checked_and_is_left_out_without_them() {
    let workspace = workspace(&[]);
    let changes = [
        (
            "async fn open(&self, _cx: Cx, _request: Open) -> Result<()> {\n        Ok(())",
            "async fn open(&self, cx: Cx, _request: Open) -> Result<()> {\n        \
             match cx.secret_async(\"TOKEN\").await?.as_str() {\n            \
             \"open\" => Ok(()),\n            _ => Err(Error::invalid(\"another token\")),\n        }",
        ),
        (
            "        .example(",
            "        .permissions(conjure_skill_sdk::protocol::Permissions {\n            \
             secrets: vec![\"TOKEN\".to_owned()],\n            ..Default::default()\n        })\n        \
             .example(",
        ),
    ];
    let library = built_with(&workspace, "backend", "locked-backend", &changes);
    let run = |token: Option<&str>| {
        let args = format!(
            "plugin test {} --json --isolation process",
            library.display()
        );
        let mut test = conjure(&workspace, &args);
        if let Some(token) = token {
            test = test.env("CONJURE_SECRET_TOKEN", token);
        }
        json(&test.run().unwrap())
    };
    let check = "a session opens and has a catalog";
    let said = run(Some("open"));
    assert_eq!(said["ok"], true, "{said:#}");
    assert_eq!(verdict(&said, check)["verdict"], "passed");
    let said = run(None);
    let left_out = verdict(&said, check);
    assert_eq!(left_out["verdict"], "left_out", "{said:#}");
    let reason = left_out["reason"].as_str().unwrap();
    assert!(
        reason.contains("`secret.get`") && reason.contains("CONJURE_SECRET_TOKEN"),
        "{reason}"
    );
    // One that is there and wrong is no reason.
    assert_eq!(verdict(&run(Some("shut")), check)["verdict"], "failed");
}

#[test]
fn a_program_is_tested_in_a_worker_alone_and_takes_over_state_with_its_configuration() {
    let workspace = workspace(&[]);
    let made = "    \"\"\"Runs once a session: what it returns is that session's state, `call.state`.\"\"\"\n";
    let strict = format!(
        "{made}    if setup.config.get(\"word\") != \"please\":\n        raise Failure(\"say please\")\n"
    );
    python(&workspace, "polite-skill", &[(made, &strict)]);
    let args = [
        "plugin",
        "test",
        "polite-skill",
        "--json",
        "--config",
        "{\"word\":\"please\"}",
    ];
    let output = conjure_kit::cli(args).workspace(&workspace).run().unwrap();
    let said = json(&output);
    assert_eq!(output.code, Some(0), "{said:#}");
    assert_eq!(said["runs"].as_array().map(Vec::len), Some(1));
    assert_eq!(said["runs"][0]["isolation"], "process");
    let reason = said["in_process_left_out"].as_str().unwrap();
    assert!(reason.contains("it is a program"), "{reason}");
    let state = "the state that it hands out is taken over by a new instance";
    assert_eq!(verdict(&said, state)["verdict"], "passed");
    // In words, and without the configuration that it needs.
    let output = conjure(&workspace, "plugin test polite-skill --only ping")
        .run()
        .unwrap();
    assert_eq!(output.code, Some(1), "{output:?}");
    assert!(
        output.stdout.contains("not run: it is a program"),
        "{output:?}"
    );
    assert!(output.stdout.contains("say please"), "{output:?}");
}

/// A file of this name below a directory.
fn found(dir: &Path, name: &str) -> Option<PathBuf> {
    let entries = fs::read_dir(dir).ok()?.filter_map(Result::ok);
    let mut paths = entries.map(|entry| entry.path());
    paths.find_map(|path| match path.is_dir() {
        true => found(&path, name),
        false => path.ends_with(name).then_some(path),
    })
}

/// Whether there is such a process.
fn is_there(pid: &str) -> bool {
    // One that has ended and was not waited for has no command line.
    fs::read(Path::new("/proc").join(pid).join("cmdline")).is_ok_and(|line| !line.is_empty())
}

#[test]
fn when_it_is_killed_all_that_it_started_ends_and_its_directory_goes() {
    let workspace = workspace(&[]);
    let temp = workspace.root().join("temp");
    fs::create_dir_all(&temp).unwrap();
    let greet = "    call.state.append(name)\n";
    // In the session's directory: a worker writes nowhere else.
    let waiting = "    import os, time\n    mark = call.working_dir / \"pids\"\n    \
         mark.with_suffix(\".new\").write_text(f\"{os.getppid()} {os.getpid()}\")\n    \
         mark.with_suffix(\".new\").rename(mark)\n    time.sleep(100)\n";
    let example = "if __name__ == \"__main__\":";
    let with_example =
        format!("skill.example(\"greet\", {{\"name\": \"Ada\"}}, \"Hello\")\n\n{example}");
    python(
        &workspace,
        "waiting-skill",
        &[(greet, waiting), (example, &with_example)],
    );
    let test = conjure(&workspace, "plugin test waiting-skill --only example");
    let test = test.env("TMPDIR", temp.to_str().unwrap()).start().unwrap();
    let until = |what: &str, holds: &dyn Fn() -> bool| {
        let begun = Instant::now();
        while !holds() {
            assert!(begun.elapsed() < Duration::from_secs(60), "{what}");
            std::thread::sleep(Duration::from_millis(10));
        }
    };
    until("the example runs", &|| found(&temp, "pids").is_some());
    let pids = fs::read_to_string(found(&temp, "pids").unwrap()).unwrap();
    assert!(pids.split_whitespace().all(is_there), "{pids}");
    assert!(fs::read_dir(&temp).unwrap().count() > 0);
    test.signal(Signal::KILL);
    until("the processes end", &|| {
        !pids.split_whitespace().any(is_there)
    });
    until("the directory goes", &|| {
        fs::read_dir(&temp).unwrap().count() == 0
    });
}
