//! Bodies and queries in which something is wrong: refused with the place, in the words of JSON,
//! before anything is saved.

use conjure_mock_llm::Message;
use serde_json::json;

use crate::server::{Reply, Server};
use crate::stage::{Stage, text};

/// Expects that something was refused for this member, and for this reason.
fn refused(reply: &Reply, field: &str, why: &str) {
    assert_eq!(reply.status, 422, "{why}");
    let problem = reply.json();
    let detail = text(&problem["detail"]);
    assert!(detail.contains(why), "{detail}");
    assert!(!detail.contains("struct"), "{detail}");
    if !field.is_empty() {
        assert_eq!(problem["field"], field, "{problem}");
    }
}

/// How many of something there are.
fn count(server: &Server, path: &str) -> usize {
    let listed = server.get(path).is(200).json();
    listed["items"].as_array().unwrap().len()
}

#[test]
fn a_session_is_not_saved_with_what_cannot_be() {
    let stage = Stage::new();
    let id = text(&stage.session(&json!({}))["id"]);
    let path = format!("/api/v1/sessions/{id}");
    let before = stage.now(&id);
    for (change, field, why) in [
        (
            json!({ "tools": { "max_iterations": -1 } }),
            "tools",
            "`tools.max_iterations`: invalid value: integer `-1`, expected a whole number",
        ),
        (
            json!({ "tools": { "policy": [["*"], [], []] } }),
            "tools",
            "`tools.policy`: invalid type: a list, expected an object",
        ),
        (
            json!({ "persona": ["x", "y", "z"] }),
            "persona",
            "`persona`: invalid type: a list, expected an object",
        ),
        (
            json!({ "mcps": { "x": 5 } }),
            "mcps",
            "`mcps.x`: invalid type: a number, expected an object",
        ),
        (
            json!({ "mcps": { "x": null } }),
            "mcps",
            "`mcps.x`: invalid type: null, expected an object",
        ),
        (
            json!({ "mcps": { "": { "command": "x" } } }),
            "mcps",
            "`mcps`: the name of a server is empty",
        ),
        (
            json!({ "tools": { "backend": [
                { "kind": "mcp", "config": { "servers": { "x": { "command": "x", "env": ["a"] } } } },
            ] } }),
            "tools",
            "`tools.backend[0].config.servers.x.env`: invalid type: a list, expected an object",
        ),
    ] {
        refused(&stage.server.send("PATCH", &path, &change), field, why);
        let mut new = json!({
            "auth": stage.auth, "model": "a-model", "working_dir": before["working_dir"],
        });
        for (name, value) in change.as_object().unwrap() {
            new[name] = value.clone();
        }
        let all = "/api/v1/sessions";
        refused(&stage.server.post(all, &new), field, why);
    }
    let by_position = json!([null, stage.auth, "a-model", before["working_dir"], { "kind": "new" },
        null, null, null, null]);
    let all = "/api/v1/sessions";
    let why = "invalid type: a list, expected an object";
    refused(&stage.server.post(all, &by_position), "", why);
    let chosen = stage
        .server
        .post(&format!("{path}/thread"), &json!(["new"]));
    refused(&chosen, "", why);
    let mut new = json!({ "auth": stage.auth, "model": "m", "working_dir": before["working_dir"] });
    new["thread"] = json!(["new"]);
    refused(
        &stage.server.post(all, &new),
        "thread",
        "`thread`: invalid type: a list, expected an object with its `kind`",
    );
    assert_eq!(stage.now(&id), before);
    assert_eq!(count(&stage.server, all), 1);
}

#[test]
fn an_mcp_server_is_not_saved_with_settings_of_a_wrong_shape() {
    let server = Server::start();
    let all = "/api/v1/mcp-servers";
    let good = json!({ "name": "notes", "settings": { "command": "notes-server" } });
    let made = server.post(all, &good).is(201);
    let path = made.header("location").unwrap().to_owned();
    for (settings, why) in [
        (
            json!({ "command": 5 }),
            "`settings.command`: invalid type: a number, expected a string",
        ),
        (
            json!({ "command": "x", "env": ["hidden"] }),
            "`settings.env`: invalid type: a list, expected an object",
        ),
        (
            json!({ "command": "x", "env": { "A": ["hidden"] } }),
            "`settings.env.A`: invalid type: a list, expected a string",
        ),
        (
            json!({ "url": "ftp://x" }),
            "`settings.url`: it begins with http:// or https://",
        ),
        (
            json!({ "command": "x", "url": "https://x" }),
            "`settings`: it has either `command`",
        ),
    ] {
        let new = json!({ "name": "more", "settings": settings });
        for reply in [
            server.post(all, &new),
            server.send("PATCH", &path, &json!({ "settings": settings })),
        ] {
            refused(&reply, "settings", why);
            assert!(!String::from_utf8_lossy(&reply.body).contains("hidden"));
        }
    }
    assert_eq!(server.get(&path).json()["settings"], good["settings"]);
    assert_eq!(count(&server, all), 1);
    assert_eq!(count(&server, "/api/v1/auths"), 0);
}

#[test]
fn a_wrong_parameter_of_a_query_is_named() {
    let server = Server::start();
    for (path, field, why) in [
        (
            "/api/v1/usage?days=-1",
            "days",
            "`days`: it is not a whole number of 0 or more",
        ),
        (
            "/api/v1/sessions?limit=",
            "limit",
            "`limit`: it is empty, and not a whole number",
        ),
        (
            "/api/v1/threads?limit=99999999999999999999",
            "limit",
            "`limit`: it is a larger number than can be",
        ),
        ("/api/v1/search?words=x", "words", "unknown field `words`"),
        ("/api/v1/search", "", "missing field `q`"),
    ] {
        refused(&server.get(path), field, why);
    }
}

#[test]
fn a_name_shows_all_of_its_characters() {
    let stage = Stage::new();
    let server = &stage.server;
    let session = stage.session(&json!({}));
    let thread = format!("/api/v1/threads/{}", text(&session["thread"]["id"]));
    let hidden = "site\u{202e}nalp";
    let names = |name: &str| -> [(Reply, &str); 3] {
        let settings = json!({ "command": "x" });
        let of_mcp = json!({ "name": name, "settings": settings });
        let of_persona = json!({ "name": name, "persona_text": "" });
        [
            (
                server.send("PATCH", &thread, &json!({ "label": name })),
                "label",
            ),
            (server.post("/api/v1/mcp-servers", &of_mcp), "name"),
            (server.post("/api/v1/personas", &of_persona), "name"),
        ]
    };
    for (reply, field) in names(hidden) {
        refused(&reply, field, "has the character U+202E");
        assert!(!String::from_utf8_lossy(&reply.body).contains(hidden));
    }
    for (reply, _) in names("Grüße") {
        assert!(matches!(reply.status, 200 | 201), "{}", reply.status);
    }
    let session = format!("/api/v1/sessions/{}", text(&session["id"]));
    for name in [".", ".."] {
        let named = server.send("PATCH", &session, &json!({ "name": name }));
        refused(&named, "name", "cannot be the name of a session");
    }
}

#[test]
fn a_turn_that_is_cancelled_is_one_of_the_session() {
    let stage = Stage::new();
    let [mine, other] = [(); 2].map(|()| text(&stage.session(&json!({}))["id"]));
    stage.model.says(Message::new().text("Done."));
    let turn = text(&stage.talk(&mine, "Go")["id"]);
    let cancel = |session: &str, turn: &str| {
        let path = format!("/api/v1/sessions/{session}/cancel");
        stage.server.post(&path, &json!({ "turn": turn }))
    };
    cancel(&mine, "zzz").is(404);
    cancel(&other, &turn).is(404);
    cancel(&mine, &turn).is(204);
}
