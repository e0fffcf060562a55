//! Rules for the messages: roles, content, and that the messages behind a call answer it.
//!
//! Messages are not joined: a tool's message stands directly behind the message that calls it.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::request::array;
use crate::validate::{Findings, Rule, is_tool_name, is_word, non_null, text};

/// The fields of a message: `OpenAI`'s, then those of compatible servers.
const FIELDS: &[&str] = &[
    "role",
    "content",
    "name",
    "tool_calls",
    "tool_call_id",
    "refusal",
    "audio",
    "annotations",
    "cache_control",
    "prefix",
    "reasoning",
    "reasoning_content",
    "reasoning_details",
];

pub(super) fn messages(body: &Value, findings: &mut Findings) {
    let messages = array(body, "messages");
    findings.check(
        !messages.is_empty(),
        Rule::Messages,
        "messages",
        "expected an array with minimum length 1",
    );
    for (number, message) in messages.iter().enumerate() {
        self::message(&format!("messages[{number}]"), message, findings);
    }
    pairs(messages, findings);
    if is_mistral(text(body, "model")) {
        nine_letters(messages, findings);
    }
    if is_thinking(body) {
        thinking_kept(messages, findings);
    }
}

/// Mistral's own models; another server's names for them have its vendor before a slash.
fn is_mistral(model: &str) -> bool {
    const NAMES: &[&str] = &["mistral", "ministral", "magistral", "codestral", "devstral"];
    !model.contains('/') && NAMES.iter().any(|name| model.starts_with(name))
}

fn nine_letters(messages: &[Value], findings: &mut Findings) {
    for (number, message) in messages.iter().enumerate() {
        let calls = array(message, "tool_calls").iter();
        let ids = calls.map(|call| non_null(call, "id"));
        for id in ids.chain([non_null(message, "tool_call_id")]).flatten() {
            let id = id.as_str().unwrap_or_default();
            findings.check(
                id.len() == 9 && id.bytes().all(|byte| byte.is_ascii_alphanumeric()),
                Rule::ToolId,
                format_args!("messages[{number}]"),
                format_args!(
                    "Tool call id was {id} but must be a-z, A-Z, 0-9, with a length of 9."
                ),
            );
        }
    }
}

/// Whether the request asks for thinking in `DeepSeek`'s way, or its model always thinks.
fn is_thinking(body: &Value) -> bool {
    let enabled = body
        .get("thinking")
        .is_some_and(|it| text(it, "type") == "enabled");
    enabled || text(body, "model") == "deepseek-reasoner"
}

/// In the turn that goes on, a message with calls has the reasoning that led to them.
fn thinking_kept(messages: &[Value], findings: &mut Findings) {
    let asked = messages.iter().rposition(|it| text(it, "role") == "user");
    let turn = messages.iter().enumerate().skip(asked.unwrap_or(0));
    for (number, message) in turn.filter(|(_, it)| non_null(it, "tool_calls").is_some()) {
        findings.check(
            message.get("reasoning_content").is_some_and(Value::is_string),
            Rule::ThinkingKept,
            format_args!("messages[{number}]"),
            format_args!(
                "Missing `reasoning_content` field in the assistant message at message index {number}."
            ),
        );
    }
}

fn message(place: &str, message: &Value, findings: &mut Findings) {
    let role = text(message, "role");
    findings.check(
        matches!(role, "system" | "developer" | "user" | "assistant" | "tool"),
        Rule::Role,
        format_args!("{place}.role"),
        format_args!("invalid value: '{role}'"),
    );
    findings.known_block_fields(place, message, FIELDS);
    for (field, owner) in [("tool_calls", "assistant"), ("tool_call_id", "tool")] {
        findings.check(
            non_null(message, field).is_none() || role == owner,
            Rule::BlockRole,
            format_args!("{place}.{field}"),
            format_args!("only a message of role {owner} may have it"),
        );
    }
    let calls = array(message, "tool_calls");
    findings.check(
        non_null(message, "tool_calls").is_none() || !calls.is_empty(),
        Rule::Block,
        format_args!("{place}.tool_calls"),
        "empty array: expected an array with minimum length 1",
    );
    content(place, role, message, findings);
    if role == "tool" {
        id(
            &format!("{place}.tool_call_id"),
            text(message, "tool_call_id"),
            findings,
        );
    }
    let mut ids = BTreeSet::new();
    for (number, call) in calls.iter().enumerate() {
        let place = format!("{place}.tool_calls[{number}]");
        self::call(&place, call, findings);
        findings.check(
            ids.insert(text(call, "id")),
            Rule::ToolIdUnique,
            place,
            "tool call ids must be unique",
        );
    }
}

fn content(place: &str, role: &str, message: &Value, findings: &mut Findings) {
    let may_be_nothing = role == "assistant"
        && ["tool_calls", "refusal", "audio"]
            .iter()
            .any(|field| non_null(message, field).is_some());
    // An empty text beside calls is what several servers themselves answer.
    let may_be_empty = may_be_nothing || role == "tool";
    match non_null(message, "content") {
        None => findings.check(
            may_be_nothing,
            Rule::Content,
            format_args!("{place}.content"),
            "expected a string, got null",
        ),
        Some(Value::String(text)) => findings.check(
            may_be_empty || !text.trim().is_empty(),
            Rule::EmptyText,
            format_args!("{place}.content"),
            "must not be empty",
        ),
        Some(Value::Array(parts)) => {
            findings.check(
                !parts.is_empty(),
                Rule::Content,
                format_args!("{place}.content"),
                "expected a non-empty array",
            );
            for (number, part) in parts.iter().enumerate() {
                self::part(&format!("{place}.content[{number}]"), role, part, findings);
            }
        }
        Some(_) => findings.add(
            Rule::Content,
            format_args!("{place}.content"),
            "expected a string or an array",
        ),
    }
}

fn part(place: &str, role: &str, part: &Value, findings: &mut Findings) {
    const ANY: &[&str] = &["system", "developer", "user", "assistant", "tool"];
    let kind = text(part, "type");
    let (roles, field): (&[&str], &str) = match kind {
        "text" => (ANY, "text"),
        "image_url" => (&["user"], "image_url"),
        "input_audio" => (&["user"], "input_audio"),
        "file" => (&["user"], "file"),
        "document_url" => (&["user"], "document_url"),
        "refusal" => (&["assistant"], "refusal"),
        "thinking" => (&["assistant"], "thinking"),
        _ => {
            findings.add(
                Rule::Block,
                place,
                format_args!("invalid value: '{kind}' is no type of part"),
            );
            return;
        }
    };
    findings.check(
        part.get(field).is_some(),
        Rule::Block,
        format_args!("{place}.{field}"),
        "missing required parameter",
    );
    findings.check(
        roles.contains(&role) || !ANY.contains(&role),
        Rule::BlockRole,
        place,
        format_args!("'{kind}' may not be in a message of role {role}"),
    );
    findings.known_block_fields(place, part, &["type", field, "cache_control"]);
    findings.check(
        kind != "text" || role == "tool" || !text(part, "text").trim().is_empty(),
        Rule::EmptyText,
        place,
        "text must not be empty",
    );
}

fn call(place: &str, call: &Value, findings: &mut Findings) {
    findings.known_block_fields(place, call, &["id", "type", "index", "function", "custom"]);
    id(&format!("{place}.id"), text(call, "id"), findings);
    let kind = text(call, "type");
    let Some(function) = call
        .get(kind)
        .filter(|_| matches!(kind, "function" | "custom"))
    else {
        findings.add(
            Rule::Block,
            place,
            format_args!("'{kind}' is no type of call, or its content is missing"),
        );
        return;
    };
    let name = text(function, "name");
    findings.check(
        is_tool_name(name),
        Rule::ToolName,
        format_args!("{place}.{kind}.name"),
        format_args!("`{name}` does not match ^[a-zA-Z0-9_-]{{1,64}}$"),
    );
    let arguments = text(function, "arguments");
    let legal = if kind == "function" {
        serde_json::from_str::<serde_json::Map<String, Value>>(arguments).is_ok()
    } else {
        function.get("input").is_some_and(Value::is_string)
    };
    findings.check(
        legal,
        Rule::ToolInput,
        format_args!("{place}.{kind}"),
        "expected a string with a JSON object",
    );
}

fn id(place: &str, id: &str, findings: &mut Findings) {
    findings.check(
        is_word(id) && id.len() <= 40,
        Rule::ToolId,
        place,
        format_args!("`{id}` does not match ^[a-zA-Z0-9_-]{{1,40}}$"),
    );
}

fn pairs(messages: &[Value], findings: &mut Findings) {
    let mut calls: Vec<&str> = Vec::new();
    let mut answered = BTreeSet::new();
    for (number, message) in messages.iter().enumerate() {
        let place = format!("messages[{number}]");
        if text(message, "role") == "tool" {
            let id = text(message, "tool_call_id");
            findings.check(
                calls.contains(&id),
                Rule::ToolResultOrphan,
                &place,
                "messages with role 'tool' must be a response to a preceeding message with 'tool_calls'",
            );
            findings.check(
                answered.insert(id),
                Rule::ToolResultTwice,
                &place,
                format_args!("more than one response for tool_call_id {id}"),
            );
            continue;
        }
        report_missing_results(&calls, &answered, &place, findings);
        answered.clear();
        let made = array(message, "tool_calls").iter();
        calls = made.map(|call| text(call, "id")).collect();
    }
    report_missing_results(&calls, &answered, "messages", findings);
}

fn report_missing_results(
    calls: &[&str],
    answered: &BTreeSet<&str>,
    place: &str,
    findings: &mut Findings,
) {
    let open: Vec<&str> = calls
        .iter()
        .copied()
        .filter(|call| !answered.contains(call))
        .collect();
    findings.check(
        open.is_empty(),
        Rule::ToolResultMissing,
        place,
        format_args!(
            "an assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'; open: {}",
            open.join(", ")
        ),
    );
}
