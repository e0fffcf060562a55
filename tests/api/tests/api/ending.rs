//! How a server begins and ends.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::time::{Duration, Instant};

use conjure_kit::{Signal, Workspace};
use serde_json::json;

use crate::server::{Server, authorization, command, tokens_file};

#[test]
fn a_server_ends_at_once_when_nothing_runs() {
    for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130)] {
        let server = Server::start();
        server.get("/readyz").is(200);
        // Connections that are kept for later requests hold nothing up.
        let mut kept = server.connect();
        write!(
            kept,
            "GET /healthz HTTP/1.1\r\nhost: {}\r\n\r\n",
            server.address
        )
        .unwrap();
        kept.read_exact(&mut [0; 15]).unwrap();
        let began = Instant::now();
        let output = server.end(signal);
        assert_eq!(output.code, Some(code), "{output:?}");
        assert_eq!(output.stderr, "");
        assert!(
            began.elapsed() < Duration::from_secs(8),
            "{:?}",
            began.elapsed()
        );
    }
}

#[test]
fn a_request_that_runs_is_answered_before_the_end_and_no_longer_waited_for_than_said() {
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap();
    let workspace = Workspace::new().unwrap();
    let server = Server::with(&workspace, "--grace 1", &[]);
    let auth = json!({
        "name": "slow", "provider": "openai-compatible", "kind": "api_key", "secret": "k",
        "base_url": format!("http://{}/v1", nobody.local_addr().unwrap()),
    });
    let auth = server.post("/api/v1/auths", &auth).is(201).json();
    let mut stream = server.connect();
    let path = format!("/api/v1/auths/{}/test", auth["id"].as_str().unwrap());
    let (host, token) = (server.address, authorization());
    let head = format!("POST {path} HTTP/1.1\r\nhost: {host}\r\n{token}\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    // The server waits for the provider, which says nothing.
    let _asked = nobody.accept().unwrap();
    let began = Instant::now();
    let output = server.end(Signal::TERM);
    assert_eq!(output.code, Some(143), "{output:?}");
    assert!(
        output.stderr.contains("did not end within 1s"),
        "{output:?}"
    );
    assert!(
        began.elapsed() < Duration::from_secs(10),
        "{:?}",
        began.elapsed()
    );
}

#[test]
fn a_file_of_tokens_without_a_token_is_refused() {
    let workspace = Workspace::new().unwrap();
    let empty = tokens_file(&workspace, "\n");
    let args = format!("--token-file {}", empty.display());
    let refused = command(&workspace, &args).run().unwrap();
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.stderr.contains("no token in"), "{refused:?}");
}

#[test]
fn a_token_that_others_may_read_or_guess_lets_nobody_in() {
    let workspace = Workspace::new().unwrap();
    let open = workspace
        .write("open", "the-token-of-one-client\n")
        .unwrap();
    let open = format!("--token-file {}", open.display());
    let short = format!("--token-file {}", tokens_file(&workspace, "b\n").display());
    for (args, variable) in [
        (open.as_str(), "UNUSED"),
        (short.as_str(), "UNUSED"),
        ("--token-env MINE", "MINE"),
        ("", "CONJURE_TOKEN"),
    ] {
        let refused = command(&workspace, args).env(variable, "b").run().unwrap();
        assert_eq!(refused.code, Some(2), "{args}: {refused:?}");
    }
}

#[test]
fn an_address_that_is_taken_is_said() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let workspace = Workspace::new().unwrap();
    let args = format!("--listen {}", taken.local_addr().unwrap());
    let refused = command(&workspace, &args).run().unwrap();
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.stderr.contains("cannot listen on"), "{refused:?}");
}
