//! Rules for the items of `input`: their types and ids, that every call has its output and every
//! reasoning its item.
//!
//! Items may stand in any order that the rules leave free; nothing is joined.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::request::array;
use crate::validate::{Findings, Rule, is_tool_name, is_word, non_null, text};

pub(super) fn items(body: &Value, findings: &mut Findings) {
    check_previous_response(body, findings);
    let items =
        match non_null(body, "input") {
            Some(Value::String(input)) => {
                findings.check(
                    !input.trim().is_empty(),
                    Rule::EmptyText,
                    "input",
                    "must not be empty",
                );
                return;
            }
            Some(Value::Array(items)) if !items.is_empty() => items,
            _ => {
                let continued = ["previous_response_id", "conversation", "prompt"];
                findings.check(
                continued.iter().any(|field| non_null(body, field).is_some()),
                Rule::Messages,
                "input",
                "one of 'input', 'previous_response_id', 'prompt' or 'conversation' is required",
            );
                return;
            }
        };
    for (number, item) in items.iter().enumerate() {
        self::item(&format!("input[{number}]"), item, body, findings);
    }
    ids(items, findings);
    pairs(body, items, findings);
    check_reasoning_order(items, findings);
}

fn check_previous_response(body: &Value, findings: &mut Findings) {
    if non_null(body, "previous_response_id").is_none() {
        return;
    }
    findings.check(
        non_null(body, "conversation").is_none(),
        Rule::PreviousResponse,
        "previous_response_id",
        "mutually exclusive with 'conversation'",
    );
    findings.check(
        !array(body, "input")
            .iter()
            .any(|item| text(item, "type") == "reasoning"),
        Rule::PreviousResponse,
        "input",
        "reasoning of the previous response must not be sent again",
    );
}

/// The fields that an item may have besides `type`, and how its id begins. No fields: they are the
/// provider's own and are not looked at.
fn item_rules(kind: &str) -> Option<(Option<&'static [&'static str]>, &'static str)> {
    Some(match kind {
        "message" => (Some(&["id", "role", "content", "status", "phase"]), "msg_"),
        "reasoning" => (
            Some(&["id", "summary", "content", "encrypted_content", "status"]),
            "rs_",
        ),
        "function_call" => (
            Some(&["id", "call_id", "name", "arguments", "status", "namespace"]),
            "fc_",
        ),
        "function_call_output" => (Some(&["id", "call_id", "output", "status"]), ""),
        "custom_tool_call" => (Some(&["id", "call_id", "name", "input", "status"]), "ctc_"),
        "custom_tool_call_output" => (Some(&["id", "call_id", "output", "status"]), ""),
        "item_reference" => (Some(&["id"]), ""),
        "web_search_call"
        | "file_search_call"
        | "code_interpreter_call"
        | "computer_call"
        | "image_generation_call"
        | "local_shell_call"
        | "shell_call"
        | "apply_patch_call"
        | "mcp_call"
        | "mcp_list_tools"
        | "mcp_approval_request"
        | "mcp_approval_response"
        | "computer_call_output"
        | "local_shell_call_output"
        | "shell_call_output"
        | "apply_patch_call_output"
        | "compaction" => (None, ""),
        _ => return None,
    })
}

/// An item with a role and no type is a message.
fn kind(item: &Value) -> &str {
    match text(item, "type") {
        "" if non_null(item, "role").is_some() => "message",
        kind => kind,
    }
}

fn item(place: &str, item: &Value, body: &Value, findings: &mut Findings) {
    let kind = kind(item);
    let Some((fields, prefix)) = item_rules(kind) else {
        findings.add(
            Rule::Block,
            place,
            format_args!("invalid value: '{kind}' is no type of item"),
        );
        return;
    };
    if let Some(fields) = fields {
        let known: Vec<&str> = fields.iter().copied().chain(["type"]).collect();
        findings.known_block_fields(place, item, &known);
    }
    if let Some(id) = non_null(item, "id") {
        let id = id.as_str().unwrap_or_default();
        findings.check(
            id.starts_with(prefix) && is_word(id) && id.len() <= 64,
            Rule::ItemId,
            format_args!("{place}.id"),
            format_args!("invalid '{id}': expected an ID of at most 64 characters that begins with '{prefix}'"),
        );
    }
    match kind {
        "message" => message(place, item, findings),
        "reasoning" => reasoning(place, item, body, findings),
        "function_call" | "custom_tool_call" => call(place, kind, item, findings),
        "function_call_output" | "custom_tool_call_output" => {
            call_id(place, item, findings);
            output(place, item, findings);
        }
        "item_reference" => findings.check(
            body.get("store") != Some(&Value::Bool(false)),
            Rule::StoredItem,
            place,
            "items are not persisted when `store` is set to false",
        ),
        _ => {}
    }
}

fn message(place: &str, item: &Value, findings: &mut Findings) {
    let role = text(item, "role");
    findings.check(
        matches!(role, "user" | "assistant" | "system" | "developer"),
        Rule::Role,
        format_args!("{place}.role"),
        format_args!("invalid value: '{role}'"),
    );
    let parts = match item.get("content") {
        Some(Value::String(text)) => {
            not_empty(text, place, findings);
            return;
        }
        Some(Value::Array(parts)) if !parts.is_empty() => parts,
        _ => {
            findings.add(Rule::Content, place, "missing required parameter 'content'");
            return;
        }
    };
    for (number, part) in parts.iter().enumerate() {
        let place = format!("{place}.content[{number}]");
        let kind = text(part, "type");
        let (mine, fields): (bool, &[&str]) = match kind {
            "output_text" => (
                role == "assistant",
                &["type", "text", "annotations", "logprobs"],
            ),
            "refusal" => (role == "assistant", &["type", "refusal"]),
            "input_text" => (role != "assistant", &["type", "text"]),
            "input_image" => (
                role != "assistant",
                &["type", "image_url", "file_id", "detail"],
            ),
            "input_file" => (
                role != "assistant",
                &[
                    "type",
                    "file_id",
                    "file_data",
                    "file_url",
                    "filename",
                    "detail",
                ],
            ),
            "input_audio" => (role != "assistant", &["type", "input_audio"]),
            _ => {
                findings.add(Rule::Block, place, format_args!("invalid value: '{kind}'"));
                continue;
            }
        };
        findings.check(
            mine,
            Rule::BlockRole,
            &place,
            format_args!("invalid value: '{kind}' in a message of role {role}"),
        );
        findings.known_block_fields(&place, part, fields);
        if kind.ends_with("_text") {
            not_empty(text(part, "text"), &place, findings);
        }
    }
}

fn not_empty(text: &str, place: &str, findings: &mut Findings) {
    findings.check(
        !text.trim().is_empty(),
        Rule::EmptyText,
        place,
        "text must not be empty",
    );
}

fn reasoning(place: &str, item: &Value, body: &Value, findings: &mut Findings) {
    findings.check(
        item.get("summary").is_some_and(Value::is_array),
        Rule::Block,
        format_args!("{place}.summary"),
        "missing required parameter",
    );
    findings.check(
        body.get("store") != Some(&Value::Bool(false))
            || !text(item, "encrypted_content").is_empty(),
        Rule::StoredItem,
        place,
        "items are not persisted when `store` is set to false; encrypted_content is needed",
    );
}

fn call(place: &str, kind: &str, item: &Value, findings: &mut Findings) {
    let name = text(item, "name");
    findings.check(
        is_tool_name(name),
        Rule::ToolName,
        format_args!("{place}.name"),
        format_args!("`{name}` does not match ^[a-zA-Z0-9_-]{{1,64}}$"),
    );
    call_id(place, item, findings);
    let legal = if kind == "function_call" {
        is_object_text(text(item, "arguments"))
    } else {
        item.get("input").is_some_and(Value::is_string)
    };
    findings.check(
        legal,
        Rule::ToolInput,
        place,
        "expected a string with a JSON object",
    );
}

fn call_id(place: &str, item: &Value, findings: &mut Findings) {
    let id = text(item, "call_id");
    findings.check(
        is_word(id) && id.len() <= 64,
        Rule::ToolId,
        format_args!("{place}.call_id"),
        format_args!("`{id}` does not match ^[a-zA-Z0-9_-]{{1,64}}$"),
    );
}

fn output(place: &str, item: &Value, findings: &mut Findings) {
    let output = item.get("output").unwrap_or(&Value::Null);
    let parts = output.as_array().map(Vec::as_slice).unwrap_or_default();
    let legal = output.is_string()
        || (!parts.is_empty()
            && parts.iter().all(|part| {
                matches!(
                    text(part, "type"),
                    "input_text" | "input_image" | "input_file"
                )
            }));
    findings.check(
        legal,
        Rule::Block,
        format_args!("{place}.output"),
        "must be a string or a list of input parts",
    );
}

/// Whether a text is the JSON of an object.
fn is_object_text(text: &str) -> bool {
    serde_json::from_str::<serde_json::Map<String, Value>>(text).is_ok()
}

fn ids(items: &[Value], findings: &mut Findings) {
    let mut seen = BTreeSet::new();
    for (number, item) in items.iter().enumerate() {
        if let Some(id) = non_null(item, "id").and_then(Value::as_str) {
            findings.check(
                seen.insert(id),
                Rule::ItemIdUnique,
                format_args!("input[{number}]"),
                format_args!("duplicate item found with id {id}"),
            );
        }
    }
}

fn is_call(item: &Value) -> bool {
    matches!(text(item, "type"), "function_call" | "custom_tool_call")
}

fn pairs(body: &Value, items: &[Value], findings: &mut Findings) {
    let mut calls: Vec<(&str, bool)> = Vec::new();
    // The calls of a previous response or a conversation are not here.
    let elsewhere = ["previous_response_id", "conversation"]
        .iter()
        .any(|field| non_null(body, field).is_some())
        || items
            .iter()
            .any(|item| text(item, "type") == "item_reference");
    for (number, item) in items.iter().enumerate() {
        let place = format!("input[{number}]");
        let id = text(item, "call_id");
        if is_call(item) {
            if calls.iter().any(|(call, _)| *call == id) {
                findings.add(
                    Rule::ToolIdUnique,
                    place,
                    format_args!("call_id {id} is used twice"),
                );
            } else {
                calls.push((id, false));
            }
        } else if text(item, "type").ends_with("_call_output")
            && non_null(item, "call_id").is_some()
        {
            let plain = text(item, "type") == "function_call_output"
                || text(item, "type") == "custom_tool_call_output";
            match calls.iter_mut().find(|(call, _)| *call == id) {
                Some((_, answered)) => {
                    findings.check(
                        !*answered,
                        Rule::ToolResultTwice,
                        place,
                        format_args!("more than one output for call_id {id}"),
                    );
                    *answered = true;
                }
                None => findings.check(
                    elsewhere || !plain,
                    Rule::ToolResultOrphan,
                    place,
                    format_args!("no tool call found for function call output with call_id {id}"),
                ),
            }
        }
    }
    for (id, answered) in calls {
        findings.check(
            answered,
            Rule::ToolResultMissing,
            "input",
            format_args!("no tool output found for function call {id}"),
        );
    }
}

/// What comes after reasoning is the assistant's.
fn check_reasoning_order(items: &[Value], findings: &mut Findings) {
    for (number, item) in items.iter().enumerate() {
        if text(item, "type") != "reasoning" {
            continue;
        }
        let next = items.get(number + 1);
        let made = next.is_some_and(|next| match kind(next) {
            "message" => text(next, "role") == "assistant",
            kind => !kind.ends_with("_output") && kind != "mcp_approval_response",
        });
        findings.check(
            made,
            Rule::ReasoningFollowed,
            format_args!("input[{number}]"),
            format_args!(
                "item '{}' of type 'reasoning' was provided without its required following item",
                text(item, "id")
            ),
        );
    }
}
