//! What Gemini's generateContent would refuse.
//!
//! A field that is null counts as left out, as the API takes it. The contents are in `contents`; here
//! is what stands around them.

mod contents;

use std::collections::BTreeSet;

use serde_json::Value;

use super::{Findings, Rule, non_null, schema, text};
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
    Rule::FirstIsUser,
    Rule::Alternation,
    Rule::Content,
    Rule::Block,
    Rule::BlockRole,
    Rule::BlockField,
    Rule::EmptyText,
    Rule::Signature,
    Rule::ThinkingBudget,
    Rule::ToolName,
    Rule::ToolNameUnique,
    Rule::ToolSchema,
    Rule::Tools,
    Rule::ToolChoice,
    Rule::ToolInput,
    Rule::ToolIdUnique,
    Rule::ToolResultMissing,
    Rule::ToolResultOrphan,
    Rule::ToolResultCount,
    Rule::ToolResultOrder,
    Rule::Format,
];

/// The fields of a request, as the API documents them.
const FIELDS: &[&str] = &[
    "cachedContent",
    "contents",
    "generationConfig",
    "labels",
    "model",
    "safetySettings",
    "serviceTier",
    "store",
    "systemInstruction",
    "toolConfig",
    "tools",
];

/// The fields of `generationConfig`.
const CONFIG: &[&str] = &[
    "audioTimestamp",
    "candidateCount",
    "enableEnhancedCivicAnswers",
    "frequencyPenalty",
    "imageConfig",
    "logprobs",
    "maxOutputTokens",
    "mediaResolution",
    "presencePenalty",
    "responseJsonSchema",
    "responseLogprobs",
    "responseMimeType",
    "responseModalities",
    "responseSchema",
    "seed",
    "speechConfig",
    "stopSequences",
    "temperature",
    "thinkingConfig",
    "topK",
    "topP",
];

/// The kinds of tools in an element of `tools`.
const TOOLS: &[&str] = &[
    "codeExecution",
    "computerUse",
    "fileSearch",
    "functionDeclarations",
    "googleMaps",
    "googleSearch",
    "googleSearchRetrieval",
    "mcpServers",
    "urlContext",
];

pub(super) fn judge(request: &Request, findings: &mut Findings) {
    findings.authentication(Wire::Gemini, request);
    let body = &request.body;
    if !findings.is_object(body) {
        return;
    }
    findings.known_fields(body, FIELDS);
    let model = request.model();
    findings.check(
        !model.is_empty(),
        Rule::Model,
        "model",
        "the path names no model",
    );
    if let Some(system) = non_null(body, "systemInstruction") {
        let parts = array(system, "parts");
        findings.check(
            !parts.is_empty() && parts.iter().all(|part| part.get("text").is_some()),
            Rule::System,
            "systemInstruction.parts",
            "must be text parts",
        );
    }
    config(model, body, findings);
    tools(body, findings);
    contents::contents(model, body, findings);
}

fn config(model: &str, body: &Value, findings: &mut Findings) {
    let Some(config) = non_null(body, "generationConfig") else {
        return;
    };
    findings.known_fields(config, CONFIG);
    findings.check(
        non_null(config, "maxOutputTokens").is_none_or(|it| it.as_u64() >= Some(1)),
        Rule::MaxTokens,
        "generationConfig.maxOutputTokens",
        "must be positive",
    );
    let schemas = ["responseSchema", "responseJsonSchema"].map(|field| non_null(config, field));
    findings.check(
        schemas.iter().flatten().count() < 2,
        Rule::Format,
        "generationConfig",
        "responseSchema and responseJsonSchema may not be set together",
    );
    findings.check(
        schemas.iter().flatten().count() == 0
            || matches!(
                text(config, "responseMimeType"),
                "application/json" | "text/x.enum"
            ),
        Rule::Format,
        "generationConfig.responseMimeType",
        "a schema needs application/json",
    );
    if let [Some(schema), _] = schemas {
        let place = "generationConfig.responseSchema";
        schema::gemini(place, schema, Rule::Format, findings);
    }
    thinking(model, config, findings);
}

fn thinking(model: &str, config: &Value, findings: &mut Findings) {
    let Some(thinking) = non_null(config, "thinkingConfig") else {
        return;
    };
    let budget = non_null(thinking, "thinkingBudget");
    let place = "generationConfig.thinkingConfig";
    findings.check(
        budget.is_none() || non_null(thinking, "thinkingLevel").is_none(),
        Rule::ThinkingBudget,
        place,
        "thinkingBudget and thinkingLevel may not be set together",
    );
    let Some(budget) = budget else { return };
    // The model that cannot do without thinking says so.
    let least = if model.contains("2.5-pro") { 128 } else { 0 };
    findings.check(
        budget
            .as_i64()
            .is_some_and(|it| it == -1 || (least..=32_768).contains(&it)),
        Rule::ThinkingBudget,
        place,
        format_args!(
            "the thinking budget {budget} is invalid; choose a value between {least} and 32768"
        ),
    );
}

fn tools(body: &Value, findings: &mut Findings) {
    let mut names = BTreeSet::new();
    for (number, tool) in array(body, "tools").iter().enumerate() {
        let place = format!("tools[{number}]");
        let kinds = super::keys(tool).filter(|kind| !TOOLS.contains(&kind.as_str()));
        let unknown: Vec<&String> = kinds.collect();
        findings.check(
            tool.is_object() && unknown.is_empty(),
            Rule::Tools,
            &place,
            format_args!("Unknown name {unknown:?}: Cannot find field."),
        );
        for (at, function) in array(tool, "functionDeclarations").iter().enumerate() {
            let place = format!("{place}.functionDeclarations[{at}]");
            let name = text(function, "name");
            contents::tool_name(&place, name, findings);
            findings.check(
                names.insert(name),
                Rule::ToolNameUnique,
                &place,
                format_args!("duplicate function declaration found: {name}"),
            );
            parameters(&place, function, findings);
        }
    }
    choice(body, &names, findings);
}

fn parameters(place: &str, function: &Value, findings: &mut Findings) {
    let plain = non_null(function, "parameters");
    let json = non_null(function, "parametersJsonSchema");
    findings.check(
        plain.is_none() || json.is_none(),
        Rule::ToolSchema,
        place,
        "parameters and parametersJsonSchema may not be set together",
    );
    if let Some(schema) = plain {
        let place = format!("{place}.parameters");
        findings.check(
            text(schema, "type").eq_ignore_ascii_case("object"),
            Rule::ToolSchema,
            &place,
            "schema should be of OBJECT type",
        );
        schema::gemini(&place, schema, Rule::ToolSchema, findings);
    }
    if let Some(schema) = json {
        findings.check(
            text(schema, "type") == "object",
            Rule::ToolSchema,
            format_args!("{place}.parametersJsonSchema"),
            "schema should be of type object",
        );
    }
}

fn choice(body: &Value, names: &BTreeSet<&str>, findings: &mut Findings) {
    let config = non_null(body, "toolConfig").and_then(|it| non_null(it, "functionCallingConfig"));
    let Some(config) = config else { return };
    let mode = text(config, "mode");
    let allowed = array(config, "allowedFunctionNames");
    let what = match mode {
        "NONE" | "AUTO" if !allowed.is_empty() => {
            "allowedFunctionNames may only be set when the mode is ANY"
        }
        "" | "NONE" | "AUTO" => return,
        "ANY" | "VALIDATED" if names.is_empty() => {
            "may only be specified while providing functionDeclarations"
        }
        "ANY" | "VALIDATED" => {
            let known = |name: &Value| name.as_str().is_some_and(|name| names.contains(name));
            if allowed.iter().all(known) {
                return;
            }
            "allowedFunctionNames names a function that is not there"
        }
        _ => "must be of mode AUTO, ANY, NONE or VALIDATED",
    };
    findings.add(Rule::ToolChoice, "toolConfig.functionCallingConfig", what);
}
