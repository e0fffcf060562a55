//! Executors and backends that are programs.

use std::sync::Arc;

use conjure_host::plugin::{CallOptions, Instance};
use conjure_plugin_tests::{Bench, envelope};
use serde_json::{Value, json};

use super::{bench, described, sdk};

const BACKEND: &str = r#"
from conjure_plugin import Failure, Plugin, Result

backend = Plugin("backend", "echo", "Says what it is told")
opened = []

@backend.operation("backend.open")
def open_session(call, body):
    opened.append(call.session)
    return {}

@backend.operation("backend.catalog")
def catalog(call, body):
    schema = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
    return {"tools": [{"op": "backend.call", "name": "echo", "input_schema": schema}]}

@backend.operation("backend.call")
def call_tool(call, body):
    if body["name"] == "end":
        import os
        os._exit(1)
    if body["name"] != "echo":
        raise Failure("there is no such tool")
    return Result(f"{body['arguments']['text']} {opened}").to_json()

backend.run()
"#;

const EXECUTOR: &str = r#"
from conjure_plugin import Fault, Plugin

executor = Plugin("executor", "echo", "Runs nothing")

@executor.operation("executor.bash")
def bash(call, body):
    call.stdout("out")
    return {"exit_code": 7, "stderr": body["command"]}

executor.run()
"#;

async fn loaded(bench: &Bench, kind: &str, program: &str) -> Arc<Instance> {
    bench.put("conjure_plugin.py", &sdk());
    bench.put("echo.py", program.as_bytes());
    let files = ["echo.py", "conjure_plugin.py"];
    let text = described("echo", "1.0.0", &["python3", "echo.py"], &files);
    let text = text.replace("\"skill\"", &format!("{kind:?}"));
    let path = bench.put("echo.plugin.toml", text.as_bytes());
    let plugin = Arc::new(bench.loader.load(&path, false).unwrap());
    assert_eq!(plugin.manifest().kind, kind);
    bench.instance(&plugin).await
}

async fn request(instance: &Instance, op: &str, body: Value) -> Result<Value, String> {
    let mut json: Value = serde_json::from_slice(&envelope(&body)).unwrap();
    json["session"] = "s7".into();
    json["working_dir"] = "/work".into();
    let json = serde_json::to_vec(&json).unwrap();
    let reply = instance.request(op, json, CallOptions::default()).await;
    let reply = reply.map_err(|failure| failure.to_string())?;
    Ok(serde_json::from_slice(&reply).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backend_has_its_catalog_and_its_sessions_again_when_it_starts_anew() {
    let bench = bench();
    let backend = loaded(&bench, "backend", BACKEND).await;
    request(&backend, "backend.open", json!({})).await.unwrap();
    let catalog = request(&backend, "backend.catalog", json!({})).await;
    assert_eq!(catalog.unwrap()["tools"][0]["name"], "echo");
    let echo = json!({ "name": "echo", "arguments": { "text": "hi" } });
    let said = async || {
        request(&backend, "backend.call", echo.clone())
            .await
            .unwrap()
    };
    assert_eq!(said().await["content"][0]["text"], "hi ['s7']");
    let ended = request(
        &backend,
        "backend.call",
        json!({ "name": "end", "arguments": {} }),
    )
    .await;
    assert!(ended.unwrap_err().contains("`exit` with code 1"));
    assert_eq!(said().await["content"][0]["text"], "hi ['s7']");
    // What its author did not write is answered all the same.
    request(&backend, "backend.close", json!({})).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_executor_runs_commands_and_is_ready_without_more() {
    let bench = bench();
    let executor = loaded(&bench, "executor", EXECUTOR).await;
    let ready = request(&executor, "executor.init", json!({})).await;
    assert_eq!(ready.unwrap(), json!({ "working_dir": "/work" }));
    let ran = request(&executor, "executor.bash", json!({ "command": "ls" })).await;
    assert_eq!(ran.unwrap(), json!({ "exit_code": 7, "stderr": "ls" }));
    let none = request(&executor, "executor.view", json!({ "path": "a" })).await;
    assert!(none.unwrap_err().contains("no operation `executor.view`"));
    request(&executor, "executor.cleanup", json!({}))
        .await
        .unwrap();
}
