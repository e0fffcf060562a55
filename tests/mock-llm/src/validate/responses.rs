//! What the Responses API would refuse.
//!
//! The items of the history are in `items`; here is what stands around them.

mod items;

use std::collections::BTreeSet;

use serde_json::Value;

use super::{Findings, Rule, is_tool_name, non_null, schema, text};
use crate::request::{Request, array};
use crate::wire::Wire;

/// The rules of this wire.
pub(super) const RULES: &[Rule] = &[
    Rule::Authentication,
    Rule::Body,
    Rule::UnknownField,
    Rule::Model,
    Rule::MaxTokens,
    Rule::Messages,
    Rule::System,
    Rule::Role,
    Rule::Content,
    Rule::Block,
    Rule::BlockRole,
    Rule::BlockField,
    Rule::EmptyText,
    Rule::ToolName,
    Rule::ToolNameUnique,
    Rule::ToolSchema,
    Rule::StrictSchema,
    Rule::Tools,
    Rule::ToolChoice,
    Rule::ToolId,
    Rule::ToolIdUnique,
    Rule::ToolInput,
    Rule::ToolResultMissing,
    Rule::ToolResultOrphan,
    Rule::ToolResultTwice,
    Rule::ItemId,
    Rule::ItemIdUnique,
    Rule::ReasoningFollowed,
    Rule::StoredItem,
    Rule::PreviousResponse,
    Rule::Include,
    Rule::Format,
    Rule::StreamOptions,
];

/// The fields of a request, as the API documents them.
const FIELDS: &[&str] = &[
    "background",
    "context_management",
    "conversation",
    "include",
    "input",
    "instructions",
    "max_output_tokens",
    "max_tool_calls",
    "metadata",
    "model",
    "parallel_tool_calls",
    "previous_response_id",
    "prompt",
    "prompt_cache_key",
    "prompt_cache_retention",
    "reasoning",
    "safety_identifier",
    "service_tier",
    "store",
    "stream",
    "stream_options",
    "temperature",
    "text",
    "tool_choice",
    "tools",
    "top_logprobs",
    "top_p",
    "truncation",
    "user",
];

/// What can be included.
const INCLUDES: &[&str] = &[
    "code_interpreter_call.outputs",
    "computer_call_output.output.image_url",
    "file_search_call.results",
    "message.input_image.image_url",
    "message.output_text.logprobs",
    "reasoning.encrypted_content",
    "web_search_call.action.sources",
    "web_search_call.results",
];

pub(super) fn judge(request: &Request, findings: &mut Findings) {
    findings.authentication(Wire::Responses, request);
    let body = &request.body;
    if !findings.is_object(body) {
        return;
    }
    findings.known_fields(body, FIELDS);
    findings.check(
        !text(body, "model").is_empty(),
        Rule::Model,
        "model",
        "missing required parameter",
    );
    findings.check(
        non_null(body, "max_output_tokens").is_none_or(|it| it.as_u64() >= Some(16)),
        Rule::MaxTokens,
        "max_output_tokens",
        "integer below minimum value: expected a value >= 16",
    );
    findings.check(
        non_null(body, "instructions").is_none_or(Value::is_string),
        Rule::System,
        "instructions",
        "expected a string",
    );
    findings.check(
        non_null(body, "stream_options").is_none()
            || body.get("stream") == Some(&Value::Bool(true)),
        Rule::StreamOptions,
        "stream_options",
        "only allowed when 'stream' is enabled",
    );
    for (number, include) in array(body, "include").iter().enumerate() {
        findings.check(
            INCLUDES.iter().any(|known| include == known),
            Rule::Include,
            format_args!("include[{number}]"),
            format_args!("invalid value: {include}"),
        );
    }
    tools(body, findings);
    format(body, findings);
    items::items(body, findings);
}

fn tools(body: &Value, findings: &mut Findings) {
    let tools = array(body, "tools");
    let mut names = BTreeSet::new();
    for (number, tool) in tools.iter().enumerate() {
        let place = format!("tools[{number}]");
        let kind = text(tool, "type");
        if !matches!(kind, "function" | "custom") {
            // The provider's own tools have names of their own.
            findings.check(
                !kind.is_empty(),
                Rule::Tools,
                format_args!("{place}.type"),
                "missing required parameter",
            );
            continue;
        }
        let name = text(tool, "name");
        findings.check(
            is_tool_name(name),
            Rule::ToolName,
            format_args!("{place}.name"),
            format_args!("`{name}` does not match ^[a-zA-Z0-9_-]{{1,64}}$"),
        );
        findings.check(
            names.insert(name),
            Rule::ToolNameUnique,
            &place,
            "tool names must be unique",
        );
        if kind == "function" {
            let strict = tool.get("strict") == Some(&Value::Bool(true));
            let place = format!("{place}.parameters");
            schema::openai(&place, non_null(tool, "parameters"), strict, findings);
        }
    }
    choice(body, tools, &names, findings);
}

fn choice(body: &Value, tools: &[Value], names: &BTreeSet<&str>, findings: &mut Findings) {
    let Some(choice) = non_null(body, "tool_choice") else {
        return;
    };
    let what = match (choice.as_str(), text(choice, "type")) {
        (Some("none" | "auto"), _) => return,
        _ if tools.is_empty() => "only allowed when 'tools' are specified",
        (Some("required"), _) => return,
        (Some(_), _) => "must be none, auto or required",
        (None, "function" | "custom") if names.contains(text(choice, "name")) => return,
        (None, "function" | "custom") => "tool choice not found in 'tools' parameter",
        (None, "") => "must have a type",
        (None, _) => return,
    };
    findings.add(Rule::ToolChoice, "tool_choice", what);
}

fn format(body: &Value, findings: &mut Findings) {
    let format = body.get("text").and_then(|text| non_null(text, "format"));
    let Some(format) = format else { return };
    match text(format, "type") {
        "text" | "json_object" => {}
        "json_schema" => {
            findings.check(
                is_tool_name(text(format, "name")),
                Rule::Format,
                "text.format.name",
                "missing required parameter",
            );
            let schema = format.get("schema").unwrap_or(&Value::Null);
            findings.check(
                schema.is_object(),
                Rule::Format,
                "text.format.schema",
                "missing required parameter",
            );
            if format.get("strict") == Some(&Value::Bool(true)) {
                schema::openai_strict("text.format.schema", schema, findings);
            }
        }
        _ => findings.add(Rule::Format, "text.format.type", "invalid value"),
    }
}
