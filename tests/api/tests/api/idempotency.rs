//! Requests that come twice.

use std::io::Write as _;
use std::net::TcpListener;

use conjure_kit::{Signal, Workspace};
use serde_json::json;

use crate::server::{Reply, Server, tokens_file};

fn with_key(server: &Server, path: &str, key: &str, body: &str) -> Reply {
    let headers = [
        ("content-type", "application/json"),
        ("idempotency-key", key),
    ];
    server.ask("POST", path, &headers, body)
}

#[test]
fn the_same_request_again_gets_the_first_answer_also_from_the_next_server() {
    let workspace = Workspace::new().unwrap();
    let server = Server::with(&workspace, "", &[]);
    let body = json!({ "name": "Ada", "persona_text": "Be brief." }).to_string();
    let all = "/api/v1/personas";
    let first = with_key(&server, all, "k1", &body).is(201);
    assert_eq!(first.header("idempotency-replayed"), None);
    let again = |server: &Server| {
        let again = with_key(server, all, "k1", &body).is(201);
        assert_eq!(again.header("idempotency-replayed"), Some("true"));
        assert_eq!(
            (&again.body, again.header("location")),
            (&first.body, first.header("location"))
        );
        assert_eq!(again.header("content-type"), Some("application/json"));
    };
    again(&server);
    let other = with_key(&server, all, "k1", "{}").is(422);
    assert_eq!(other.kind(), "key-reused");
    // Elsewhere, and under another key, it is another request.
    with_key(&server, "/api/v1/mcp-servers/import", "k1", "{}").is(422);
    with_key(&server, all, "k2", &body).is(409);
    with_key(&server, all, "", &body).is(422);
    let long = "k".repeat(256);
    let refused = with_key(&server, all, &long, &body).is(422).json();
    let detail = refused["detail"].as_str().unwrap();
    assert_eq!(
        detail,
        "`Idempotency-Key` is 1 to 255 bytes without control characters"
    );
    server.end(Signal::TERM);
    let server = Server::with(&workspace, "", &[]);
    again(&server);
    assert_eq!(server.get(all).json()["items"].as_array().unwrap().len(), 1);
}

#[test]
fn a_request_that_failed_may_be_tried_with_its_key() {
    let server = Server::start();
    let all = "/api/v1/personas";
    let body = json!({ "name": "Ada", "persona_text": "" });
    let first = server.post(all, &body).is(201);
    with_key(&server, all, "k", &body.to_string()).is(409);
    server.delete(first.header("location").unwrap()).is(204);
    let tried = with_key(&server, all, "k", &body.to_string()).is(201);
    assert_eq!(tried.header("idempotency-replayed"), None);
}

#[test]
fn a_key_belongs_to_its_token_wherever_that_stands_among_others() {
    let workspace = Workspace::new().unwrap();
    let start = |tokens: &str| {
        let tokens = tokens_file(&workspace, tokens);
        Server::with(
            &workspace,
            &format!("--token-file {}", tokens.display()),
            &[],
        )
    };
    let body = json!({ "name": "Ada", "persona_text": "Be brief." }).to_string();
    let make = |server: &Server, token: &str| {
        let token = format!("Bearer {token}");
        let headers = [
            ("authorization", token.as_str()),
            ("content-type", "application/json"),
            ("idempotency-key", "k"),
        ];
        server.ask("POST", "/api/v1/personas", &headers, &body)
    };
    let server = start("the-first-token-of-all\nthe-second-token\n");
    let made = make(&server, "the-second-token").is(201);
    server.end(Signal::TERM);
    // The token is another one by its place now, and another token has that place.
    let server = start("the-second-token\nthe-third-token-of-all\n");
    let again = make(&server, "the-second-token").is(201);
    assert_eq!(again.header("idempotency-replayed"), Some("true"));
    assert_eq!(
        (&again.body, again.header("etag")),
        (&made.body, made.header("etag"))
    );
    assert_eq!(
        make(&server, "the-third-token-of-all").is(409).kind(),
        "name-taken"
    );
}

#[test]
fn a_key_is_taken_while_its_request_is_being_done_and_by_that_client_only() {
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap();
    let workspace = Workspace::new().unwrap();
    let tokens = tokens_file(&workspace, "the-first-token-of-all\nthe-second-token\n");
    let args = format!("--token-file {}", tokens.display());
    let server = Server::with(&workspace, &args, &[]);
    let auth = json!({
        "name": "slow", "provider": "openai-compatible", "kind": "api_key", "secret": "k",
        "base_url": format!("http://{}/v1", nobody.local_addr().unwrap()),
    });
    let headers = |token: &'static str| {
        [
            ("authorization", token),
            ("content-type", "application/json"),
            ("idempotency-key", "k"),
        ]
    };
    let (first, second) = (
        headers("Bearer the-first-token-of-all"),
        headers("Bearer the-second-token"),
    );
    let made = server
        .ask("POST", "/api/v1/auths", &first, auth.to_string())
        .is(201);
    let path = format!("/api/v1/auths/{}/test", made.json()["id"].as_str().unwrap());
    let mut stream = server.connect();
    let request = format!(
        "POST {path} HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer the-first-token-of-all\r\n\
         idempotency-key: k\r\n\r\n",
        server.address
    );
    stream.write_all(request.as_bytes()).unwrap();
    let asked = nobody.accept().unwrap();
    let busy = server.ask("POST", &path, &first, "").is(409);
    assert_eq!(busy.kind(), "in-flight");
    // Another client's key is another key: this one is done, as far as it can be.
    drop(nobody);
    let other = server.ask("POST", &path, &second, "").is(200);
    assert_eq!(other.json()["works"], false);
    // The first goes on without its client.
    drop((stream, asked));
    for _ in 0..200 {
        let reply = server.ask("POST", &path, &first, "");
        if reply.status == 200 {
            assert_eq!(reply.header("idempotency-replayed"), Some("true"));
            return;
        }
        assert_eq!(reply.is(409).kind(), "in-flight");
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    panic!("the request was never over");
}
