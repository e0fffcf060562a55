//! Turns: said, waited for, cancelled, decided about, done once.

use conjure_mock_llm::{ErrorReply, Message, Position, Reply};
use serde_json::{Value, json};

use crate::stage::{Stage, text};

/// A reply that stops in the middle until the gate is opened.
fn held(words: &str, gate: &str) -> Reply {
    Reply::from(Message::new().text(words).deltas(4)).hold(Position::Event(5), gate)
}

#[test]
fn follow_ups_wait_and_run_in_order() {
    let stage = Stage::new();
    let id = text(&stage.session(&json!({}))["id"]);
    stage.model.says(held("A long first answer.", "first"));
    stage.model.says(Message::new().text("Second."));
    let first = stage.say(&id, "One");
    assert_eq!(
        (
            &first["before"],
            first["events"].as_str().unwrap().ends_with("/events")
        ),
        (&json!(0), true)
    );
    stage.model.mock().wait_for_gate_blocking("first").unwrap();
    let second = stage.say(&id, "Two");
    assert_eq!(second["before"], 1);
    let now = stage.now(&id);
    assert_eq!(
        (&now["state"], &now["turn"], &now["queued"]),
        (&json!("running"), &first["turn"], &json!(1))
    );
    let waiting = stage
        .server
        .get(&format!("/api/v1/turns/{}", text(&second["turn"])));
    assert_eq!(waiting.is(200).json()["state"], "queued");
    let figures = stage.server.get("/metrics").is(200).body;
    assert!(String::from_utf8_lossy(&figures).contains("conjure_sessions_running 1\n"));
    stage.model.mock().release("first");
    for turn in [&first, &second] {
        let turn = stage.over(turn);
        assert_eq!(
            (&turn["state"], &turn["session"]),
            (&json!("completed"), &json!(id))
        );
        assert!(turn["usage"]["total"].as_u64() > Some(0), "{turn}");
    }
    let turns = stage
        .server
        .get(&format!("/api/v1/sessions/{id}/turns"))
        .is(200)
        .json();
    let listed: Vec<&Value> = turns["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|t| &t["id"])
        .collect();
    assert_eq!(listed, [&second["turn"], &first["turn"]]);
}

#[test]
fn a_cancelled_turn_keeps_its_text_and_may_drop_what_waits() {
    let stage = Stage::new();
    let id = text(&stage.session(&json!({}))["id"]);
    stage.model.says(held("A long first answer.", "first"));
    let first = stage.say(&id, "One");
    stage.model.mock().wait_for_gate_blocking("first").unwrap();
    let second = stage.say(&id, "Two");
    let cancel = |drop: bool| {
        let path = format!("/api/v1/sessions/{id}/cancel");
        stage
            .server
            .post(&path, &json!({ "drop_queued": drop }))
            .is(204);
    };
    cancel(true);
    for turn in [&first, &second] {
        assert_eq!(stage.over(turn)["state"], "cancelled");
    }
    let thread = text(&first["thread"]);
    let entries = stage
        .server
        .get(&format!("/api/v1/threads/{thread}/entries"))
        .is(200)
        .json();
    assert!(entries.to_string().contains("A lo"), "{entries}");
    // Where nothing runs, nothing happens.
    cancel(false);
    stage.model.says(Message::new().text("On."));
    let path = format!("/api/v1/sessions/{id}/turns");
    let on = stage
        .server
        .post(&path, &json!({ "go_on": true }))
        .is(202)
        .json();
    assert_eq!(stage.over(&on)["state"], "completed");
}

#[test]
fn a_turn_that_fails_says_why() {
    let stage = Stage::new();
    let id = text(&stage.session(&json!({}))["id"]);
    stage.model.says(ErrorReply::new(400).message("Nonsense."));
    let failed = stage.over(&stage.say(&id, "One"));
    assert_eq!(failed["state"], "failed");
    assert!(text(&failed["error"]).contains("Nonsense."), "{failed}");
}

#[test]
fn a_turn_is_said_in_the_thread_that_it_names() {
    let stage = Stage::new();
    let session = stage.session(&json!({}));
    let (id, thread) = (text(&session["id"]), text(&session["thread"]["id"]));
    let path = format!("/api/v1/sessions/{id}/thread");
    stage.server.post(&path, &json!({ "kind": "new" })).is(200);
    stage.model.says(Message::new().text("Here."));
    let path = format!("/api/v1/sessions/{id}/turns");
    let said = json!({ "text": "Where?", "thread": thread });
    let begun = stage.server.post(&path, &said).is(202).json();
    assert_eq!(begun["thread"], thread);
    assert_eq!(stage.over(&begun)["state"], "completed");
    assert_eq!(stage.now(&id)["thread"]["id"], thread);
    let nowhere = json!({ "text": "Where?", "thread": "nowhere" });
    stage.server.post(&path, &nowhere).is(404);
    let wrong = json!({ "text": "Where?", "thread": "no/id" });
    let wrong = stage.server.post(&path, &wrong);
    assert!((400..500).contains(&wrong.status), "{wrong:?}");
}

#[test]
fn the_same_turn_again_is_the_same_turn() {
    let stage = Stage::new();
    let id = text(&stage.session(&json!({}))["id"]);
    let path = format!("/api/v1/sessions/{id}/turns");
    stage.model.says(Message::new().text("Once."));
    let say = |key: &str, body: &Value| {
        let headers = [
            ("content-type", "application/json"),
            ("idempotency-key", key),
        ];
        stage.server.ask("POST", &path, &headers, body.to_string())
    };
    let body = json!({ "text": "One" });
    let first = say("k", &body).is(202);
    stage.over(&first.json());
    let again = say("k", &body).is(202);
    assert_eq!(again.header("idempotency-replayed"), Some("true"));
    assert_eq!(again.body, first.body);
    assert_eq!(
        say("k", &json!({ "text": "Two" })).is(422).kind(),
        "key-reused"
    );
    // An id that the client chose does the same without a key.
    stage.model.says(Message::new().text("Twice."));
    let own = json!({ "text": "Three", "turn_id": "my-turn" });
    let one = stage.server.post(&path, &own).is(202).json();
    stage.over(&one);
    let two = stage.server.post(&path, &own).is(202).json();
    assert_eq!(
        (&one["turn"], &two["turn"]),
        (&json!("my-turn"), &json!("my-turn"))
    );
    assert_eq!(stage.model.requests().len(), 2);
}

#[test]
fn a_call_waits_for_a_decision_that_any_client_can_make() {
    let stage = Stage::new();
    let tools = json!({
        "tools": { "backend": [{ "kind": "local" }], "policy": { "ask": ["local_*"] } },
    });
    let id = text(&stage.session(&tools)["id"]);
    let call = |call: &str| {
        let input = json!({ "command": format!("echo {call} >>said"), "description": "" });
        stage.model.calls(call, "local_bash_tool", input);
    };
    let all = format!("/api/v1/sessions/{id}/approvals");
    let waits = || {
        for _ in 0..300 {
            let waiting = stage.server.get(&all).is(200).json();
            if let Some(one) = waiting["items"].get(0) {
                return one.clone();
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        panic!("no call waits");
    };
    call("call-1");
    call("call-2");
    call("call-3");
    stage.model.says(Message::new().text("Done."));
    let turn = stage.say(&id, "Go");
    let first = waits();
    assert_eq!(
        (&first["call"]["id"], &first["call"]["name"]),
        (&json!("call-1"), &json!("local_bash_tool"))
    );
    assert!(first["denied_in_ms"].as_u64() > Some(1000), "{first}");
    assert_eq!(stage.now(&id)["state"], "waiting");
    let decide = |call: &str, body: &Value| stage.server.post(&format!("{all}/{call}"), body);
    decide("call-9", &json!({ "decision": "allow" })).is(404);
    decide("call-1", &json!({ "decision": "perhaps" })).is(422);
    let guessed = decide("call-1", &json!({ "decision": "allow", "scope": "once" }));
    let detail = text(&guessed.is(422).json()["detail"]);
    let why = "`scope`: invalid type: string \"once\", expected an object with its `kind`";
    assert!(detail.contains(why), "{detail}");
    let bad = json!({ "decision": "allow", "scope": { "kind": "pattern", "pattern": "" } });
    decide("call-1", &bad).is(422);
    decide(
        "call-1",
        &json!({ "decision": "deny", "reason": "not now" }),
    )
    .is(204);
    decide("call-1", &json!({ "decision": "allow" })).is(404);
    while waits()["call"]["id"] != "call-2" {}
    // From now on nobody is asked about this tool.
    let always = json!({ "decision": "allow", "scope": { "kind": "tool" } });
    decide("call-2", &always).is(204);
    assert_eq!(stage.over(&turn)["state"], "completed");
    let said = stage.server.workspace.read("said").unwrap();
    assert_eq!(said, "call-2\ncall-3\n");
    assert!(
        stage.model.requests()[1]
            .body
            .to_string()
            .contains("not now")
    );
}

#[test]
fn whoever_only_looks_at_the_turn_sees_what_waits_and_can_decide() {
    let stage = Stage::new();
    let tools = json!({
        "tools": { "backend": [{ "kind": "local" }], "policy": { "ask": ["local_*"] } },
    });
    let id = text(&stage.session(&tools)["id"]);
    let input = json!({ "command": "echo yes >said", "description": "" });
    stage.model.calls("call-1", "local_bash_tool", input);
    stage.model.says(Message::new().text("Done."));
    let begun = stage.say(&id, "Go");
    let turn = format!("/api/v1/turns/{}", text(&begun["turn"]));
    // Answered long before the time is up, which is longer than a client's patience here.
    let asks = stage.server.get(&format!("{turn}?wait=60")).is(200).json();
    assert_eq!(asks["state"], "running");
    let waiting = &asks["approvals"][0];
    assert_eq!(waiting["call"]["id"], "call-1");
    assert_eq!(waiting["call"]["arguments"]["command"], "echo yes >said");
    assert!(waiting["denied_in_ms"].as_u64() > Some(1000), "{asks}");
    assert_eq!(asks["questions"], json!([]));
    let all = stage.server.get(&format!("/api/v1/sessions/{id}/turns"));
    let listed = all.is(200).json();
    assert_eq!(listed["items"][0]["approvals"][0]["call"]["id"], "call-1");
    let decide = format!("/api/v1/sessions/{id}/approvals/call-1");
    stage
        .server
        .post(&decide, &json!({ "decision": "allow" }))
        .is(204);
    let over = stage.over(&begun);
    assert_eq!(
        (&over["state"], &over["approvals"]),
        (&json!("completed"), &json!([]))
    );
    assert_eq!(stage.server.workspace.read("said").unwrap(), "yes\n");
}

#[test]
fn what_is_no_turn_is_refused() {
    let stage = Stage::new();
    let id = text(&stage.session(&json!({}))["id"]);
    let path = format!("/api/v1/sessions/{id}/turns");
    for body in [
        json!({}),
        json!({ "text": " " }),
        json!({ "text": "x", "go_on": true }),
        json!({ "text": 5 }),
        json!({ "text": "x", "turn_id": "" }),
        json!({ "text": "x\u{0}" }),
        json!({ "message": "x" }),
    ] {
        stage.server.post(&path, &body).is(422);
    }
    stage
        .server
        .post("/api/v1/sessions/nobody/turns", &json!({ "text": "x" }))
        .is(404);
    stage.server.get("/api/v1/turns/nothing").is(404);
    stage.server.get("/api/v1/turns/nothing?wait=61").is(422);
    assert!(stage.model.requests().is_empty());
}

#[test]
fn more_follow_ups_than_may_wait_are_refused() {
    let stage = Stage::new();
    let id = text(&stage.session(&json!({}))["id"]);
    stage.model.says(held("A long first answer.", "first"));
    let first = stage.say(&id, "One");
    stage.model.mock().wait_for_gate_blocking("first").unwrap();
    for _ in 0..100 {
        stage.say(&id, "More");
    }
    let path = format!("/api/v1/sessions/{id}/turns");
    let full = stage.server.post(&path, &json!({ "text": "More" })).is(429);
    assert_eq!(full.kind(), "queue-full");
    assert!(full.header("retry-after").is_some());
    let cancel = format!("/api/v1/sessions/{id}/cancel");
    stage
        .server
        .post(&cancel, &json!({ "drop_queued": true }))
        .is(204);
    assert_eq!(stage.over(&first)["state"], "cancelled");
}

#[test]
fn a_turn_that_waits_is_said_otherwise_and_keeps_its_place() {
    let stage = Stage::new();
    let id = text(&stage.session(&json!({}))["id"]);
    stage.model.says(held("A long first answer.", "first"));
    stage.model.says(Message::new().text("Second."));
    stage.model.says(Message::new().text("Third."));
    let first = stage.say(&id, "One");
    stage.model.mock().wait_for_gate_blocking("first").unwrap();
    let (second, third) = (stage.say(&id, "Two"), stage.say(&id, "Three"));
    let reword = |turn: &Value, words: &str| {
        let path = format!("/api/v1/turns/{}", text(&turn["turn"]));
        stage.server.send("PATCH", &path, &json!({ "text": words }))
    };
    let reworded = reword(&second, "Another two").is(200).json();
    assert_eq!(reworded["state"], "queued");
    reword(&second, " ").is(422);
    assert!(
        reword(&first, "Another one").is(409).json()["detail"]
            .as_str()
            .unwrap()
            .contains("waits no more")
    );
    stage.model.mock().release("first");
    for turn in [&first, &second, &third] {
        assert_eq!(stage.over(turn)["state"], "completed");
    }
    let thread = text(&first["thread"]);
    let entries = stage
        .server
        .get(&format!("/api/v1/threads/{thread}/entries"))
        .is(200)
        .json();
    let entries = entries["entries"].as_array().unwrap().clone();
    let said = entries
        .iter()
        .filter(|entry| entry["message"]["role"] == "user")
        .map(|entry| text(&entry["message"]["content"][0]["text"]));
    assert_eq!(said.collect::<Vec<_>>(), ["One", "Another two", "Three"]);
    reword(&second, "Too late").is(409);
    let nobody = json!({ "turn": "no-such-turn" });
    reword(&nobody, "Nobody").is(404);
}
