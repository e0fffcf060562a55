//! What the Messages API would refuse in a request, rule by rule.
//!
//! Stricter than lenient servers on purpose: a history that the repair left wrong must fail in a
//! test, not at a customer's. One [`Rule`] a way to be wrong; the test of this crate has a mutation
//! for each. Judges one request alone and keeps no history of its own.

mod fields;
mod history;
mod tools;

use std::fmt;

use serde_json::Value;

use crate::request::Request;

/// A broken rule.
#[derive(Clone, Debug, PartialEq)]
pub struct Violation {
    /// The request's place in the order of arrival.
    pub request: usize,
    /// Which rule.
    pub rule: Rule,
    /// Where and what, as it stands in the error that the client gets.
    pub message: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "request {}: {:?}: {}",
            self.request, self.rule, self.message
        )
    }
}

/// The rules.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Rule {
    /// `x-api-key` or `authorization` is sent.
    Authentication,
    /// `anthropic-version` is sent.
    Version,
    /// The body is a JSON object.
    Body,
    /// No top-level field that the API does not know.
    UnknownField,
    /// `model` is a text.
    Model,
    /// `max_tokens` is a number, at least 1.
    MaxTokens,
    /// `messages` is a list with at least one message.
    Messages,
    /// `system` is a text or a list of text blocks.
    System,
    /// A message's role is `user` or `assistant` (or `system`, between others).
    Role,
    /// The first message is the user's. The live API has been seen to accept an assistant's; a
    /// repaired history never begins with one.
    FirstIsUser,
    /// A message has content: a text or a list of blocks, not empty.
    Content,
    /// A block is an object of a known type, with that type's fields.
    Block,
    /// A block stands in a message of the role that may hold it.
    BlockRole,
    /// No field in a block that the API does not know.
    BlockField,
    /// No empty text, and no text of white space only outside of tool results.
    EmptyText,
    /// A last message of the assistant does not end in white space.
    TrailingSpace,
    /// A thinking block has its signature, a redacted one its data.
    Signature,
    /// With thinking on, an assistant's turn that calls tools has its thinking.
    ThinkingKept,
    /// The thinking budget is at least 1024 and less than `max_tokens`.
    ThinkingBudget,
    /// With thinking on, no tool is forced.
    ThinkingChoice,
    /// A tool's name, declared or called, fits `^[a-zA-Z0-9_-]{1,64}$`.
    ToolName,
    /// No two tools have one name.
    ToolNameUnique,
    /// A client's tool has an input schema of type `object`.
    ToolSchema,
    /// `tool_choice` is of a known kind, names a tool that is there, and comes with tools.
    ToolChoice,
    /// A call's id fits `^[a-zA-Z0-9_-]+$`.
    ToolId,
    /// No two calls have one id.
    ToolIdUnique,
    /// A call's input is an object.
    ToolInput,
    /// The message after a call answers it.
    ToolResultMissing,
    /// A result answers a call of the message before it.
    ToolResultOrphan,
    /// A call has one result.
    ToolResultTwice,
    /// Results come first in their message.
    ToolResultFirst,
    /// While the provider's own call is open, the reply to the client's calls is results only.
    MixedTurn,
    /// A result of the provider's own call follows that call.
    ServerResultOrphan,
    /// At most four `cache_control` marks.
    CacheControl,
    /// `container` is an id or `{id?, skills?}`, with at most 20 skills, which need code execution.
    Container,
}

/// Everything in a request that the API would refuse, in the order of the request.
#[must_use]
pub fn validate(request: &Request) -> Vec<Violation> {
    let mut findings = Findings {
        request: request.index,
        violations: Vec::new(),
    };
    fields::headers(request, &mut findings);
    if request.body.is_object() {
        fields::body(&request.body, &mut findings);
        tools::tools(&request.body, &mut findings);
        history::messages(&request.body, &mut findings);
    } else {
        findings.add(Rule::Body, "body", "must be a JSON object");
    }
    findings.violations
}

/// The violations found so far.
struct Findings {
    request: usize,
    violations: Vec<Violation>,
}

impl Findings {
    fn add(&mut self, rule: Rule, place: impl fmt::Display, what: impl fmt::Display) {
        self.violations.push(Violation {
            request: self.request,
            rule,
            message: format!("{place}: {what}"),
        });
    }

    fn check(
        &mut self,
        holds: bool,
        rule: Rule,
        place: impl fmt::Display,
        what: impl fmt::Display,
    ) {
        if !holds {
            self.add(rule, place, what);
        }
    }
}

/// The text under a key, or an empty one.
fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// Letters, digits, `_` and `-` of ASCII, at least one.
fn is_word(name: &str) -> bool {
    !name.is_empty()
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-')
}

/// A legal tool name.
fn is_tool_name(name: &str) -> bool {
    is_word(name) && name.len() <= 64
}
