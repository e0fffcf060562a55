//! Compactions: told with the entries, and taken back, whether the thread is open or not.

use conjure_mock_llm::Message;
use serde_json::{Value, json};

use crate::stage::{Stage, text};
use crate::threads::imported;

/// A thread of two turns, of which a summary stands for the first; its path, and the entry of the
/// compaction.
fn folded(stage: &Stage) -> (String, u64) {
    let session = stage.session(&json!({}));
    for (asked, said) in [
        ("What of the lamp?", "It is broken."),
        ("And now?", "Mend it."),
    ] {
        stage.model.says(Message::new().text(said));
        stage.talk(&text(&session["id"]), asked);
    }
    let path = format!(
        "/api/v1/threads/{}/entries?limit=200",
        text(&session["thread"]["id"])
    );
    let page = stage.server.get(&path).is(200).json();
    assert_eq!(page.get("folds"), None);
    let entries = page["entries"].as_array().unwrap();
    let second = entries.iter().find(|entry| entry["turn"] == 2).unwrap();
    let last = entries.last().unwrap()["seq"].as_u64().unwrap();
    let fold = json!({
        "seq": last + 1, "turn": 2, "at_ms": 5, "entry": "compacted", "upto": second["seq"],
        "summary": "They spoke of something in need of repair.",
    });
    let all = entries.iter().chain([&fold]);
    let lines: String = all
        .map(|entry| json!({ "entry": entry }).to_string() + "\n")
        .collect();
    (imported(&stage.server, &lines), last + 1)
}

#[test]
fn a_compaction_is_told_and_taken_back() {
    let stage = Stage::new();
    let (thread, fold) = folded(&stage);
    let server = &stage.server;
    let folds = || server.get(&format!("{thread}/folds")).is(200).json()["items"].clone();
    let state = || folds()[0]["state"].clone();
    assert_eq!(
        (&folds()[0]["seq"], state()),
        (&json!(fold), json!("standing"))
    );
    let page = server.get(&format!("{thread}/entries")).is(200).json();
    assert_eq!(page["folds"], folds());
    let before = format!("{thread}/entries?before={fold}");
    assert_eq!(server.get(&before).is(200).json().get("folds"), None);
    // Open in a session, whose next request has the summary, and then what it hid.
    let id = thread.rsplit('/').next().unwrap();
    let session = stage.session(&json!({ "thread": { "kind": "existing", "thread": id } }));
    let session = text(&session["id"]);
    let asked = |words: &str| -> String {
        stage.model.says(Message::new().text("Well."));
        stage.talk(&session, words);
        stage.model.last_request().body.to_string()
    };
    let request = asked("Go on");
    assert!(request.contains("in need of repair") && !request.contains("It is broken."));
    let unfold = |body: &Value| server.post(&format!("{thread}/unfold"), body);
    unfold(&json!({ "fold": 1 })).is(422);
    unfold(&json!({ "seq": fold })).is(422);
    let done = unfold(&json!({})).is(200).json();
    assert_eq!(done["unfolded"], fold);
    assert!(done["tokens"].as_u64() > Some(0), "{done}");
    let request = asked("Go on further");
    assert!(!request.contains("in need of repair") && request.contains("It is broken."));
    assert_eq!(state(), "unfolded");
    assert_eq!(unfold(&json!({ "fold": fold })).is(409).kind(), "conflict");
    assert_eq!(unfold(&json!({})).is(409).kind(), "conflict");
}

#[test]
fn a_compaction_of_a_thread_that_nobody_has_open_is_taken_back_too() {
    let stage = Stage::new();
    let (thread, fold) = folded(&stage);
    let unfold = format!("{thread}/unfold");
    let done = stage.server.post(&unfold, &json!({ "fold": fold })).is(200);
    assert_eq!(done.json()["unfolded"], fold);
    let page = stage
        .server
        .get(&format!("{thread}/entries"))
        .is(200)
        .json();
    assert_eq!(page["folds"][0]["state"], "unfolded");
    let last = page["entries"].as_array().unwrap().last().unwrap();
    assert_eq!(
        (&last["entry"], &last["fold"]),
        (&json!("unfolded"), &json!(fold))
    );
    let none = "/api/v1/threads/00000000-0000-7000-8000-000000000000/unfold";
    stage.server.post(none, &json!({})).is(404);
}
