//! What the host has, as programs read it: the command line with `--json` and the API say the same.

use conjure_core::routing::{CallMode, Route};
use serde_json::{Value, json};

use crate::session::{BackendCondition, ToolPreview};
use conjure_plugins::{FailedPlugin, LoadedPlugin, Pin, PluginSource};

/// A loaded plugin.
pub fn loaded_json(plugin: &LoadedPlugin) -> Value {
    let manifest = plugin.manifest();
    let health = plugin.health();
    let (file, sha256, pinned, rustc, sdk, command) = match plugin.source() {
        PluginSource::File {
            path,
            sha256,
            header,
            program,
            pin,
            ..
        } => (
            Some(path.clone()),
            Some(sha256.to_string()),
            describe_pin(pin),
            program.is_none().then(|| header.rustc.clone()),
            program.is_none().then(|| header.sdk.clone()),
            program.as_ref().map(|program| program.command.clone()),
        ),
        PluginSource::Linked => (None, None, describe_pin(&Pin::Linked), None, None, None),
    };
    json!({
        "name": manifest.name,
        "version": manifest.version,
        "kind": manifest.kind,
        "description": manifest.description,
        "state": state(health.quarantined.is_some()),
        "reason": health.quarantined,
        "file": file,
        "sha256": sha256,
        "pinned": pinned,
        "isolation": plugin.isolation().as_str(),
        "isolation_reason": plugin.isolation_reason().as_str(),
        "worker_ends": health.worker_ends,
        "rustc": rustc,
        "sdk": sdk,
        "command": command,
        "permissions": manifest.permissions,
        "capabilities": manifest.capabilities,
        "tools": manifest.tools,
    })
}

/// Whether calls are passed on to it.
pub fn state(quarantined: bool) -> &'static str {
    if quarantined { "quarantined" } else { "loaded" }
}

/// A file that is not loaded, or whose newest contents are not.
pub fn failed_json(failed: &FailedPlugin) -> Value {
    json!({
        "file": failed.path,
        "state": "failed",
        "reason": failed.reason.to_string(),
        "kept": failed.still_loaded.as_ref().map(ToString::to_string),
    })
}

/// Why a library may run in this process.
fn describe_pin(pin: &Pin) -> &'static str {
    match pin {
        Pin::Named => "named by --plugin",
        Pin::OwnDirectory => "in a directory of the user's own",
        Pin::Linked => "linked into the program",
        Pin::Unpinned { .. } => "no",
    }
}

/// How the backends of a session are, in their order.
pub fn backends_json(tool_preview: &ToolPreview) -> Value {
    tool_preview.backends().iter().map(backend_json).collect()
}

fn backend_json(backend: &BackendCondition) -> Value {
    let answer_ms = backend.answer_time.map(|time| time.as_millis());
    json!({
        "name": backend.status.name,
        "kind": backend.status.kind,
        "plugin": backend.status.plugin,
        "missing": backend.status.missing,
        "starting": backend.status.is_starting,
        "since_ms": backend.status.since_ms,
        "failed": backend.failed,
        "answer_ms": answer_ms.and_then(|ms| u64::try_from(ms).ok()),
        "servers": backend.servers,
    })
}

/// The tools of a session's next request: those of its table, those that run at the provider, and
/// what the request goes without.
pub fn tool_preview_json(tool_preview: &ToolPreview) -> Value {
    let table = tool_preview.table();
    let routes: Vec<Value> = tool_preview.routes().map(route_json).collect();
    let shadowed: Vec<Value> = table
        .shadowed()
        .iter()
        .map(|s| json!({ "name": s.name.as_str(), "source": s.source.to_string(), "reason": s.reason.to_string() }))
        .collect();
    let quarantined: Vec<Value> = table
        .quarantined()
        .iter()
        .map(|q| json!({ "name": q.name.as_str(), "reason": q.error.to_string() }))
        .collect();
    let left_out: Vec<Value> = tool_preview
        .omitted_tools()
        .iter()
        .map(|tool| json!({ "name": tool.tool, "reason": tool.reason }))
        .collect();
    let failed: Vec<Value> = tool_preview
        .failed()
        .iter()
        .map(|(backend, reason)| json!({ "backend": backend, "reason": reason }))
        .collect();
    let instructions: Vec<Value> = tool_preview
        .instructions()
        .iter()
        .map(|said| json!({ "backend": said.backend, "server": said.server, "text": said.text }))
        .collect();
    json!({
        "version": table.version(),
        "routes": routes,
        "shadowed": shadowed,
        "quarantined": quarantined,
        "server_tools": server_tools_json(tool_preview),
        "instructions": instructions,
        "left_out": left_out,
        "failed_backends": failed,
    })
}

/// The tools of a request that run at the provider.
pub fn server_tools_json(tool_preview: &ToolPreview) -> Value {
    let tools = tool_preview.server_tools().iter();
    tools
        .map(|tool| json!({ "name": tool.name(), "backend": tool.backend, "definition": tool.definition }))
        .collect()
}

fn route_json(route: &Route) -> Value {
    json!({
        "name": route.name.as_str(),
        "backend": &*route.backend,
        "kind": &*route.kind,
        "skill": route.skill(),
        "tool": route.tool(),
        "operation": route.op(),
        "plugin": route.definition.origin.plugin,
        "version": route.definition.origin.version,
        "file": route.definition.origin.file,
        "mode": mode(route),
        "effects": route.definition.effects,
        "schema_tokens": route.schema_tokens(),
        "description": route.definition.description,
        "input_schema": route.definition.input_schema,
    })
}

/// Whether calls of a tool run one after the other.
pub fn mode(route: &Route) -> &'static str {
    match route.definition.mode {
        CallMode::Stateful => "stateful",
        CallMode::Stateless => "stateless",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plugin_in_quarantine_is_not_called_loaded() {
        assert_eq!([state(true), state(false)], ["quarantined", "loaded"]);
    }
}
