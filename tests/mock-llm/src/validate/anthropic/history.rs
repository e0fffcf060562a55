//! Rules for the messages: roles, blocks, and that every call has its result.
//!
//! Neighbours of one role count as one message, as the API joins them.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::request::array;
use crate::validate::{Findings, Rule, is_tool_name, is_word, text};

/// A message after joining, with the place of each of its blocks for error texts.
struct Turn {
    role: String,
    place: String,
    blocks: Vec<(String, Value)>,
}

pub(super) fn messages(body: &Value, findings: &mut Findings) {
    let messages = array(body, "messages");
    if messages.is_empty() {
        findings.add(
            Rule::Messages,
            "messages",
            "at least one message is required",
        );
        return;
    }
    let turns = join_turns(messages, findings);
    if let Some(first) = turns.first() {
        findings.check(
            first.role == "user",
            Rule::FirstIsUser,
            &first.place,
            "the first message must be the user's",
        );
    }
    for turn in &turns {
        for (place, block) in &turn.blocks {
            self::block(&turn.role, place, block, findings);
        }
    }
    check_last(&turns, findings);
    ids(&turns, findings);
    pairs(&turns, findings);
    check_thinking_consistency(body, &turns, findings);
}

fn join_turns(messages: &[Value], findings: &mut Findings) -> Vec<Turn> {
    let mut turns: Vec<Turn> = Vec::new();
    for (number, message) in messages.iter().enumerate() {
        let place = format!("messages.{number}");
        let role = text(message, "role");
        findings.check(
            matches!(role, "user" | "assistant" | "system"),
            Rule::Role,
            format_args!("{place}.role"),
            "must be user or assistant",
        );
        let content = message.get("content").unwrap_or(&Value::Null);
        let blocks: Vec<(String, Value)> = match content {
            Value::String(text) => vec![(place.clone(), json!({"type": "text", "text": text}))],
            Value::Array(blocks) => blocks
                .iter()
                .enumerate()
                .map(|(block, value)| (format!("{place}.content.{block}"), value.clone()))
                .collect(),
            _ => Vec::new(),
        };
        findings.check(
            !blocks.is_empty(),
            Rule::Content,
            &place,
            "all messages must have non-empty content",
        );
        match turns.last_mut() {
            Some(turn) if turn.role == role => turn.blocks.extend(blocks),
            _ => turns.push(Turn {
                role: role.to_owned(),
                place,
                blocks,
            }),
        }
    }
    turns
}

/// Roles that may hold a type of block, and the fields that such a block may have besides `type` and
/// `cache_control`. `None` as fields: they are the provider's own and are not looked at.
fn block_rules(kind: &str) -> Option<(&'static [&'static str], Option<&'static [&'static str]>)> {
    const USER: &[&str] = &["user"];
    const ASSISTANT: &[&str] = &["assistant"];
    const ANY: &[&str] = &["user", "assistant", "system"];
    Some(match kind {
        "text" => (ANY, Some(&["text", "citations"])),
        "image" => (USER, Some(&["source"])),
        "document" => (USER, Some(&["source", "title", "context", "citations"])),
        "search_result" => (USER, Some(&["source", "title", "content", "citations"])),
        "tool_result" => (USER, Some(&["tool_use_id", "content", "is_error"])),
        "container_upload" => (USER, Some(&["file_id"])),
        "thinking" => (ASSISTANT, Some(&["thinking", "signature"])),
        "redacted_thinking" => (ASSISTANT, Some(&["data"])),
        "tool_use" => (ASSISTANT, Some(&["id", "name", "input", "caller"])),
        "server_tool_use" => (ASSISTANT, Some(&["id", "name", "input", "caller"])),
        "mcp_tool_use" => (ASSISTANT, Some(&["id", "name", "input", "server_name"])),
        "fallback" | "compaction" => (ASSISTANT, None),
        other if other.ends_with("_tool_result") => (ASSISTANT, None),
        _ => return None,
    })
}

fn block(role: &str, place: &str, block: &Value, findings: &mut Findings) {
    let kind = text(block, "type");
    let Some((roles, fields)) = block_rules(kind) else {
        findings.add(
            Rule::Block,
            place,
            format_args!("`{kind}` is no type of block"),
        );
        return;
    };
    findings.check(
        roles.contains(&role) || !matches!(role, "user" | "assistant" | "system"),
        Rule::BlockRole,
        place,
        format_args!("`{kind}` blocks may not be in a message of role {role}"),
    );
    for field in block
        .as_object()
        .into_iter()
        .flat_map(|object| object.keys())
    {
        let known = matches!(field.as_str(), "type" | "cache_control")
            || fields.is_none_or(|fields| fields.contains(&field.as_str()));
        findings.check(
            known,
            Rule::BlockField,
            format_args!("{place}.{kind}.{field}"),
            "extra inputs are not permitted",
        );
    }
    match kind {
        "text" => findings.check(
            !text(block, "text").trim().is_empty(),
            Rule::EmptyText,
            place,
            "text content blocks must contain non-whitespace text",
        ),
        "thinking" => findings.check(
            block.get("thinking").is_some_and(Value::is_string)
                && !text(block, "signature").is_empty(),
            Rule::Signature,
            place,
            "thinking and its signature are required",
        ),
        "redacted_thinking" => findings.check(
            !text(block, "data").is_empty(),
            Rule::Signature,
            place,
            "data is required",
        ),
        "tool_use" | "server_tool_use" | "mcp_tool_use" => call(place, block, findings),
        "tool_result" => result(place, block, findings),
        "container_upload" => {
            findings.check(
                !text(block, "file_id").is_empty(),
                Rule::Block,
                place,
                "file_id is required",
            );
        }
        _ => {}
    }
}

fn call(place: &str, block: &Value, findings: &mut Findings) {
    let name = text(block, "name");
    findings.check(
        is_tool_name(name),
        Rule::ToolName,
        format_args!("{place}.name"),
        format_args!("`{name}` does not match ^[a-zA-Z0-9_-]{{1,64}}$"),
    );
    id(place, "id", block, findings);
    findings.check(
        block.get("input").is_some_and(Value::is_object),
        Rule::ToolInput,
        format_args!("{place}.input"),
        "input should be a valid dictionary",
    );
}

fn result(place: &str, block: &Value, findings: &mut Findings) {
    id(place, "tool_use_id", block, findings);
    if let Some(is_error) = block.get("is_error") {
        findings.check(
            is_error.is_boolean(),
            Rule::Block,
            format_args!("{place}.is_error"),
            "must be a boolean",
        );
    }
    let content = block.get("content").unwrap_or(&Value::Null);
    findings.check(
        content.is_null() || content.is_string() || content.is_array(),
        Rule::Block,
        format_args!("{place}.content"),
        "must be a text or a list of blocks",
    );
    for (number, part) in array(block, "content").iter().enumerate() {
        let place = format!("{place}.content.{number}");
        let kind = text(part, "type");
        findings.check(
            matches!(
                kind,
                "text" | "image" | "document" | "search_result" | "tool_reference"
            ),
            Rule::Block,
            &place,
            format_args!("`{kind}` may not be in a tool result"),
        );
        findings.check(
            kind != "text" || !text(part, "text").is_empty(),
            Rule::EmptyText,
            &place,
            "text content blocks must be non-empty",
        );
    }
}

fn id(place: &str, field: &str, block: &Value, findings: &mut Findings) {
    let id = text(block, field);
    findings.check(
        is_word(id),
        Rule::ToolId,
        format_args!("{place}.{field}"),
        format_args!("`{id}` does not match ^[a-zA-Z0-9_-]+$"),
    );
}

fn check_last(turns: &[Turn], findings: &mut Findings) {
    let Some((place, block)) = turns
        .last()
        .filter(|turn| turn.role == "assistant")
        .and_then(|turn| turn.blocks.last())
    else {
        return;
    };
    let text = text(block, "text");
    findings.check(
        text.trim_end() == text,
        Rule::TrailingSpace,
        place,
        "final assistant content cannot end with trailing whitespace",
    );
}

fn ids(turns: &[Turn], findings: &mut Findings) {
    let mut ids = BTreeSet::new();
    for (place, block) in turns.iter().flat_map(|turn| &turn.blocks) {
        let is_call = matches!(
            text(block, "type"),
            "tool_use" | "server_tool_use" | "mcp_tool_use"
        );
        findings.check(
            !is_call || ids.insert(text(block, "id")),
            Rule::ToolIdUnique,
            place,
            "tool_use ids must be unique",
        );
    }
}

/// Every call of a client's tool is answered by the next message, every call of the provider's own by
/// a block of the assistant's after it.
fn pairs(turns: &[Turn], findings: &mut Findings) {
    let mut open_server_calls: BTreeSet<&str> = BTreeSet::new();
    let mut calls: Vec<&str> = Vec::new();
    for turn in turns {
        if turn.role == "user" {
            results(turn, &calls, !open_server_calls.is_empty(), findings);
        } else {
            report_missing_results(&calls, &turn.place, findings);
        }
        calls.clear();
        for (place, block) in &turn.blocks {
            match text(block, "type") {
                "tool_use" if turn.role == "assistant" => calls.push(text(block, "id")),
                "server_tool_use" | "mcp_tool_use" => {
                    open_server_calls.insert(text(block, "id"));
                }
                kind if kind != "tool_result" && kind.ends_with("_tool_result") => findings.check(
                    open_server_calls.remove(text(block, "tool_use_id")),
                    Rule::ServerResultOrphan,
                    place,
                    "has no open call before it",
                ),
                _ => {}
            }
        }
    }
    report_missing_results(&calls, "messages", findings);
}

fn report_missing_results(calls: &[&str], place: &str, findings: &mut Findings) {
    findings.check(
        calls.is_empty(),
        Rule::ToolResultMissing,
        place,
        format_args!(
            "tool_use ids were found without tool_result blocks immediately after: {}",
            calls.join(", ")
        ),
    );
}

fn results(turn: &Turn, calls: &[&str], server_call_open: bool, findings: &mut Findings) {
    let mut answered = BTreeSet::new();
    let mut other_before = false;
    for (place, block) in &turn.blocks {
        if text(block, "type") != "tool_result" {
            findings.check(
                calls.is_empty() || !server_call_open,
                Rule::MixedTurn,
                place,
                "only tool_result blocks may answer a turn with an open server tool call",
            );
            other_before = true;
            continue;
        }
        let id = text(block, "tool_use_id");
        findings.check(
            calls.contains(&id),
            Rule::ToolResultOrphan,
            place,
            format_args!("unexpected tool_use_id `{id}`: no such call in the previous message"),
        );
        findings.check(
            answered.insert(id),
            Rule::ToolResultTwice,
            place,
            format_args!("each tool_use must have a single result; `{id}` has more"),
        );
        findings.check(
            !other_before,
            Rule::ToolResultFirst,
            place,
            "tool_result blocks must come first in their message",
        );
    }
    let open: Vec<&str> = calls
        .iter()
        .copied()
        .filter(|call| !answered.contains(call))
        .collect();
    report_missing_results(&open, &turn.place, findings);
}

/// Looks at the turn that is still going on. To the API that is all since the person's newest
/// message, where one that holds results counts as a part of it, whatever else is in it.
///
/// A turn thinks or it does not. One that thinks, with a budget, begins with a thought, and the
/// replies to results may do without; one that does not holds none. Models that decide themselves
/// how much they think take both.
fn check_thinking_consistency(body: &Value, turns: &[Turn], findings: &mut Findings) {
    let is = |block: &Value, kinds: &[&str]| kinds.contains(&text(block, "type"));
    let newest = turns.iter().rposition(|turn| {
        let results = |(_, block): &(String, Value)| is(block, &["tool_result"]);
        turn.role == "user" && !turn.blocks.iter().any(results)
    });
    let running = turns.iter().skip(newest.map_or(0, |at| at + 1));
    let mut replies = running.filter(|turn| turn.role == "assistant").peekable();
    let thought = |block: &Value| is(block, &["thinking", "redacted_thinking"]);
    let asked = body.get("thinking").map_or("", |it| text(it, "type"));
    if asked == "enabled" {
        let first = replies.peek().and_then(|turn| turn.blocks.first());
        if let Some((place, block)) = first {
            findings.check(
                thought(block),
                Rule::ThinkingKept,
                format_args!("{place}.type"),
                format_args!(
                    "Expected `thinking` or `redacted_thinking`, but found `{}`. A turn that \
                     thinks must begin with a thought.",
                    text(block, "type")
                ),
            );
        }
    } else if asked != "adaptive" && knows_budgets(text(body, "model")) {
        for (place, block) in replies.flat_map(|turn| &turn.blocks) {
            findings.check(
                !thought(block),
                Rule::ThinkingOff,
                place,
                "When thinking is disabled, an `assistant` message in the final position cannot \
                 contain `thinking`.",
            );
        }
    }
}

/// Whether it is a model of the generations up to 4.5, which know budgets only.
fn knows_budgets(model: &str) -> bool {
    let model = model.replace('.', "-");
    let generation = |number: &str| {
        ["", "opus-", "sonnet-", "haiku-"]
            .into_iter()
            .any(|kind| model.contains(&format!("claude-{kind}{number}")))
    };
    let later = ["4-6", "4-7", "4-8", "4-9"].into_iter().any(generation);
    (generation("3-") || generation("4-")) && !later
}
