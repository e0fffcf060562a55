//! The program around the library.

use std::io::{BufRead, BufReader};
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
