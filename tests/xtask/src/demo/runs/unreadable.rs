//! The demo on what is no log, or cannot be had: it answers in words about the file.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;

use conjure_kit::Engine;

use super::{Stage, ThirdBackend};

/// What every answer says of the forms that are read.
const FORMS: &str = "Logs are read as JSON lines or a JSON array of objects (also those of \
    `journalctl -o json`), logfmt, access logs of nginx and Apache (common or combined), syslog, \
    and text lines with a time, a level and a message; in UTF-8, not compressed";

/// The answer of a demo over a file with this content.
fn answer(stage: &Stage, content: &[u8]) -> String {
    let path = stage.workspace.home().join("source");
    std::fs::write(&path, content).unwrap();
    let output = stage.analyses(path.to_str());
    assert!(!output.stderr.contains("has no value"), "{}", output.stderr);
    assert!(!stage.workspace.work().join("logs.jsonl").exists());
    output.stdout
}

#[test]
fn a_file_that_is_no_log_is_answered_with_what_it_is_and_which_forms_are_read() {
    let mut random: Vec<u8> = (0..=255).cycle().take(4_096).collect();
    random.rotate_left(65);
    for (content, expected) in [
        (
            &b""[..],
            "no log but an empty file (0 bytes). Name a log with entries.",
        ),
        (
            b"\n \n",
            "no log but blank lines only. Name a log with entries.",
        ),
        (
            b"[]",
            "no log but a JSON array without elements. Name a log with entries.",
        ),
        (&random, "no log but binary data. Name a log."),
        (
            b"\x7fELF\x02\x01",
            "no log but a program or library (ELF). Name a log.",
        ),
        (
            b"\x1f\x8b\x08\0",
            "no log but data compressed with gzip. Decompress it first, as with `gunzip`.",
        ),
        (
            b"dear diary\nyours\n",
            "no log but text in which no line has a time or a level. If it is a log, bring it into one \
             of the forms below first. Unreadable: 2.\n  line 1: dear diary\n  line 2: yours",
        ),
        (
            b"{\n  \"name\": \"x\"\n}\n",
            "no log but a JSON document that is not one object a line.",
        ),
    ] {
        let stage = Stage::new();
        let answer = answer(&stage, content);
        for part in [
            "There is no report, because nothing was fetched.",
            expected,
            FORMS,
        ] {
            assert!(answer.contains(part), "{part}\n{answer}");
        }
    }
}

#[test]
fn a_server_without_the_log_is_answered_with_what_it_said() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/app.log", server.local_addr().unwrap());
    // Ends with the process if nobody asks.
    std::thread::spawn(move || {
        let (mut client, _) = server.accept().unwrap();
        let _request = client.read(&mut [0; 4096]).unwrap();
        client
            .write_all(
                b"HTTP/1.1 404 Not Found\r\nContent-Length: 7\r\nConnection: close\r\n\r\nno such",
            )
            .unwrap();
    });
    let stage = Stage::new();
    let output = stage.analyses(Some(&url));
    let expected = "the server answered with status 404: no such";
    assert!(output.stdout.contains(expected), "{}", output.stdout);
}

#[test]
fn nothing_is_made_of_no_log_where_a_container_would_make_a_page() {
    let Some(engine) = Engine::find().unwrap() else {
        return;
    };
    let image = engine.image().to_owned();
    let stage = Stage::with(Some(&ThirdBackend::Docker { image }));
    let answer = answer(&stage, b"");
    assert!(answer.contains("an empty file (0 bytes)"), "{answer}");
}
