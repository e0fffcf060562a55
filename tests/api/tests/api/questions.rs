//! Questions of MCP servers to the person: told as events, listed, answered, declined, withdrawn.

use conjure_kit::cli;
use conjure_mock_llm::Message;
use serde_json::{Value, json};
use sqlx::SqlitePool;
use tokio::runtime::Builder;

use crate::events::{Came, Client};
use crate::mcp::{program, workspace};
use crate::server::{Reply, Server};
use crate::stage::{Stage, text};

struct Asked {
    stage: Stage,
    client: Client,
    /// The path of the session.
    path: String,
    turn: Value,
    question: Came,
}

/// A turn whose call asks the person.
fn asked(traits: &[&str], call: &str) -> Asked {
    let stage = Stage::on(Server::with(&workspace(), "", &[]));
    let session = stage.session(&json!({
        "mcps": { "asker": program(traits) }, "tools": { "policy": { "allow": ["*"] } },
    }));
    let events = format!("/api/v1/threads/{}/events", text(&session["thread"]["id"]));
    let mut client = Client::follow(&stage.server, &events, None);
    stage.model.calls(call, "asker_ask", json!({}));
    stage.model.says(Message::new().text("I see."));
    let id = text(&session["id"]);
    let turn = stage.say(&id, "Ask me");
    let question = client.until("question").pop().unwrap();
    Asked {
        path: format!("/api/v1/sessions/{id}"),
        stage,
        client,
        turn,
        question,
    }
}

impl Asked {
    fn answer(&self, body: &Value) -> Reply {
        let question = text(&self.question.data["id"]);
        let path = format!("{}/questions/{question}", self.path);
        self.stage.server.post(&path, body)
    }

    fn waiting(&self) -> Vec<Value> {
        let path = format!("{}/questions", self.path);
        let listed = self.stage.server.get(&path).is(200).json();
        listed["items"].as_array().unwrap().clone()
    }

    /// The events up to the end of the question, and the result of the call.
    fn over(&mut self) -> (Value, String) {
        let over = self.client.until("question_over").pop().unwrap();
        assert_eq!(over.data["id"], self.question.data["id"]);
        let result = self.client.until("function_call_output").pop().unwrap();
        (over.data["action"].clone(), text(&result.data["output"]))
    }
}

#[test]
fn a_question_is_an_event_and_any_client_answers_it_with_what_fits_the_form() {
    for traits in [&["modern"][..], &[]] {
        let mut asked = asked(traits, "call_1");
        assert_eq!(
            (
                &asked.question.data["message"],
                &asked.question.data["plugin"]
            ),
            (&json!("[asker] Go on?"), &json!("mcp"))
        );
        let waiting = asked.waiting();
        assert_eq!(waiting.len(), 1);
        assert_eq!(waiting[0]["id"], asked.question.data["id"]);
        assert_eq!(
            waiting[0]["schema"]["properties"]["sure"]["type"],
            "boolean"
        );
        assert!(waiting[0]["cancelled_in_ms"].as_u64() > Some(1000));
        assert_eq!(
            asked.stage.now(asked.path.rsplit('/').next().unwrap())["state"],
            "waiting"
        );
        // What does not fit is refused, and the question stays.
        let unfit = json!({ "action": "accept", "content": { "sure": "hunter2-hunter2" } });
        let refused = asked.answer(&unfit).is(422);
        let said = text(&refused.json()["detail"]);
        assert!(
            said.contains("content.sure") && !said.contains("hunter2"),
            "{said}"
        );
        asked
            .answer(&json!({ "action": "decline", "content": {} }))
            .is(422);
        asked.answer(&json!({ "action": "perhaps" })).is(422);
        let fits = json!({ "action": "accept", "content": { "sure": true } });
        asked.answer(&fits).is(204);
        assert_eq!(asked.answer(&fits).is(404).kind(), "not-found");
        let (action, result) = asked.over();
        assert_eq!(action, "accept");
        assert!(
            result.contains("\"sure\":true") && result.contains("\"note\":\"none\""),
            "{result}"
        );
        assert_eq!(asked.stage.over(&asked.turn)["state"], "completed");
        assert_eq!(asked.waiting(), Vec::<Value>::new());
    }
}

#[test]
fn a_question_is_declined_or_withdrawn_with_its_turn() {
    let mut declined = asked(&["modern"], "call_1");
    declined.answer(&json!({ "action": "decline" })).is(204);
    let (action, result) = declined.over();
    assert_eq!(action, "decline");
    assert!(result.contains("decline"), "{result}");
    assert_eq!(declined.stage.over(&declined.turn)["state"], "completed");
    let mut cancelled = asked(&["modern"], "call_2");
    let cancel = format!("{}/cancel", cancelled.path);
    cancelled.stage.server.post(&cancel, &json!({})).is(204);
    assert_eq!(cancelled.stage.over(&cancelled.turn)["state"], "cancelled");
    let over = cancelled.client.until("question_over").pop().unwrap();
    assert_eq!(over.data["action"], "cancel");
    cancelled.answer(&json!({ "action": "accept" })).is(404);
}

#[test]
fn a_question_of_a_session_that_a_server_runs_is_answered_at_a_terminal() {
    let stage = Stage::on(Server::with(&workspace(), "", &[]));
    let session = stage.session(&json!({
        "name": "asks", "mcps": { "asker": program(&["modern"]) },
        "tools": { "policy": { "allow": ["*"] } },
    }));
    stage.model.calls("call_1", "asker_ask", json!({}));
    stage.model.says(Message::new().text("I see."));
    let mut run = cli(["run", "--session", "asks", "Ask me"])
        .workspace(&stage.server.workspace)
        .on_terminal()
        .start()
        .unwrap();
    run.wait_for_stdout("sure (y or n, optional)").unwrap();
    run.send_line("y").unwrap();
    run.wait_for_stdout("note (").unwrap();
    run.send_line("by hand").unwrap();
    let said = run.wait().unwrap();
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(said.stdout.contains("[asker] Go on?") && said.stdout.contains("I see."));
    let asked = stage.model.last_request().body.to_string();
    assert!(asked.contains("by hand"), "{asked}");
    let path = format!("/api/v1/sessions/{}/questions", text(&session["id"]));
    assert_eq!(stage.server.get(&path).is(200).json()["items"], json!([]));
}

/// Requests of servers to each other that are in the database.
fn requests(server: &Server) -> i64 {
    let data = server.workspace.home().join(".local/share/conjure");
    let file = format!("sqlite://{}", data.join("conjure.db").display());
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let database = SqlitePool::connect(&file).await.unwrap();
        let counted = sqlx::query_scalar("SELECT COUNT(*) FROM requests");
        counted.fetch_one(&database).await.unwrap()
    })
}

/// A form of a turn that one server runs is listed, refused and taken at another.
#[test]
fn a_form_of_one_server_is_filled_in_at_another() {
    for traits in [&["modern"][..], &[]] {
        let mut asked = asked(traits, "call_1");
        let two = Server::with(&asked.stage.server.workspace, "", &[]);
        let questions = format!("{}/questions", asked.path);
        let waiting = two.get(&questions).is(200).json();
        let id = text(&asked.question.data["id"]);
        assert_eq!(waiting["items"][0]["id"], id, "{waiting}");
        let question = format!("{questions}/{id}");
        let unfit = json!({ "action": "accept", "content": { "sure": "hunter2-hunter2" } });
        let said = text(&two.post(&question, &unfit).is(422).json()["detail"]);
        assert!(
            said.contains("content.sure") && !said.contains("hunter2"),
            "{said}"
        );
        let fits = json!({ "action": "accept", "content": { "sure": true, "note": "by hand" } });
        two.post(&question, &fits).is(204);
        assert_eq!(two.post(&question, &fits).is(404).kind(), "not-found");
        assert_eq!(requests(&two), 0, "what was asked of the other is left");
        let (action, result) = asked.over();
        assert_eq!(action, "accept");
        assert!(result.contains("by hand"), "{result}");
        assert_eq!(asked.stage.over(&asked.turn)["state"], "completed");
    }
}
