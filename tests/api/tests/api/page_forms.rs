//! Forms of the page: one that is refused is shown again where it stood, with what is said of which
//! field; one that is sent twice does its thing once.

use conjure_mock_llm::Message;
use serde_json::json;

use crate::page::{FORM, HTML, body};
use crate::stage::{Stage, text};

#[test]
fn a_form_that_is_refused_stays_where_it_stands_with_what_was_typed() {
    let stage = Stage::new();
    let server = &stage.server;
    let fields = "persona_name=&persona_version=2&persona_text=You+keep+a+lighthouse.";
    let refused = |headers: &[(&str, &str)], status: u16| {
        let headers = [&[HTML, FORM][..], headers].concat();
        let reply = server.ask("POST", "/personas", &headers, fields);
        assert_eq!(reply.status, status, "{reply:?}");
        body(&reply)
    };
    let page = refused(&[], 422);
    let in_place = refused(&[("x-conjure-pieces", "sheet")], 200);
    let dialog = refused(&[("x-conjure-pieces", "1")], 200);
    assert!(page.contains("id=\"sheet\""), "{page}");
    for (shown, target) in [(&in_place, "sheet"), (&dialog, "dialog")] {
        let begin = format!("<template data-swap=\"inner\" data-target=\"{target}\">");
        assert!(shown.starts_with(&begin), "{shown}");
    }
    for shown in [&page, &in_place, &dialog] {
        assert!(shown.contains("aria-invalid=\"true\""), "{shown}");
        assert!(shown.contains(" autofocus"), "{shown}");
        assert!(shown.contains("You keep a lighthouse."), "{shown}");
    }
    // Which field it is comes as data.
    let new = json!({ "name": "", "persona_text": "x" });
    let problem = server.post("/api/v1/personas", &new).is(422).json();
    assert_eq!(problem["field"], "name", "{problem}");
}

#[test]
fn a_message_that_is_sent_twice_by_one_form_is_said_once() {
    let stage = Stage::new();
    let session = stage.session(&json!({ "name": "work" }));
    let thread = text(&session["thread"]["id"]);
    let say = |words: &str| {
        let fields = format!("thread={thread}&form=one&text={words}");
        let sent = stage
            .server
            .ask("POST", "/sessions/work/say", &[HTML, FORM], fields);
        assert_eq!(sent.status, 303, "{}", body(&sent));
    };
    let turns = || {
        let turns = stage.server.get("/api/v1/sessions/work/turns").is(200);
        turns.json()["items"].as_array().unwrap().clone()
    };
    stage.model.says(Message::new().text("An answer."));
    say("hello");
    say("hello");
    let said = turns();
    assert_eq!(said.len(), 1, "{said:?}");
    assert_eq!(
        stage.over(&json!({ "turn": said[0]["id"] }))["state"],
        "completed"
    );
    // Other words out of the same form are another message.
    stage.model.says(Message::new().text("Another answer."));
    say("hello+again");
    assert_eq!(turns().len(), 2);
}

#[test]
fn a_message_that_begins_a_chat_leads_there_also_when_its_first_answer_was_lost() {
    let stage = Stage::new();
    let server = &stage.server;
    let session = stage.session(&json!({ "name": "work" }));
    let thread = text(&session["thread"]["id"]);
    server.delete(&format!("/api/v1/threads/{thread}")).is(204);
    stage.model.says(Message::new().text("An answer."));
    let say = || {
        let headers = [HTML, FORM, ("x-conjure-pieces", "1")];
        let fields = "thread=&form=one&text=hello";
        let sent = server.ask("POST", "/sessions/work/say", &headers, fields);
        assert_eq!(sent.status, 204, "{}", body(&sent));
        sent.header("x-conjure-go").map(str::to_owned)
    };
    let begun = say().unwrap();
    assert!(begun.contains("/threads/"), "{begun}");
    assert_eq!(say(), Some(begun));
    let turns = server.get("/api/v1/sessions/work/turns").is(200).json();
    assert_eq!(turns["items"].as_array().unwrap().len(), 1, "{turns}");
    stage.over(&json!({ "turn": turns["items"][0]["id"] }));
}
