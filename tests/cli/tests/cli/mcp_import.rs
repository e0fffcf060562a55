//! `conjure mcp import`: servers of other programs.

use insta::assert_snapshot;

use crate::stage::{conjure, workspace};

/// What an import of a file prints.
fn import(text: &str) -> String {
    let workspace = workspace(&[]);
    workspace.write("other", text).unwrap();
    let output = conjure(&workspace, "mcp import other").run().unwrap();
    output.snapshot()
}

#[test]
fn lines_of_claude() {
    assert_snapshot!(import(
        r#"claude mcp add --transport http -s user tracker https://t.example/mcp \
  -H 'Authorization: Bearer abc-123' --header "X-Team: blue" --callback-port 8123
claude mcp add notes -e MODE=small -e NOTES_TOKEN='s3 cret' -- npx -y "notes server" --api-key k1
claude mcp add -t sse old https://o.example/sse --debug
claude mcp add-json both '{"command":"both","args":["-v"]}'
claude mcp remove gone
"#
    ), @"");
}

#[test]
fn json_of_claude_cursor_and_vs_code() {
    assert_snapshot!(import(r#"{
        // Comments are VS Code's.
        "servers": {
            "fetch": { "type": "stdio", "command": "uvx",
                       "args": ["fetch", "--key=sk-abcdefghijklmnop", "ghp_0123456789abcdefghij"],
                       "env": { "A": "b", "GITHUB_TOKEN": "${input:github}", "B_KEY": "${env:B_KEY}" },
                       "envFile": ".env", "autoApprove": ["x"], "disabled": true },
            "web": { "url": "https://w.example/mcp?api_key=0123456789abcdef",
                     "headers": { "X-Api-Key": "k", "Accept-Language": "en" } },
            "odd": { "type": "ws", "url": "wss://o.example" },
        },
        "inputs": []
    }"#), @"");
}

#[test]
fn toml_of_codex() {
    assert_snapshot!(import(r#"
model = "x"
[mcp_servers.docs]
command = "docs-server"
args = ["--quiet"]
env = { MODE = "small" }
env_vars = ["HOME_REGION"]
startup_timeout_sec = 20
tool_timeout_sec = 90.5
enabled_tools = ["a"]

[mcp_servers."figma.com"]
url = "https://f.example/mcp"
bearer_token_env_var = "FIGMA_TOKEN"
http_headers = { "X-Region" = "eu" }
env_http_headers = { "X-Org" = "FIGMA_ORG" }
enabled = false
"#), @"");
}

#[test]
fn servers_are_added_to_a_session_file_and_no_secret_is() {
    let workspace = workspace(&[]);
    let servers = r#"{ "mcpServers": { "s": {
        "command": "server", "env": { "TOKEN": "hunter2-hunter2" } } } }"#;
    workspace.write("mcp.json", servers).unwrap();
    workspace
        .write("session.toml", "persona = \"Kind.\"\n")
        .unwrap();
    let add = || {
        let output = conjure(&workspace, "mcp import mcp.json --write session.toml").run();
        output.unwrap().snapshot()
    };
    assert_snapshot!(add(), @"");
    let file = workspace.read("session.toml").unwrap();
    assert!(!file.contains("hunter2"), "{file}");
    assert!(file.starts_with("persona"), "{file}");
    assert_snapshot!(add(), @"");
    assert_eq!(workspace.read("session.toml").unwrap(), file);
}

#[test]
fn what_is_no_configuration_is_told() {
    assert_snapshot!(import("nothing of the kind"), @"");
}
