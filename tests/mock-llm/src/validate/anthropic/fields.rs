//! Rules for headers and the fields around the messages.
//!
//! Tools are in `tools`, messages in `history`.

use serde_json::Value;

use crate::request::{Request, array};
use crate::validate::{Findings, Rule, text};
use crate::wire::Wire;

/// The fields of a request, as the API documents them.
const FIELDS: &[&str] = &[
    "cache_control",
    "container",
    "context_management",
    "inference_geo",
    "max_tokens",
    "mcp_servers",
    "messages",
    "metadata",
    "model",
    "output_config",
    "output_format",
    "service_tier",
    "speed",
    "stop_sequences",
    "stream",
    "system",
    "temperature",
    "thinking",
    "tool_choice",
    "tools",
    "top_k",
    "top_p",
];

pub(super) fn headers(request: &Request, findings: &mut Findings) {
    findings.authentication(Wire::Anthropic, request);
    findings.check(
        request
            .header("anthropic-version")
            .is_some_and(|value| !value.trim().is_empty()),
        Rule::Version,
        "headers",
        "anthropic-version is required",
    );
}

pub(super) fn body(body: &Value, findings: &mut Findings) {
    findings.known_fields(body, FIELDS);
    findings.check(
        !text(body, "model").is_empty(),
        Rule::Model,
        "model",
        "field required",
    );
    let max_tokens = body.get("max_tokens").and_then(Value::as_u64).unwrap_or(0);
    findings.check(
        max_tokens >= 1,
        Rule::MaxTokens,
        "max_tokens",
        "a number of at least 1 is required",
    );
    system(body, findings);
    thinking(body, max_tokens, findings);
    container(body, findings);
    let marks = marks(body);
    findings.check(
        marks <= 4,
        Rule::CacheControl,
        "cache_control",
        format_args!("at most 4 blocks may have it, found {marks}"),
    );
}

fn system(body: &Value, findings: &mut Findings) {
    let Some(system) = body.get("system") else {
        return;
    };
    if let Some(blocks) = system.as_array() {
        for (number, block) in blocks.iter().enumerate() {
            let place = format!("system.{number}");
            findings.check(
                text(block, "type") == "text",
                Rule::System,
                &place,
                "must be a text block",
            );
            findings.check(
                !text(block, "text").trim().is_empty(),
                Rule::EmptyText,
                &place,
                "text content blocks must contain non-whitespace text",
            );
        }
    } else {
        findings.check(
            system.is_string(),
            Rule::System,
            "system",
            "must be a text or a list",
        );
    }
}

fn thinking(body: &Value, max_tokens: u64, findings: &mut Findings) {
    let Some(thinking) = body
        .get("thinking")
        .filter(|it| text(it, "type") == "enabled")
    else {
        return;
    };
    let budget = thinking
        .get("budget_tokens")
        .and_then(Value::as_u64)
        .unwrap_or(0);
    // Without a limit that counts, only the lower bound can be judged.
    let limit = if max_tokens == 0 {
        u64::MAX
    } else {
        max_tokens
    };
    findings.check(
        (1024..limit).contains(&budget),
        Rule::ThinkingBudget,
        "thinking.budget_tokens",
        "must be at least 1024 and less than max_tokens",
    );
    let choice = body
        .get("tool_choice")
        .map(|choice| text(choice, "type"))
        .unwrap_or("auto");
    findings.check(
        !matches!(choice, "any" | "tool"),
        Rule::ThinkingChoice,
        "tool_choice",
        "thinking may not be enabled when tool_choice forces tool use",
    );
}

fn container(body: &Value, findings: &mut Findings) {
    let Some(container) = body
        .get("container")
        .filter(|it| !it.is_null() && !it.is_string())
    else {
        return;
    };
    let known = container
        .as_object()
        .is_some_and(|object| object.keys().all(|key| key == "id" || key == "skills"));
    findings.check(
        known,
        Rule::Container,
        "container",
        "must be an id or {id?, skills?}",
    );
    let skills = array(container, "skills");
    findings.check(
        skills.len() <= 20,
        Rule::Container,
        "container.skills",
        "at most 20 skills are allowed",
    );
    let executes = array(body, "tools")
        .iter()
        .any(|tool| text(tool, "type").starts_with("code_execution_"));
    findings.check(
        skills.is_empty() || executes,
        Rule::Container,
        "container.skills",
        "skills need the code execution tool",
    );
}

/// How many `cache_control` marks a request has: on itself, on tools, system and content blocks, and
/// on blocks inside a tool's result. What stands in a call's input is data, not a mark.
fn marks(body: &Value) -> usize {
    let marked =
        |value: &Value| usize::from(value.get("cache_control").is_some_and(Value::is_object));
    let all = |values: &[Value]| values.iter().map(marked).sum::<usize>();
    let messages: usize = array(body, "messages")
        .iter()
        .flat_map(|message| array(message, "content"))
        .map(|block| marked(block) + all(array(block, "content")))
        .sum();
    marked(body) + all(array(body, "tools")) + all(array(body, "system")) + messages
}
