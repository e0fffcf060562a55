//! Every form that is read, and what a session file gets from it.

mod texts;

use std::io::Write as _;

use serde_json::{Value, json};

use super::*;

/// The settings of a text's servers.
fn settings(text: &str) -> Value {
    let import = read(text).unwrap_or_else(|why| panic!("{why}: {text}"));
    Value::Object(import.settings().unwrap())
}

/// The names of secrets that have to be set.
fn secrets(text: &str) -> Vec<String> {
    let import = read(text).unwrap();
    import
        .secrets
        .into_iter()
        .map(|secret| secret.name)
        .collect()
}

fn notes(text: &str) -> String {
    read(text).unwrap().notes.join("\n")
}

#[test]
fn what_has_no_servers_is_told() {
    for text in [
        "{}",
        "a = 1",
        "a: 1",
        "{\"mcpServers\": 5}",
        "claude mcp remove x",
        "{ nonsense",
        "only words",
    ] {
        let read = read(text);
        assert!(
            read.map_or(true, |import| import.servers.is_empty()),
            "{text}"
        );
    }
}

#[test]
fn settings_are_those_of_a_session_file() {
    let text = "claude mcp add notes -e TOKEN=abc -- notes-server --quiet";
    let expected = json!({
        "notes": {
            "command": "notes-server", "args": ["--quiet"],
            "env": { "TOKEN": { "secret": "MCP_NOTES_TOKEN" } },
        }
    });
    assert_eq!(settings(text), expected);
    assert_eq!(read(text).unwrap().names().collect::<Vec<_>>(), ["notes"]);
}

#[test]
fn variables_keep_their_meaning() {
    let text = r#"{ "mcpServers": { "s": {
        "command": "${userHome}/bin/server",
        "args": ["--cache", "${CACHE_DIR:-/tmp/c}", "--root=${workspaceFolder}/src",
                 "${CLAUDE_PROJECT_DIR}", "${file}"],
        "cwd": "${workspaceFolder}/sub",
        "env": { "PLACE": "${PLACE:-${userHome}/p}", "API_KEY": "${MY_KEY}" },
    }, "r": { "type": "http", "url": "https://${HOST:-x.example}/mcp" } } }"#;
    let expand = |text: &str| json!({ "expand": text });
    let expected = json!({
        "s": {
            "command": expand("${userHome}/bin/server"),
            "args": [
                "--cache", expand("${env:CACHE_DIR:-/tmp/c}"),
                expand("--root=${workspaceFolder}/src"), expand("${workspaceFolder}"), "${file}",
            ],
            "cwd": expand("${workspaceFolder}/sub"),
            "env": {
                "PLACE": expand("${env:PLACE:-${userHome}/p}"),
                "API_KEY": { "secret": "MCP_S_API_KEY" },
            },
        },
        "r": { "url": expand("https://${env:HOST:-x.example}/mcp") },
    });
    assert_eq!(settings(text), expected);
    assert!(notes(text).contains("`${file}`, which only the other program knows"));
}

#[test]
fn an_address_with_a_secret_variable_is_a_secret() {
    let text = r#"{ "servers": { "r": { "url": "https://x.example/mcp?k=${API_KEY}" } } }"#;
    assert_eq!(
        settings(text),
        json!({ "r": { "url": { "secret": "MCP_R_URL" } } })
    );
}

#[test]
fn lines_of_codex() {
    let text = "codex mcp add notes --env TOKEN=abc --env MODE=small -- notes-server --quiet\n\
                $ codex mcp add far --url https://x.example/mcp --bearer-token-env-var FAR_TOKEN\n\
                codex mcp add plain notes-server --env not-codex's";
    let text = text.replace("'s", "s");
    let expected = json!({
        "notes": {
            "command": "notes-server", "args": ["--quiet"],
            "env": { "TOKEN": { "secret": "MCP_NOTES_TOKEN" }, "MODE": "small" },
        },
        "far": {
            "url": "https://x.example/mcp",
            "headers": { "Authorization": { "secret": "MCP_FAR_TOKEN", "prefix": "Bearer " } },
        },
        "plain": { "command": "notes-server", "args": ["--env", "not-codexs"] },
    });
    assert_eq!(settings(&text), expected);
    assert_eq!(
        read(&text).unwrap().secrets[1].from.as_deref(),
        Some("FAR_TOKEN")
    );
    assert!(read("codex mcp add x").is_err());
}

#[test]
fn goose_in_yaml() {
    let text = "
GOOSE_MODEL: some-model
extensions:
  developer:
    type: builtin
    name: developer
    enabled: true
  github:
    type: stdio
    name: GitHub
    cmd: npx
    args: ['-y', '@modelcontextprotocol/server-github', 5]
    envs: { MODE: small }
    env_keys: [GITHUB_PERSONAL_ACCESS_TOKEN]
    timeout: 300
    enabled: false
    bundled: null
  far:
    type: streamable_http
    uri: https://x.example/mcp
    headers: { Authorization: Bearer abc }
  nested:
    enabled: true
    config: { type: stdio, name: nested, cmd: nested-server }
";
    let expected = json!({
        "github": {
            "command": "npx", "args": ["-y", "@modelcontextprotocol/server-github", "5"],
            "env": {
                "MODE": "small",
                "GITHUB_PERSONAL_ACCESS_TOKEN": { "secret": "MCP_GITHUB_GITHUB_PERSONAL_ACCESS_TOKEN" },
            },
            "enabled": false, "request_timeout_ms": 300_000,
        },
        "far": {
            "url": "https://x.example/mcp",
            "headers": { "Authorization": { "secret": "MCP_FAR_AUTHORIZATION", "prefix": "Bearer " } },
        },
        "nested": { "command": "nested-server" },
    });
    assert_eq!(settings(text), expected);
    assert!(notes(text).contains("`developer`: it is of goose's own kind `builtin`"));
}

#[test]
fn continue_in_yaml() {
    let text = "
name: My config
version: 0.0.1
schema: v1
mcpServers:
  - name: Browser search
    command: npx
    args: ['@playwright/mcp@latest', --token, '${{ secrets.SEARCH_TOKEN }}']
    env:
      LEVEL: 3
    connectionTimeout: 20000
  - name: far
    type: streamable-http
    url: https://x.example/mcp
    requestOptions:
      headers:
        X-Api-Key: abc
      timeout: 5
";
    let expected = json!({
        "Browser-search": {
            "command": "npx",
            "args": ["@playwright/mcp@latest", "--token", { "secret": "MCP_BROWSER_SEARCH_TOKEN" }],
            "env": { "LEVEL": "3" },
            "initialize_timeout_ms": 20_000,
        },
        "far": {
            "url": "https://x.example/mcp",
            "headers": { "X-Api-Key": { "secret": "MCP_FAR_X_API_KEY" } },
        },
    });
    assert_eq!(settings(text), expected);
    let notes = notes(text);
    assert!(notes.contains("keeps `secrets.SEARCH_TOKEN`"), "{notes}");
    assert!(
        notes.contains("`requestOptions.timeout` is not taken over"),
        "{notes}"
    );
}

#[test]
fn zed_in_both_of_its_forms() {
    let text = r#"{
        // Zed's settings have comments.
        "theme": "One Dark",
        "context_servers": {
            "flat": { "source": "custom", "command": "a-server", "args": ["x"], "env": {} },
            "deep": { "command": { "path": "/b-server", "args": ["y"], "env": { "M": "1" } },
                      "settings": {} },
            "far": { "url": "https://x.example/mcp", "headers": { "X": "y" } },
            "own": { "source": "extension", "enabled": true, "settings": { "token": "abc" } },
        },
    }"#;
    let expected = json!({
        "flat": { "command": "a-server", "args": ["x"] },
        "deep": { "command": "/b-server", "args": ["y"], "env": { "M": "1" } },
        "far": { "url": "https://x.example/mcp", "headers": { "X": "y" } },
    });
    assert_eq!(settings(text), expected);
    let notes = notes(text);
    assert!(
        notes.contains("`own`: it is an extension of Zed"),
        "{notes}"
    );
    assert!(!notes.contains("abc"), "{notes}");
}

#[test]
fn a_server_json_of_a_registry() {
    let text = r#"{
        "$schema": "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json",
        "name": "io.github.example/weather", "description": "Weather", "version": "0.5.0",
        "packages": [
            { "registryType": "mcpb", "identifier": "https://x.example/w.mcpb" },
            { "registryType": "pypi", "identifier": "weather-mcp", "version": "0.5.0",
              "transport": { "type": "stdio" },
              "packageArguments": [
                  { "type": "named", "name": "--units", "default": "celsius" },
                  { "type": "positional", "valueHint": "home_town", "isRequired": true },
                  { "type": "positional", "valueHint": "second_town" } ],
              "environmentVariables": [
                  { "name": "WEATHER_API_KEY", "isRequired": true, "isSecret": true },
                  { "name": "LEVEL", "default": "info" } ] } ]
    }"#;
    let expected = json!({
        "weather": {
            "command": "uvx",
            "args": ["weather-mcp==0.5.0", "--units", "celsius", { "expand": "${env:HOME_TOWN}" }],
            "env": { "WEATHER_API_KEY": { "secret": "MCP_WEATHER_WEATHER_API_KEY" }, "LEVEL": "info" },
        },
    });
    assert_eq!(settings(text), expected);
    let notes = notes(text);
    for part in [
        "variable HOME_TOWN",
        "`second_town` may be set",
        "one of 2 ways",
    ] {
        assert!(notes.contains(part), "{notes}");
    }
}

#[test]
fn a_registrys_answer_has_several_and_addresses_come_first() {
    let text = r#"{ "servers": [
        { "server": { "name": "com.example/far", "remotes": [
            { "type": "sse", "url": "https://x.example/sse" },
            { "type": "streamable-http", "url": "https://{region}.x.example/mcp",
              "variables": { "region": { "default": "eu" } },
              "headers": [ { "name": "X-Key", "isSecret": true, "isRequired": true },
                           { "name": "X-Shape", "value": "round" } ] } ] }, "_meta": {} },
        { "server": { "name": "com.example/boxed", "packages": [
            { "registry_type": "oci", "identifier": "docker.io/mcp/files", "version": "1.0.2",
              "runtime_arguments": [ { "type": "named", "name": "--mount",
                  "value": "type=bind,src={source},dst=/p", "is_required": true,
                  "variables": { "source": { "is_required": true } } } ],
              "environment_variables": [ { "name": "LEVEL", "default": "info" } ] } ] } }
    ] }"#;
    let expected = json!({
        "far": {
            "url": "https://eu.x.example/mcp",
            "headers": { "X-Key": { "secret": "MCP_FAR_X_KEY" }, "X-Shape": "round" },
        },
        "boxed": {
            "command": "docker",
            "args": [
                "run", "-i", "--rm", "--mount",
                { "expand": "type=bind,src=${env:SOURCE},dst=/p" },
                "-e", "LEVEL", "docker.io/mcp/files:1.0.2",
            ],
            "env": { "LEVEL": "info" },
        },
    });
    assert_eq!(settings(text), expected);
}

const MANIFEST: &str = r#"{
    "manifest_version": "0.3", "name": "local files", "version": "1.0.0",
    "server": { "type": "node", "entry_point": "server/index.js", "mcp_config": {
        "command": "node",
        "args": ["${__dirname}/server/index.js", "${user_config.dirs}", "--depth",
                 "${user_config.depth}"],
        "env": { "API_KEY": "${user_config.key}", "HOST": "${user_config.host}",
                 "CACHE": "${HOME}/.cache", "OPTIONAL": "${user_config.optional}" },
        "platform_overrides": {
            "linux": { "env": { "SYSTEM": "unix" } }, "darwin": { "env": { "SYSTEM": "unix" } } }
    } },
    "user_config": {
        "dirs": { "type": "directory", "multiple": true, "default": ["${HOME}/a", "${DOCUMENTS}"] },
        "depth": { "type": "number", "default": 3 },
        "key": { "type": "string", "sensitive": true, "required": true },
        "host": { "type": "string", "required": true },
        "optional": { "type": "string" }
    }
}"#;

fn of_the_manifest(directory: &str) -> Value {
    let expand = |text: &str| json!({ "expand": text });
    json!({
        "local-files": {
            "command": "node",
            "args": [
                format!("{directory}/server/index.js"), expand("${userHome}/a"),
                expand("${userHome}/Documents"), "--depth", "3",
            ],
            "cwd": directory,
            "env": {
                "API_KEY": { "secret": "MCP_LOCAL_FILES_KEY" }, "HOST": expand("${env:HOST}"),
                "CACHE": expand("${userHome}/.cache"), "SYSTEM": "unix",
            },
        },
    })
}

#[test]
fn a_bundle_and_its_manifest_alone() {
    let mut archive = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    let options = zip::write::SimpleFileOptions::default();
    archive.start_file("manifest.json", options).unwrap();
    archive.write_all(MANIFEST.as_bytes()).unwrap();
    let bytes = archive.finish().unwrap().into_inner();
    assert!(is_bundle(&bytes) && !is_bundle(MANIFEST.as_bytes()));
    let import = read_bundle(&bytes, "/data/local-files").unwrap();
    assert_eq!(
        Value::Object(import.settings().unwrap()),
        of_the_manifest("/data/local-files")
    );
    let notes = import.notes.join("\n");
    for part in [
        "variable HOST",
        "`optional` may be set",
        "unpacked in /data/local-files",
    ] {
        assert!(notes.contains(part), "{notes}");
    }
    assert_eq!(settings(MANIFEST), of_the_manifest("/BUNDLE_DIRECTORY"));
    assert!(read_bundle(b"PK\x03\x04nonsense", "/x").is_err());
}

#[test]
fn no_secret_of_any_form_is_written_down() {
    let secret = "sk-0123456789abcdef0123456789abcdef";
    for text in [
        format!("codex mcp add s --env KEY={secret} -- server --token {secret}"),
        format!("extensions:\n  s: {{ type: stdio, cmd: x, envs: {{ KEY: {secret} }} }}"),
        format!("mcpServers:\n  - name: s\n    url: https://x.example\n    apiKey: {secret}"),
        format!(
            "{{\"context_servers\": {{\"s\": {{\"command\": \"x\", \"env\": {{\"A\": \"{secret}\"}}}}}}}}"
        ),
    ] {
        assert!(!settings(&text).to_string().contains(secret), "{text}");
        assert!(!notes(&text).contains(secret), "{text}");
        assert!(!secrets(&text).is_empty(), "{text}");
    }
}

#[test]
fn all_variables_of_a_text_that_stays_as_it_is_are_told() {
    let text = r#"{ "mcpServers": { "s": {
        "command": "run", "args": ["--at=${workspaceFolder}/${file}:${env:PORT:-1}"]
    } } }"#;
    let notes = notes(text);
    for variable in ["`${file}`", "`${workspaceFolder}`", "`${env:PORT:-1}`"] {
        assert!(notes.contains(variable), "{variable}: {notes}");
    }
}

#[test]
fn passwords_are_found_in_values_wherever_they_stand() {
    for value in [
        "postgresql://user:hunter2@localhost/db",
        "mongodb+srv://u:hunter2@c/db",
        "redis://:hunter2@h:1",
        "http://u:hunter2@h:1",
        "Server=h;Database=d;Password=hunter2;",
        "DRIVER={x};UID=sa;PWD=hunter2",
        "{\"Authorization\": \"Bearer hunter2\"}",
        "postgresql://user:hunter2@${HOST}/db",
        "${URL:-postgresql://user:hunter2@h/db}",
    ] {
        for server in [
            json!({ "command": "x", "env": { "ANY": value } }),
            json!({ "command": "x", "args": [value] }),
            json!({ "command": "x", "args": ["--any", value] }),
            json!({ "command": "x", "args": [format!("--any={value}")] }),
            json!({ "command": "x", "args": ["-e", format!("ANY={value}")] }),
            json!({ "url": "https://x.example", "headers": { "X-Any": value } }),
        ] {
            let text = json!({ "mcpServers": { "s": server } }).to_string();
            let written = settings(&text).to_string();
            assert!(!written.contains("hunter2"), "{text}: {written}");
            assert!(!notes(&text).contains("hunter2"), "{text}");
            assert_eq!(secrets(&text).len(), 1, "{text}");
        }
    }
}

#[test]
fn one_value_is_a_secret_in_args_and_in_env() {
    let text = r#"{ "mcpServers": { "dsn": {
        "command": "pg", "args": ["postgresql://user:hunter2@localhost/db"],
        "env": { "DATABASE_URL": "postgresql://user:hunter2@localhost/db", "DB_PASS": "hunter2",
                 "PWD": "/srv" } } } }"#;
    let expected = json!({ "dsn": {
        "command": "pg",
        "args": [{ "secret": "MCP_DSN_URL" }],
        "env": {
            "DATABASE_URL": { "secret": "MCP_DSN_DATABASE_URL" },
            "DB_PASS": { "secret": "MCP_DSN_DB_PASS" },
            "PWD": "/srv",
        },
    } });
    assert_eq!(settings(text), expected);
}

#[test]
fn a_connection_string_is_called_after_its_option() {
    let text = r#"{ "mcpServers": { "s": { "command": "x",
        "args": ["--connection-string", "Server=h;Password=hunter2"] } } }"#;
    let secret = json!({ "secret": "MCP_S_CONNECTION_STRING" });
    assert_eq!(settings(text)["s"]["args"][1], secret);
}

#[test]
fn parameters_of_an_address_may_be_secrets() {
    for name in ["code", "key", "api_key", "token", "sig", "password", "auth"] {
        let url = format!("https://h.example/mcp?region=eu&{name}=hunter2");
        let text = json!({ "servers": { "r": { "url": url } } }).to_string();
        let expected = json!({ "r": { "url": { "secret": "MCP_R_URL" } } });
        assert_eq!(settings(&text), expected, "{name}");
    }
    let text = r#"{ "mcp": { "r": { "url": "https://h.example/mcp?k={env:API_KEY}" } } }"#;
    let expected = json!({ "r": { "url": { "secret": "MCP_R_URL" } } });
    assert_eq!(settings(text), expected);
}

/// The settings of a server that names a variable of its own `env`, in a form of configuration.
fn of_mcp_remote() -> Value {
    json!({ "remote": {
        "command": "npx",
        "args": ["mcp-remote", "https://z/mcp", "--header", "Authorization:${AUTH_HEADER}"],
        "env": { "AUTH_HEADER": { "secret": "MCP_REMOTE_AUTH_HEADER", "prefix": "Bearer " } },
    } })
}

#[test]
fn a_program_expands_variables_of_its_own_env() {
    let json = r#"{ "mcpServers": { "remote": { "command": "npx",
        "args": ["mcp-remote", "https://z/mcp", "--header", "Authorization:${AUTH_HEADER}"],
        "env": { "AUTH_HEADER": "Bearer tok_9876543210abcdef" } } } }"#;
    let toml = r#"
[mcp_servers.remote]
command = "npx"
args = ["mcp-remote", "https://z/mcp", "--header", "Authorization:${AUTH_HEADER}"]
env = { AUTH_HEADER = "Bearer tok_9876543210abcdef" }
"#;
    let yaml = "
extensions:
  remote:
    type: stdio
    cmd: npx
    args: [mcp-remote, 'https://z/mcp', --header, 'Authorization:${AUTH_HEADER}']
    envs: { AUTH_HEADER: Bearer tok_9876543210abcdef }
";
    let line = "claude mcp add remote -e 'AUTH_HEADER=Bearer tok_9876543210abcdef' -- npx \
                mcp-remote https://z/mcp --header 'Authorization:${AUTH_HEADER}'";
    let codex = "codex mcp add remote --env 'AUTH_HEADER=Bearer tok_9876543210abcdef' -- npx \
                 mcp-remote https://z/mcp --header 'Authorization:${AUTH_HEADER}'";
    for text in [json, toml, yaml, line, codex] {
        assert_eq!(settings(text), of_mcp_remote(), "{text}");
        assert_eq!(secrets(text), ["MCP_REMOTE_AUTH_HEADER"], "{text}");
    }
}

#[test]
fn a_variable_that_env_only_hands_on_stays_a_secret() {
    let text = r#"{ "mcpServers": { "s": { "command": "x", "args": ["--api-key", "${API_KEY}"],
        "env": { "API_KEY": "${API_KEY}" } } } }"#;
    let expected = json!({ "s": {
        "command": "x",
        "args": ["--api-key", { "secret": "MCP_S_API_KEY" }],
        "env": { "API_KEY": { "secret": "MCP_S_API_KEY_2" } },
    } });
    assert_eq!(settings(text), expected);
    assert_eq!(
        read(text).unwrap().secrets[0].from.as_deref(),
        Some("API_KEY")
    );
}

#[test]
fn variables_beside_those_of_its_own_env_are_told() {
    let text = r#"{ "mcpServers": { "s": { "command": "x", "args": ["${A}/${workspaceFolder}"],
        "env": { "A": "1" } } } }"#;
    assert_eq!(
        settings(text)["s"]["args"],
        json!(["${A}/${workspaceFolder}"])
    );
    assert!(notes(text).contains("has `${workspaceFolder}` beside"));
}

#[test]
fn over_http_headers_name_the_secret_of_env() {
    let text = r#"{ "mcpServers": { "r": { "url": "https://${REGION}.example/mcp",
        "headers": { "Authorization": "${AUTH_HEADER}", "X-Key": "k ${KEY}", "X-Two": "${KEY};v",
                     "X-Auth": "half${KEY}" },
        "env": { "AUTH_HEADER": "Bearer abc", "KEY": "hunter2", "REGION": "eu" } } } }"#;
    let expected = json!({ "r": {
        "url": "https://eu.example/mcp",
        "headers": {
            "Authorization": { "secret": "MCP_R_AUTH_HEADER", "prefix": "Bearer " },
            "X-Key": { "secret": "MCP_R_KEY", "prefix": "k " },
            "X-Two": { "secret": "MCP_R_X_TWO" },
            "X-Auth": { "secret": "MCP_R_X_AUTH" },
        },
        "env": {
            "AUTH_HEADER": { "secret": "MCP_R_AUTH_HEADER", "prefix": "Bearer " },
            "KEY": { "secret": "MCP_R_KEY" },
            "REGION": "eu",
        },
    } });
    assert_eq!(settings(text), expected);
    let names = "MCP_R_AUTH_HEADER MCP_R_KEY MCP_R_X_TWO MCP_R_X_AUTH";
    assert_eq!(secrets(text).join(" "), names);
    assert!(notes(text).contains("header X-Two is put together of a secret"));
    let goose = "
extensions:
  far:
    type: streamable_http
    uri: https://x.example/mcp
    headers: { Authorization: 'Bearer ${FAR_TOKEN}' }
    env_keys: [FAR_TOKEN, OTHER]
";
    let secret = json!({ "secret": "MCP_FAR_FAR_TOKEN", "prefix": "Bearer " });
    assert_eq!(settings(goose)["far"]["headers"]["Authorization"], secret);
    assert_eq!(secrets(goose), ["MCP_FAR_FAR_TOKEN"]);
}

#[test]
fn the_unit_of_a_timeout_is_that_of_its_program() {
    for (fields, ms, told) in [
        ("\"timeout\": 60, \"autoApprove\": []", 60_000, "60 seconds"),
        (
            "\"disabled\": false, \"timeout\": 1800",
            1_800_000,
            "1800 seconds",
        ),
        ("\"timeout\": 60", 60_000, "60 seconds"),
        ("\"timeout\": 30000", 30_000, "30000 ms"),
    ] {
        let text = format!("{{\"mcpServers\": {{\"s\": {{\"command\": \"x\", {fields}}}}}}}");
        assert_eq!(settings(&text)["s"]["request_timeout_ms"], ms, "{text}");
        let notes = notes(&text);
        assert!(notes.contains(&format!("taken for {told}")), "{notes}");
    }
}
