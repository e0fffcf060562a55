//! What the host has, as programs read it: the command line with `--json` and the API say the same.

use conjure_core::routing::{Mode, Route, RoutingTable};
use serde_json::{Value, json};

use crate::outlook::Outlooks;
use crate::plugin::{FailedPlugin, LoadedPlugin, Pin, PluginSource};

/// A loaded plugin.
pub fn loaded_json(plugin: &LoadedPlugin) -> Value {
    let manifest = plugin.manifest();
    let health = plugin.health();
    let (file, sha256, pinned, rustc, sdk) = match plugin.source() {
        PluginSource::File {
            path,
            sha256,
            header,
            pin,
            ..
        } => (
            Some(path.clone()),
            Some(sha256.to_string()),
            pin_words(pin),
            Some(header.rustc.clone()),
            Some(header.sdk.clone()),
        ),
        PluginSource::Linked => (None, None, pin_words(&Pin::Linked), None, None),
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
        "rustc": rustc,
        "sdk": sdk,
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
        "kept": failed.kept.as_ref().map(ToString::to_string),
    })
}

/// Why a library may run in this process.
fn pin_words(pin: &Pin) -> &'static str {
    match pin {
        Pin::Named => "named by --plugin",
        Pin::OwnDirectory => "in a directory of the user's own",
        Pin::Linked => "linked into the program",
        Pin::No { .. } => "no",
    }
}

/// What a session would begin with: its table, the tools that run at the provider, and what a
/// request goes without.
pub fn outlooks_json(outlooks: &Outlooks) -> Value {
    let mut value = table_json(outlooks.table());
    let server_tools = outlooks.server_tools().iter();
    let server_tools: Value = server_tools
        .map(|tool| json!({ "name": tool.name(), "backend": tool.backend, "definition": tool.definition }))
        .collect();
    let instructions = outlooks.instructions().iter();
    let instructions: Value = instructions
        .map(|said| json!({ "backend": said.backend, "text": said.text }))
        .collect();
    let left_out = outlooks.left_out().iter();
    let left_out: Value = left_out
        .map(|tool| json!({ "name": tool.tool, "reason": tool.reason }))
        .collect();
    let failed = outlooks.failed().iter();
    let failed: Value = failed
        .map(|(backend, reason)| json!({ "backend": backend, "reason": reason }))
        .collect();
    let more = [
        ("server_tools", server_tools),
        ("instructions", instructions),
        ("left_out", left_out),
        ("failed_backends", failed),
    ];
    if let Some(fields) = value.as_object_mut() {
        fields.extend(more.map(|(name, value)| (name.to_owned(), value)));
    }
    value
}

/// The tools of a session, and those that are not offered.
pub fn table_json(table: &RoutingTable) -> Value {
    let routes: Vec<Value> = table
        .routes()
        .iter()
        .map(|route| {
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
        })
        .collect();
    let shadowed: Vec<Value> = table
        .shadowed()
        .iter()
        .map(|s| json!({ "name": s.name.as_str(), "source": s.source.to_string() }))
        .collect();
    let quarantined: Vec<Value> = table
        .quarantined()
        .iter()
        .map(|q| json!({ "name": q.name.as_str(), "reason": q.error.to_string() }))
        .collect();
    json!({
        "version": table.version(),
        "routes": routes,
        "shadowed": shadowed,
        "quarantined": quarantined,
    })
}

/// Whether calls of a tool run one after the other.
pub fn mode(route: &Route) -> &'static str {
    match route.definition.mode {
        Mode::Stateful => "stateful",
        Mode::Stateless => "stateless",
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
