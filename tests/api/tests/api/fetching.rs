//! Files that are still with the backend which made them.

use std::fs;

use conjure_mock_llm::Message;
use serde_json::{Value, json};

use crate::mcp::{program, workspace};
use crate::server::{Server, ask};
use crate::stage::{Stage, text};

/// A session with an MCP server that shared a file, and the path of the file.
fn shared(stage: &Stage) -> (Value, String) {
    let shared = stage.server.workspace.write("report.txt", "0123456789");
    let session = stage.session(&json!({
        "mcps": { "sharer": program(&["files"]) }, "tools": { "policy": { "allow": ["*"] } },
    }));
    let path = shared.unwrap().display().to_string();
    stage
        .model
        .calls("call_1", "sharer_share_file", json!({ "path": path }));
    stage.model.says(Message::new().text("Shared."));
    stage.talk(&text(&session["id"]), "Share it");
    let files = format!("/api/v1/threads/{}/files", text(&session["thread"]["id"]));
    let listed = stage.server.get(&files).is(200).json();
    let file = &listed["items"][0];
    assert_eq!(
        (&file["name"], &file["here"]),
        (&json!("shared-report.txt"), &json!(false)),
        "{listed}"
    );
    (session, format!("{files}/{}/content", text(&file["id"])))
}

#[test]
fn a_file_that_is_with_its_backend_is_fetched_once_and_given_in_parts() {
    let stage = Stage::on(Server::with(&workspace(), "", &[]));
    let (_, file) = shared(&stage);
    let part = stage
        .server
        .ask("GET", &file, &[("range", "bytes=2-4")], "");
    let part = part.is(206);
    assert_eq!(
        (part.body.as_slice(), part.header("content-range")),
        (&b"234"[..], Some("bytes 2-4/10"))
    );
    // The backend has it no more, and nobody asks it again.
    let root = stage.server.workspace.work();
    fs::remove_file(root.join("report.txt")).unwrap();
    let whole = stage.server.get(&file).is(200);
    assert_eq!(whole.body, b"0123456789");
    let tag = whole.header("etag").unwrap();
    stage
        .server
        .ask("GET", &file, &[("if-none-match", tag)], "")
        .is(304);
    let (files, _) = file.rsplit_once("/file-").unwrap();
    let listed = stage.server.get(files).is(200).json();
    assert_eq!(
        (&listed["items"][0]["here"], &listed["items"][0]["size"]),
        (&json!(true), &json!(10))
    );
}

#[test]
fn a_file_is_fetched_when_no_session_has_its_thread_open_also_for_several_at_once() {
    let workspace = workspace();
    let stage = Stage::on(Server::with(&workspace, "", &[]));
    let (session, file) = shared(&stage);
    let Stage {
        server,
        model: _model,
        ..
    } = stage;
    server.end(conjure_kit::Signal::TERM);
    let server = Server::with(&workspace, "", &[]);
    let address = server.address;
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let given = ask(address, "GET", &file, &[], "").is(200);
                assert_eq!(given.body, b"0123456789");
            });
        }
    });
    // What was fetched is in the database, and no copy of it beside that.
    let thread = text(&session["thread"]["id"]);
    let own = workspace
        .home()
        .join(".local/share/conjure/sessions")
        .join(thread);
    let left = fs::read_dir(own.join("files")).map_or(0, Iterator::count);
    assert_eq!(left, 0);
}

#[test]
fn a_file_that_nobody_can_fetch_names_its_backend_and_what_to_do() {
    let stage = Stage::on(Server::with(&workspace(), "", &[]));
    let (session, file) = shared(&stage);
    let id = text(&session["id"]);
    let path = format!("/api/v1/sessions/{id}");
    let change = |mcps: Value| {
        stage
            .server
            .send("PATCH", &path, &json!({ "mcps": mcps }))
            .is(200)
    };
    stage
        .server
        .post(&format!("{path}/thread"), &json!({ "kind": "new" }))
        .is(200);
    change(json!({ "sharer": { "command": "no-such-program" } }));
    stage.model.says(Message::new().text("Elsewhere."));
    stage.talk(&id, "Go on");
    // The session that spoke in the thread has a backend of the name, which does not work.
    let refused = stage.server.get(&file).is(502);
    assert_eq!(
        (refused.kind().as_str(), &refused.json()["backend"]),
        ("backend", &json!("mcp"))
    );
    change(json!({}));
    let away = stage.server.get(&file).is(409);
    let said = text(&away.json()["detail"]);
    assert_eq!(away.kind(), "not-here");
    assert!(
        said.contains("`mcp`") && said.contains("choose the thread"),
        "{said}"
    );
    stage.server.get(&format!("{file}?session=nobody")).is(404);
    stage.server.get(&format!("{file}?sessions=x")).is(422);
    let other =
        stage.session(&json!({ "name": "other", "mcps": { "sharer": program(&["files"]) } }));
    let asked = format!("{file}?session={}", text(&other["id"]));
    assert_eq!(stage.server.get(&asked).is(200).body, b"0123456789");
}
