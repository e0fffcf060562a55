//! `conjure mcp serve`: the real program with real plugins, and the official SDK's client in both
//! eras, over its streams and over HTTP.

use std::fs;

use conjure_kit::{Signal, build_bin};
use rmcp::model::{CallToolRequestParams, ClientRequest, SubscriptionFilter};
use rmcp::service::PeerRequestOptions;
use serde_json::{Value, json};

use crate::mcp_client::{Client, ERAS, Era, SOON, Told, serve_http, text};
use crate::stage::{CACHE, workspace};

const MISBEHAVING: &str = "conjure-misbehaving";
const MCP: &str = "conjure-backend-mcp";

#[tokio::test]
async fn a_client_lists_and_calls_and_its_state_lasts() {
    let workspace = workspace(&[CACHE]);
    for era in ERAS {
        let client = Client::over_stdio(&workspace, era, &[]).await;
        assert!(
            client
                .names()
                .await
                .contains(&"cache-manager_execute".to_owned())
        );
        let set = json!({ "command": "set greeting hello" });
        let result = client.call("cache-manager_execute", set).await;
        assert_eq!(result.is_error, Some(false), "{result:?}");
        let got = client
            .call(
                "cache-manager_execute",
                json!({ "command": "get greeting" }),
            )
            .await;
        assert!(text(&got).contains("hello"), "{era:?}: {got:?}");
        let failed = client
            .call("cache-manager_execute", json!({ "command": "fly" }))
            .await;
        assert_eq!(failed.is_error, Some(true));
        let unknown = client
            .call_tool(CallToolRequestParams::new("no-such-tool"))
            .await;
        assert!(
            unknown
                .unwrap_err()
                .to_string()
                .contains("there is no tool")
        );
    }
}

#[tokio::test]
async fn a_tool_says_what_it_changes_and_whether_it_keeps_state() {
    let workspace = workspace(&[CACHE]);
    let client = Client::over_stdio(&workspace, Era::Modern, &[]).await;
    let tools = client.list_tools(None).await.unwrap().tools;
    let tool = tools
        .iter()
        .find(|tool| tool.name == "cache-manager_read")
        .unwrap();
    let tool = serde_json::to_value(tool).unwrap();
    assert_eq!(tool["annotations"]["readOnlyHint"], true);
    assert_eq!(tool["_meta"]["dev.conjure/mode"], "stateful");
    assert_eq!(tool["inputSchema"]["type"], "object");
}

#[tokio::test]
async fn what_a_plugin_prints_and_reads_is_not_the_clients() {
    let workspace = workspace(&[MISBEHAVING]);
    for era in ERAS {
        let client = Client::over_stdio(&workspace, era, &[]).await;
        let noise = r#"print {"jsonrpc":"2.0","id":1,"result":{}}"#;
        for _ in 0..3 {
            let printed = client
                .call("misbehaving_execute", json!({ "command": noise }))
                .await;
            assert_eq!(text(&printed), "read \"\"", "{era:?}");
        }
        let echo = json!({ "command": "echo still here" });
        assert_eq!(
            text(&client.call("misbehaving_execute", echo).await),
            "still here"
        );
    }
}

#[tokio::test]
async fn a_plugin_that_is_added_is_told_and_callable() {
    for era in ERAS {
        let workspace = workspace(&[MISBEHAVING]);
        let mut client = Client::over_stdio(&workspace, era, &[]).await;
        assert!(
            !client
                .names()
                .await
                .contains(&"cache-manager_execute".to_owned())
        );
        let mut listening = None;
        if era == Era::Modern {
            let filter = SubscriptionFilter::builder().tools_list_changed().build();
            listening = Some(client.listen(filter).await.unwrap());
        }
        workspace.add_plugin(CACHE).unwrap();
        match &mut listening {
            None => assert_eq!(client.next().await, Told::ToolsChanged),
            Some(subscription) => {
                let told = tokio::time::timeout(SOON, subscription.next()).await;
                told.expect("nothing was told").unwrap();
            }
        }
        let set = json!({ "command": "set a 1" });
        let result = client.call("cache-manager_execute", set).await;
        assert_eq!(result.is_error, Some(false));
        assert!(
            client
                .names()
                .await
                .contains(&"cache-manager_execute".to_owned())
        );
    }
}

#[tokio::test]
async fn a_question_of_a_plugin_reaches_the_client_in_both_eras() {
    let workspace = workspace(&[MISBEHAVING]);
    let (args, env) = (["--token-env", "TOKEN"], [("TOKEN", "open-sesame-please")]);
    let (_server, url) = serve_http(&workspace, &args, &env);
    for era in ERAS {
        for client in [
            Client::over_stdio(&workspace, era, &[]).await,
            Client::over_http(&url, era, "open-sesame-please").await,
        ] {
            let ask = |op: &str, body: &Value| json!({ "command": format!("host-op {op} {body}") });
            let one = ask("elicit", &json!({ "message": "Your name?" }));
            let answered = client.call("misbehaving_execute", one).await;
            let answer: Value = serde_json::from_str(&text(&answered)).unwrap();
            assert_eq!(
                answer,
                json!({ "action": "accept", "content": { "said": "Your name?" } }),
                "{era:?}"
            );
            let several = ask(
                "ask",
                &json!({ "questions": {
                    "name": { "ask": "elicit", "message": "Your name?" },
                    "dirs": { "ask": "roots" },
                    "word": { "ask": "sample", "messages": [] },
                } }),
            );
            let answered = client.call("misbehaving_execute", several).await;
            let answer: Value = serde_json::from_str(&text(&answered)).unwrap();
            let answers = &answer["answers"];
            assert_eq!(
                answers["name"]["content"]["said"], "Your name?",
                "{era:?}: {answer}"
            );
            assert_eq!(answers["dirs"]["roots"][0]["uri"], "file:///of/the/client");
            assert_eq!(answers["word"]["answer"], "refused");
        }
    }
}

#[tokio::test]
async fn a_client_that_cannot_be_asked_is_told_so_and_roots_are_the_hosts() {
    let workspace = workspace(&[MISBEHAVING]);
    for era in ERAS {
        let client = Client::over_stdio_as(&workspace, era, &[], false).await;
        let mut request = CallToolRequestParams::new("misbehaving_execute");
        let command = json!({ "command": r#"host-op elicit {"message":"?"}"# });
        request.arguments = command.as_object().cloned();
        match (era, client.call_tool(request).await) {
            (Era::Legacy, Ok(result)) => {
                assert_eq!(result.is_error, Some(true));
                assert!(text(&result).contains("elicitation"), "{result:?}");
            }
            (Era::Modern, Err(error)) => {
                assert!(error.to_string().contains("-32021"), "{error}");
            }
            other => panic!("{other:?}"),
        }
        let roots = client.call(
            "misbehaving_execute",
            json!({ "command": "host-op roots {}" }),
        );
        let roots = text(&roots.await);
        assert!(
            roots.contains(&*workspace.work().to_string_lossy()),
            "{roots}"
        );
    }
}

/// A client of the new era that does its rounds itself, over bare HTTP.
async fn post(url: &str, body: &Value, headers: &[(&str, &str)]) -> (u16, Value) {
    let mut request = reqwest::Client::new()
        .post(url)
        .header("accept", "application/json, text/event-stream")
        .header("content-type", "application/json")
        .body(body.to_string());
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let response = request.send().await.unwrap();
    let status = response.status().as_u16();
    let body = response.text().await.unwrap();
    let mut data = body.lines().filter_map(|line| line.strip_prefix("data: "));
    let last = data.rfind(|data| !data.is_empty());
    let value = serde_json::from_str(last.unwrap_or(&body)).unwrap_or_default();
    (status, value)
}

fn modern(method: &str, mut params: Value) -> Value {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": { "elicitation": {} },
    });
    json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params })
}

const HEADERS: [(&str, &str); 3] = [
    ("mcp-protocol-version", "2026-07-28"),
    ("mcp-method", "tools/call"),
    ("mcp-name", "misbehaving_execute"),
];

#[tokio::test]
async fn a_state_is_used_once_by_whom_it_was_told_and_for_the_same_request() {
    let workspace = workspace(&[MISBEHAVING]);
    let env = [
        ("ONE", "the-first-token-of-all"),
        ("TWO", "the-second-token"),
    ];
    let args = ["--token-env", "ONE", "--token-env", "TWO"];
    let (_server, url) = serve_http(&workspace, &args, &env);
    let send = async |params: Value, token: &str| {
        let mut headers = HEADERS.to_vec();
        headers.push(("authorization", token));
        post(&url, &modern("tools/call", params), &headers).await.1
    };
    let params = |command: &str| json!({ "name": "misbehaving_execute", "arguments": { "command": command } });
    let ask = r#"host-op elicit {"message":"?"}"#;
    let asked = send(params(ask), "Bearer the-first-token-of-all").await;
    assert_eq!(asked["result"]["resultType"], "input_required", "{asked}");
    let state = asked["result"]["requestState"].as_str().unwrap();
    let answer = json!({ "elicit-1": { "action": "decline" } });
    let retry = |command: &str, state: &str, answers: &Value| {
        let mut params = params(command);
        params["requestState"] = state.into();
        params["inputResponses"] = answers.clone();
        params
    };
    let refused = async |params: Value, token: &str, why: &str| {
        let reply = send(params, token).await;
        assert_eq!(reply["error"]["code"], -32602, "{reply}");
        let message = reply["error"]["message"].as_str().unwrap();
        assert!(message.contains(why), "{message}");
    };
    let forged = format!("{state}0");
    refused(
        retry(ask, &forged, &answer),
        "Bearer the-first-token-of-all",
        "none of this session's",
    )
    .await;
    refused(
        retry(ask, state, &answer),
        "Bearer the-second-token",
        "none of this session's",
    )
    .await;
    refused(
        retry("echo x", state, &answer),
        "Bearer the-first-token-of-all",
        "another request",
    )
    .await;
    let wrong = json!({ "elicit-1": 7 });
    refused(
        retry(ask, state, &wrong),
        "Bearer the-first-token-of-all",
        "no object",
    )
    .await;
    // None of these has hurt it; an answer that is missing is asked for again, with a new state.
    let again = send(
        retry(ask, state, &json!({})),
        "Bearer the-first-token-of-all",
    )
    .await;
    let newer = again["result"]["requestState"].as_str().unwrap();
    assert_ne!(newer, state);
    refused(
        retry(ask, state, &answer),
        "Bearer the-first-token-of-all",
        "used already",
    )
    .await;
    let done = send(retry(ask, newer, &answer), "Bearer the-first-token-of-all").await;
    assert_eq!(done["result"]["resultType"], "complete", "{done}");
    assert!(
        done["result"]["content"][0]["text"]
            .as_str()
            .unwrap()
            .contains("decline")
    );
    refused(
        retry(ask, newer, &answer),
        "Bearer the-first-token-of-all",
        "used already",
    )
    .await;
}

#[tokio::test]
async fn strangers_are_refused() {
    let workspace = workspace(&[MISBEHAVING]);
    let args = [
        "--token-env",
        "TOKEN",
        "--allow-origin",
        "https://app.example:443",
    ];
    let (_server, url) = serve_http(&workspace, &args, &[("TOKEN", "open-sesame-please")]);
    let initialize = initialize();
    let status = async |headers: &[(&str, &str)]| post(&url, &initialize, headers).await.0;
    let token = ("authorization", "Bearer open-sesame-please");
    assert_eq!(status(&[token]).await, 200);
    assert_eq!(status(&[]).await, 401);
    assert_eq!(
        status(&[("authorization", "Bearer open-sesame-pleas")]).await,
        401
    );
    assert_eq!(
        status(&[("authorization", "Basic open-sesame-please")]).await,
        401
    );
    assert_eq!(status(&[token, ("host", "evil.example")]).await, 403);
    assert_eq!(
        status(&[token, ("origin", "https://evil.example")]).await,
        403
    );
    assert_eq!(
        status(&[token, ("origin", "https://app.example")]).await,
        200
    );
    let own = url.trim_end_matches("/mcp");
    assert_eq!(status(&[token, ("origin", own)]).await, 200);
    let big = json!({ "x": "x".repeat(5 * 1024 * 1024) });
    assert_eq!(post(&url, &big, &[token]).await.0, 413);
}

#[tokio::test]
async fn sessions_are_bounded_and_deleting_one_makes_room() {
    let workspace = workspace(&[MISBEHAVING]);
    let args = ["--max-sessions", "1", "--token-env", "TOKEN"];
    let (_server, url) = serve_http(&workspace, &args, &[("TOKEN", "open-sesame-please")]);
    let initialize = |client: reqwest::Client| {
        let request = client.post(&*url).body(initialize().to_string());
        let request = request
            .bearer_auth("open-sesame-please")
            .header("accept", "application/json, text/event-stream");
        request.header("content-type", "application/json").send()
    };
    let client = reqwest::Client::new();
    let first = initialize(client.clone()).await.unwrap();
    let id = first.headers()["mcp-session-id"].clone();
    assert_eq!(initialize(client.clone()).await.unwrap().status(), 503);
    let delete = client.delete(&*url).bearer_auth("open-sesame-please");
    let deleted = delete.header("mcp-session-id", id).send();
    assert_eq!(deleted.await.unwrap().status(), 204);
    let until = std::time::Instant::now() + SOON;
    while initialize(client.clone()).await.unwrap().status() != 200 {
        assert!(std::time::Instant::now() < until, "there is no room");
    }
}

fn initialize() -> Value {
    json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {},
        "clientInfo": { "name": "t", "version": "1" },
    } })
}

#[tokio::test]
async fn on_this_machine_too_the_users_token_is_needed() {
    let workspace = workspace(&[MISBEHAVING]);
    let (_server, url) = serve_http(&workspace, &[], &[]);
    let status = async |token: &str| {
        let token = format!("Bearer {token}");
        post(&url, &initialize(), &[("authorization", &token)])
            .await
            .0
    };
    assert_eq!(post(&url, &initialize(), &[]).await.0, 401);
    assert_eq!(status("guess").await, 401);
    assert_eq!(status(&workspace.http_token().unwrap()).await, 200);
}

#[tokio::test]
async fn each_client_over_http_has_a_session_of_its_own() {
    let workspace = workspace(&[CACHE]);
    let env = [
        ("ONE", "the-first-token-of-all"),
        ("TWO", "the-second-token"),
    ];
    let args = ["--token-env", "ONE", "--token-env", "TWO"];
    let (server, url) = serve_http(&workspace, &args, &env);
    for era in ERAS {
        let one = Client::over_http(&url, era, "the-first-token-of-all").await;
        let other = Client::over_http(&url, era, "the-second-token").await;
        let set = json!({ "command": "set mine 1" });
        assert_eq!(
            one.call("cache-manager_execute", set).await.is_error,
            Some(false)
        );
        let get = json!({ "command": "get mine" });
        let own = one.call("cache-manager_execute", get.clone()).await;
        assert_eq!(own.is_error, Some(false), "{era:?}: {own:?}");
        let others = other.call("cache-manager_execute", get).await;
        assert!(!text(&others).contains('1'), "{era:?}: {others:?}");
    }
    server.signal(Signal::TERM);
    assert_eq!(server.wait().unwrap().code, Some(143));
}

#[tokio::test]
async fn progress_and_output_arrive_while_a_call_runs() {
    let workspace = workspace(&[MISBEHAVING, MCP]);
    let config = gateway(&workspace, &[]);
    for era in ERAS {
        let args = ["--config", config.as_str()];
        let mut client = Client::over_stdio(&workspace, era, &args).await;
        let mut request = CallToolRequestParams::new("peer_progress");
        request.arguments = json!({ "steps": 2, "ms": 100 }).as_object().cloned();
        let done = client.call_tool(request).await.unwrap();
        assert_eq!(text(&done), "arrived");
        // The last one may come so close to the answer that a client in between has it too late.
        let first = Told::Progress(1.0, Some("going on".to_owned()));
        assert_eq!(client.next().await, first, "{era:?}");
    }
}

/// A session file with an MCP server behind, and native skills.
fn gateway(workspace: &conjure_kit::Workspace, traits: &[&str]) -> String {
    let program = build_bin("conjure-mock-mcp", "mock-mcp").unwrap();
    let text = format!(
        "[[backend]]\nkind = \"native\"\n\n[[backend]]\nkind = \"mcp\"\n\n\
         [backend.config.servers.peer]\ncommand = {program:?}\nargs = {traits:?}\n"
    );
    let path = workspace.root().join("session.toml");
    fs::write(&path, text).unwrap();
    path.display().to_string()
}

#[tokio::test]
async fn a_gateway_passes_on_tools_results_and_questions_of_the_server_behind_it() {
    let workspace = workspace(&[MISBEHAVING, MCP]);
    for (era, traits) in [(Era::Legacy, &["modern"] as &[&str]), (Era::Modern, &[])] {
        let config = gateway(&workspace, traits);
        let mut client = Client::over_stdio(&workspace, era, &["--config", config.as_str()]).await;
        assert!(client.names().await.contains(&"peer_echo".to_owned()));
        let echo = client.call("peer_echo", json!({ "text": "words" })).await;
        assert_eq!(text(&echo), "words");
        let asked = client.call("peer_ask", json!({})).await;
        assert!(text(&asked).contains("accept"), "{era:?}: {asked:?}");
        let set = json!({ "command": "echo beside" });
        assert_eq!(
            text(&client.call("misbehaving_execute", set).await),
            "beside"
        );
        if era == Era::Legacy {
            // The server behind grows a tool.
            client.call("peer_change", json!({})).await;
            assert_eq!(client.next().await, Told::ToolsChanged);
            let hello = client.call("peer_newcomer", json!({})).await;
            assert_eq!(text(&hello), "hello");
        }
    }
}

#[tokio::test]
async fn cancelling_reaches_the_tool_and_leaves_the_others() {
    let workspace = workspace(&[MISBEHAVING]);
    for era in ERAS {
        let client = Client::over_stdio(&workspace, era, &[]).await;
        let mut request = CallToolRequestParams::new("misbehaving_execute");
        request.arguments = json!({ "command": "hang-politely" }).as_object().cloned();
        let request = ClientRequest::CallToolRequest(rmcp::model::CallToolRequest::new(request));
        let options = PeerRequestOptions::no_options();
        let handle = client
            .send_cancellable_request(request, options)
            .await
            .unwrap();
        let echo = json!({ "command": "echo after" });
        handle.cancel(Some("enough".to_owned())).await.unwrap();
        // The skill is stateful: this waits until the cancelled call has ended.
        let after = tokio::time::timeout(SOON, client.call("misbehaving_execute", echo)).await;
        assert_eq!(text(&after.expect("the call was not cancelled")), "after");
    }
}

#[tokio::test]
async fn three_tools_reach_all_the_others() {
    let workspace = workspace(&[CACHE, MISBEHAVING]);
    let args = ["--meta-tools", "instead"];
    let client = Client::over_stdio(&workspace, Era::Legacy, &args).await;
    assert_eq!(
        client.names().await,
        ["call_tool", "get_tool_details", "search_tools"]
    );
    let found = client
        .call("search_tools", json!({ "query": "CACHE execute" }))
        .await;
    let found = found.structured_content.unwrap();
    assert_eq!(
        found["tools"][0]["name"], "cache-manager_execute",
        "{found}"
    );
    let names = json!({ "names": ["cache-manager_execute", "nothing"] });
    let details = client.call("get_tool_details", names).await;
    let details = details.structured_content.unwrap();
    assert_eq!(details["tools"][0]["inputSchema"]["type"], "object");
    assert_eq!(details["unknown"], json!(["nothing"]));
    let call = json!({ "name": "cache-manager_execute", "arguments": { "command": "set a 1" } });
    assert_eq!(client.call("call_tool", call).await.is_error, Some(false));
    let beside = Client::over_stdio(&workspace, Era::Modern, &["--meta-tools", "beside"]).await;
    let names = beside.names().await;
    assert!(names.contains(&"call_tool".to_owned()));
    assert!(names.contains(&"cache-manager_execute".to_owned()));
}

#[tokio::test]
async fn a_denied_tool_is_neither_served_nor_run() {
    let workspace = workspace(&[CACHE]);
    let args = [
        "--deny",
        "cache-manager_write",
        "--deny",
        "cache-manager_execute(clear*)",
    ];
    let client = Client::over_stdio(&workspace, Era::Legacy, &args).await;
    assert!(
        !client
            .names()
            .await
            .contains(&"cache-manager_write".to_owned())
    );
    let denied = client
        .call("cache-manager_execute", json!({ "command": "clear" }))
        .await;
    assert_eq!(denied.is_error, Some(true));
    assert!(text(&denied).contains("denies it"), "{denied:?}");
    let fine = client
        .call("cache-manager_execute", json!({ "command": "set a 1" }))
        .await;
    assert_eq!(fine.is_error, Some(false));
}

#[tokio::test]
async fn the_server_ends_with_its_input() {
    let workspace = workspace(&[CACHE]);
    let mut client = Client::over_stdio(&workspace, Era::Legacy, &[]).await;
    client
        .call("cache-manager_execute", json!({ "command": "set a 1" }))
        .await;
    let mut server = client.server.take().unwrap();
    drop(client);
    let ended = tokio::time::timeout(SOON, server.wait()).await;
    assert_eq!(ended.expect("it goes on").unwrap().code(), Some(0));
    let sessions = workspace.home().join(".local/share/conjure/sessions");
    let left: Vec<_> = fs::read_dir(sessions).unwrap().flatten().collect();
    assert!(left.is_empty(), "{left:?}");
}
