//! What is told of tools that are others now, or that cannot be offered: to whoever is at a client
//! of the MCP server, and to whoever talks to a model.

use std::fs;

use conjure_kit::{MockMcp, Model, ProgramHandle, Workspace, build_plugin, cli};
use conjure_mock_llm::Message;
use serde_json::{Value, json};

use crate::own::session_of;

/// A native skill.
const CACHE: &str = "conjure-skill-cache-manager";
/// What is said of two tools of one name.
const CLASH: &str = "2 tools would have the public name `s_newcomer`";

/// A client over stdio that asked for every message.
pub(crate) fn client(workspace: &Workspace) -> ProgramHandle {
    let serve = ["mcp", "serve", "--stdio", "--config", "session.toml"];
    let mut client = cli(serve).workspace(workspace).start().unwrap();
    let about = json!({ "name": "t", "version": "1" });
    let initialize =
        json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": about });
    ask(&mut client, 1, "initialize", &initialize);
    let initialized = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    client.send_line(&initialized.to_string()).unwrap();
    ask(
        &mut client,
        2,
        "logging/setLevel",
        &json!({ "level": "debug" }),
    );
    ask(&mut client, 3, "tools/list", &json!({}));
    client
}

/// The answer to a request.
pub(crate) fn ask(client: &mut ProgramHandle, id: u64, method: &str, params: &Value) -> Value {
    let request = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
    client.send_line(&request.to_string()).unwrap();
    let is_it = |line: &Value| line["id"] == id && line["method"].is_null();
    let answer = |said: &str| {
        let mut lines = said
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok());
        lines.find(is_it)
    };
    // A long line comes in pieces.
    let is_there = |said: &str| answer(said).is_some();
    let said = client.wait_until_stdout(&format!("the answer to {method}"), is_there);
    answer(&said.unwrap()).unwrap()
}

fn call(client: &mut ProgramHandle, id: u64, tool: &str, arguments: &Value) -> Value {
    let params = json!({ "name": tool, "arguments": arguments });
    ask(client, id, "tools/call", &params)["result"].take()
}

/// Waits for a message with these words.
fn is_told(client: &ProgramHandle, words: &str) {
    let said = client.wait_for_stdout(words).unwrap();
    let line = said.lines().find(|line| line.contains(words)).unwrap();
    let line: Value = serde_json::from_str(line).unwrap();
    assert_eq!(line["method"], "notifications/message", "{line}");
}

#[test]
fn a_client_is_told_of_another_version_with_both_versions() {
    let workspace = Workspace::new().unwrap();
    workspace.add_plugin(CACHE).unwrap();
    let session = "[[backend]]\nkind = \"native\"\n";
    workspace.write("session.toml", session).unwrap();
    let mut client = client(&workspace);
    let set = json!({ "command": "set k v" });
    call(&mut client, 4, "cache-manager_execute", &set);
    // The same library with a version of the same length in the place of its own.
    let built = build_plugin(CACHE).unwrap();
    let (before, after) = (env!("CARGO_PKG_VERSION"), b"0.1.1");
    let mut bytes = fs::read(&built).unwrap();
    let windows = bytes.windows(before.len()).enumerate();
    let found = windows.filter(|(_, window)| *window == before.as_bytes());
    let found: Vec<usize> = found.map(|(at, _)| at).collect();
    for at in found {
        bytes[at..at + after.len()].copy_from_slice(after);
    }
    let newer = workspace.root().join(built.file_name().unwrap());
    fs::write(&newer, bytes).unwrap();
    workspace.add_library(&newer).unwrap();
    is_told(&client, &format!("cache-manager {before} → 0.1.1"));
    let get = json!({ "command": "get k" });
    let kept = call(&mut client, 5, "cache-manager_execute", &get);
    assert_eq!(kept["content"][0]["text"], "v", "{kept}");
}

/// A server whose new tool will have the name that a native skill has already.
fn with_clash() -> Workspace {
    let program = MockMcp::program().unwrap();
    let workspace = Workspace::new().unwrap();
    workspace.add_plugin("conjure-backend-mcp").unwrap();
    let session = format!(
        "[[backend]]\nkind = \"mcp\"\n[backend.config.servers.s]\ncommand = {program:?}\n\
         era = \"legacy\"\n[[backend]]\nkind = \"native\"\n[routing]\n\
         aliases = [{{ skill = \"cache-manager\", tool = \"execute\", name = \"s_newcomer\" }}]\n"
    );
    workspace.write("session.toml", session).unwrap();
    workspace.add_plugin(CACHE).unwrap();
    workspace
}

#[test]
fn a_client_is_told_of_a_name_that_is_taken_and_whoever_has_it_keeps_it() {
    let workspace = with_clash();
    let mut client = client(&workspace);
    call(&mut client, 4, "s_change", &json!({}));
    is_told(&client, CLASH);
    let set = json!({ "command": "set k v" });
    let stored = call(&mut client, 5, "s_newcomer", &set);
    assert_eq!(stored["content"][0]["text"], "stored", "{stored}");
}

#[test]
fn whoever_talks_to_a_model_is_told_of_a_name_that_is_taken() {
    let workspace = with_clash();
    let model = Model::start().unwrap();
    model.calls("toolu_1", "s_change", json!({}));
    model.says(Message::new().text("Changed."));
    let chat = ["chat", "--config", "session.toml", "--allow", "*", "--json"];
    let with = ["--provider", "anthropic", "--model", "a-model"];
    let mut chat = cli(chat.into_iter().chain(with))
        .workspace(&workspace)
        .model(&model)
        .start()
        .unwrap();
    chat.send_line("Change.").unwrap();
    let said = chat.wait_for_stdout(CLASH).unwrap();
    let line = said.lines().find(|line| line.contains(CLASH)).unwrap();
    let line: Value = serde_json::from_str(line).unwrap();
    assert_eq!(line["type"], "notice", "{line}");
    // The model has the one that was there first.
    model.calls("toolu_2", "s_newcomer", json!({ "command": "set k v" }));
    model.says(Message::new().text("Stored."));
    chat.send_line("Store.").unwrap();
    chat.wait_for_stdout("Stored.").unwrap();
    let request = model.last_request();
    assert_eq!(
        request.tool_result_text("toolu_2").as_deref(),
        Some("stored")
    );
    chat.close_stdin();
    assert_eq!(chat.wait().unwrap().code, Some(0));
}

#[test]
fn a_tool_that_a_provider_does_not_take_is_told_and_the_others_are_offered() {
    let program = MockMcp::program().unwrap();
    let workspace = session_of(&format!(
        "command = {program:?}\nargs = [\"tree\"]\nera = \"legacy\"\n[http]\nattempts = 1"
    ));
    // Nobody is there: what is sent is not looked at.
    let with = ["--provider", "gemini", "--model", "gemini-2.5-flash"];
    let with = with.into_iter().chain(["--base-url", "http://127.0.0.1:9"]);
    let conjure = |verb: &[&str], more: &[&str]| {
        let args = verb.iter().copied().chain(["--config", "session.toml"]);
        let args = args.chain(with.clone()).chain(more.iter().copied());
        let running = cli(args).workspace(&workspace);
        running
            .env("GEMINI_API_KEY", "a-key-of-nobody")
            .run()
            .unwrap()
    };
    let why = "its schema refers to itself";
    let routes = conjure(&["routes"], &[]);
    let told = format!("the provider does not take: tree: {why}");
    assert!(routes.stderr.contains(&told), "{routes:?}");
    let routes = conjure(&["--json", "routes"], &[]);
    let routes: Value = serde_json::from_str(&routes.stdout).unwrap();
    assert_eq!(routes["left_out"][0]["name"], "tree", "{routes}");
    assert_eq!(routes["left_out"].as_array().unwrap().len(), 1);
    let asked = conjure(&["run"], &["Go on."]);
    let told = format!("The tool `tree` is not offered to gemini: {why}");
    assert_eq!(asked.stderr.matches(&told).count(), 1, "{asked:?}");
}
