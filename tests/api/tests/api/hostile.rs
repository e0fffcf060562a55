//! Requests that nobody should send: refused, and the server goes on.

use std::io::{Read as _, Write as _};
use std::time::{Duration, Instant};

use conjure_kit::Workspace;
use serde_json::json;

use crate::server::{Reply, Server, authorization, tokens_file};
use crate::threads::{imported, notices};

#[test]
fn a_name_that_was_bound_to_this_address_is_not_answered() {
    let workspace = Workspace::new().unwrap();
    let server = Server::with(&workspace, "--allow-host box.example", &[]);
    let host = |host: &str| server.ask("GET", "/api/v1/auths", &[("host", host)], "");
    let port = server.address.port();
    for good in [
        "localhost".to_owned(),
        format!("127.0.0.1:{port}"),
        format!("[::1]:{port}"),
        "LocalHost:99".to_owned(),
        "box.example".to_owned(),
    ] {
        host(&good).is(200);
    }
    for bad in [
        "evil.example",
        "evil.example:7420",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "127.0.0.2",
        "user@localhost",
        "[::1]evil",
        "[::1]evil:7420",
        "localhost:evil",
        "",
        "[::1",
    ] {
        assert_eq!(host(bad).is(421).kind(), "unknown-host", "{bad}");
    }
    let raw = |text: &str| server.raw(text.replace('\n', "\r\n").as_bytes());
    raw("GET /healthz HTTP/1.1\nconnection: close\n\n").is(400);
    raw("GET /healthz HTTP/1.1\nhost: localhost\nhost: evil\nconnection: close\n\n").is(400);
    raw("GET http://evil/healthz HTTP/1.1\nhost: localhost\nconnection: close\n\n").is(421);
}

#[test]
fn a_page_from_elsewhere_is_not_answered_and_an_allowed_one_may_read() {
    let workspace = Workspace::new().unwrap();
    let server = Server::with(&workspace, "--allow-origin https://app.example", &[]);
    let from = |origin: &str| server.ask("POST", "/api/v1/personas", &[("origin", origin)], "");
    let port = server.address.port();
    for bad in [
        "https://evil.example".to_owned(),
        "null".to_owned(),
        "https://app.example.evil".to_owned(),
        format!("http://evil.example:{port}"),
        format!("https://localhost:{port}"),
        format!("http://localhost:{}", port - 1),
    ] {
        assert_eq!(from(&bad).is(403).kind(), "foreign-origin", "{bad}");
    }
    // Past the door: what is wrong now is the missing body.
    let own = from(&format!("http://localhost:{port}")).is(415);
    let allowed = from("https://app.example").is(415);
    assert_eq!(
        allowed.header("access-control-allow-origin"),
        Some("https://app.example")
    );
    assert!(own.header("access-control-allow-origin").is_some());
    let asks = |origin: &str| {
        let headers = [
            ("origin", origin),
            ("access-control-request-method", "DELETE"),
        ];
        server.ask("OPTIONS", "/api/v1/personas/x", &headers, "")
    };
    let may = asks("https://app.example").is(204);
    assert!(
        may.header("access-control-allow-methods")
            .unwrap()
            .contains("DELETE")
    );
    assert_eq!(
        asks("https://evil.example")
            .is(403)
            .header("access-control-allow-origin"),
        None
    );
}

#[test]
fn without_the_token_nothing_is_told() {
    let workspace = Workspace::new().unwrap();
    let file = tokens_file(&workspace, "  a-token-from-file \n\nthe-second-token\n");
    let args = format!("--token-file {} --token-env MINE", file.display());
    let env = [
        ("MINE", "a-token-from-mine"),
        ("CONJURE_TOKEN", "a-token-from-usual"),
    ];
    let server = Server::with(&workspace, &args, &env);
    let with = |token: &str| server.ask("GET", "/api/v1/auths", &[("authorization", token)], "");
    for token in [
        "a-token-from-file",
        "the-second-token",
        "a-token-from-mine",
        "a-token-from-usual",
    ] {
        with(&format!("Bearer {token}")).is(200);
    }
    for token in [
        "Bearer",
        "Bearer x",
        "Basic a-token-from-file",
        "Bearer a-token-from-filethe-second-token",
        "a-token-from-file",
    ] {
        let refused = with(token).is(401);
        assert!(
            refused
                .header("www-authenticate")
                .unwrap()
                .starts_with("Bearer")
        );
    }
    for path in [
        "/api/v1/auths",
        "/metrics",
        "/api/v1/openapi.json",
        "/nothing",
    ] {
        server.get(path).is(401);
    }
    for path in ["/healthz", "/readyz"] {
        server.get(path).is(200);
    }
}

#[test]
fn a_huge_body_is_refused_before_it_is_read_and_while_it_is() {
    let server = Server::start();
    let announced = [
        ("content-type", "application/json"),
        ("content-length", "99999999999"),
    ];
    server
        .ask("POST", "/api/v1/personas", &announced, "")
        .is(413);
    for key in ["", "idempotency-key: k\r\n"] {
        let head = format!(
            "POST /api/v1/personas HTTP/1.1\r\nhost: localhost\r\n{key}connection: close\r\n{}\
             content-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n",
            authorization()
        );
        let mut stream = server.connect();
        stream.write_all(head.as_bytes()).unwrap();
        let piece = format!("{:x}\r\n{}\r\n", 64 * 1024, " ".repeat(64 * 1024));
        // The server may close the connection as soon as it has seen enough.
        while stream.write_all(piece.as_bytes()).is_ok() {
            let mut answer = [0; 12];
            stream
                .set_read_timeout(Some(Duration::from_millis(1)))
                .unwrap();
            if stream.peek(&mut answer).is_ok_and(|length| length == 12) {
                assert_eq!(&answer, b"HTTP/1.1 413");
                break;
            }
        }
    }
    let long = format!("/api/v1/personas?cursor={}", "x".repeat(2_000_000));
    let reply = server.get(&long);
    assert!(matches!(reply.status, 0 | 414 | 431), "{}", reply.status);
    server.get("/healthz").is(200);
}

#[test]
fn who_is_slow_is_cut_off() {
    let workspace = Workspace::new().unwrap();
    let server = Server::with(&workspace, "--request-timeout 1", &[]);
    for key in ["", "idempotency-key: k\r\n"] {
        let began = Instant::now();
        let mut stream = server.connect();
        let token = authorization();
        let head = format!(
            "POST /api/v1/personas HTTP/1.1\r\nhost: localhost\r\n{token}content-length: 10\r\n{key}\
             content-type: application/json\r\n\r\n{{"
        );
        stream.write_all(head.as_bytes()).unwrap();
        let slow = Reply::read(stream).is(408);
        assert_eq!(slow.kind(), "too-slow");
        assert!(began.elapsed() < Duration::from_secs(20));
    }
    let mut stream = server.connect();
    stream
        .write_all(b"GET /healthz HTTP/1.1\r\nhost: loc")
        .unwrap();
    let mut rest = Vec::new();
    // Closed, whether or not something is said.
    let _reset = stream.read_to_end(&mut rest);
    assert!(!rest.starts_with(b"HTTP/1.1 200"), "{rest:?}");
    server.get("/healthz").is(200);
}

#[test]
fn a_connection_too_many_is_told_to_come_back() {
    let workspace = Workspace::new().unwrap();
    let server = Server::with(&workspace, "--max-connections 2", &[]);
    let open = |server: &Server| {
        let mut stream = server.connect();
        stream
            .write_all(
                format!(
                    "GET /api/v1/auths HTTP/1.1\r\nhost: localhost\r\n{}\r\n",
                    authorization()
                )
                .as_bytes(),
            )
            .unwrap();
        stream.read_exact(&mut [0; 12]).unwrap();
        stream
    };
    let held = [open(&server), open(&server)];
    let refused = server.get("/api/v1/auths").is(503);
    assert_eq!(refused.kind(), "too-many-connections");
    assert_eq!(refused.header("retry-after"), Some("5"));
    drop(held);
    for _ in 0..200 {
        if server.get("/healthz").status == 200 {
            return;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("no connection is free again");
}

#[test]
fn a_path_is_no_way_out() {
    let server = Server::start();
    let thread = imported(&server, &notices(1));
    for id in [
        "..",
        "%2e%2e",
        "..%2f..%2fetc%2fpasswd",
        "a%00b",
        "a%0d%0aset-cookie:x",
        "%ff",
        "%",
        "a.b",
        "x%20y",
        &"x".repeat(65),
    ] {
        for path in [
            format!("/api/v1/threads/{id}"),
            format!("/api/v1/auths/{id}"),
            format!("/api/v1/personas/{id}"),
            format!("/api/v1/mcp-servers/{id}"),
            format!("{thread}/files/{id}/content"),
        ] {
            let reply = server.get(&path);
            assert!(
                matches!(reply.status, 400 | 404),
                "{path}: {}",
                reply.status
            );
            assert_eq!(reply.header("set-cookie"), None);
        }
    }
    server.get("/api/v1/threads/x/../../../etc/passwd").is(404);
    server.get("//healthz").is(404);
}

#[test]
fn what_is_malformed_is_said_and_never_the_servers_fault() {
    let server = Server::start();
    let send = |body: &[u8], kind: &str| {
        server.ask("POST", "/api/v1/personas", &[("content-type", kind)], body)
    };
    let json = "application/json";
    send(b"{", json).is(400);
    send(b"", json).is(400);
    send(b"\xff\xfe", json).is(400);
    let deep = format!("{{\"name\":\"x\",\"settings\":{}", "[".repeat(100_000));
    let kind = [("content-type", json)];
    server
        .ask("POST", "/api/v1/mcp-servers", &kind, deep)
        .is(422);
    let deep = format!(
        "{{\"name\":\"x\",\"settings\":{}",
        "{\"a\":".repeat(100_000)
    );
    server
        .ask("POST", "/api/v1/mcp-servers", &kind, deep)
        .is(400);
    send(b"{}", json).is(422);
    send(
        b"{\"name\":\"a\",\"name\":\"b\",\"persona_text\":\"\"}",
        json,
    )
    .is(422);
    send(b"{\"name\":\"\\ud800\",\"persona_text\":\"\"}", json).is(400);
    for kind in [
        "text/plain",
        "",
        "application/x-www-form-urlencoded",
        "multipart/form-data",
    ] {
        send(b"{}", kind).is(415);
    }
    let unknown = json!({ "name": "a", "persona_text": "", "colour": 1 });
    let unknown = server.post("/api/v1/personas", &unknown).is(422);
    assert!(
        unknown.json()["detail"]
            .as_str()
            .unwrap()
            .contains("`colour`")
    );
    let wrong = server.ask("PUT", "/api/v1/personas", &[], "").is(405);
    assert!(wrong.header("allow").unwrap().contains("POST"));
    server.ask("BREW", "/api/v1/personas", &[], "").is(405);
    server.get("/api/v2/personas").is(404);
    for raw in [
        "nonsense\r\n\r\n",
        "GET / HTTP/9.9\r\n\r\n",
        "GET /\u{1} HTTP/1.1\r\n\r\n",
    ] {
        let reply = server.raw(raw.as_bytes());
        assert!(
            matches!(reply.status, 0 | 400 | 505),
            "{raw:?}: {}",
            reply.status
        );
    }
    server.get("/healthz").is(200);
}
