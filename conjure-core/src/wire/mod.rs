//! Wires: between canonical chat and what a provider's HTTP API speaks.
//!
//! Each provider has a folder here that its types never leave. A wire turns a request into a body
//! and headers, and a body that comes in pieces into events and a response. It opens no
//! connection, knows no key and retries nothing.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::chat::{Response, StreamEvent};

mod added;
pub mod anthropic;
mod arguments;
mod dialect;
mod dispatch;
mod endpoint;
mod failure;
mod files;
mod fill;
mod fragments;
mod gemini;
mod ids;
mod openai;
mod openai_chat;
mod openai_responses;
mod scan;
mod schema;
pub mod sse;
mod stream;
#[cfg(test)]
mod test_kit;
#[cfg(test)]
mod tests;
mod tools;
mod truncated_json;

pub use crate::model_family::model_family;
pub use crate::wire_name::{UnknownWire, Wire};
pub use dialect::{AnswerForm, AnyTool, Dialect, Effort, Limit, ThinkingEcho};
pub use endpoint::Endpoint;
pub use failure::{REPLY_CUT, REPLY_TOO_LARGE, REPLY_UNREADABLE};

/// Decodes the body of one streaming reply.
pub trait ReplyDecoder: Send {
    /// Takes bytes of the body as they come, cut anywhere; events are appended in order.
    fn push(&mut self, bytes: &[u8], out: &mut Vec<StreamEvent>);

    /// The end of the body, or of what came of it.
    ///
    /// `complete` of the response is false when the wire's own end did not come, and the parts
    /// are then what came.
    fn finish(&mut self, out: &mut Vec<StreamEvent>) -> Decoded;

    /// A second decoder in the same state: to look at what has come so far, this one ends and the
    /// other goes on.
    fn fork(&self) -> Box<dyn ReplyDecoder>;
}

/// A reply, decoded as far as it can be.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Decoded {
    /// What came, also when `error` is set: then it is what came before.
    pub response: Response,
    /// Why the reply is not whole: an error inside the stream, garbage, or a cut.
    pub error: Option<WireError>,
}

/// What went wrong with a reply, whether the HTTP status said so or the body did.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct WireError {
    /// A word for programs: `overloaded`, `rate_limited`, `auth`, `bad_request`, `not_found`,
    /// `too_large`, `api`, `protocol`, `cut`; `reply_too_large` of a reply that has more than is
    /// read, whose message then is a clause that says what it has too much of.
    pub kind: String,
    /// What failed, why, and what to do.
    pub message: String,
    /// Whether the same request may be sent again: the failure passes by itself, and a person has
    /// seen nothing of a reply. A call that was being written is not seen, and nothing of it ran.
    pub retryable: bool,
    /// How long the body asks to wait before that. What a `retry-after` header asks for is not
    /// read here: it may be a date, and a wire has no clock.
    pub retry_after: Option<Duration>,
}

/// A request, ready to be sent.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Encoded {
    /// Compact JSON; the same bytes for the same request.
    pub body: Vec<u8>,
    /// Headers with lower-case names, without any credential.
    pub headers: Vec<(String, String)>,
    /// What was recast or left out, and why, but for the tools in `quarantined`; for logs, not for the
    /// model.
    pub notes: Vec<String>,
    /// The tools that were left out because the provider would reject the request with them.
    pub quarantined: Vec<OmittedTool>,
}

/// A tool that a request was sent without.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OmittedTool {
    /// The tool's public name.
    pub tool: String,
    /// What the provider does not take of it.
    pub reason: String,
}

impl WireError {
    pub(crate) fn new(kind: &str, message: impl Into<String>, retryable: bool) -> Self {
        Self {
            kind: kind.to_owned(),
            message: message.into(),
            retryable,
            retry_after: None,
        }
    }
}
