//! Tools that changed since they were approved: listed, and approved for the sessions that run.

use conjure_kit::cli;
use conjure_mock_llm::Message;
use serde_json::{Value, json};

use crate::mcp::{program, workspace};
use crate::server::Server;
use crate::stage::{Stage, text};

/// Whether the newest request has the tool.
fn is_offered(stage: &Stage) -> bool {
    let requests = stage.model.requests();
    let tools = requests.last().unwrap().body["tools"].clone();
    let has = |name: &str| {
        let mut tools = tools.as_array().into_iter().flatten();
        tools.any(|tool| tool["name"] == name)
    };
    assert!(has("notes_count"), "the server's other tools are there");
    has("notes_echo")
}

#[test]
fn what_is_held_is_listed_and_approved_for_every_session() {
    let stage = Stage::on(Server::with(&workspace(), "", &[]));
    let settings = json!({
        "mcps": { "notes": program(&["turns"]) }, "tools": { "policy": { "allow": ["*"] } },
    });
    let ids: Vec<String> = (0..2)
        .map(|_| text(&stage.session(&settings)["id"]))
        .collect();
    let held = || -> Value {
        let page = stage.server.get("/api/v1/held-tools").is(200).json();
        page["items"].clone()
    };
    assert_eq!(held(), json!([]));
    for (number, id) in ids.iter().enumerate() {
        stage
            .model
            .calls(&format!("call-{number}"), "notes_change", json!({}));
        stage.model.says(Message::new().text("Turned."));
        stage.talk(id, "Turn");
        // The list comes on its own: the turn may be over before.
        for look in 0.. {
            let tools = format!("/api/v1/sessions/{id}/tools");
            let tools = stage.server.get(&tools).is(200).json();
            let mut kept_out = tools["quarantined"].as_array().unwrap().iter();
            if kept_out.any(|tool| tool["name"] == "notes_echo") {
                break;
            }
            assert!(look < 100, "it is not held: {tools}");
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        stage.model.says(Message::new().text("I have it no more."));
        stage.talk(id, "What now?");
        assert!(!is_offered(&stage));
    }
    let held_now = held();
    assert_eq!(held_now.as_array().unwrap().len(), 1, "{held_now}");
    assert_eq!(held_now[0]["server"], "notes");
    assert_eq!(held_now[0]["tool"], "echo");
    assert_eq!(held_now[0]["changed"], json!(["description"]));
    assert_eq!(
        held_now[0]["approved"]["description"],
        "Says what it is told"
    );
    let approve = |body: &Value| stage.server.post("/api/v1/held-tools/approve", body);
    approve(&json!({ "digests": ["0"] })).is(404);
    approve(&json!({ "server": "notes" })).is(422);
    let digests = json!({ "digests": [held_now[0]["digest"]] });
    let approved = approve(&digests).is(200).json();
    assert_eq!(approved["items"][0]["tool"], "echo");
    assert_eq!(held(), json!([]));
    approve(&digests).is(404);
    for id in &ids {
        let mut says = 0;
        loop {
            stage.model.says(Message::new().text("I see."));
            stage.talk(id, "And now?");
            says += 1;
            if is_offered(&stage) {
                break;
            }
            assert!(says < 50, "it is not offered again");
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
    }
    let again = cli(["mcp", "held"])
        .workspace(&stage.server.workspace)
        .run();
    assert_eq!(again.unwrap().stdout, "Nothing is held.\n");
}
