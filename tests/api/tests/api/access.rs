//! Access: nobody without a token, also on this machine, where other users are; a browser by a
//! link that is good once.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;

use conjure_kit::{Signal, Workspace, cli};
use serde_json::json;

use crate::events::Client;
use crate::page::browser;
use crate::server::{Reply, Server, connect};
use crate::stage::{Stage, text};
use crate::threads::{imported, notices};

/// No token at all.
const NOBODY: [(&str, &str); 1] = [("authorization", "Bearer nobody")];

#[test]
fn on_this_machine_too_nobody_without_a_token_runs_a_command() {
    let server = Server::start();
    let ran = server.workspace.work().join("ran");
    let script = format!("touch {}", ran.display());
    let settings = json!({ "command": "sh", "args": ["-c", script] });
    let body = json!({ "name": "sh", "settings": settings }).to_string();
    let json_body = ("content-type", "application/json");
    for path in ["/api/v1/mcp-servers", "/api/v1/sessions", "/logout"] {
        let raw = format!(
            "POST {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            server.address,
            body.len()
        );
        server.raw(raw.as_bytes()).is(401);
        let wrong = [NOBODY[0], json_body];
        server.ask("POST", path, &wrong, &body).is(401);
    }
    assert!(!ran.exists());
    // With it the same request is taken.
    let made = server.ask("POST", "/api/v1/mcp-servers", &[json_body], &body);
    made.is(201);
}

#[test]
fn the_users_token_is_made_at_the_first_start_and_stays() {
    let workspace = Workspace::new().unwrap();
    let token_of = |server: &Server| {
        let said = server.running.wait_for_lines(1).unwrap();
        let said: serde_json::Value = serde_json::from_str(said.lines().next().unwrap()).unwrap();
        let path = std::path::PathBuf::from(said["token_file"].as_str().unwrap());
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        std::fs::read_to_string(path).unwrap().trim().to_owned()
    };
    let server = Server::with(&workspace, "", &[]);
    let token = token_of(&server);
    let bearer = format!("Bearer {token}");
    let with = [("authorization", bearer.as_str())];
    server.ask("GET", "/api/v1/auths", &with, "").is(200);
    // The command line finds it by itself.
    let link = cli(["serve", "--link"])
        .workspace(&workspace)
        .run()
        .unwrap();
    assert_eq!(link.code, Some(0), "{link:?}");
    assert!(link.stdout.starts_with("http://"), "{link:?}");
    server.end(Signal::TERM);
    let again = Server::with(&workspace, "", &[]);
    assert_eq!(token_of(&again), token);
    again.end(Signal::TERM);
    // A token that others may have read lets nobody in any more.
    let path = workspace.home().join(".local/share/conjure/http-token");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
    let refused = cli(["serve", "--listen", "127.0.0.1:0"]);
    let refused = refused.workspace(&workspace).run().unwrap();
    assert_ne!(refused.code, Some(0));
    assert!(refused.stderr.contains("other users"), "{refused:?}");
}

#[test]
fn a_browser_is_let_in_by_a_link_that_is_good_once() {
    let server = Server::start();
    let link = server.post("/api/v1/browser-links", &json!({})).is(201);
    let link = link.json()["url"].as_str().unwrap().to_owned();
    let path = link
        .strip_prefix(&format!("http://{}", server.address))
        .unwrap();
    let from_browser = |method: &str, path: &str, headers: &[(&str, &str)]| -> Reply {
        let mut request = format!(
            "{method} {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n",
            server.address
        );
        for (name, value) in headers {
            request.push_str(&format!("{name}: {value}\r\n"));
        }
        server.raw(format!("{request}\r\n").as_bytes())
    };
    // A program that only looks at the link uses nothing up.
    let looked = from_browser("HEAD", path, &[]).is(200);
    assert_eq!(looked.header("set-cookie"), None);
    let opened = from_browser("GET", path, &[]);
    assert_eq!(opened.status, 303, "{opened:?}");
    let cookie = opened.header("set-cookie").unwrap().to_owned();
    assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict"));
    let cookie = cookie.split(';').next().unwrap();
    let sessions = "/api/v1/sessions";
    from_browser("GET", sessions, &[]).is(401);
    from_browser("GET", sessions, &[("cookie", cookie)]).is(200);
    // What a page of another port of this machine sends is of the same site.
    let elsewhere = [("cookie", cookie), ("sec-fetch-site", "same-site")];
    from_browser("GET", sessions, &elsewhere).is(401);
    let foreign = [("cookie", cookie), ("origin", "http://localhost:1")];
    from_browser("POST", "/api/v1/personas", &foreign).is(403);
    assert_eq!(from_browser("GET", path, &[]).is(403).kind(), "used-link");
    from_browser("GET", "/login", &[]).is(403);
    // It is let out again.
    let own = format!("http://{}", server.address);
    let out = [("cookie", cookie), ("origin", own.as_str())];
    let out = from_browser("POST", "/logout", &out).is(204);
    assert!(out.header("set-cookie").unwrap().contains("Max-Age=0"));
    // Whoever has its cookie all the same is not let in with it.
    from_browser("GET", sessions, &[("cookie", cookie)]).is(401);
}

#[test]
fn the_streams_of_a_browser_end_when_it_is_logged_out() {
    let stage = Stage::new();
    let server = &stage.server;
    let session = stage.session(&json!({ "name": "work" }));
    let thread = text(&session["thread"]["id"]);
    let link = server.post("/api/v1/browser-links", &json!({})).is(201);
    let link = text(&link.json()["url"]);
    let own = format!("http://{}", server.address);
    let opened = browser(server, "GET", link.strip_prefix(&own).unwrap(), &[]);
    let cookie = opened.header("set-cookie").unwrap().split(';').next();
    let cookie = cookie.unwrap();
    let follow = |path: &str, begin: &str| {
        let mut stream = connect(server.address);
        // Of an HTTP/1.0 request the answer comes without chunks.
        let request = format!(
            "GET {path} HTTP/1.0\r\nhost: {}\r\ncookie: {cookie}\r\n\r\n",
            server.address
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut lines = BufReader::new(stream).lines();
        assert!(lines.any(|line| line.unwrap().contains(begin)), "{path}");
        lines
    };
    let page = format!("/sessions/work/threads/{thread}/live");
    let page = follow(&page, "turn-state");
    let events = follow("/api/v1/events", "missed");
    let out = [("cookie", cookie), ("origin", own.as_str())];
    browser(server, "POST", "/logout", &out).is(204);
    for line in page.chain(events) {
        // What shows that a stream lives is a comment.
        assert!(!line.unwrap().starts_with(':'), "it goes on");
    }
    server.get("/healthz").is(200);
}

#[test]
fn however_many_streams_a_client_opens_everybody_else_is_answered() {
    let workspace = Workspace::new().unwrap();
    let server = Server::with(&workspace, "--max-connections 40", &[]);
    let thread = imported(&server, &notices(3));
    let path = format!("{thread}/events");
    let streams: Vec<_> = (0..20)
        .map(|_| Client::follow(&server, &path, None))
        .collect();
    for path in [path.as_str(), "/api/v1/events"] {
        assert_eq!(server.get(path).is(503).kind(), "too-many-streams");
    }
    for _ in 0..50 {
        server.get("/healthz").is(200);
        server.get("/readyz").is(200);
        server.get("/api/v1/auths").is(200);
    }
    drop(streams);
}

#[test]
fn a_client_without_a_token_keeps_nobody_out() {
    let workspace = Workspace::new().unwrap();
    let server = Server::with(&workspace, "--max-connections 40", &[]);
    let thread = imported(&server, &notices(3));
    // Whoever is known stays.
    let stream = Client::follow(&server, &format!("{thread}/events"), None);
    let mut strangers = Vec::new();
    for round in 0..10 {
        for number in 0..100 {
            let mut stranger = server.connect();
            // Some say nothing, some begin, some ask for what they do not get.
            let said: &[u8] = match number % 3 {
                0 => b"",
                1 => b"GET /api/v1/auths HTTP/1.1\r\n",
                _ => b"GET /api/v1/auths HTTP/1.1\r\nhost: localhost\r\n\r\n",
            };
            let _refused = stranger.write_all(said);
            strangers.push(stranger);
        }
        server.get("/healthz").is(200);
        server.get("/readyz").is(200);
        assert_eq!(server.get("/api/v1/auths").status, 200, "round {round}");
    }
    drop((strangers, stream));
}
