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
    ), @r#"
    exit code 0
    --- stdout
    [[backend]]
    kind = "mcp"

    [backend.config.servers.tracker]
    url = "https://t.example/mcp"
    headers = { Authorization = { secret = "MCP_TRACKER_AUTHORIZATION", prefix = "Bearer " }, X-Team = "blue" }
    oauth = { callback_port = 8123 }

    [backend.config.servers.notes]
    command = "npx"
    args = ["-y", "notes server", "--api-key", { secret = "MCP_NOTES_API_KEY" }]
    env = { MODE = "small", NOTES_TOKEN = { secret = "MCP_NOTES_NOTES_TOKEN" } }

    [backend.config.servers.old]
    url = "https://o.example/sse"

    [backend.config.servers.both]
    command = "both"
    args = ["-v"]
    --- stderr

    Set these secrets; they are not written down:
      export CONJURE_SECRET_MCP_TRACKER_AUTHORIZATION=…  # header Authorization of `tracker`
      export CONJURE_SECRET_MCP_NOTES_API_KEY=…  # the value of `--api-key` of `notes`
      export CONJURE_SECRET_MCP_NOTES_NOTES_TOKEN=…  # env NOTES_TOKEN of `notes`
    note `old`: the option `--debug` is not understood
    note `old`: it used HTTP with SSE, which is not spoken here; its address is written down as it is, and its own documentation may name another for streamable HTTP
    note not understood: claude mcp remove …
    "#);
}

#[test]
fn json_of_claude_cursor_and_vs_code() {
    assert_snapshot!(import(r#"{
        // Comments are VS Code's.
        "servers": {
            "fetch": { "type": "stdio", "command": "uvx",
                       "args": ["fetch", "--key=sk-abcdefghijklmnop", "ghp_0123456789abcdefghij", "ghp_another9abcdefghij",
                                "-e", "A_TOKEN=t", "--header", "Authorization: Bearer u", "-y", "@scope/it:x"],
                       "env": { "A": "b", "GITHUB_TOKEN": "${input:github}", "B_KEY": "${env:B_KEY}" },
                       "envFile": ".env", "autoApprove": ["x"], "disabled": true },
            "web": { "url": "https://w.example/mcp?api_key=0123456789abcdef",
                     "headers": { "X-Api-Key": "k", "Accept-Language": "en" } },
            "odd": { "type": "ws", "url": "wss://o.example" },
        },
        "inputs": []
    }"#), @r#"
    exit code 0
    --- stdout
    [[backend]]
    kind = "mcp"

    [backend.config.servers.fetch]
    command = "uvx"
    args = ["fetch", { secret = "MCP_FETCH_KEY", prefix = "--key=" }, { secret = "MCP_FETCH_ARG" }, { secret = "MCP_FETCH_ARG_2" }, "-e", { secret = "MCP_FETCH_A_TOKEN", prefix = "A_TOKEN=" }, "--header", { secret = "MCP_FETCH_AUTHORIZATION", prefix = "Authorization: Bearer " }, "-y", "@scope/it:x"]
    env = { A = "b", GITHUB_TOKEN = { secret = "MCP_FETCH_GITHUB_TOKEN" }, B_KEY = { secret = "MCP_FETCH_B_KEY" } }
    enabled = false

    [backend.config.servers.web]
    url = { secret = "MCP_WEB_URL" }
    headers = { X-Api-Key = { secret = "MCP_WEB_X_API_KEY" }, Accept-Language = "en" }
    --- stderr

    Set these secrets; they are not written down:
      export CONJURE_SECRET_MCP_FETCH_KEY=…  # the value of `--key` of `fetch`
      export CONJURE_SECRET_MCP_FETCH_ARG=…  # an argument of `fetch`
      export CONJURE_SECRET_MCP_FETCH_ARG_2=…  # an argument of `fetch`
      export CONJURE_SECRET_MCP_FETCH_A_TOKEN=…  # the value of `A_TOKEN` of `fetch`
      export CONJURE_SECRET_MCP_FETCH_AUTHORIZATION=…  # the value of `Authorization` of `fetch`
      export CONJURE_SECRET_MCP_FETCH_GITHUB_TOKEN=…  # env GITHUB_TOKEN of `fetch`
      export CONJURE_SECRET_MCP_FETCH_B_KEY="$B_KEY"  # env B_KEY of `fetch`
      export CONJURE_SECRET_MCP_WEB_URL=…  # the whole address, which has a secret in it, of `web`
      export CONJURE_SECRET_MCP_WEB_X_API_KEY=…  # header X-Api-Key of `web`
    note `fetch`: env GITHUB_TOKEN: the other program asks for `github`; here it is set once
    note `fetch`: `envFile` is not taken over
    note `fetch`: `autoApprove` is not taken over: `policy.allow` says what runs without asking
    note `odd`: its transport `ws` is not spoken; it is left out
    "#);
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
"#), @r#"
    exit code 0
    --- stdout
    [[backend]]
    kind = "mcp"

    [backend.config.servers.docs]
    command = "docs-server"
    args = ["--quiet"]
    env = { MODE = "small" }
    pass_env = ["HOME_REGION"]
    initialize_timeout_ms = 20000
    request_timeout_ms = 90500

    [backend.config.servers."figma.com"]
    url = "https://f.example/mcp"
    headers = { Authorization = { secret = "MCP_FIGMA_COM_TOKEN", prefix = "Bearer " }, X-Org = { secret = "MCP_FIGMA_COM_X_ORG" }, X-Region = "eu" }
    enabled = false
    --- stderr

    Set these secrets; they are not written down:
      export CONJURE_SECRET_MCP_FIGMA_COM_TOKEN="$FIGMA_TOKEN"  # the token of `figma.com`
      export CONJURE_SECRET_MCP_FIGMA_COM_X_ORG="$FIGMA_ORG"  # header X-Org of `figma.com`
    note `docs`: `enabled_tools` is not taken over: `only` of the backend does that
    "#);
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
    assert_snapshot!(add(), @r"
    exit code 0
    --- stdout
    session.toml has s
    --- stderr

    Set these secrets; they are not written down:
      export CONJURE_SECRET_MCP_S_TOKEN=…  # env TOKEN of `s`
    ");
    let file = workspace.read("session.toml").unwrap();
    assert!(!file.contains("hunter2"), "{file}");
    assert!(file.starts_with("persona"), "{file}");
    assert_snapshot!(add(), @r"
    exit code 2
    --- stdout
    --- stderr
    error: session.toml is left as it is: it has an MCP server `s` already
    ");
    assert_eq!(workspace.read("session.toml").unwrap(), file);
}

#[test]
fn what_is_no_configuration_is_told() {
    assert_snapshot!(import("nothing of the kind"), @r"
    exit code 2
    --- stdout
    --- stderr
    error: other: it is neither JSON nor lines `claude mcp add …` or `codex mcp add …`, nor TOML (key with no value, expected `=`), nor YAML (it is no table of settings)
    ");
}

#[test]
fn yaml_of_goose_with_variables() {
    assert_snapshot!(import(
        "extensions:
  files:
    type: stdio
    name: files
    cmd: files-server
    args: ['--cache', '${CACHE_DIR:-/tmp/c}', '${workspaceFolder}']
    env_keys: [FILES_TOKEN]
"
    ), @r#"
    exit code 0
    --- stdout
    [[backend]]
    kind = "mcp"

    [backend.config.servers.files]
    command = "files-server"
    args = ["--cache", { expand = "${env:CACHE_DIR:-/tmp/c}" }, { expand = "${workspaceFolder}" }]
    env = { FILES_TOKEN = { secret = "MCP_FILES_FILES_TOKEN" } }
    --- stderr

    Set these secrets; they are not written down:
      export CONJURE_SECRET_MCP_FILES_FILES_TOKEN=…  # env FILES_TOKEN of `files`
    "#);
}

#[test]
fn lines_of_codex() {
    assert_snapshot!(import(
        "codex mcp add notes --env MODE=small -- notes-server --quiet
codex mcp add far --url https://x.example/mcp --bearer-token-env-var FAR_TOKEN
"
    ), @r#"
    exit code 0
    --- stdout
    [[backend]]
    kind = "mcp"

    [backend.config.servers.notes]
    command = "notes-server"
    args = ["--quiet"]
    env = { MODE = "small" }

    [backend.config.servers.far]
    url = "https://x.example/mcp"
    headers = { Authorization = { secret = "MCP_FAR_TOKEN", prefix = "Bearer " } }
    --- stderr

    Set these secrets; they are not written down:
      export CONJURE_SECRET_MCP_FAR_TOKEN="$FAR_TOKEN"  # the token of `far`
    "#);
}

#[test]
fn a_variable_of_its_own_env_is_for_the_program_and_cline_counts_seconds() {
    assert_snapshot!(import(r#"{ "mcpServers": {
        "remote": { "command": "npx",
                    "args": ["mcp-remote", "https://z/mcp", "--header", "Authorization:${AUTH_HEADER}"],
                    "env": { "AUTH_HEADER": "Bearer tok_9876543210abcdef" },
                    "timeout": 60, "autoApprove": [] },
        "dsn": { "command": "pg", "args": ["postgresql://user:hunter2@localhost/db"],
                 "env": { "DATABASE_URL": "postgresql://user:hunter2@localhost/db" } }
    } }"#), @r#"
    exit code 0
    --- stdout
    [[backend]]
    kind = "mcp"

    [backend.config.servers.remote]
    command = "npx"
    args = ["mcp-remote", "https://z/mcp", "--header", "Authorization:${AUTH_HEADER}"]
    env = { AUTH_HEADER = { secret = "MCP_REMOTE_AUTH_HEADER", prefix = "Bearer " } }
    request_timeout_ms = 60000

    [backend.config.servers.dsn]
    command = "pg"
    args = [{ secret = "MCP_DSN_URL" }]
    env = { DATABASE_URL = { secret = "MCP_DSN_DATABASE_URL" } }
    --- stderr

    Set these secrets; they are not written down:
      export CONJURE_SECRET_MCP_REMOTE_AUTH_HEADER=…  # env AUTH_HEADER of `remote`
      export CONJURE_SECRET_MCP_DSN_URL=…  # the whole address, which has a secret in it, of `dsn`
      export CONJURE_SECRET_MCP_DSN_DATABASE_URL=…  # env DATABASE_URL of `dsn`
    note `remote`: its `timeout` is taken for 60 seconds without an answer, as Cline counts it
    note `remote`: `autoApprove` is not taken over: `policy.allow` says what runs without asking
    "#);
}

#[test]
fn no_password_of_another_program_gets_into_a_session_file() {
    let workspace = workspace(&[]);
    let servers = r#"{ "mcpServers": {
        "s": { "command": "x",
               "args": ["postgresql://user:hunter2@localhost/db",
                        "--connection-string", "Server=h;Password=hunter2"],
               "env": { "DATABASE_URL": "postgresql://user:hunter2@localhost/db",
                        "MONGODB_URI": "mongodb+srv://u:hunter2@c/db",
                        "REDIS_URL": "redis://:hunter2@h:1",
                        "PROXY": "http://u:hunter2@h:1",
                        "DB_PASS": "hunter2",
                        "CONN": "Server=h;Password=hunter2;",
                        "OPENAPI_MCP_HEADERS": "{\"Authorization\": \"Bearer hunter2\"}" } },
        "r": { "url": "https://h/mcp?code=hunter2" } } }"#;
    workspace.write("mcp.json", servers).unwrap();
    let output = conjure(&workspace, "mcp import mcp.json --write session.toml").run();
    let told = output.unwrap().snapshot();
    assert!(told.contains("session.toml has s, r"), "{told}");
    assert!(!told.contains("hunter2"), "{told}");
    let file = workspace.read("session.toml").unwrap();
    assert!(!file.contains("hunter2"), "{file}");
    assert_eq!(file.matches("secret = ").count(), 10, "{file}");
}
