//! What the providers would refuse in a request, wire by wire and rule by rule.
//!
//! Stricter than lenient servers on purpose: a history that the repair left wrong must fail in a
//! test, not at a customer's. One [`Rule`] a way to be wrong; the test of this crate has a mutation
//! for each rule of each wire. Judges one request alone and keeps no history of its own.

mod anthropic;
mod chat;
mod gemini;
mod responses;
mod schema;
mod sidecars;

use std::fmt;

use serde_json::Value;

use crate::reply::ErrorReply;
use crate::request::Request;
use crate::wire::Wire;

pub use sidecars::verify;
pub(crate) use sidecars::verify_with;

/// A broken rule.
#[derive(Clone, Debug, PartialEq)]
pub struct Violation {
    /// The request's place in the order of arrival.
    pub request: usize,
    /// Rule that the request breaks.
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

/// The rules. [`Wire::rules`] says which of them a wire has; each means what its provider makes of it.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Rule {
    /// The credential is sent where the wire has it: `x-api-key` or `authorization`, `authorization` or
    /// `api-key`, `x-goog-api-key` or `key` in the query.
    Authentication,
    /// `anthropic-version` is sent.
    Version,
    /// The body is a JSON object.
    Body,
    /// No top-level field that the API does not know.
    UnknownField,
    /// The model is named.
    Model,
    /// The limit of the output is a number that the API takes: required and at least 1 (Anthropic), at
    /// least 16 (Responses), at least 1 and given once (Chat, Gemini).
    MaxTokens,
    /// The history has at least one message.
    Messages,
    /// The system prompt has its wire's form.
    System,
    /// A message's role is one of the wire's.
    Role,
    /// The first message is the user's. The live APIs have been seen to accept an assistant's; a
    /// repaired history never begins with one.
    FirstIsUser,
    /// The model does not speak twice in a row (Gemini). Two contents of the user's may follow each
    /// other: the live API has been seen to accept them.
    Alternation,
    /// A message has content.
    Content,
    /// A block, item or part is an object of a known type, with that type's fields.
    Block,
    /// A block or part stands in a message of the role that may hold it.
    BlockRole,
    /// No field in a message, item, block or part that the API does not know.
    BlockField,
    /// No empty text, and no text of white space only, outside of tool results.
    EmptyText,
    /// A last message of the assistant does not end in white space.
    TrailingSpace,
    /// Anthropic: a thinking block has its signature, a redacted one its data. Gemini: a signature is
    /// base64, and a third-generation model gets one on the first call of each step of this turn.
    Signature,
    /// With thinking on, the turn that goes on begins with its thinking (Anthropic, with a budget), or
    /// each of its messages that calls tools has it (Chat: `DeepSeek`'s `reasoning_content`).
    ThinkingKept,
    /// With thinking off, the turn that goes on holds none. Of models that know budgets only.
    ThinkingOff,
    /// The thinking budget is one that the model takes.
    ThinkingBudget,
    /// With thinking on, no tool is forced.
    ThinkingChoice,
    /// A tool's name, declared or called, has the wire's characters and length.
    ToolName,
    /// No two tools have one name.
    ToolNameUnique,
    /// A tool's schema is an object's, of the kind that the provider takes.
    ToolSchema,
    /// With `strict`, every object has `additionalProperties: false` and requires all its properties
    /// (`OpenAI`), or has no words that cannot be compiled (Anthropic, in outputs, too).
    StrictSchema,
    /// `tools` is a list of known tools, not empty, and `parallel_tool_calls` comes with tools.
    Tools,
    /// The choice among the tools is of a known kind, names a tool that is there, and comes with tools.
    ToolChoice,
    /// A call's id has the wire's characters and length; of Mistral's models, nine letters and digits.
    ToolId,
    /// No two calls have one id (Chat: in one message).
    ToolIdUnique,
    /// A call's input is an object, or a text that is the JSON of one.
    ToolInput,
    /// A call is answered: by the next message, by an item after it (Responses), by the messages
    /// directly behind it (Chat), by the next content (Gemini).
    ToolResultMissing,
    /// A result answers a call that is there.
    ToolResultOrphan,
    /// A call has one result.
    ToolResultTwice,
    /// Results come first in their message.
    ToolResultFirst,
    /// As many results as calls (Gemini).
    ToolResultCount,
    /// Results in the order of the calls (Gemini). The live API has been seen to accept another order; a
    /// repaired history keeps it, since results without ids have nothing else to go by.
    ToolResultOrder,
    /// While the provider's own call is open, the reply to the client's calls is results only.
    MixedTurn,
    /// A result of the provider's own call follows that call.
    ServerResultOrphan,
    /// At most four `cache_control` marks.
    CacheControl,
    /// `container` is an id or `{id?, skills?}`, with at most 20 skills, which need code execution.
    Container,
    /// An item's id begins as its type says (`msg_`, `rs_`, `fc_`) and has at most 64 characters.
    ItemId,
    /// No two items have one id.
    ItemIdUnique,
    /// A reasoning item is followed by the item that it was made for.
    ReasoningFollowed,
    /// With `store: false` nothing is named by an id alone: no reference, no reasoning without its
    /// encrypted content.
    StoredItem,
    /// `previous_response_id` stands without `conversation`, and no reasoning is sent again beside it.
    PreviousResponse,
    /// `include` names what can be included.
    Include,
    /// A structured output has a name and a schema of the kind that the provider takes.
    Format,
    /// `stream_options` comes with `stream`.
    StreamOptions,
    /// Encrypted or signed reasoning was made for this model by this provider.
    ForeignSidecar,
    /// What was signed is as it was: the thinking (Anthropic), the part on which a signature stands
    /// (Gemini).
    EditedSidecar,
    /// An item or response named by its id alone was made by this provider.
    UnknownItem,
    /// An item that was made after reasoning comes with that reasoning before it.
    ReasoningDropped,
    /// A container that is named is there ([`crate::Hosted`], as all that follow).
    ContainerUnknown,
    /// A container that is named is not over.
    ContainerExpired,
    /// A conversation that ran in a container goes on in it.
    ContainerOmitted,
    /// A skill that is named is there, in the version that is named.
    SkillUnknown,
    /// A file for the container is there.
    UploadUnknown,
    /// A paused turn is continued by its content as it was, with the same tools, in the same
    /// container, and by nothing else.
    PausedChanged,
    /// An upload is a whole form with the fields that it needs, and no others.
    Multipart,
    /// A skill is in one directory with a `SKILL.md`, without paths that lead elsewhere, below 30 MB.
    SkillFiles,
    /// A skill keeps its name, which its directory has too; its title is short (and with the beta
    /// nobody else's).
    SkillName,
    /// A file's name has 1 to 255 characters, and none that a path could have.
    FileName,
    /// A list is asked for in pages that there are.
    Paging,
}

impl Wire {
    /// The rules of this wire: those of [`validate`], then those of [`verify`].
    #[must_use]
    pub fn rules(self) -> Vec<Rule> {
        let form = match self {
            Self::Anthropic => anthropic::RULES,
            Self::Responses => responses::RULES,
            Self::Chat => chat::RULES,
            Self::Gemini => gemini::RULES,
        };
        [form, sidecars::rules(self)].concat()
    }
}

impl Violation {
    /// The error that the provider answers with.
    pub(crate) fn refusal(&self) -> ErrorReply {
        let (status, code) = match self.rule {
            Rule::Authentication => (401, None),
            Rule::ForeignSidecar => (400, Some("invalid_encrypted_content")),
            Rule::UnknownField | Rule::BlockField => (400, Some("unknown_parameter")),
            Rule::UnknownItem => (400, Some("previous_response_not_found")),
            _ => (400, None),
        };
        ErrorReply {
            code: code.map(str::to_owned),
            ..ErrorReply::new(status).message(self.message.clone())
        }
    }
}

/// Everything in the form of a request that the provider of this wire would refuse, in the order of
/// the request. What it says to be the provider's own is [`verify`]'s affair.
#[must_use]
pub fn validate(wire: Wire, request: &Request) -> Vec<Violation> {
    let mut findings = Findings::new(request);
    match wire {
        Wire::Anthropic => anthropic::judge(request, &mut findings),
        Wire::Responses => responses::judge(request, &mut findings),
        Wire::Chat => chat::judge(request, &mut findings),
        Wire::Gemini => gemini::judge(request, &mut findings),
    }
    findings.violations
}

/// The violations found so far.
struct Findings {
    request: usize,
    violations: Vec<Violation>,
}

impl Findings {
    fn new(request: &Request) -> Self {
        Self {
            request: request.index,
            violations: Vec::new(),
        }
    }

    /// Whether the body is an object, and can be judged further.
    fn is_object(&mut self, body: &Value) -> bool {
        self.check(
            body.is_object(),
            Rule::Body,
            "body",
            "must be a JSON object",
        );
        body.is_object()
    }

    /// Checks that an object of the top level has no other fields.
    fn known_fields(&mut self, body: &Value, known: &[&str]) {
        for field in keys(body) {
            self.check(
                known.contains(&field.as_str()),
                Rule::UnknownField,
                field,
                "extra inputs are not permitted",
            );
        }
    }

    /// Checks that an object inside the history has no other fields.
    fn known_block_fields(&mut self, place: &str, block: &Value, known: &[&str]) {
        for field in keys(block) {
            self.check(
                known.contains(&field.as_str()),
                Rule::BlockField,
                format_args!("{place}.{field}"),
                "extra inputs are not permitted",
            );
        }
    }

    fn authentication(&mut self, wire: Wire, request: &Request) {
        self.check(
            wire.has_credential(request),
            Rule::Authentication,
            "headers",
            format_args!("{} is required", wire.credential_headers().join(" or ")),
        );
    }

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

/// The names of an object's fields.
fn keys(value: &Value) -> impl Iterator<Item = &String> {
    value
        .as_object()
        .into_iter()
        .flat_map(|object| object.keys())
}

/// The value under a key, unless it is null.
fn non_null<'a>(value: &'a Value, key: &str) -> Option<&'a Value> {
    value.get(key).filter(|value| !value.is_null())
}

/// The text under a key, or an empty one.
pub(crate) fn text<'a>(value: &'a Value, key: &str) -> &'a str {
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
