//! What comes back from a command.

use std::fs;
use std::thread;

use conjure_skill_sdk::protocol::{BashOutput, FileRef};
use serde_json::json;

use crate::testing::{LocalTestHost, TestCall};

#[test]
fn p6_an_echo_comes_back() {
    let expected = BashOutput {
        exit_code: Some(0),
        stdout: "hello\n".into(),
        stdout_bytes: 6,
        ..BashOutput::default()
    };
    assert_eq!(LocalTestHost::new().bash("echo hello"), expected);
}

#[test]
fn b1_p6_a_failing_command_keeps_its_output_and_its_code() {
    let expected = BashOutput {
        exit_code: Some(1),
        stdout: "out\n".into(),
        stderr: "err\n".into(),
        stdout_bytes: 4,
        stderr_bytes: 4,
        ..BashOutput::default()
    };
    assert_eq!(
        LocalTestHost::new().bash("echo out; echo err >&2; exit 1"),
        expected
    );
}

#[test]
fn a_signal_is_told() {
    let output = LocalTestHost::new().bash("echo before; kill -KILL $$");
    assert_eq!((output.exit_code, output.signal), (None, Some(9)));
    assert_eq!(output.stdout, "before\n");
}

#[test]
fn p6_commands_run_in_the_working_directory_of_their_session() {
    let host = LocalTestHost::new();
    let other = host.path("exchange");
    let more = json!({ "session": "t", "working_dir": other });
    let here = host.bash("pwd -P").stdout;
    let there = host.bash_with("pwd -P", &more, &TestCall::new()).stdout;
    let real = |path: std::path::PathBuf| format!("{}\n", path.canonicalize().unwrap().display());
    assert_eq!(here, real(host.path("work")));
    assert_eq!(there, real(other));
}

#[test]
fn b28_bytes_that_are_not_utf8_are_replaced() {
    let output = LocalTestHost::new().bash(r"printf 'a\377b'");
    assert_eq!(output.stdout, "a\u{fffd}b");
    assert_eq!(output.stdout_bytes, 3);
}

#[test]
fn the_environment_is_clean() {
    let host = LocalTestHost::new();
    let init = json!({ "env": { "FROM_INIT": "1", "BOTH": "init" } });
    host.call("executor.init", &init).unwrap();
    let body = json!({ "command": "env", "env": { "FROM_CALL": "2", "BOTH": "call" } });
    let more = json!({ "skill_dir": host.path("skill") });
    let reply = host
        .call_with("executor.bash", &body, &more, &TestCall::new())
        .unwrap();
    let env = reply["stdout"].as_str().unwrap();
    let skill = format!("SKILL_DIR={}", host.path("skill").display());
    for expected in ["FROM_INIT=1", "FROM_CALL=2", "BOTH=call", &skill] {
        assert!(
            env.lines().any(|line| line == expected),
            "{expected}\n{env}"
        );
    }
    // The test itself runs with many of these.
    assert!(std::env::vars().any(|(name, _)| name.starts_with("CARGO")));
    assert!(!env.contains("CARGO"), "{env}");
}

#[test]
fn nobody_answers_on_standard_input() {
    let output = LocalTestHost::new().bash("cat; read answer || echo none");
    assert_eq!(output.stdout, "none\n");
}

#[test]
fn a_command_may_begin_with_a_dash() {
    let output = LocalTestHost::new().bash("-x; echo went on");
    assert_eq!(output.stdout, "went on\n");
}

#[test]
fn what_cannot_be_started_is_an_error_with_a_reason() {
    let host = LocalTestHost::new();
    let bash = |body| host.call("executor.bash", &body).unwrap_err();
    assert!(bash(json!({ "command": "a\0b" })).contains("NUL"));
    assert!(bash(json!({ "command": "x".repeat(200_000) })).contains("write it to a file"));
    let bad = json!({ "command": "true", "env": { "A=B": "" } });
    assert!(bash(bad).contains("`A=B` cannot be an environment variable"));
    fs::remove_dir(host.path("work")).unwrap();
    assert!(bash(json!({ "command": "true" })).contains("working directory"));
}

#[test]
fn a_configuration_that_does_not_fit_refuses_the_instance() {
    for config in [
        json!({ "shell": "sh" }),
        json!({ "timeout_ms": 0 }),
        json!({ "colour": true }),
    ] {
        assert!(LocalTestHost::configured(&config).is_err(), "{config}");
    }
}

#[test]
fn another_shell_can_be_configured() {
    let host = LocalTestHost::configured(&json!({ "shell": "/bin/echo" })).unwrap();
    assert_eq!(host.bash("hello").stdout, "-c -- hello\n");
}

#[test]
fn output_is_shown_while_the_command_runs() {
    let host = LocalTestHost::new();
    let call = TestCall::new();
    let fifo = host.work("go");
    let output = thread::scope(|scope| {
        let command = "mkfifo go; echo one; read line < go; echo $line";
        let running = scope.spawn(|| host.bash_with(command, &json!({}), &call));
        call.wait_for("one\n");
        fs::write(&fifo, "two\n").unwrap();
        running.join().unwrap()
    });
    assert_eq!(output.stdout, "one\ntwo\n");
    assert_eq!(call.stdout(), "one\ntwo\n");
}

#[test]
fn a_host_that_takes_nothing_stops_no_command() {
    let call = TestCall::never_takes();
    let output = LocalTestHost::new().bash_with("yes | head -c 3000000", &json!({}), &call);
    assert_eq!(
        (output.exit_code, output.stdout_bytes),
        (Some(0), 3_000_000)
    );
}

#[test]
fn too_much_output_keeps_its_end_and_goes_to_a_file() {
    let host = LocalTestHost::new();
    let output = host.bash("seq 1 100000; echo problem >&2");
    let all: String = (1..=100_000).map(|n| format!("{n}\n")).collect();
    assert_eq!(output.stdout, all[all.len() - 32 * 1024..]);
    assert_eq!(output.stdout_bytes, all.len() as u64);
    let file = output.full_output.unwrap();
    let text = fs::read_to_string(file.path.unwrap()).unwrap();
    assert_eq!(text.replace("problem\n", ""), all);
    assert_eq!(text.matches("problem\n").count(), 1);
}

#[test]
fn the_call_says_how_much_is_kept() {
    let host = LocalTestHost::new();
    let body = json!({ "command": "echo 123456789", "keep_bytes": 4 });
    let reply = host.call("executor.bash", &body).unwrap();
    assert_eq!(reply["stdout"], "789\n");
}

#[test]
fn b24_files_that_a_command_makes_are_told() {
    let host = LocalTestHost::new();
    fs::write(host.work("old.txt"), "old").unwrap();
    let output = host.bash("mkdir out; echo hi > out/report.md; echo more >> old.txt");
    let file = |name: &str, size| FileRef {
        size: Some(size),
        ..FileRef::at(host.work(name).to_str().unwrap())
    };
    assert_eq!(output.files, [file("old.txt", 8), file("out/report.md", 3)]);
    assert_eq!(host.bash("cat old.txt; rm out/report.md").files, []);
}

#[test]
fn b24_files_that_a_reply_has_no_room_for_come_as_events() {
    let host = LocalTestHost::new();
    let call = TestCall::new();
    let output = host.bash_with("for n in $(seq 300); do : > $n; done", &json!({}), &call);
    let events = call.events();
    let files: Vec<_> = events.iter().filter(|e| e["event"] == "file").collect();
    assert_eq!(output.files.len() + files.len(), 300);
    assert!(!output.files.is_empty() && !files.is_empty());
}
