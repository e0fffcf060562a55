//! What the conformance suite runs as the client: the shipped MCP backend in a host, and on top of
//! it somebody who lists the tools and calls each.
//!
//! `conformance-client URL`; the suite says the scenario in the environment
//! (`MCP_CONFORMANCE_SCENARIO`, `MCP_CONFORMANCE_PROTOCOL_VERSION`, `MCP_CONFORMANCE_CONTEXT`).
//! The plugin is the library beside the program, or the file in `CONJURE_MCP_PLUGIN`. The person
//! who logs in is a browser that follows redirects, and a form is accepted as it is.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use conjure_host::Host;
use conjure_host::StandaloneBackend;
use conjure_host::backend::Asker;
use conjure_host::session::BackendSpec;
use conjure_skill_sdk::protocol::{BackendCall, Elicit, Elicited, ToolDecl, ToolResult};
use futures_util::future::BoxFuture;
use serde_json::{Map, Value, json};

/// The only server.
const SERVER: &str = "suite";
/// The address of the document that the suite knows clients by.
const CLIENT: &str = "https://conformance-test.local/client-metadata.json";
/// The secret of a client that was registered by hand.
const SECRET: &str = "MCP_CLIENT_SECRET";
/// How often the plugin is loaded before that is given up.
const LOADS: usize = 3;
/// How often it logs in.
const LOGINS: usize = 3;
/// How long a call may take; the suite gives a scenario 30 s.
const CALL: u64 = 10_000;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let url = std::env::args()
        .nth(1)
        .context("the URL of the server is missing")?;
    let context: Value = match std::env::var("MCP_CONFORMANCE_CONTEXT") {
        Ok(text) => serde_json::from_str(&text)?,
        Err(_) => Value::Null,
    };
    let data = tempfile::tempdir()?;
    let mut oauth = Map::new();
    oauth.insert("client_metadata_url".to_owned(), CLIENT.into());
    if let Some(id) = context.get("client_id") {
        oauth.insert("client_id".to_owned(), id.clone());
    }
    let secret = context.get("client_secret").and_then(Value::as_str);
    if secret.is_some() {
        oauth.insert("client_secret".to_owned(), json!({ "secret": SECRET }));
    }
    let host = host(data.path(), secret).await?;
    let server = json!({
        "url": url,
        "era": era(),
        "oauth": oauth,
        "sampling": true,
        "request_timeout_ms": CALL,
    });
    let backend = BackendSpec {
        kind: "mcp".to_owned(),
        config: Some(json!({ "servers": { SERVER: server } })),
        ..BackendSpec::default()
    };
    let alone = host
        .open_backend(&backend, Some(data.path().to_owned()))
        .await?;
    let done = run(&alone, &context).await;
    alone.close().await;
    done
}

/// A host with the plugin. The suite runs all scenarios at once, and a machine that is busy with
/// them may take too long to load a library.
async fn host(data: &Path, secret: Option<&str>) -> anyhow::Result<Host> {
    let plugin = plugin()?;
    let mut why = String::new();
    for _ in 0..LOADS {
        let mut builder = Host::builder()
            .data_dir(data)
            .plugin_file(&plugin)
            .asker(Browser);
        if let Some(secret) = secret {
            builder = builder.secret(SECRET, secret.into());
        }
        let host = builder.build().await?;
        let loaded = host.registry().snapshot();
        if !loaded.plugins().is_empty() {
            return Ok(host);
        }
        let failed = loaded
            .failed()
            .iter()
            .map(|failed| failed.reason.to_string());
        why = failed.collect::<Vec<_>>().join("; ");
    }
    bail!("the plugin was not loaded: {why}")
}

/// Connects, logs in where that is wanted, and calls what there is to call.
async fn run(alone: &StandaloneBackend, context: &Value) -> anyhow::Result<()> {
    let tools = wait_for_tools(alone).await?;
    let wanted = context.get("toolCalls").and_then(Value::as_array);
    if let Some(wanted) = wanted {
        for call in wanted {
            let name = call.get("name").and_then(Value::as_str).unwrap_or_default();
            let arguments = call.get("arguments").cloned().unwrap_or(json!({}));
            print_result(name, call_tool(alone, name, arguments).await);
        }
        return Ok(());
    }
    for tool in &tools {
        print_result(
            &tool.name,
            call_tool(alone, &tool.name, arguments(tool, &tools)).await,
        );
    }
    Ok(())
}

/// The tools, once they are listed, which may take a login or a second one.
async fn wait_for_tools(alone: &StandaloneBackend) -> anyhow::Result<Vec<ToolDecl>> {
    let mut logins = 0;
    for _ in 0..200 {
        let catalog = alone.catalog().await?;
        let status = status(catalog.meta.as_ref())?;
        if status.get("tools").is_some() {
            return Ok(catalog.tools);
        }
        match status.get("state").and_then(Value::as_str) {
            Some("needs_auth") if logins < LOGINS => {
                logins += 1;
                let result = log_in(alone).await?;
                anyhow::ensure!(!result.is_error, "{}", result.joined_text());
            }
            Some("failed" | "needs_auth" | "closed") => bail!("it does not work: {status}"),
            _ => tokio::time::sleep(Duration::from_millis(25)).await,
        }
    }
    bail!("the tools were not listed")
}

async fn log_in(alone: &StandaloneBackend) -> anyhow::Result<ToolResult> {
    let call = BackendCall {
        name: "login".to_owned(),
        skill: None,
        arguments: json!({ "server": SERVER }),
        files: Vec::new(),
    };
    Ok(alone.call(call).await?)
}

async fn call_tool(
    alone: &StandaloneBackend,
    name: &str,
    arguments: Value,
) -> anyhow::Result<ToolResult> {
    let call = BackendCall {
        name: name.to_owned(),
        skill: Some(SERVER.to_owned()),
        arguments,
        files: Vec::new(),
    };
    Ok(alone.call(call).await?)
}

/// What came of a call; whether it is right the suite judges.
fn print_result(name: &str, result: anyhow::Result<ToolResult>) {
    use std::io::Write as _;
    let line = match result {
        Ok(result) => format!("{name}: {}\n", result.joined_text()),
        Err(error) => format!("{name}: {error:#}\n"),
    };
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// How the server is.
fn status(meta: Option<&Value>) -> anyhow::Result<Value> {
    let status = meta.and_then(|meta| meta.get("servers")?.get(0));
    status
        .cloned()
        .context("the backend says nothing of its server")
}

/// Arguments that a tool takes: one of each type. A tool that wants a schema gets that of another.
fn arguments(tool: &ToolDecl, tools: &[ToolDecl]) -> Value {
    let properties = tool
        .input_schema
        .get("properties")
        .and_then(Value::as_object);
    let required = tool.input_schema.get("required").and_then(Value::as_array);
    let mut arguments = Map::new();
    for (name, schema) in properties.into_iter().flatten() {
        if required.is_some_and(|required| !required.iter().any(|known| known == name)) {
            continue;
        }
        let value = match schema.get("type").and_then(Value::as_str) {
            _ if name == "schema" => tools
                .iter()
                .find(|other| other.name != tool.name)
                .map_or(json!({}), |other| other.input_schema.clone()),
            Some("number" | "integer") => json!(1),
            Some("boolean") => json!(true),
            Some("array") => json!([]),
            Some("object") => json!({}),
            _ => json!("text"),
        };
        arguments.insert(name.clone(), value);
    }
    Value::Object(arguments)
}

/// The era that the scenario is of.
fn era() -> &'static str {
    match std::env::var("MCP_CONFORMANCE_PROTOCOL_VERSION") {
        Ok(version) if version.as_str() >= "2026-07-28" => "modern",
        _ => "legacy",
    }
}

fn plugin() -> anyhow::Result<PathBuf> {
    if let Some(path) = std::env::var_os("CONJURE_MCP_PLUGIN") {
        return Ok(path.into());
    }
    let own = std::env::current_exe()?;
    let dir = own.parent().context("the program is in no directory")?;
    let name = format!(
        "{}conjure_backend_mcp{}",
        std::env::consts::DLL_PREFIX,
        std::env::consts::DLL_SUFFIX
    );
    Ok(dir.join(name))
}

/// A person: visits pages, and accepts forms as they are.
struct Browser;

impl Asker for Browser {
    fn elicit(&self, _plugin: String, question: Elicit) -> BoxFuture<'static, Elicited> {
        Box::pin(async move {
            let visited = match question.url {
                Some(url) => reqwest::get(url).await.is_ok(),
                None => true,
            };
            Elicited {
                action: if visited { "accept" } else { "decline" }.to_owned(),
                content: BTreeMap::new(),
            }
        })
    }
}
