//! Logins to MCP servers: begun over the API, done in a browser, here or on another machine.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::mcp::{OverHttp, saved, visit, workspace};
use crate::saved::files_without;
use crate::server::{PATIENCE, Server};
use crate::stage::text;

/// How it is with a login, once it is over.
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
    let mcp = OverHttp::new(&["oauth"]);
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
    let mcp = OverHttp::new(&["oauth"]);
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
