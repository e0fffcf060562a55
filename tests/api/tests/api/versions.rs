//! Changes to what somebody else changed meanwhile.

use std::net::SocketAddr;

use serde_json::{Value, json};

use crate::server::{Reply, Server, ask};
use crate::stage::Stage;

fn change(server: &Server, path: &str, tag: Option<&str>, body: &Value) -> Reply {
    change_at(server.address, path, tag, body)
}

fn change_at(address: SocketAddr, path: &str, tag: Option<&str>, body: &Value) -> Reply {
    let mut headers = vec![("content-type", "application/json")];
    headers.extend(tag.map(|tag| ("if-match", tag)));
    ask(address, "PATCH", path, &headers, body.to_string())
}

#[test]
fn a_change_to_another_version_than_was_seen_is_refused() {
    let stage = Stage::new();
    let server = &stage.server;
    let session = stage.session(&json!({}));
    let persona = json!({ "name": "Ada", "persona_text": "Be brief." });
    let mcp = json!({ "name": "notes", "settings": { "command": "notes-server" } });
    let at = |made: Reply| made.is(201).header("location").unwrap().to_owned();
    let session = format!("/api/v1/sessions/{}", session["id"].as_str().unwrap());
    for (path, member) in [
        (at(server.post("/api/v1/personas", &persona)), "name"),
        (at(server.post("/api/v1/mcp-servers", &mcp)), "name"),
        (session, "model"),
    ] {
        let to = |value: &str| json!({ member: value });
        let seen = server.get(&path).is(200);
        let tag = seen.header("etag").unwrap();
        assert_eq!(server.get(&path).header("etag"), Some(tag), "{path}");
        let changed = change(server, &path, Some(tag), &to("one")).is(200);
        let now = changed.header("etag").unwrap();
        assert_ne!(now, tag, "{path}");
        let late = change(server, &path, Some(tag), &to("two")).is(412);
        assert_eq!(late.kind(), "changed");
        change(server, &path, Some("nonsense"), &to("two")).is(412);
        let kept = server.get(&path).is(200);
        assert_eq!(kept.json()[member], "one", "{path}");
        assert_eq!(kept.header("etag"), Some(now), "{path}");
        let both = format!("\"0\", {now}");
        change(server, &path, Some(&both), &to("three")).is(200);
        change(server, &path, Some("*"), &to("four")).is(200);
        change(server, &path, None, &to("five")).is(200);
        assert_eq!(server.get(&path).json()[member], "five", "{path}");
    }
}

#[test]
fn of_two_changes_to_one_version_at_once_one_is_made() {
    let server = Server::start();
    let persona = json!({ "name": "Ada", "persona_text": "" });
    let made = server.post("/api/v1/personas", &persona).is(201);
    let path = made.header("location").unwrap();
    let tag = made.header("etag").unwrap();
    let address = server.address;
    let statuses: Vec<u16> = std::thread::scope(|scope| {
        let one = |text: String| {
            scope.spawn(move || {
                let body = json!({ "persona_text": text });
                change_at(address, path, Some(tag), &body).status
            })
        };
        let all: Vec<_> = (0..8).map(|number| one(number.to_string())).collect();
        all.into_iter().map(|one| one.join().unwrap()).collect()
    });
    let made = statuses.iter().filter(|status| **status == 200).count();
    let refused = statuses.iter().filter(|status| **status == 412).count();
    assert_eq!((made, refused), (1, 7), "{statuses:?}");
}
