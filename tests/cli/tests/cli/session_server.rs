//! Saved sessions beside a server that hangs, and beside one that is killed.

use std::time::Duration;

use conjure_kit::{Cli, Model, ProgramHandle, Signal, Workspace};
use conjure_mock_llm::{Message, Position, Reply};
use serde_json::json;

use crate::session::{DATA, asks, done, ok, server, show, stage};
use crate::session_waiting::until;
use crate::stage::{conjure, json as parsed};

/// Shorter than a request to a server may take.
const DEADLINE: Duration = Duration::from_secs(30);

/// A workspace with a session `work`, and a server of it.
fn served(model: &Model) -> (Workspace, ProgramHandle) {
    let workspace = stage(model);
    let create = "session create work --auth claude --model claude-sonnet-4-5";
    done(&workspace, create);
    let server = server(&workspace, "");
    (workspace, server)
}

/// Says something in the session `work`.
fn say(workspace: &Workspace, text: &str) -> Cli {
    asks(workspace, &["--session", "work"], text)
}

/// A turn that the server runs and that never ends by itself, as it is shown.
fn held(model: &Model, workspace: &Workspace) -> ProgramHandle {
    model.says(
        Reply::from(Message::new().text("A long story of the sea").deltas(3))
            .hold(Position::Event(4), "never"),
    );
    let running = say(workspace, "one").start().unwrap();
    running.wait_for_stdout("A l").unwrap();
    running
}

/// A verb beside a server that hangs.
fn beside(workspace: &Workspace, args: &str) -> Cli {
    conjure(workspace, args).deadline(DEADLINE)
}

/// Stops the process of a server, and not while it writes: it would hold the database.
fn stop(server: &ProgramHandle, workspace: &Workspace) {
    until(|| {
        server.signal(Signal::STOP);
        let looked = conjure(workspace, "session show work").run().unwrap();
        let is_free = looked.code == Some(0);
        if !is_free {
            server.signal(Signal::CONT);
        }
        is_free
    });
}

/// URL of the server of a workspace, as it is announced.
fn url(workspace: &Workspace) -> String {
    let place = workspace.home().join(DATA).join("serve.json");
    let text = std::fs::read_to_string(place).unwrap();
    let said: serde_json::Value = serde_json::from_str(&text).unwrap();
    said["url"].as_str().unwrap().to_owned()
}

#[test]
fn a_server_that_hangs_is_named_by_the_verbs_that_need_it() {
    let model = Model::start().unwrap();
    let (workspace, server) = served(&model);
    let url = url(&workspace);
    let pid = server.pid().unwrap().as_raw_nonzero();
    let running = held(&model, &workspace);
    for args in [
        "session cancel work",
        "session waiting work",
        "session set work --model another --now",
    ] {
        // Each time anew: one that is silent for longer is taken for one that is gone.
        stop(&server, &workspace);
        let named = beside(&workspace, args).run().unwrap();
        assert_eq!(named.code, Some(5), "{args}: {named:?}");
        for part in [
            &format!("the server at {url} (process {pid}) does not answer"),
            &format!("error: process {pid} runs this, and it does not answer"),
            &url,
            &format!("`kill -9 {pid}`"),
        ] {
            assert!(named.stderr.contains(part.as_str()), "{part}: {named:?}");
        }
        server.signal(Signal::CONT);
        done(&workspace, "session show work");
    }
    stop(&server, &workspace);
    let link = beside(&workspace, "serve --link").run().unwrap();
    assert_eq!(link.code, Some(5), "{link:?}");
    for part in [&url, "does not answer", &format!("`kill -9 {pid}`")] {
        assert!(link.stderr.contains(part), "{part}: {link:?}");
    }
    // It goes on as if nothing had been.
    server.signal(Signal::CONT);
    let cancelled = done(&workspace, "session cancel work --json");
    assert_eq!(parsed(&cancelled)["state"], "cancelled");
    running.wait().unwrap();
    server.signal(Signal::TERM);
    server.wait().unwrap();
}

#[test]
fn what_a_server_that_hangs_does_not_have_is_done_without_it() {
    let model = Model::start().unwrap();
    let (workspace, server) = served(&model);
    stop(&server, &workspace);
    let nothing = ok(beside(&workspace, "session waiting work --json"));
    assert_eq!(parsed(&nothing), json!({ "calls": [], "questions": [] }));
    assert!(nothing.stderr.contains("does not answer"), "{nothing:?}");
    ok(beside(
        &workspace,
        "session set work --model claude-opus-4-1",
    ));
    assert_eq!(
        show(&workspace, "work")["model"],
        "claude-opus-4-1",
        "it is saved"
    );
    model.says(Message::new().text("Here."));
    let said = ok(say(&workspace, "Go").deadline(DEADLINE));
    assert_eq!(said.stdout, "Here.\n");
    ok(beside(&workspace, "session cancel work"));
    server.signal(Signal::CONT);
    server.signal(Signal::TERM);
    server.wait().unwrap();
}

#[test]
fn words_that_wait_at_a_server_that_is_killed_are_answered_where_they_were_said() {
    let model = Model::start().unwrap();
    let (workspace, server) = served(&model);
    let running = held(&model, &workspace);
    let waiting = say(&workspace, "the second words").start().unwrap();
    until(|| show(&workspace, "work")["queued"] == json!(1));
    model.says(Message::new().text("To the second."));
    server.signal(Signal::KILL);
    server.wait().unwrap();
    let answered = waiting.wait().unwrap();
    assert_eq!(answered.code, Some(0), "{answered:?}");
    assert!(answered.stdout.contains("To the second."), "{answered:?}");
    let interrupted = running.wait().unwrap();
    assert_eq!(interrupted.code, Some(5), "{interrupted:?}");
    assert!(
        interrupted.stderr.contains("the process that ran it"),
        "{interrupted:?}"
    );
    // They are said once.
    model.says(Message::new().text("To the third."));
    let later = ok(say(&workspace, "the third words"));
    assert_eq!(later.stdout, "To the third.\n");
    let requests = model.requests();
    assert_eq!(requests.len(), 3);
    let asked = model.last_request().body.to_string();
    assert_eq!(asked.matches("the second words").count(), 1, "{asked}");
}
