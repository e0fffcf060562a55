//! Sessions of the old era are there for the token that opened them; in the new era a client has
//! one as far as it can be told from others.

use std::sync::atomic::{AtomicUsize, Ordering};

use conjure_skill_sdk::Skill;
use conjure_skill_sdk::protocol::Execute;
use serde_json::{Value, json};

use super::{Host, McpOptions, Serving, initialize, status};

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

/// What the counter says to a client of the new era.
async fn counted(serving: &Serving, by: &str, client: &str, capabilities: &Value) -> String {
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
    let answer = serving.post(&more, &request).await;
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
