//! What a server says of its tools, through `conjure mcp serve`.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Stdio};
use std::time::Duration;

use conjure_kit::{MockMcp, Workspace, cli, conjure_bin};
use serde_json::{Value, json};

use crate::own::{http, session_of};

/// The most that a server may run.
const LIMIT: Duration = Duration::from_secs(120);
/// A tool of the server's, with members that no type of the SDK has.
const TOOL: &str = "echo";

fn workspace() -> Workspace {
    session_of(&format!(
        "command = {:?}\nera = \"legacy\"",
        MockMcp::program().unwrap()
    ))
}

/// The tool of a list, which has to be what the server behind says, word for word.
fn is_whole(list: &Value) {
    let tools = list["result"]["tools"].as_array().unwrap();
    let tool = tools.iter().find(|tool| tool["name"] == TOOL).unwrap();
    let mut expected = json!({
        "name": TOOL,
        "description": "Says what it is told",
        "inputSchema": { "type": "object" },
        "annotations": { "readOnlyHint": true },
        "execution": { "taskSupport": "optional" },
        "vendor": { "kept": true },
        "_meta": { "vendor.example/k": 1 },
    });
    expected["_meta"]["dev.conjure/mode"] = json!("stateful");
    assert_eq!(tool, &expected);
}

fn initialize() -> Value {
    json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {},
        "clientInfo": { "name": "t", "version": "1" } } })
}

fn list(id: u64) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": "tools/list", "params": {} })
}

fn of_the_new_era(mut request: Value) -> Value {
    request["params"]["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    request
}

#[test]
fn members_of_a_tool_that_nobody_knows_reach_a_client_over_stdio() {
    for modern in [false, true] {
        let workspace = workspace();
        let mut server = Command::new(conjure_bin().unwrap());
        server.arg("--plugin-dir").arg(workspace.plugins());
        server.arg("--data-dir").arg(workspace.data_dir());
        server.args(["mcp", "serve", "--stdio", "-c"]);
        server.arg(workspace.work().join("session.toml"));
        let server = server.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut server = server.spawn().unwrap();
        let mut input = server.stdin.take().unwrap();
        let mut output = BufReader::new(server.stdout.take().unwrap());
        let mut ask = |request: Value| {
            writeln!(input, "{request}").unwrap();
            let mut answer = String::new();
            loop {
                answer.clear();
                assert_ne!(output.read_line(&mut answer).unwrap(), 0, "it ended");
                let answer: Value = serde_json::from_str(&answer).unwrap();
                if answer["id"] == request["id"] {
                    return answer;
                }
            }
        };
        if modern {
            is_whole(&ask(of_the_new_era(list(2))));
        } else {
            ask(initialize());
            is_whole(&ask(list(2)));
        }
        drop(input);
        assert!(server.wait().unwrap().success());
    }
}

#[test]
fn members_of_a_tool_that_nobody_knows_reach_a_client_over_http() {
    let workspace = workspace();
    let served = "--json mcp serve --http 127.0.0.1:0 --config session.toml";
    let serving = cli(served.split(' ')).workspace(&workspace).deadline(LIMIT);
    let serving = serving.start().unwrap();
    let line = serving.wait_for_stdout("\n").unwrap();
    let line: Value = serde_json::from_str(line.lines().next().unwrap()).unwrap();
    let address = line["url"].as_str().unwrap();
    let address = address.strip_prefix("http://").unwrap();
    let address = address.strip_suffix("/mcp").unwrap();
    let token = workspace.http_token().unwrap();
    let token = format!("authorization: Bearer {token}\r\n");
    let accept =
        "accept: application/json, text/event-stream\r\ncontent-type: application/json\r\n";
    let post = |more: &str, request: &Value| {
        let more = format!("{token}{accept}{more}");
        http(address, "POST /mcp HTTP/1.1", &more, &request.to_string())
    };
    // The older era: a session, and answers as events.
    let opened = post("", &initialize());
    let mut lines = opened.lines();
    let session = lines.find_map(|line| line.strip_prefix("mcp-session-id: "));
    let session = format!(
        "mcp-session-id: {}\r\nmcp-protocol-version: 2025-11-25\r\n",
        session.unwrap()
    );
    let initialized = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    post(&session, &initialized);
    is_whole(&answer(&post(&session, &list(2))));
    // The newer one.
    let modern = "mcp-protocol-version: 2026-07-28\r\nmcp-method: tools/list\r\n";
    is_whole(&answer(&post(modern, &of_the_new_era(list(3)))));
}

/// The message with a result in an answer over HTTP, whole or in pieces.
fn answer(http: &str) -> Value {
    let lines = http.lines();
    let messages = lines.map(|line| line.strip_prefix("data: ").unwrap_or(line));
    let mut messages = messages.filter_map(|text| serde_json::from_str::<Value>(text).ok());
    let found = messages.find(|message| message.get("result").is_some());
    found.unwrap_or_else(|| panic!("no answer in {http}"))
}
