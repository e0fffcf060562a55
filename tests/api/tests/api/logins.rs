//! Logins to MCP servers: begun over the API, done in a browser, here or on another machine.

use std::time::{Duration, Instant};

use conjure_kit::{MockMcp, visit};
use conjure_mock_llm::Message;
use serde_json::{Value, json};

use crate::events::Client;
use crate::mcp::{saved, workspace};
use crate::saved::files_without;
use crate::server::{PATIENCE, Server};
use crate::stage::{Stage, text};

/// Waits until a login is over and returns it.
fn over(server: &Server, login: &str) -> Value {
    let until = Instant::now() + PATIENCE;
    loop {
        let now = server.get(login).is(200).json();
        if !matches!(now["state"].as_str(), Some("starting" | "waiting")) {
            return now;
        }
        assert!(Instant::now() < until, "it is not over: {now}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_login_is_begun_visited_looked_at_and_forgotten() {
    let mcp = MockMcp::over_http(&["oauth"]).unwrap();
    let workspace = workspace();
    let server = Server::with(&workspace, "", &[("CONJURE_LOG", "trace")]);
    let path = saved(&server, "notes", &json!({ "url": mcp.url() }));
    let test = || {
        server
            .post(&format!("{path}/test"), &json!({}))
            .is(200)
            .json()
    };
    assert_eq!(test()["state"], "needs_auth");
    let login = format!("{path}/login");
    server.get(&login).is(404);
    server.delete(&login).is(404);
    let begun = server.ask("POST", &login, &[], "").is(202);
    assert_eq!(begun.header("location"), Some(login.as_str()));
    let begun = begun.json();
    assert_eq!(begun["state"], "waiting", "{begun}");
    let page = text(&begun["url"]);
    assert!(
        page.starts_with(&format!("http://{}/as/authorize?", mcp.address)),
        "{page}"
    );
    // Begun again, it is the one that is under way.
    assert_eq!(server.ask("POST", &login, &[], "").is(202).json(), begun);
    assert_eq!(server.get(&login).is(200).json(), begun);
    assert_eq!(visit(&visit(&page).unwrap()), None);
    let done = over(&server, &login);
    assert_eq!(
        (&done["state"], &done["url"]),
        (&json!("done"), &Value::Null)
    );
    assert_eq!(test()["works"], true);
    let out = server
        .ask("POST", &format!("{path}/logout"), &[], "")
        .is(200);
    assert!(text(&out.json()["done"]).contains("logged out"), "{out:?}");
    server.get(&login).is(404);
    assert_eq!(test()["state"], "needs_auth");
    // The code of the login is nowhere.
    let code = page
        .split("state=")
        .nth(1)
        .unwrap()
        .split('&')
        .next()
        .unwrap();
    let output = server.end(conjure_kit::Signal::TERM);
    assert!(output.stderr.contains("answered") && !output.stderr.contains(code));
    assert!(files_without(&workspace.home(), code) > 0);
}

#[test]
fn a_login_is_finished_with_an_address_cancelled_and_refused() {
    let mcp = MockMcp::over_http(&["oauth"]).unwrap();
    let server = Server::with(&workspace(), "", &[]);
    let path = saved(&server, "notes", &json!({ "url": mcp.url() }));
    let login = format!("{path}/login");
    let begin = || server.ask("POST", &login, &[], "").is(202).json();
    let address = |text: &str| {
        let body = json!({ "address": text });
        server.post(&format!("{login}/address"), &body)
    };
    // The browser is on another machine, and comes nowhere.
    let ended = visit(&text(&begin()["url"])).unwrap();
    address("").is(422);
    address(&ended).is(204);
    assert_eq!(over(&server, &login)["state"], "done");
    assert_eq!(address(&ended).is(409).kind(), "conflict");
    begin();
    server.delete(&login).is(204);
    assert_eq!(server.get(&login).is(200).json()["state"], "cancelled");
    // A server that is a program has no login, and one that is gone none either.
    let program = saved(&server, "program", &crate::mcp::program(&[]));
    let failed = server
        .ask("POST", &format!("{program}/login"), &[], "")
        .is(202)
        .json();
    assert_eq!(failed["state"], "failed");
    assert!(text(&failed["error"]).contains("has no login"), "{failed}");
    let failed = server
        .ask("POST", &format!("{program}/logout"), &[], "")
        .is(502);
    assert_eq!(failed.json()["backend"], "mcp");
    server.delete(&path).is(204);
    server.get(&login).is(404);
    server.ask("POST", &login, &[], "").is(404);
}

#[test]
fn a_server_that_wants_a_login_during_a_call_asks_for_it_as_a_page_to_visit() {
    let mcp = MockMcp::over_http(&["oauth", "steps"]).unwrap();
    let stage = Stage::on(Server::with(&workspace(), "", &[]));
    let server = &stage.server;
    let settings = json!({ "url": mcp.url() });
    let login = format!("{}/login", saved(server, "notes", &settings));
    let begun = server.ask("POST", &login, &[], "").is(202).json();
    assert_eq!(visit(&visit(&text(&begun["url"])).unwrap()), None);
    assert_eq!(over(server, &login)["state"], "done");
    let session = stage.session(&json!({
        "mcps": { "notes": settings }, "tools": { "policy": { "allow": ["*"] } },
    }));
    let events = format!("/api/v1/threads/{}/events", text(&session["thread"]["id"]));
    let mut client = Client::follow(server, &events, None);
    // This tool wants more than the login gave.
    stage.model.calls("call_1", "notes_count", json!({}));
    stage.model.says(Message::new().text("Counted."));
    let turn = stage.say(&text(&session["id"]), "Count");
    let question = client.until("question").pop().unwrap().data;
    let page = text(&question["url"]);
    assert!(page.contains("write"), "{page}");
    // Nobody answers: the browser comes to where the plugin waits, and that is enough.
    assert_eq!(visit(&visit(&page).unwrap()), None);
    let over = client.until("question_over").pop().unwrap();
    assert_eq!(over.data["id"], question["id"]);
    let result = client.until("function_call_output").pop().unwrap();
    assert_eq!(
        (&result.data["output"], &result.data["is_error"]),
        (&json!("1"), &json!(false))
    );
    assert_eq!(stage.over(&turn)["state"], "completed");
}
