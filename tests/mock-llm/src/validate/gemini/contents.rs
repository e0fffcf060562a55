//! Rules for the contents: roles in turn, parts, that every call has its response, and signatures.
//!
//! Neighbours of one role break a rule of their own and are then read as one content, as the API
//! reads them.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::request::array;
use crate::validate::{Findings, Rule, non_null, text};
use crate::wire::is_third_generation;

/// What a part is: one of these.
const DATA: &[&str] = &[
    "text",
    "inlineData",
    "fileData",
    "functionCall",
    "functionResponse",
    "executableCode",
    "codeExecutionResult",
    "toolCall",
    "toolResponse",
];

/// What may stand beside it.
const SIBLING_FIELDS: &[&str] = &[
    "thought",
    "thoughtSignature",
    "videoMetadata",
    "mediaResolution",
    "partMetadata",
];

/// A content after joining, with the place of each of its parts.
struct Turn<'a> {
    role: &'a str,
    place: String,
    parts: Vec<(String, &'a Value)>,
}

impl<'a> Turn<'a> {
    fn all(&self, key: &str) -> Vec<(&str, &'a Value)> {
        self.parts
            .iter()
            .filter_map(|(place, part)| Some((place.as_str(), non_null(part, key)?)))
            .collect()
    }
}

pub(super) fn contents(model: &str, body: &Value, findings: &mut Findings) {
    let contents = array(body, "contents");
    if contents.is_empty() {
        findings.add(Rule::Messages, "contents", "contents is not specified");
        return;
    }
    let turns = join_turns(contents, findings);
    if let Some(first) = turns.first() {
        findings.check(
            first.role != "model",
            Rule::FirstIsUser,
            &first.place,
            "the first content must be the user's",
        );
    }
    for turn in &turns {
        for (place, part) in &turn.parts {
            self::part(turn.role, place, part, findings);
        }
    }
    ids(&turns, findings);
    pairs(&turns, findings);
    if is_third_generation(model) {
        signed(&turns, findings);
    }
}

fn join_turns<'a>(contents: &'a [Value], findings: &mut Findings) -> Vec<Turn<'a>> {
    let mut turns: Vec<Turn<'a>> = Vec::new();
    for (number, content) in contents.iter().enumerate() {
        let place = format!("contents[{number}]");
        let role = text(content, "role");
        findings.check(
            matches!(role, "user" | "model"),
            Rule::Role,
            format_args!("{place}.role"),
            "Please use a valid role: user, model.",
        );
        findings.known_block_fields(&place, content, &["role", "parts"]);
        let parts: Vec<(String, &Value)> = array(content, "parts")
            .iter()
            .enumerate()
            .map(|(at, part)| (format!("{place}.parts[{at}]"), part))
            .collect();
        findings.check(
            !parts.is_empty(),
            Rule::Content,
            format_args!("{place}.parts"),
            "contents.parts must not be empty.",
        );
        match turns.last_mut() {
            Some(turn) if turn.role == role => {
                findings.check(
                    role == "user",
                    Rule::Alternation,
                    &place,
                    format_args!("two contents of role {role} follow each other"),
                );
                turn.parts.extend(parts);
            }
            _ => turns.push(Turn { role, place, parts }),
        }
    }
    turns
}

fn part(role: &str, place: &str, part: &Value, findings: &mut Findings) {
    let data: Vec<&str> = DATA
        .iter()
        .copied()
        .filter(|key| non_null(part, key).is_some())
        .collect();
    let [kind] = data.as_slice() else {
        findings.add(
            Rule::Block,
            place,
            "required oneof field 'data' must have one initialized field",
        );
        return;
    };
    let kind = *kind;
    let known: Vec<&str> = DATA.iter().chain(SIBLING_FIELDS).copied().collect();
    findings.known_block_fields(place, part, &known);
    let owner = match kind {
        "functionResponse" | "fileData" => Some("user"),
        "functionCall" | "executableCode" | "codeExecutionResult" | "toolCall" | "toolResponse" => {
            Some("model")
        }
        _ => None,
    };
    findings.check(
        owner.is_none_or(|owner| owner == role) || !matches!(role, "user" | "model"),
        Rule::BlockRole,
        place,
        format_args!("{kind} may not be in a content of role {role}"),
    );
    if let Some(signature) = non_null(part, "thoughtSignature") {
        let signature = signature.as_str().unwrap_or_default();
        let base64 = |byte: u8| byte.is_ascii_alphanumeric() || b"+/=-_".contains(&byte);
        findings.check(
            !signature.is_empty() && signature.bytes().all(base64),
            Rule::Signature,
            format_args!("{place}.thought_signature"),
            "Base64 decoding failed",
        );
    }
    let value = part.get(kind).unwrap_or(&Value::Null);
    match kind {
        "text" => findings.check(
            !text(part, "text").trim().is_empty() || non_null(part, "thoughtSignature").is_some(),
            Rule::EmptyText,
            place,
            "must include non-empty text",
        ),
        "functionCall" => {
            tool_name(place, text(value, "name"), findings);
            findings.known_block_fields(place, value, &["id", "name", "args"]);
            findings.check(
                non_null(value, "args").is_none_or(Value::is_object),
                Rule::ToolInput,
                format_args!("{place}.args"),
                "must be an object",
            );
        }
        "functionResponse" => {
            tool_name(place, text(value, "name"), findings);
            let fields = [
                "id",
                "name",
                "response",
                "parts",
                "willContinue",
                "scheduling",
            ];
            findings.known_block_fields(place, value, &fields);
            findings.check(
                value.get("response").is_some_and(Value::is_object),
                Rule::Block,
                format_args!("{place}.response"),
                "must be an object",
            );
        }
        "inlineData" => findings.check(
            !text(value, "mimeType").is_empty() && !text(value, "data").is_empty(),
            Rule::Block,
            place,
            "inlineData needs mimeType and data",
        ),
        _ => {}
    }
}

/// A name begins with a letter or `_`, and has letters, digits, `_`, `.`, `:` and `-`, at most 64.
pub(super) fn tool_name(place: &str, name: &str, findings: &mut Findings) {
    let first = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_';
    let rest = |byte: u8| byte.is_ascii_alphanumeric() || b"_.:-".contains(&byte);
    let legal = name.bytes().next().is_some_and(first) && name.bytes().all(rest);
    findings.check(
        legal && name.len() <= 64,
        Rule::ToolName,
        format_args!("{place}.name"),
        format_args!("invalid function name `{name}`"),
    );
}

fn ids(turns: &[Turn<'_>], findings: &mut Findings) {
    let mut seen = BTreeSet::new();
    for (place, call) in turns.iter().flat_map(|turn| turn.all("functionCall")) {
        if let Some(id) = non_null(call, "id").and_then(Value::as_str) {
            findings.check(
                seen.insert(id),
                Rule::ToolIdUnique,
                place,
                format_args!("two calls have the id `{id}`"),
            );
        }
    }
}

fn pairs(turns: &[Turn<'_>], findings: &mut Findings) {
    let mut calls: Vec<(&str, &Value)> = Vec::new();
    for turn in turns {
        let responses = turn.all("functionResponse");
        if calls.is_empty() {
            for (place, _) in &responses {
                findings.add(
                    Rule::ToolResultOrphan,
                    place,
                    "function response turn must come immediately after a function call turn",
                );
            }
        } else if responses.is_empty() {
            report_missing_results(&turn.place, findings);
        } else if responses.len() != calls.len() {
            findings.add(
                Rule::ToolResultCount,
                &turn.place,
                format_args!(
                    "the number of function response parts ({}) must be equal to the number of \
                     function call parts of the function call turn ({})",
                    responses.len(),
                    calls.len()
                ),
            );
        } else {
            for ((_, call), (place, response)) in calls.iter().zip(&responses) {
                let same = |key: &str| non_null(call, key) == non_null(response, key);
                findings.check(
                    same("name") && same("id"),
                    Rule::ToolResultOrder,
                    place,
                    "function responses must be in the order of the calls, with their names and ids",
                );
            }
        }
        calls = turn.all("functionCall");
        if turn.role != "model" {
            calls.clear();
        }
    }
    if !calls.is_empty() {
        report_missing_results("contents", findings);
    }
}

fn report_missing_results(place: &str, findings: &mut Findings) {
    findings.add(
        Rule::ToolResultMissing,
        place,
        "a function call turn must be followed by its function responses",
    );
}

/// In the turn that is still going on, the first call of each step has its signature.
fn signed(turns: &[Turn<'_>], findings: &mut Findings) {
    let is_question =
        |turn: &&Turn<'_>| turn.role == "user" && turn.all("functionResponse").is_empty();
    let begun = turns
        .iter()
        .rposition(|turn| is_question(&turn))
        .unwrap_or(0);
    for turn in turns.iter().skip(begun).filter(|turn| turn.role == "model") {
        let mut calls = turn
            .parts
            .iter()
            .filter(|(_, part)| non_null(part, "functionCall").is_some());
        if let Some((place, part)) = calls.next() {
            let name = part
                .get("functionCall")
                .map_or("", |call| text(call, "name"));
            findings.check(
                non_null(part, "thoughtSignature").is_some(),
                Rule::Signature,
                place,
                format_args!(
                    "Function call is missing a thought_signature in functionCall parts. This is \
                     required for tools to work correctly, and missing thought_signature may lead to \
                     degraded model performance. Additional data, function call `default_api:{name}`."
                ),
            );
        }
    }
}
