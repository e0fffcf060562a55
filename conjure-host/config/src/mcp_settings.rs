//! The shape of the settings of MCP servers, for those who save them: what is of a wrong type is
//! refused there, with its place, and not told when a server is started.
//!
//! The plugin for MCP servers reads the settings. Members that are not known here are its to judge,
//! and so is what goes beyond types. What is wrong may be a secret: no value is ever told.

use serde_json::{Map, Value};

use crate::json::UnfitJson;

/// What a member takes.
enum SettingShape {
    Text,
    Switch,
    Count,
    /// Text, or an object that says it with variables in it.
    PlainText,
    /// Text as in `PlainText`, or the name of a secret.
    TextOrSecret,
    /// A value of this shape, or null as if it were not there.
    Optional(&'static SettingShape),
    /// Any number of values of this shape.
    ListOf(&'static SettingShape),
    /// Any number of values of this shape by name.
    ByNames(&'static SettingShape),
    /// An object with these members, and maybe others.
    Members(&'static [(&'static str, SettingShape)]),
    /// A word, or such an object.
    WordOr(&'static [(&'static str, SettingShape)]),
}

use SettingShape::{
    ByNames, Count, ListOf, Members, Optional, PlainText, Switch, Text, TextOrSecret, WordOr,
};

/// The members of one server.
const SERVER: [(&str, SettingShape); 28] = [
    ("command", Optional(&PlainText)),
    ("args", ListOf(&TextOrSecret)),
    ("env", ByNames(&TextOrSecret)),
    ("pass_env", ListOf(&Text)),
    ("cwd", Optional(&PlainText)),
    ("confine", Switch),
    ("sandbox", WordOr(&SANDBOX)),
    ("url", Optional(&TextOrSecret)),
    ("headers", ByNames(&TextOrSecret)),
    ("oauth", Members(&OAUTH)),
    ("era", Text),
    ("enabled", Switch),
    ("start", Text),
    ("request_timeout_ms", Count),
    ("initialize_timeout_ms", Count),
    ("probe_timeout_ms", Count),
    ("total_timeout_ms", Count),
    ("max_message_bytes", Count),
    ("mode", Optional(&Text)),
    ("stateless_only", Switch),
    ("tools", ByNames(&Members(&TOOL))),
    ("trust_annotations", Switch),
    ("instructions", Switch),
    ("resources", Switch),
    ("elicitation", Switch),
    ("sampling", Optional(&Switch)),
    ("roots", Switch),
    ("log_level", Optional(&Text)),
];
const SANDBOX: [(&str, SettingShape); 4] = [
    ("mode", Text),
    ("read", ListOf(&Text)),
    ("write", ListOf(&Text)),
    ("network", Switch),
];
const OAUTH: [(&str, SettingShape); 5] = [
    ("client_id", Optional(&Text)),
    ("client_secret", Optional(&TextOrSecret)),
    ("client_metadata_url", Optional(&Text)),
    ("scopes", Optional(&ListOf(&Text))),
    ("callback_port", Optional(&Count)),
];
const TOOL: [(&str, SettingShape); 4] = [
    ("mode", Optional(&Text)),
    ("idempotent", Optional(&Switch)),
    ("request_timeout_ms", Optional(&Count)),
    ("total_timeout_ms", Optional(&Count)),
];

/// Looks at the settings of one server.
///
/// # Errors
/// [`UnfitJson`] says what is wrong, and where in them.
pub fn check_server(settings: &Value) -> Result<(), UnfitJson> {
    Members(&SERVER).check(settings)?;
    // Null says that a member is not there.
    let is_there = |name| settings.get(name).is_some_and(|value| !value.is_null());
    if is_there("command") == is_there("url") {
        return Err(unfit_json(
            "it has either `command`, a program, or `url`, an address",
        ));
    }
    match settings.get("url") {
        // What a variable stands for is known when the server is reached.
        Some(Value::String(url)) if !is_address(url) && !url.contains("${") => {
            Err(unfit_json("it begins with http:// or https://").below("url"))
        }
        _ => Ok(()),
    }
}

/// Looks at servers by their names.
///
/// # Errors
/// As [`check_server`], and a name that is empty.
pub fn check_servers(servers: &Map<String, Value>) -> Result<(), UnfitJson> {
    for (name, settings) in servers {
        if name.trim().is_empty() {
            return Err(unfit_json("the name of a server is empty"));
        }
        check_server(settings).map_err(|error| error.below(name))?;
    }
    Ok(())
}

fn is_address(url: &str) -> bool {
    url.starts_with("http://") || url.starts_with("https://")
}

impl SettingShape {
    fn check(&self, value: &Value) -> Result<(), UnfitJson> {
        match (self, value) {
            (Text | PlainText | TextOrSecret | WordOr(_), Value::String(_))
            | (Switch, Value::Bool(_))
            | (Optional(_), Value::Null) => Ok(()),
            (Count, Value::Number(number)) if number.is_u64() => Ok(()),
            (Optional(shape), value) => shape.check(value),
            (PlainText, Value::Object(given)) if is_expanded(given) => Ok(()),
            (TextOrSecret, Value::Object(given)) if is_expanded(given) || is_secret(given) => {
                Ok(())
            }
            (ListOf(shape), Value::Array(items)) => {
                let mut items = items.iter().enumerate();
                items.try_for_each(|(at, item)| {
                    let checked = shape.check(item);
                    checked.map_err(|error| error.below(&format!("[{at}]")))
                })
            }
            (ByNames(shape), Value::Object(given)) => {
                let mut given = given.iter();
                given.try_for_each(|(name, value)| {
                    shape.check(value).map_err(|error| error.below(name))
                })
            }
            (Members(members) | WordOr(members), Value::Object(given)) => {
                let mut members = members.iter();
                members.try_for_each(|(name, shape)| match given.get(*name) {
                    Some(value) => shape.check(value).map_err(|error| error.below(name)),
                    None => Ok(()),
                })
            }
            (shape, value) => Err(unfit_json(&format!(
                "invalid type: {}, expected {}",
                type_of(value),
                shape.expected()
            ))),
        }
    }

    fn expected(&self) -> &'static str {
        match self {
            Text => "a string",
            Switch => "a boolean",
            Count => "a whole number of 0 or more",
            PlainText => "a string, or `{\"expand\": …}`",
            TextOrSecret => "a string, `{\"expand\": …}` or `{\"secret\": …}`",
            Optional(shape) => shape.expected(),
            ListOf(_) => "a list",
            ByNames(_) | Members(_) => "an object",
            WordOr(_) => "a string or an object",
        }
    }
}

fn is_expanded(given: &Map<String, Value>) -> bool {
    given.get("expand").is_some_and(Value::is_string)
}

fn is_secret(given: &Map<String, Value>) -> bool {
    given.get("secret").is_some_and(Value::is_string)
        && given.get("prefix").is_none_or(Value::is_string)
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

fn unfit_json(why: &str) -> UnfitJson {
    UnfitJson {
        path: String::new(),
        why: why.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn settings_that_the_plugin_reads_are_taken() {
        for settings in [
            json!({ "command": "notes" }),
            json!({
                "command": { "expand": "${HOME}/notes" }, "args": ["-v", { "secret": "MCP_A" }],
                "env": { "A": "1", "B": { "secret": "MCP_B", "prefix": "x" } }, "cwd": null,
                "sandbox": { "mode": "working-dir", "read": ["~/.ssh"], "network": true },
                "tools": { "add": { "mode": "stateless", "request_timeout_ms": 5 } },
                "request_timeout_ms": 1, "start": "lazy", "sampling": null, "of_tomorrow": [1],
            }),
            json!({
                "url": "https://notes.example/mcp", "headers": { "A": { "expand": "${B}" } },
                "oauth": { "client_id": "me", "scopes": ["read"], "callback_port": 8080 },
            }),
            json!({ "url": { "secret": "MCP_URL" }, "sandbox": "none" }),
            json!({ "url": "${input:notes}/mcp" }),
            json!({ "command": null, "url": "https://notes.example/mcp" }),
            json!({ "command": "notes", "url": null }),
        ] {
            assert_eq!(check_server(&settings), Ok(()), "{settings}");
        }
    }

    #[test]
    fn what_is_of_a_wrong_type_is_said_with_its_place_and_without_the_value() {
        for (settings, said) in [
            (json!(5), "`s`: invalid type: a number, expected an object"),
            (json!(null), "`s`: invalid type: null, expected an object"),
            (
                json!({ "command": 5 }),
                "`s.command`: invalid type: a number, expected a string, or `{\"expand\": …}`",
            ),
            (
                json!({ "command": "x", "env": ["hidden"] }),
                "`s.env`: invalid type: a list, expected an object",
            ),
            (
                json!({ "command": "x", "env": { "A": { "value": "hidden" } } }),
                "`s.env.A`: invalid type: an object, expected a string, `{\"expand\": …}` or \
                 `{\"secret\": …}`",
            ),
            (
                json!({ "command": "x", "args": ["a", 2] }),
                "`s.args[1]`: invalid type: a number, expected a string, `{\"expand\": …}` or \
                 `{\"secret\": …}`",
            ),
            (
                json!({ "command": "x", "tools": { "add": { "request_timeout_ms": -1 } } }),
                "`s.tools.add.request_timeout_ms`: invalid type: a number, expected a whole number \
                 of 0 or more",
            ),
            (
                json!({ "url": "ftp://x" }),
                "`s.url`: it begins with http:// or https://",
            ),
            (
                json!({ "args": [] }),
                "`s`: it has either `command`, a program, or `url`, an address",
            ),
            (
                json!({ "command": null }),
                "`s`: it has either `command`, a program, or `url`, an address",
            ),
            (
                json!({ "command": null, "url": null }),
                "`s`: it has either `command`, a program, or `url`, an address",
            ),
            (
                json!({ "command": "x", "url": "https://notes.example/mcp" }),
                "`s`: it has either `command`, a program, or `url`, an address",
            ),
        ] {
            let error = check_server(&settings).unwrap_err().below("s").to_string();
            assert_eq!(error, said);
            assert!(!error.contains("hidden"), "{error}");
        }
    }

    #[test]
    fn servers_have_names() {
        let servers = |name: &str, settings: Value| {
            let servers = json!({ name: settings });
            check_servers(servers.as_object().unwrap())
        };
        assert_eq!(servers("notes", json!({ "command": "x" })), Ok(()));
        let error = servers("notes", json!({ "command": [] })).unwrap_err();
        assert_eq!(error.path, "notes.command");
        for name in ["", " "] {
            let error = servers(name, json!({ "command": "x" })).unwrap_err();
            assert_eq!(error.why, "the name of a server is empty");
        }
    }
}
