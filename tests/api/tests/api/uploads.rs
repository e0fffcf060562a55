//! Files that are handed over and attached to turns.

use conjure_mock_llm::{Message, Position, Reply as Says};
use serde_json::{Value, json};

use crate::server::Reply;
use crate::stage::{Stage, text};

/// The header and the size of an image of one pixel, which is all that is looked at.
const PNG: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01\x08\x06\0\0\0";

fn hand_over(stage: &Stage, name: &str, kind: &str, bytes: &[u8]) -> Reply {
    let path = format!("/api/v1/uploads?name={name}");
    let headers = [("content-type", kind)];
    stage.server.ask("POST", &path, &headers, bytes)
}

fn say(stage: &Stage, session: &str, body: &Value) -> Reply {
    let path = format!("/api/v1/sessions/{session}/turns");
    stage.server.post(&path, body)
}

#[test]
fn a_turn_shows_what_was_handed_over_and_uses_it_up() {
    let stage = Stage::new();
    let session = text(&stage.session(&json!({}))["id"]);
    let image = hand_over(&stage, "..%2Fplan.jpg", "image/jpeg", PNG)
        .is(201)
        .json();
    // What the bytes say is believed, and of a path the last component.
    assert_eq!(
        (&image["name"], &image["media_type"], &image["is_image"]),
        (&json!("plan.jpg"), &json!("image/png"), &json!(true))
    );
    let list = hand_over(&stage, "a.json", "application/json", b"{\"lamp\":1}")
        .is(201)
        .json();
    assert_eq!(list["is_image"], false);
    stage.model.says(Message::new().text("A lamp."));
    let attached = json!({ "attachments": [image["id"], list["id"]], "text": "What?" });
    let begun = say(&stage, &session, &attached).is(202).json();
    assert_eq!(stage.over(&begun)["state"], "completed");
    let body = stage.model.last_request().body.to_string();
    assert!(
        body.contains("iVBORw0KGgo") && body.contains("lamp"),
        "{body}"
    );

    let files = format!("/api/v1/threads/{}/files", text(&begun["thread"]));
    let files = stage.server.get(&files).is(200).json();
    let names: Vec<_> = files["items"].as_array().unwrap().iter().collect();
    assert_eq!(names.len(), 2, "{files}");
    assert_eq!(
        (&names[0]["source"], &names[0]["here"]),
        (&json!("person"), &json!(true))
    );
    let content = format!(
        "/api/v1/threads/{}/files/{}/content",
        text(&begun["thread"]),
        text(&names[1]["id"])
    );
    assert_eq!(stage.server.get(&content).is(200).body, b"{\"lamp\":1}");

    // It is the thread's now.
    let again = say(&stage, &session, &attached).is(422).json();
    assert!(
        text(&again["detail"]).contains("was used by a turn already"),
        "{again}"
    );

    // Files alone say enough.
    let more = hand_over(&stage, "b.txt", "text/plain", b"more")
        .is(201)
        .json();
    stage.model.says(Message::new().text("More."));
    let begun = say(&stage, &session, &json!({ "attachments": [more["id"]] }))
        .is(202)
        .json();
    assert_eq!(stage.over(&begun)["state"], "completed");
}

#[test]
fn a_file_is_one_turns_from_when_that_is_taken_until_it_is_cancelled() {
    let stage = Stage::new();
    let [first, second] = ["first", "second"].map(|name| {
        let session = stage.session(&json!({ "name": name }));
        text(&session["id"])
    });
    let held = Says::from(Message::new().text("A long story of the sea").deltas(3));
    stage.model.says(held.hold(Position::Event(4), "middle"));
    let runs = stage.say(&first, "Tell");
    stage.model.mock().wait_for_gate_blocking("middle").unwrap();
    let kept = hand_over(&stage, "a.txt", "text/plain", b"a lamp");
    let body = json!({ "attachments": [kept.is(201).json()["id"]], "text": "Look." });
    let waits = say(&stage, &first, &body).is(202).json();
    let refused = say(&stage, &second, &body).is(422).json();
    assert!(
        text(&refused["detail"]).contains("was used by a turn already"),
        "{refused}"
    );
    // The same turn, asked for once more, has it.
    let mut same = body.clone();
    same["turn_id"] = waits["turn"].clone();
    assert_eq!(
        say(&stage, &first, &same).is(202).json()["turn"],
        waits["turn"]
    );
    let cancel = format!("/api/v1/sessions/{first}/cancel");
    let only = json!({ "turn": waits["turn"] });
    stage.server.post(&cancel, &only).is(204);
    stage.model.says(Message::new().text("I see a lamp."));
    let read = say(&stage, &second, &body).is(202).json();
    assert_eq!(stage.over(&read)["state"], "completed");
    let asked = stage.model.last_request().body.to_string();
    assert!(asked.contains("a lamp"), "{asked}");
    stage.model.mock().release("middle");
    stage.over(&runs);
}

#[test]
fn two_sessions_and_ten_files_at_once() {
    let stage = Stage::new();
    let sessions: Vec<String> = (0..2)
        .map(|number| text(&stage.session(&json!({ "name": format!("s-{number}") }))["id"]))
        .collect();
    let mut files = [Vec::new(), Vec::new()];
    for file in 0..10 {
        for (number, ids) in files.iter_mut().enumerate() {
            let bytes = format!("file {file} of {number}");
            let kept = hand_over(&stage, "same.txt", "text/plain", bytes.as_bytes());
            ids.push(kept.is(201).json()["id"].take());
        }
    }
    for _ in &sessions {
        stage.model.says(Message::new().text("Read."));
    }
    let begun = sessions.iter().zip(&files).map(|(session, ids)| {
        let body = json!({ "attachments": ids, "text": "Read them." });
        say(&stage, session, &body).is(202).json()
    });
    for begun in begun.collect::<Vec<_>>() {
        assert_eq!(stage.over(&begun)["state"], "completed");
        let files = format!("/api/v1/threads/{}/files", text(&begun["thread"]));
        let files = stage.server.get(&files).is(200).json();
        assert_eq!(files["items"].as_array().unwrap().len(), 10, "{files}");
    }
    assert_eq!(stage.model.requests().len(), 2);
    for request in stage.model.requests() {
        let body = request.body.to_string();
        let owner = if body.contains("file 0 of 0") { 0 } else { 1 };
        for file in 0..10 {
            assert!(body.contains(&format!("file {file} of {owner}")), "{body}");
            assert!(
                !body.contains(&format!("file {file} of {}", 1 - owner)),
                "{body}"
            );
        }
    }
}

#[test]
fn what_cannot_be_taken_is_refused_and_nothing_begins() {
    let stage = Stage::new();
    let session = text(&stage.session(&json!({}))["id"]);
    hand_over(&stage, "empty", "text/plain", b"").is(422);
    stage
        .server
        .ask("POST", "/api/v1/uploads", &[], "a")
        .is(422);
    let kept = hand_over(&stage, "a.txt", "text/plain", b"a")
        .is(201)
        .json();
    for attachments in [
        json!(["upload-0"]),
        json!(["../../http-token"]),
        json!(["upload-../../x"]),
        json!([kept["id"], kept["id"]]),
        json!(vec![kept["id"].clone(); 21]),
    ] {
        let body = json!({ "attachments": attachments, "text": "Look." });
        say(&stage, &session, &body).is(422);
    }
    let both = json!({ "attachments": [kept["id"]], "go_on": true });
    say(&stage, &session, &both).is(422);
    assert!(stage.model.requests().is_empty());
    // It is still there.
    stage.model.says(Message::new().text("Read."));
    let begun = say(
        &stage,
        &session,
        &json!({ "attachments": [kept["id"]], "text": "Look." }),
    );
    assert_eq!(stage.over(&begun.is(202).json())["state"], "completed");
}
