//! What Chat Completions would refuse.
//!
//! The fields that compatible servers add are known, so that one validator serves all of them. The
//! messages are in `history`; here is what stands around them.

mod history;

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
    Rule::Role,
    Rule::Content,
    Rule::Block,
    Rule::BlockRole,
    Rule::BlockField,
    Rule::EmptyText,
    Rule::ThinkingKept,
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
    Rule::Format,
    Rule::StreamOptions,
];

/// The fields of a request: `OpenAI`'s, then those of compatible servers.
const FIELDS: &[&str] = &[
    "audio",
    "frequency_penalty",
    "logit_bias",
    "logprobs",
    "max_completion_tokens",
    "max_tokens",
    "messages",
    "metadata",
    "modalities",
    "model",
    "n",
    "parallel_tool_calls",
    "prediction",
    "presence_penalty",
    "prompt_cache_key",
    "prompt_cache_retention",
    "reasoning_effort",
    "response_format",
    "safety_identifier",
    "seed",
    "service_tier",
    "stop",
    "store",
    "stream",
    "stream_options",
    "temperature",
    "tool_choice",
    "tools",
    "top_logprobs",
    "top_p",
    "user",
    "verbosity",
    "web_search_options",
    "cache_prompt",
    "chat_template_kwargs",
    "include_reasoning",
    "keep_alive",
    "min_p",
    "models",
    "options",
    "plugins",
    "prompt_mode",
    "provider",
    "random_seed",
    "reasoning",
    "reasoning_format",
    "repeat_penalty",
    "repetition_penalty",
    "safe_prompt",
    "thinking",
    "top_k",
    "transforms",
    "usage",
];

pub(super) fn judge(request: &Request, findings: &mut Findings) {
    findings.authentication(Wire::Chat, request);
    let body = &request.body;
    if !findings.is_object(body) {
        return;
    }
    findings.known_fields(body, FIELDS);
    findings.check(
        !text(body, "model").is_empty(),
        Rule::Model,
        "model",
        "you must provide a model parameter",
    );
    let limits = ["max_tokens", "max_completion_tokens"].map(|field| non_null(body, field));
    findings.check(
        limits.iter().flatten().all(|it| it.as_u64() >= Some(1)),
        Rule::MaxTokens,
        "max_tokens",
        "must be at least 1",
    );
    findings.check(
        limits.iter().flatten().count() < 2,
        Rule::MaxTokens,
        "max_tokens",
        "may not be set together with max_completion_tokens",
    );
    findings.check(
        non_null(body, "stream_options").is_none()
            || body.get("stream") == Some(&Value::Bool(true)),
        Rule::StreamOptions,
        "stream_options",
        "only allowed when 'stream' is enabled",
    );
    tools(body, findings);
    format(body, findings);
    history::messages(body, findings);
}

fn tools(body: &Value, findings: &mut Findings) {
    let tools = array(body, "tools");
    findings.check(
        non_null(body, "tools").is_none() || !tools.is_empty(),
        Rule::Tools,
        "tools",
        "empty array: expected an array with minimum length 1",
    );
    findings.check(
        non_null(body, "parallel_tool_calls").is_none() || !tools.is_empty(),
        Rule::Tools,
        "parallel_tool_calls",
        "only allowed when 'tools' are specified",
    );
    let mut names = BTreeSet::new();
    for (number, tool) in tools.iter().enumerate() {
        let place = format!("tools[{number}]");
        let kind = text(tool, "type");
        let Some(function) = tool
            .get(kind)
            .filter(|_| matches!(kind, "function" | "custom"))
        else {
            findings.add(
                Rule::Tools,
                place,
                format_args!("'{kind}' is no type of tool, or its definition is missing"),
            );
            continue;
        };
        let name = text(function, "name");
        findings.check(
            is_tool_name(name),
            Rule::ToolName,
            format_args!("{place}.{kind}.name"),
            format_args!("`{name}` does not match ^[a-zA-Z0-9_-]{{1,64}}$"),
        );
        findings.check(
            names.insert(name),
            Rule::ToolNameUnique,
            &place,
            "tool names must be unique",
        );
        if kind == "function" {
            let strict = function.get("strict") == Some(&Value::Bool(true));
            let place = format!("{place}.function.parameters");
            schema::openai(&place, non_null(function, "parameters"), strict, findings);
        }
    }
    choice(body, tools, &names, findings);
}

fn choice(body: &Value, tools: &[Value], names: &BTreeSet<&str>, findings: &mut Findings) {
    let Some(choice) = non_null(body, "tool_choice") else {
        return;
    };
    let kind = text(choice, "type");
    let named = choice.get(kind).map(|named| text(named, "name"));
    let what = match (choice.as_str(), named) {
        _ if tools.is_empty() => "only allowed when 'tools' are specified",
        // `any` is Mistral's word for `required`.
        (Some("none" | "auto" | "required" | "any"), _) => return,
        (Some(_), _) => "must be none, auto or required",
        (None, _) if kind == "allowed_tools" => return,
        (None, Some(name)) if names.contains(name) => return,
        (None, Some(_)) => "names a tool that is not there",
        (None, None) => "must name a function",
    };
    findings.add(Rule::ToolChoice, "tool_choice", what);
}

fn format(body: &Value, findings: &mut Findings) {
    let Some(format) = non_null(body, "response_format") else {
        return;
    };
    let schema = format.get("json_schema").unwrap_or(&Value::Null);
    match text(format, "type") {
        "text" | "json_object" => {}
        "json_schema" => {
            findings.check(
                is_tool_name(text(schema, "name")),
                Rule::Format,
                "response_format.json_schema.name",
                "missing required parameter",
            );
            let inner = schema.get("schema").unwrap_or(&Value::Null);
            findings.check(
                inner.is_object(),
                Rule::Format,
                "response_format.json_schema.schema",
                "missing required parameter",
            );
            if schema.get("strict") == Some(&Value::Bool(true)) {
                schema::openai_strict("response_format.json_schema.schema", inner, findings);
            }
        }
        _ => findings.add(Rule::Format, "response_format.type", "invalid value"),
    }
}
