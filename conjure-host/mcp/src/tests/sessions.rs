//! Sessions of the old era are there for the token that opened them; in the new era a client has
//! one as far as it can be told from others.

use std::sync::atomic::{AtomicUsize, Ordering};

use conjure_skill_sdk::Skill;
use conjure_skill_sdk::protocol::Execute;
use futures_util::future::join_all;
use serde_json::{Value, json};

use super::{Host, McpOptions, PATIENCE, Serving, initialize, status};

fn token(token: &str) -> String {
    format!("authorization: Bearer {token}\r\n")
}

fn of(session: &str, by: &str) -> String {
    format!(
        "{}mcp-session-id: {session}\r\nmcp-protocol-version: 2025-11-25\r\n",
        token(by)
    )
}

fn ping() -> Value {
    json!({ "jsonrpc": "2.0", "id": 2, "method": "ping" })
}

#[tokio::test]
async fn a_session_is_there_only_for_the_token_that_opened_it() {
    let serving = Serving::new(McpOptions::default(), &["one", "two"]).await;
    let opened = serving.post(&token("one"), &initialize()).await;
    let session = opened
        .lines()
        .find_map(|line| line.strip_prefix("mcp-session-id: "));
    let session = session.unwrap();
    let initialized = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    let told = serving.post(&of(session, "one"), &initialized).await;
    assert_eq!(status(&told), "202", "{told}");

    let own = serving.post(&of(session, "one"), &ping()).await;
    assert_eq!(status(&own), "200", "{own}");
    for request in [ping(), initialize()] {
        let anothers = serving.post(&of(session, "two"), &request).await;
        assert_eq!(status(&anothers), "404", "{anothers}");
    }
    // Nor to end it, or to listen to it.
    for method in ["DELETE", "GET"] {
        let answer = serving.send(method, &of(session, "two"), "").await;
        assert_eq!(status(&answer), "404", "{method}: {answer}");
    }
    let unknown = serving.post(&of("nobody", "two"), &ping()).await;
    assert_eq!(status(&unknown), "404", "{unknown}");
    let own = serving.post(&of(session, "one"), &ping()).await;
    assert_eq!(status(&own), "200", "it lives: {own}");
    serving.end().await;
}

/// A skill that counts its calls.
fn counter() -> Skill {
    let calls = AtomicUsize::new(0);
    Skill::new("counter", "Counts").execute("count", move |_cx, _: Execute| {
        (calls.fetch_add(1, Ordering::Relaxed) + 1).to_string()
    })
}

/// The answer of a server with the counter to a client of the new era that calls it.
async fn asked(serving: &Serving, by: &str, client: &str, capabilities: &Value) -> String {
    let request = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
        "name": "counter_execute", "arguments": { "command": "count" },
        "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": { "name": client, "version": "1" },
            "io.modelcontextprotocol/clientCapabilities": capabilities,
        },
    } });
    let more = format!(
        "{}mcp-protocol-version: 2026-07-28\r\nmcp-method: tools/call\r\n\
         mcp-name: counter_execute\r\n",
        token(by)
    );
    serving.post(&more, &request).await
}

/// What the counter says to such a client.
async fn counted(serving: &Serving, by: &str, client: &str, capabilities: &Value) -> String {
    let answer = asked(serving, by, client, capabilities).await;
    let text = answer.split_once("\"text\":\"").map(|(_, rest)| rest);
    let text = text.unwrap_or_else(|| panic!("{answer}"));
    text.split('"').next().unwrap().to_owned()
}

#[tokio::test]
async fn clients_of_the_new_era_that_can_be_told_apart_share_no_state() {
    let host = Host::builder().skill(counter);
    let serving = Serving::of(host, McpOptions::default(), &["one", "two"]).await;
    let (none, sampling) = (json!({}), json!({ "sampling": {} }));
    assert_eq!(counted(&serving, "one", "a", &none).await, "1");
    assert_eq!(counted(&serving, "one", "a", &none).await, "2", "its own");
    assert_eq!(counted(&serving, "one", "b", &none).await, "1", "by name");
    assert_eq!(
        counted(&serving, "one", "a", &sampling).await,
        "1",
        "by what it declares"
    );
    assert_eq!(counted(&serving, "two", "a", &none).await, "1", "by token");
    assert_eq!(
        counted(&serving, "one", "a", &none).await,
        "3",
        "still its own"
    );
    serving.end().await;
}

fn at_most(max_sessions: usize) -> McpOptions {
    McpOptions {
        max_sessions,
        ..McpOptions::default()
    }
}

#[tokio::test]
async fn no_header_opens_more_sessions_than_there_may_be() {
    let serving = Serving::new(at_most(2), &[]).await;
    let mut modern = initialize();
    modern["params"]["protocolVersion"] = json!("2026-07-28");
    let claims = [
        ("", initialize()),
        ("mcp-protocol-version: 2026-07-28\r\n", modern),
        ("mcp-session-id: \u{e9}\r\n", initialize()),
    ];
    for (more, request) in claims.iter().take(2) {
        let opened = serving.post(more, request).await;
        assert_eq!(status(&opened), "200", "{more}: {opened}");
        assert!(opened.contains("mcp-session-id: "), "{more}: {opened}");
    }
    for (more, request) in &claims {
        let refused = serving.post(more, request).await;
        assert_eq!(status(&refused), "503", "{more}: {refused}");
        assert!(refused.contains("end one, or try again"), "{refused}");
    }
    serving.end().await;
}

#[tokio::test]
async fn sessions_that_begin_at_once_are_no_more_than_there_may_be() {
    let serving = Serving::new(at_most(3), &[]).await;
    let request = initialize();
    let opened = join_all((0..12).map(|_| serving.post("", &request))).await;
    let of = |wanted: &str| {
        let opened = opened.iter().filter(|answer| status(answer) == wanted);
        opened.count()
    };
    assert_eq!((of("200"), of("503")), (3, 9), "{opened:?}");
    serving.end().await;
}

#[tokio::test]
async fn one_client_leaves_sessions_to_the_others() {
    let serving = Serving::new(at_most(4), &["one", "two"]).await;
    let open = async |by: &str| serving.post(&token(by), &initialize()).await;
    let mut last = String::new();
    for _ in 0..3 {
        last = open("one").await;
        assert_eq!(status(&last), "200", "{last}");
    }
    let refused = open("one").await;
    assert_eq!(status(&refused), "503", "{refused}");
    assert!(refused.contains("one client may (3)"), "{refused}");
    let others = open("two").await;
    assert_eq!(status(&others), "200", "{others}");
    let refused = open("two").await;
    assert!(refused.contains("the server has as many"), "{refused}");
    // One that ends makes room.
    let mut lines = last.lines();
    let session = lines.find_map(|line| line.strip_prefix("mcp-session-id: "));
    let headers = of(session.unwrap(), "one");
    let ended = serving.send("DELETE", &headers, "").await;
    assert_eq!(status(&ended), "204", "{ended}");
    let until = std::time::Instant::now() + PATIENCE;
    while status(&open("one").await) != "200" {
        assert!(std::time::Instant::now() < until, "there is no room");
    }
    serving.end().await;
}

#[tokio::test]
async fn one_client_of_the_new_era_leaves_sessions_to_the_others_too() {
    let host = Host::builder().skill(counter);
    let serving = Serving::of(host, at_most(4), &["one", "two"]).await;
    let none = json!({});
    for client in ["a", "b", "c"] {
        assert_eq!(counted(&serving, "one", client, &none).await, "1");
    }
    let refused = asked(&serving, "one", "d", &none).await;
    assert!(refused.contains("one client may (3)"), "{refused}");
    assert_eq!(counted(&serving, "two", "a", &none).await, "1");
    let known = counted(&serving, "one", "a", &none).await;
    assert_eq!(known, "2", "it goes on in the session that it has");
    serving.end().await;
}
