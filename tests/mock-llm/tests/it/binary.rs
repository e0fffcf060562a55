//! The program around the library.

use std::io::{BufRead, BufReader, Write as _};
use std::process::{Command, Stdio};

use crate::client::{Client, ask};

#[test]
fn the_program_prints_its_address_first_and_serves() {
    let directory = tempfile::tempdir().unwrap();
    let script = directory.path().join("script.json");
    std::fs::write(
        &script,
        r#"{"steps": [{"message": {"content": [{"type": "text", "text": "Hi"}]}}]}"#,
    )
    .unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_mock-llm"))
        .arg("--script")
        .arg(&script)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = String::new();
    BufReader::new(child.stdout.take().unwrap())
        .read_line(&mut first)
        .unwrap();
    let address = first
        .trim()
        .strip_prefix("http://")
        .unwrap()
        .parse()
        .unwrap();
    let mut client = Client::connect(address);
    client.post("/v1/messages", &ask(false), "connection: close\r\n");
    let answer = client.read_all();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(answer.json()["content"][0]["text"], "Hi");
}

#[test]
fn the_program_does_what_lines_on_its_input_say_and_ends_with_them() {
    let directory = tempfile::tempdir().unwrap();
    let script = directory.path().join("script.json");
    std::fs::write(&script, r#"{"steps": []}"#).unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_mock-llm"))
        .arg("--commands")
        .arg("--script")
        .arg(&script)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut said = || lines.next().unwrap().unwrap();
    let address = said().strip_prefix("http://").unwrap().parse().unwrap();
    let steps = r#"{"steps": [{"message": {"content": [{"type": "text", "text": "Hi"}]},
        "delivery": {"holds": [{"at": {"event": 0}, "token": "gate"}]}}]}"#;
    writeln!(input, "{}", steps.replace('\n', " ")).unwrap();
    assert_eq!(said(), "{}");
    let mut client = Client::connect(address);
    client.post("/v1/messages", &ask(false), "connection: close\r\n");
    for command in [r#"{"reached": "gate"}"#, r#"{"release": "gate"}"#] {
        writeln!(input, "{command}").unwrap();
        assert_eq!(said(), "{}");
    }
    assert_eq!(client.read_all().json()["content"][0]["text"], "Hi");
    writeln!(input, r#"{{"requests": 0}}"#).unwrap();
    let told: serde_json::Value = serde_json::from_str(&said()).unwrap();
    assert_eq!(told["requests"][0]["path"], "/v1/messages");
    assert!(told["requests"][0]["body"]["messages"].is_array());
    writeln!(input, r#"{{"steps": [{{}}]}}"#).unwrap();
    assert!(said().contains("give it exactly one"));
    drop(input);
    assert!(child.wait().unwrap().success());
}

#[test]
fn the_program_says_which_wires_it_speaks() {
    let output = Command::new(env!("CARGO_BIN_EXE_mock-llm"))
        .arg("--help")
        .output()
        .unwrap();
    let help = String::from_utf8(output.stdout).unwrap();
    for path in [
        "/v1/messages",
        "/v1/responses",
        "/v1/chat/completions",
        ":generateContent",
        ":streamGenerateContent",
        "/v1/models",
        "/v1beta/models",
    ] {
        assert!(help.contains(path), "{help}");
    }
}

#[test]
fn the_program_refuses_a_script_that_is_not_there() {
    let output = Command::new(env!("CARGO_BIN_EXE_mock-llm"))
        .args(["--script", "/no/such/script"])
        .output()
        .unwrap();
    assert!(!output.status.success());
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(
        error.contains("cannot read the script /no/such/script"),
        "{error}"
    );
}
