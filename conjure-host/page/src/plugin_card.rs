//! A plugin as it is shown: its state, in which process it runs and how many use it, what of it is
//! held, what it may do, and what can be done with it.

use conjure_core::foreign_text::clean;
use conjure_core::numerals::count;
use maud::{Markup, html};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::client::segment;
use crate::held_tools::HeldToolInfo;

/// A plugin that is loaded.
#[derive(Deserialize)]
pub(crate) struct PluginInfo {
    pub(crate) name: String,
    version: String,
    kind: String,
    description: String,
    state: String,
    reason: Option<String>,
    file: Option<String>,
    sha256: Option<String>,
    pinned: String,
    isolation: String,
    #[serde(default)]
    isolation_reason: String,
    worker_ends: u64,
    /// Instances that live.
    #[serde(default)]
    instances: u64,
    /// Process ids of the plugin's workers.
    #[serde(default)]
    worker_pids: Vec<u32>,
    rustc: Option<String>,
    permissions: Map<String, Value>,
    tools: Vec<PluginToolInfo>,
}

#[derive(Deserialize)]
struct PluginToolInfo {
    name: String,
    #[serde(default)]
    description: String,
}

/// What is held of a plugin.
pub(crate) struct PluginHeldTools<'a> {
    /// How many tools, what servers say about their use among them.
    pub(crate) tools: usize,
    /// Address of the view that approves them; `None` where there is no session.
    pub(crate) approval_url: Option<&'a str>,
}

/// Whether a plugin offers a tool that is held.
pub(crate) fn is_of(plugin: &PluginInfo, tool: &HeldToolInfo) -> bool {
    match plugin.kind.as_str() {
        "skill" => tool.backend == "native" && tool.server.as_deref() == Some(plugin.name.as_str()),
        _ => tool.backend == plugin.name,
    }
}

/// A plugin with what can be done with it.
pub(crate) fn card(plugin: &PluginInfo, is_installed: bool, held: &PluginHeldTools<'_>) -> Markup {
    let (name, at) = (
        &plugin.name,
        format!("/plugins/of/{}", segment(&plugin.name)),
    );
    let id = format!("{name}-{}", plugin.version);
    html! {
        li.card id={ "plugin-" (id) } {
            div."row spread" {
                h2 { (name) " " span.muted { (plugin.version) } }
                div.row {
                    @if held.tools > 0 { span.badge.warn { "held" } }
                    @match plugin.state.as_str() {
                        "loaded" => span.badge.good { "loaded" },
                        state => span.badge.bad { (state) },
                    }
                }
            }
            @if let Some(reason) = &plugin.reason { p.wrong { (clean(reason)) } }
            @if held.tools > 0 {
                p id={ "plugin-held-" (id) } {
                    (count(held.tools as u64, "tool")) " held: no session offers what changed until somebody approves it. "
                    @if let Some(approving) = held.approval_url {
                        a id={ "plugin-approve-" (id) } href=(approving)
                            aria-label={ "What is held of " (name) } { "What is held" }
                    }
                }
            }
            p.said { (clean(&plugin.description)) }
            p.muted id={ "plugin-place-" (id) } {
                (plugin.kind) ", " (isolation_text(plugin)) ", " (usage_text(plugin))
                @if plugin.worker_ends > 0 { ", a worker ended by itself " (count(plugin.worker_ends, "time")) }
            }
            details id={ "plugin-may-" (id) } {
                summary id={ "plugin-may-show-" (id) } { "May do" }
                @let asked = permission_lines(&plugin.permissions);
                @if asked.is_empty() { p { "Nothing beside its session’s directories." } }
                ul { @for line in &asked { li { (line) } } }
            }
            details id={ "plugin-more-" (id) } {
                summary id={ "plugin-more-show-" (id) } { "Tools and origin" }
                ul { @for tool in &plugin.tools { li { code { (clean(&tool.name)) } " " (clean(&tool.description)) } } }
                @if let Some(file) = &plugin.file { p.break { "File " code { (clean(file)) } } }
                @if let Some(sha256) = &plugin.sha256 { p.break { "SHA-256 " code { (sha256) } } }
                p { "Pinned: " (plugin.pinned) @if let Some(rustc) = &plugin.rustc { ", built by rustc " (clean(rustc)) } }
            }
            div.row {
                @if plugin.file.is_some() {
                    form method="post" action={ (at) "/reload" } data-swap {
                        button.small id={ "plugin-reload-" (id) } aria-label={ "Load again: " (name) } { "Load again" }
                    }
                }
                @if is_installed {
                    a.button.small id={ "plugin-rollback-" (id) } href={ (at) "/rollback" } data-dialog
                        aria-label={ "Roll back " (name) } { "Roll back" }
                    a.button.small id={ "plugin-remove-" (id) } href={ (at) "/remove" } data-dialog
                        aria-label={ "Remove " (name) } { "Remove" }
                }
            }
        }
    }
}

/// Where a plugin runs and why there, in words.
fn isolation_text(plugin: &PluginInfo) -> String {
    let place = match plugin.isolation.as_str() {
        "in-process" => "in the host’s process",
        "process" => "in a process of its own",
        other => other,
    };
    match plugin.isolation_reason.is_empty() {
        true => place.to_owned(),
        false => format!("{place} ({})", plugin.isolation_reason),
    }
}

/// How many use a plugin now.
fn usage_text(plugin: &PluginInfo) -> String {
    let pids: Vec<String> = plugin.worker_pids.iter().map(u32::to_string).collect();
    let pids = match pids.is_empty() {
        true => String::new(),
        false => format!(", process {}", pids.join(", ")),
    };
    match plugin.instances {
        0 => "not in use".to_owned(),
        some => format!("in use by {}{pids}", count(some, "instance")),
    }
}

/// What a plugin asks to be allowed, a line each.
fn permission_lines(permissions: &Map<String, Value>) -> Vec<String> {
    let words = |name: &str| match name {
        "secrets" => "Read the secrets",
        "http" => "Reach the hosts",
        "sample" => "Ask the session’s model",
        "read" => "Read",
        "write" => "Read and change",
        "network" => "Open connections of its own",
        "commands" => "Start programs",
        _ => "Other",
    };
    let lines = permissions.iter().filter_map(|(name, value)| match value {
        Value::Bool(true) => Some(words(name).to_owned()),
        Value::Array(list) if !list.is_empty() => {
            let list: Vec<&str> = list.iter().filter_map(Value::as_str).collect();
            Some(format!("{}: {}", words(name), clean(&list.join(", "))))
        }
        _ => None,
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn plugin(name: &str, kind: &str, isolation: &str, instances: u64) -> PluginInfo {
        let plugin = json!({
            "name": name, "version": "1.0.0", "kind": kind, "description": "", "state": "loaded",
            "reason": null, "file": null, "sha256": null, "pinned": "no", "isolation": isolation,
            "worker_ends": 0, "instances": instances, "rustc": null, "permissions": {}, "tools": [],
        });
        serde_json::from_value(plugin).unwrap()
    }

    fn held(backend: &str, server: Option<&str>) -> HeldToolInfo {
        let definition = json!({ "description": "", "input_schema": {} });
        let held = json!({
            "digest": "1", "backend": backend, "server": server, "tool": "t", "changed": [],
            "approved": definition, "now": definition,
        });
        serde_json::from_value(held).unwrap()
    }

    #[test]
    fn what_is_held_is_said_of_the_plugin_that_offers_it() {
        let (mcp, notes) = (
            plugin("mcp", "backend", "process", 2),
            plugin("notes", "skill", "in-process", 0),
        );
        let (of_mcp, of_notes) = (held("mcp", Some("notes")), held("native", Some("notes")));
        assert!(is_of(&mcp, &of_mcp) && !is_of(&mcp, &of_notes));
        assert!(is_of(&notes, &of_notes) && !is_of(&notes, &of_mcp));
        let some = PluginHeldTools {
            tools: 2,
            approval_url: Some("/sessions/s/routes#routes-held"),
        };
        let shown = card(&mcp, false, &some).into_string();
        assert!(shown.contains("2 tools held"), "{shown}");
        assert!(
            shown.contains("href=\"/sessions/s/routes#routes-held\""),
            "{shown}"
        );
        assert!(shown.contains("in use by 2 instances"), "{shown}");
        let none = PluginHeldTools {
            tools: 0,
            approval_url: None,
        };
        let shown = card(&notes, false, &none).into_string();
        assert!(
            !shown.contains("held") && shown.contains("not in use"),
            "{shown}"
        );
    }

    #[test]
    fn what_a_plugin_says_of_its_compiler_is_shown_without_what_nobody_sees() {
        let mut plugin = plugin("notes", "skill", "in-process", 0);
        plugin.rustc = Some("1.\u{202e}85 <b>".to_owned());
        let none = PluginHeldTools {
            tools: 0,
            approval_url: None,
        };
        let shown = card(&plugin, false, &none).into_string();
        assert!(shown.contains("built by rustc 1.85 &lt;b&gt;"), "{shown}");
    }

    #[test]
    fn permissions_are_said_in_words() {
        let permissions = json!({ "http": ["a.example", "*.b.example"], "sample": true, "network": false, "read": [] });
        let lines = permission_lines(permissions.as_object().unwrap());
        assert_eq!(
            lines,
            [
                "Reach the hosts: a.example, *.b.example",
                "Ask the session’s model"
            ]
        );
    }
}
