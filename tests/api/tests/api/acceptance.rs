//! The section Acceptance of what was asked for, as the people who asked will try it, with nothing
//! but the API.

use std::time::{Duration, Instant};

use conjure_mock_llm::{Message, Position, Reply};
use serde_json::{Value, json};

use crate::events::{Came, Client};
use crate::postgres::Database;
use crate::stage::{Stage, auth, text};

/// The ids of threads on a page.
fn ids(page: &Value) -> Vec<String> {
    let items = page["items"].as_array().unwrap();
    items.iter().map(|item| text(&item["id"])).collect()
}

#[test]
fn acceptance() {
    accepted(&Stage::new());
}

#[test]
fn acceptance_over_postgres() {
    let Some(database) = Database::begin() else {
        return;
    };
    accepted(&database.stage());
}

fn accepted(stage: &Stage) {
    let server = &stage.server;
    let workspace = &server.workspace;
    workspace
        .write("notes.txt", "the lamp is broken\n")
        .unwrap();
    auth(server, "open", "openai", &stage.model.base_url());
    // The provider filters the saved auths in a form.
    let auths = server.get("/api/v1/auths").is(200).json();
    let of_openai = |auth: &&Value| auth["provider"] == "openai";
    let open = auths["items"]
        .as_array()
        .unwrap()
        .iter()
        .find(of_openai)
        .unwrap();
    // A session with everything filled in, on a new chat.
    let session = stage.session(&json!({
        "name": "work",
        "auth": open["id"],
        "model": "gpt-5",
        "persona": { "name": "keeper", "version": "1", "persona_text": "You keep a lighthouse." },
        "memory": { "name": "m", "version": "1", "memory_text": "Ada owns it." },
        "tools": { "backend": [{ "kind": "local" }], "policy": { "allow": ["*"] } },
    }));
    let id = text(&session["id"]);
    let first_thread = text(&session["thread"]["id"]);
    // Ask for a plan, and watch tools run in the working directory.
    stage
        .model
        .says(Message::new().text("I look first.").tool_use(
            "call_1",
            "local_bash_tool",
            json!({ "command": "cat notes.txt" }),
        ));
    stage
        .model
        .says(Message::new().text("The plan: mend the lamp."));
    let path = format!("/api/v1/threads/{first_thread}/events");
    let mut client = Client::follow(server, &path, None);
    stage.talk(&id, "Make a plan for the lighthouse lamp");
    let mut seen = Vec::new();
    while seen.last() != Some(&"done".to_owned()) {
        let came = client.next().unwrap();
        if came.kind == "function_call_output" {
            assert!(
                came.data["output"]
                    .to_string()
                    .contains("the lamp is broken")
            );
        }
        seen.push(came.kind);
    }
    for kind in [
        "content",
        "function_call",
        "call_started",
        "function_call_output",
        "usage",
    ] {
        assert!(seen.iter().any(|seen| seen == kind), "{kind}: {seen:?}");
    }
    let asked = stage.model.requests()[0].body.to_string();
    assert!(asked.contains("You keep a lighthouse.") && asked.contains("Ada owns it."));
    // Config: another provider with another auth and model.
    let change = json!({ "auth": stage.auth, "model": "claude-sonnet-4-5" });
    let changed = server
        .send(
            "PATCH",
            &format!("/api/v1/sessions/{id}?apply=next_turn"),
            &change,
        )
        .is(200)
        .json();
    assert_eq!(changed["auth"]["provider"], "anthropic");
    stage.model.says(Message::new().text("I go on."));
    stage.talk(&id, "Go on");
    let request = stage.model.last_request();
    assert_eq!(request.path, "/v1/messages");
    let asked = request.body.to_string();
    for said in ["the lamp is broken", "I look first.", "mend the lamp"] {
        assert!(asked.contains(said), "{said}: {asked}");
    }
    // To another session while the first streams, and back to its progress.
    let other = text(&stage.session(&json!({ "name": "other" }))["id"]);
    let story = Message::new().text("A long story of the sea").deltas(3);
    stage
        .model
        .says(Reply::from(story).hold(Position::Event(5), "sea"));
    let telling = stage.say(&id, "Tell a story");
    stage.model.mock().wait_for_gate_blocking("sea").unwrap();
    let mut shown = String::new();
    let mut last = None;
    // What came of the turn before is still on its way.
    let began =
        |came: &Came| came.kind == "turn_started" && came.data["turn_id"] == telling["turn"];
    while !began(&client.next().unwrap()) {}
    while !shown.starts_with("A l") {
        let came = client.next().unwrap();
        if came.kind == "content" {
            shown.push_str(came.data["delta"].as_str().unwrap());
        }
        last = Some(came.id);
    }
    drop(client);
    stage.model.says(Message::new().text("Meanwhile."));
    stage.talk(&other, "Are you there?");
    assert_eq!(stage.now(&id)["state"], "running");
    stage.model.mock().release("sea");
    let mut back = Client::follow(server, &path, last.as_deref());
    while shown != "A long story of the sea" {
        let came = back.next().unwrap();
        if came.kind == "content" {
            shown.push_str(came.data["delta"].as_str().unwrap());
        }
        assert_ne!(came.kind, "done", "{shown}");
    }
    stage.over(&telling);
    // Fork the chat and try another way; both branches stay.
    let choose = format!("/api/v1/sessions/{id}/thread");
    let fork = json!({ "kind": "fork", "thread": first_thread });
    let forked = server.post(&choose, &fork).is(200).json();
    let branch = text(&forked["thread"]["id"]);
    assert_ne!(branch, first_thread);
    stage.model.says(Message::new().text("Another way."));
    stage.talk(&id, "Try another way");
    let entries = |thread: &str| {
        let path = format!("/api/v1/threads/{thread}/entries?limit=200");
        server.get(&path).is(200).json().to_string()
    };
    assert!(
        entries(&branch).contains("Another way.") && entries(&branch).contains("mend the lamp")
    );
    assert!(!entries(&first_thread).contains("Another way."));
    // A new chat names itself; its name is changed in place, and the earlier thread is still there.
    let fresh = server
        .post(&choose, &json!({ "kind": "new" }))
        .is(200)
        .json();
    let chat = text(&fresh["thread"]["id"]);
    stage.model.says(Message::new().text("From the west."));
    stage.talk(&id, "Where do the winter storms come from?");
    // It is named beside the end of its turn.
    let until = Instant::now() + Duration::from_secs(10);
    let label = loop {
        let label = text(&stage.now(&id)["thread"]["label"]);
        if !label.is_empty() || Instant::now() > until {
            break label;
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    assert_eq!(label, "Winter Storms Come");
    let rename = format!("/api/v1/threads/{chat}");
    server
        .send("PATCH", &rename, &json!({ "label": "Weather" }))
        .is(200);
    assert_eq!(stage.now(&id)["thread"]["label"], "Weather");
    let threads = ids(&server.get("/api/v1/threads?limit=200").is(200).json());
    for thread in [&first_thread, &branch, &chat] {
        assert!(threads.contains(thread), "{threads:?}");
    }
    let back = json!({ "kind": "existing", "thread": first_thread });
    let back = server.post(&choose, &back).is(200).json();
    let strip = &back["thread"];
    assert_eq!(strip["turns"], 3);
    assert!(strip["average_latency_ms"].is_number() && strip["usage"]["total"].as_u64() > Some(0));
}
