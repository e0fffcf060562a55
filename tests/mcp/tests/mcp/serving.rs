//! `conjure mcp serve` with the suite's fixtures: over HTTP as a process of ours, over stdio as the
//! command that a client starts.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use conjure_kit::{ProgramHandle, TokenRelay, Workspace, build_plugin, cli, conjure_bin};
use serde_json::{Value, json};

/// The package of the fixtures.
const FIXTURE: &str = "conjure-skill-mcp-conformance";
/// A skill that is added while a client is connected.
const ADDED: &str = "conjure-skill-cache-manager";
/// How long a server may run.
const LIMIT: Duration = Duration::from_secs(280);

/// What is served: every native skill there is, by its tools' plain names, which are those that
/// the suite calls.
const SESSION: &str = r#"
[[backend]]
kind = "native"
prefix = "none"
"#;

/// A directory with plugins and a session file.
pub(crate) struct Served {
    workspace: Workspace,
}

impl Served {
    /// The fixtures.
    pub(crate) fn fixture() -> Self {
        let workspace = Workspace::new().unwrap();
        workspace.add_plugin(FIXTURE).unwrap();
        workspace.write("session.toml", SESSION).unwrap();
        Self { workspace }
    }

    /// What another server has, behind our own client.
    pub(crate) fn gateway(behind: &Self) -> Self {
        let workspace = Workspace::new().unwrap();
        workspace.add_plugin("conjure-backend-mcp").unwrap();
        let mut server = behind.command();
        server["sampling"] = json!(true);
        server["initialize_timeout_ms"] = json!(30_000);
        let config = json!({ "servers": { "behind": server }, "catalog_wait_ms": 30_000 });
        let session = format!(
            "[[backend]]\nkind = \"mcp\"\nprefix = \"none\"\n[backend.config]\n{}\n",
            toml_of(&config)
        );
        workspace.write("session.toml", session).unwrap();
        Self { workspace }
    }

    pub(crate) fn workspace(&self) -> &Workspace {
        &self.workspace
    }

    /// The command that serves over stdio, for a client to start. It needs nothing of the
    /// environment, for clients pass little of theirs on.
    pub(crate) fn command(&self) -> Value {
        let mut arguments = vec![json!("--plugin-dir"), json!(self.workspace.plugins())];
        arguments.extend([json!("--data-dir"), json!(self.workspace.data_dir())]);
        arguments.extend(["mcp", "serve", "--stdio", "-c"].map(Value::from));
        arguments.push(json!(self.workspace.work().join("session.toml")));
        json!({ "command": conjure_bin().unwrap(), "args": arguments })
    }

    /// How a client adds a skill: a complete file, and the name that it is to get.
    pub(crate) fn addition(&self) -> Value {
        let built = build_plugin(ADDED).unwrap();
        let plugins = self.workspace.plugins();
        // On one file system with the plugins, so that it appears whole.
        let ready = self.workspace.root().join("ready.so");
        fs::copy(&built, &ready).unwrap();
        json!({ "from": ready, "to": plugins.join(built.file_name().unwrap()) })
    }

    /// Starts a server over HTTP on a port of the system's choice.
    pub(crate) fn over_http(self) -> Serving {
        let arguments = [
            "--json",
            "mcp",
            "serve",
            "--http",
            "127.0.0.1:0",
            "--config",
        ];
        let session: PathBuf = self.workspace.work().join("session.toml");
        let arguments = arguments.iter().map(Into::into);
        let running = cli(arguments.chain([session.into_os_string()]))
            .workspace(&self.workspace)
            .deadline(LIMIT)
            .start()
            .unwrap();
        let line = running.wait_for_stdout("\n").unwrap();
        let line: Value = serde_json::from_str(line.lines().next().unwrap()).unwrap();
        let url = line["url"].as_str().unwrap();
        let address = url.strip_prefix("http://").unwrap();
        let address = address.strip_suffix("/mcp").unwrap().parse().unwrap();
        // Programs of others have no way to be given a token.
        let token = self.workspace.http_token().unwrap();
        let relay = TokenRelay::start(address, &token).unwrap();
        Serving {
            url: format!("http://{}/mcp", relay.address()),
            served: self,
            _running: running,
        }
    }
}

/// A server over HTTP, until this is dropped.
pub(crate) struct Serving {
    url: String,
    served: Served,
    _running: ProgramHandle,
}

impl Serving {
    /// The fixtures, served.
    pub(crate) fn fixture() -> Self {
        Served::fixture().over_http()
    }

    /// Endpoint of the server.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    pub(crate) fn served(&self) -> &Served {
        &self.served
    }
}

/// The members of a JSON object as lines of TOML: what is in them is written inline.
fn toml_of(object: &Value) -> String {
    let members = object.as_object().unwrap().iter();
    let lines = members.map(|(name, value)| format!("{name} = {}", inline(value)));
    lines.collect::<Vec<_>>().join("\n")
}

fn inline(value: &Value) -> String {
    match value {
        Value::Object(object) => {
            let members = object.iter();
            let members = members.map(|(name, value)| format!("{name} = {}", inline(value)));
            format!("{{ {} }}", members.collect::<Vec<_>>().join(", "))
        }
        Value::Array(values) => {
            let values: Vec<String> = values.iter().map(inline).collect();
            format!("[{}]", values.join(", "))
        }
        // Texts, numbers and flags are written alike.
        other => other.to_string(),
    }
}
