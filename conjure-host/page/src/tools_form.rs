//! The tools and the MCP servers of a session, as fields of its configuration.

use std::collections::BTreeSet;

use conjure_core::foreign_text::clean;
use maud::{Markup, html};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::PageState;
use crate::client::ApiProblem;
use crate::forms::Field;
use crate::json_form::{Tabs, object};
use crate::saved::{FormData, FormProblem, McpServerInfo};

/// The rules of a policy, in the order in which they are shown.
const RULES: [(&str, &str, &str); 3] = [
    (
        "allow",
        "Allow",
        "Public names with *, one a line: calls that run without being asked about",
    ),
    ("ask", "Ask", "Calls that wait for a person"),
    ("deny", "Deny", "Calls that never run; deny wins"),
];

/// What commands may do, as it is chosen.
const SANDBOXES: [(&str, &str); 3] = [
    ("working-dir", "Change the working directory, no network"),
    ("network", "Change the working directory, use the network"),
    ("none", "All that the server's user may"),
];

/// The kinds of backends that this host has.
pub(crate) async fn kinds(app: &PageState) -> Result<Vec<String>, ApiProblem> {
    #[derive(Deserialize)]
    struct PluginKindsInfo {
        plugins: Vec<PluginKindInfo>,
    }
    #[derive(Deserialize)]
    struct PluginKindInfo {
        name: String,
        kind: String,
    }
    let plugins: PluginKindsInfo = app.api.get("/api/v1/plugins").await?;
    let backends = plugins.plugins.into_iter();
    // An executor is a backend of the narrow kind.
    let runs_calls = |kind: &str| kind.contains("backend") || kind.contains("executor");
    let backends = backends.filter(|plugin| runs_calls(&plugin.kind));
    let mut kinds: BTreeSet<String> = backends.map(|plugin| plugin.name).collect();
    kinds.insert("native".to_owned());
    // Those that are chosen one by one below.
    kinds.remove("mcp");
    Ok(kinds.into_iter().collect())
}

/// The backends of settings, with their kinds.
fn backends(tools: &Map<String, Value>) -> Vec<(String, Value)> {
    let list = tools.get("backend").and_then(Value::as_array);
    let list = list.map_or(&[] as &[Value], Vec::as_slice);
    let kind = |one: &Value| {
        one.get("kind")
            .and_then(Value::as_str)
            .unwrap_or("")
            .to_owned()
    };
    list.iter().map(|one| (kind(one), one.clone())).collect()
}

fn rules(tools: &Map<String, Value>, rule: &str) -> String {
    let policy = tools.get("policy").and_then(|policy| policy.get(rule));
    let list = policy.and_then(Value::as_array);
    let list = list.map_or(&[] as &[Value], Vec::as_slice);
    let lines: Vec<&str> = list.iter().filter_map(Value::as_str).collect();
    lines.join("\n")
}

/// The tools: backends and the policy, or all settings as JSON.
pub(crate) fn tools(
    sent: &FormData,
    now: &Map<String, Value>,
    kinds: &[String],
    wrong: &FormProblem<'_>,
) -> Markup {
    let was_sent = sent.has("tools_mode");
    let chosen: BTreeSet<String> = match was_sent {
        true => sent
            .all_values("backend")
            .into_iter()
            .map(str::to_owned)
            .collect(),
        false => backends(now).into_iter().map(|(kind, _)| kind).collect(),
    };
    let shown: BTreeSet<&String> = kinds.iter().chain(&chosen).collect();
    let sandbox = match was_sent {
        true => sent.text("sandbox"),
        false => sandbox(now).to_owned(),
    };
    let sandboxes = SANDBOXES.map(|(name, words)| (name.to_owned(), words.to_owned()));
    let fields = html! {
        p.hint #config-backends-words { "Backends. None: every native skill, and the shell where it is loaded" }
        div.row role="group" aria-label="Backends" aria-describedby="config-backends-words" {
            @for kind in shown {
                label.choice {
                    input id={ "config-backend-" (kind) } type="checkbox" name="backend" value=(kind)
                        checked[chosen.contains(kind)];
                    " " (kind)
                }
            }
        }
        (Field::new("config-sandbox", "sandbox", "Commands on the server's machine")
            .hint("Those of the shell; containers, remote machines and pods are confined by themselves")
            .select(&sandbox, &sandboxes))
        div.columns {
            @for (rule, words, hint) in RULES {
                @let id = format!("config-{rule}");
                @let name = format!("policy_{rule}");
                @let value = if was_sent { sent.text(&name) } else { rules(now, rule) };
                (Field::new(&id, &name, words).hint(hint).textarea(2, &value))
            }
        }
    };
    let tabs = Tabs::new("config", "tools", "Tools", sent);
    tabs.show(
        &fields,
        "In the shape of the session file",
        now,
        wrong.for_field("tools"),
    )
}

/// The settings that a form asks for. A form of fields keeps what they do not show.
pub(crate) fn tools_of(
    sent: &FormData,
    before: &Map<String, Value>,
) -> Result<Map<String, Value>, ApiProblem> {
    if sent.text("tools_mode") == "json" {
        return object("tools", &sent.text("tools_json"));
    }
    let mut tools = before.clone();
    let known = backends(before);
    let chosen = sent.all_values("backend");
    let mut list: Vec<Value> = Vec::new();
    list.extend(
        known
            .iter()
            .filter(|(kind, _)| chosen.contains(&kind.as_str()))
            .map(|(_, one)| one.clone()),
    );
    let fresh = chosen
        .iter()
        .filter(|kind| known.iter().all(|(known, _)| known != *kind));
    list.extend(fresh.map(|kind| json!({ "kind": kind })));
    put(&mut tools, "backend", Value::Array(list));
    let mut policy = tools
        .get("policy")
        .and_then(Value::as_object)
        .cloned()
        .unwrap_or_default();
    for (rule, _, _) in RULES {
        let lines = sent.lines(&format!("policy_{rule}"));
        put(&mut policy, rule, lines.into());
    }
    put(&mut tools, "policy", Value::Object(policy));
    put_sandbox(&mut tools, &sent.text("sandbox"));
    Ok(tools)
}

/// The choice of [`SANDBOXES`] that the settings stand for.
fn sandbox(tools: &Map<String, Value>) -> &'static str {
    let setting = tools.get("sandbox");
    let field = |name: &str| setting.and_then(|setting| setting.get(name));
    let is_open = setting.and_then(Value::as_str) == Some("none")
        || field("mode").and_then(Value::as_str) == Some("none");
    match (is_open, field("network").and_then(Value::as_bool)) {
        (true, _) => "none",
        (false, Some(true)) => "network",
        (false, _) => "working-dir",
    }
}

/// Sets what commands may do to another choice, and keeps the paths that are allowed besides where they
/// mean something.
fn put_sandbox(tools: &mut Map<String, Value>, choice: &str) {
    let is_known = SANDBOXES.iter().any(|(known, _)| *known == choice);
    if !is_known || choice == sandbox(tools) {
        return;
    }
    if choice == "none" {
        tools.insert("sandbox".to_owned(), json!("none"));
        return;
    }
    let table = tools.get("sandbox").and_then(Value::as_object);
    let mut table = table.cloned().unwrap_or_default();
    table.remove("mode");
    table.remove("network");
    if choice == "network" {
        table.insert("network".to_owned(), json!(true));
    }
    put(tools, "sandbox", Value::Object(table));
}

/// Sets a member, or takes it away where it would be empty.
fn put(object: &mut Map<String, Value>, name: &str, value: Value) {
    let is_empty = match &value {
        Value::Array(list) => list.is_empty(),
        Value::Object(object) => object.is_empty(),
        _ => false,
    };
    if is_empty {
        object.remove(name);
    } else {
        object.insert(name.to_owned(), value);
    }
}

/// The MCP servers: those of the session, and those that can be chosen.
pub(crate) fn mcps(
    sent: &FormData,
    now: &Map<String, Value>,
    servers: &[McpServerInfo],
    wrong: &FormProblem<'_>,
) -> Markup {
    let chosen: BTreeSet<&str> = match sent.has("tools_mode") {
        true => sent.all_values("mcp").into_iter().collect(),
        false => now.keys().map(String::as_str).collect(),
    };
    let enabled = servers.iter().filter(|server| server.enabled);
    let names: BTreeSet<&str> = now
        .keys()
        .map(String::as_str)
        .chain(enabled.map(|one| one.name.as_str()))
        .collect();
    html! {
        fieldset {
            legend { "MCP servers" }
            @if names.is_empty() {
                p.hint { "None is saved yet; " a href="/mcp" { "MCP servers" } " is where they are added." }
            }
            div.row {
                @for (at, name) in names.iter().enumerate() {
                    label.choice {
                        input id={ "config-mcp-" (at) } type="checkbox" name="mcp" value=(name)
                            checked[chosen.contains(name)];
                        " " (clean(name))
                    }
                }
            }
            @if let Some(error) = wrong.for_field("mcps") { p.hint.wrong { (error) } }
        }
    }
}

/// The MCP servers that a form asks for: a copy that the session has stays as it is.
pub(crate) fn mcps_of(
    sent: &FormData,
    before: &Map<String, Value>,
    servers: &[McpServerInfo],
) -> Result<Map<String, Value>, ApiProblem> {
    let mut wanted = Map::new();
    for name in sent.all_values("mcp") {
        let saved = || servers.iter().find(|server| server.name == name);
        let settings = match before.get(name) {
            Some(settings) => settings.clone(),
            None => match saved() {
                Some(server) => Value::Object(server.settings.clone()),
                None => {
                    let detail = format!("`mcps`: there is no server {name}");
                    return Err(crate::saved::invalid_at("mcps", detail));
                }
            },
        };
        wanted.insert(name.to_owned(), settings);
    }
    Ok(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(value: &Value) -> Map<String, Value> {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn fields_keep_what_they_do_not_show() {
        let before = map(&json!({
            "backend": [{ "kind": "local", "name": "shell" }, { "kind": "docker" }],
            "policy": { "allow": ["*"], "default": "ask" },
            "budget": { "usd": 1 },
        }));
        let sent = FormData::from([
            ("tools_mode", "form".to_owned()),
            ("backend", "local".to_owned()),
            ("backend", "native".to_owned()),
            ("policy_deny", "a_*\n\n b ".to_owned()),
        ]);
        let tools = tools_of(&sent, &before).unwrap();
        assert_eq!(
            Value::Object(tools),
            json!({
                "backend": [{ "kind": "local", "name": "shell" }, { "kind": "native" }],
                "policy": { "default": "ask", "deny": ["a_*", "b"] },
                "budget": { "usd": 1 },
            })
        );
    }

    #[test]
    fn another_sandbox_keeps_the_paths_that_are_allowed_besides() {
        let after = |before: Value, choice: &str| {
            let sent = FormData::from([
                ("tools_mode", "form".to_owned()),
                ("sandbox", choice.to_owned()),
            ]);
            let before = match before {
                Value::Null => Map::new(),
                sandbox => map(&json!({ "sandbox": sandbox })),
            };
            let tools = tools_of(&sent, &before).unwrap();
            tools.get("sandbox").cloned().unwrap_or_default()
        };
        let table = json!({ "write": ["/srv"] });
        let open = json!({ "write": ["/srv"], "network": true });
        for (before, choice, expected) in [
            (Value::Null, "working-dir", Value::Null),
            (Value::Null, "network", json!({ "network": true })),
            (Value::Null, "none", json!("none")),
            (json!("none"), "none", json!("none")),
            (json!("none"), "working-dir", Value::Null),
            (
                json!({ "mode": "none" }),
                "network",
                json!({ "network": true }),
            ),
            (table.clone(), "working-dir", table.clone()),
            (table.clone(), "network", open.clone()),
            (open.clone(), "working-dir", table.clone()),
            (open.clone(), "", open.clone()),
            (open, "none", json!("none")),
        ] {
            assert_eq!(after(before.clone(), choice), expected, "{before} {choice}");
        }
    }

    #[test]
    fn a_server_that_the_session_has_stays_as_it_is_there() {
        let before = map(&json!({ "notes": { "command": "old" } }));
        let servers = [McpServerInfo {
            id: "1".to_owned(),
            name: "notes".to_owned(),
            settings: map(&json!({ "command": "new" })),
            enabled: true,
        }];
        let sent = FormData::from([("mcp", "notes".to_owned())]);
        let wanted = mcps_of(&sent, &before, &servers).unwrap();
        assert_eq!(wanted["notes"]["command"], "old");
        let wanted = mcps_of(&sent, &Map::new(), &servers).unwrap();
        assert_eq!(wanted["notes"]["command"], "new");
        let sent = FormData::from([("mcp", "gone".to_owned())]);
        assert!(mcps_of(&sent, &before, &servers).is_err());
    }
}
