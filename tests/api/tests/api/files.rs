//! The bytes of a thread's files: those that a real run made, and no others.

use std::fs;
use std::os::unix::fs::symlink;

use conjure_kit::{Model, Workspace, cli};
use conjure_mock_llm::Message;
use serde_json::{Value, json};

use crate::server::Server;
use crate::threads::{imported, notices};

/// A thread in which a command made a file of this name with ten bytes.
fn made(workspace: &Workspace, name: &str) -> String {
    let model = Model::start().unwrap();
    let command = format!("printf 0123456789 >'{name}'");
    model.calls(
        "call-1",
        "local_bash_tool",
        json!({ "command": command, "description": "" }),
    );
    model.says(Message::new().text("Done."));
    let args = [
        "run",
        "--provider",
        "anthropic",
        "--model",
        "m",
        "--allow",
        "*",
        "--json",
        "Go",
    ];
    let run = cli(args).workspace(workspace).model(&model).run().unwrap();
    assert_eq!(run.code, Some(0), "{run:?}");
    let last: Value = serde_json::from_str(run.stdout.lines().last().unwrap()).unwrap();
    format!("/api/v1/threads/{}", last["thread"].as_str().unwrap())
}

fn workspace() -> Workspace {
    let workspace = Workspace::new().unwrap();
    workspace.add_plugin("conjure-backend-local").unwrap();
    workspace
}

#[test]
fn a_file_is_given_whole_and_in_parts_as_something_to_save() {
    let workspace = workspace();
    let thread = made(&workspace, "page.html");
    let server = Server::with(&workspace, "", &[]);
    let files = server.get(&format!("{thread}/files")).is(200).json();
    let file = &files["items"][0];
    assert_eq!(
        (&file["name"], &file["size"], &file["source"], &file["here"]),
        (
            &json!("page.html"),
            &json!(10),
            &json!("local"),
            &json!(true)
        )
    );
    let path = format!("{thread}/files/{}/content", file["id"].as_str().unwrap());
    let whole = server.get(&path).is(200);
    assert_eq!(whole.body, b"0123456789");
    assert_eq!(whole.header("content-length"), Some("10"));
    assert_eq!(whole.header("x-content-type-options"), Some("nosniff"));
    assert_eq!(
        whole.header("content-disposition"),
        Some("attachment; filename=\"page.html\"")
    );
    assert!(
        whole
            .header("content-security-policy")
            .unwrap()
            .contains("sandbox")
    );
    let part = |range: &str| server.ask("GET", &path, &[("range", range)], "");
    let middle = part("bytes=2-4").is(206);
    assert_eq!(
        (middle.body.as_slice(), middle.header("content-range")),
        (&b"234"[..], Some("bytes 2-4/10"))
    );
    assert_eq!(part("bytes=-3").is(206).body, b"789");
    assert_eq!(part("bytes=8-").is(206).body, b"89");
    assert_eq!(part("bytes=0-1,4-5").is(200).body, b"0123456789");
    let beyond = part("bytes=10-").is(416);
    assert_eq!(beyond.header("content-range"), Some("bytes */10"));
    let tag = whole.header("etag").unwrap();
    let same = server
        .ask("GET", &path, &[("if-none-match", tag)], "")
        .is(304);
    assert!(same.body.is_empty());
    let head = server.ask("HEAD", &path, &[], "").is(200);
    assert_eq!(
        (head.body.len(), head.header("content-length")),
        (0, Some("10"))
    );
    server
        .get(&format!("{thread}/files/file-99/content"))
        .is(404);
}

#[test]
fn a_name_of_a_file_adds_nothing_to_a_header() {
    let workspace = workspace();
    let thread = made(&workspace, "a\"; filename=\"evil.exe\r\nset-cookie: x=y");
    let server = Server::with(&workspace, "", &[]);
    let files = server.get(&format!("{thread}/files")).is(200).json();
    let id = files["items"][0]["id"].as_str().unwrap();
    let reply = server.get(&format!("{thread}/files/{id}/content")).is(200);
    assert_eq!(reply.header("set-cookie"), None);
    let said = reply.header("content-disposition").unwrap();
    assert_eq!(said.matches("filename=").count(), 1, "{said}");
    assert_eq!(reply.body, b"0123456789");
}

#[test]
fn what_is_put_in_the_place_of_a_file_is_not_given() {
    let workspace = workspace();
    let thread = made(&workspace, "report.txt");
    let secret = workspace.write("secret", "nobody's").unwrap();
    let place = workspace.work().join("report.txt");
    let server = Server::with(&workspace, "", &[]);
    let files = server.get(&format!("{thread}/files")).is(200).json();
    let path = format!(
        "{thread}/files/{}/content",
        files["items"][0]["id"].as_str().unwrap()
    );
    server.get(&path).is(200);
    fs::remove_file(&place).unwrap();
    assert_eq!(server.get(&path).is(409).kind(), "not-here");
    symlink(&secret, &place).unwrap();
    assert_eq!(server.get(&path).is(409).kind(), "not-here");
    fs::remove_file(&place).unwrap();
    fs::create_dir(&place).unwrap();
    assert_eq!(server.get(&path).is(409).kind(), "not-here");
}

#[test]
fn an_imported_thread_names_no_place_on_this_machine() {
    let server = Server::start();
    let secret = server.workspace.write("secret", "nobody's").unwrap();
    let entry = json!({
        "seq": 2, "turn": 1, "at_ms": 5, "entry": "file", "source": "local",
        "artifact": { "id": "file-1", "name": "secret", "media_type": "text/plain", "size": 8 },
        "place": secret.display().to_string(), "remote": "../secret",
    });
    let lines = notices(1) + &json!({ "entry": entry }).to_string() + "\n";
    let thread = imported(&server, &lines);
    let files = server.get(&format!("{thread}/files")).is(200).json();
    assert_eq!(
        (&files["items"][0]["name"], &files["items"][0]["here"]),
        (&json!("secret"), &json!(false))
    );
    assert_eq!(
        server
            .get(&format!("{thread}/files/file-1/content"))
            .is(409)
            .kind(),
        "not-here"
    );
    let exported = server.get(&format!("{thread}/export")).is(200).body;
    assert!(!String::from_utf8_lossy(&exported).contains("place\":\"/"));
}
