//! Sessions of the old era are there for the token that opened them.

use serde_json::{Value, json};

use super::{McpOptions, Serving, initialize, status};

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
