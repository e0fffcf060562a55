//! What a reply says, before any wire: a message, a provider's error, any HTTP answer, or bytes.
//!
//! A message is in a file of its own. How a reply is written is the wire's affair, how it reaches the
//! socket is `delivery`'s.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::delivery::{Chunks, Cut, CutAt, CutHow, Delivery, Ending, Framing, Hold, Position};
use crate::message::Message;

/// An answer to one request: what it says and how it is delivered.
#[derive(Clone, Debug, PartialEq)]
pub struct Reply {
    /// What the reply says.
    pub kind: ReplyKind,
    /// How its bytes reach the client.
    pub delivery: Delivery,
}

/// The four kinds of answer.
#[derive(Clone, Debug, PartialEq)]
pub enum ReplyKind {
    /// A message of the model, status 200.
    Message(Box<Message>),
    /// An error in the provider's own shape.
    Error(ErrorReply),
    /// Any HTTP answer: an HTML page of a proxy, a redirect, a file.
    Http(HttpReply),
    /// Bytes for the socket as they are, status line included; the connection is closed after them.
    Raw(Vec<u8>),
}

impl Reply {
    /// A message of one text block.
    #[must_use]
    pub fn text(text: impl Into<String>) -> Self {
        Message::new().text(text).into()
    }

    /// The provider's error for an HTTP status, with its usual type.
    #[must_use]
    pub fn error(status: u16) -> Self {
        ErrorReply {
            status,
            ..ErrorReply::default()
        }
        .into()
    }

    /// A page such as a proxy in between would send.
    #[must_use]
    pub fn html(status: u16, body: impl Into<String>) -> Self {
        HttpReply {
            status,
            headers: BTreeMap::from([("content-type".to_owned(), "text/html".to_owned())]),
            body: body.into(),
            times: 1,
        }
        .into()
    }

    /// A redirect with an empty body; `status` is one of 301, 302, 303, 307, 308.
    #[must_use]
    pub fn redirect(status: u16, location: impl Into<String>) -> Self {
        HttpReply {
            status,
            headers: BTreeMap::from([("location".to_owned(), location.into())]),
            body: String::new(),
            times: 1,
        }
        .into()
    }

    /// Bytes for the socket as they are; the connection is closed after them.
    #[must_use]
    pub fn raw(bytes: impl Into<Vec<u8>>) -> Self {
        ReplyKind::Raw(bytes.into()).into()
    }

    /// Sets how the body is split into HTTP chunks.
    #[must_use]
    pub fn chunks(mut self, chunks: Chunks) -> Self {
        self.delivery.chunks = chunks;
        self
    }

    /// Splits what goes to the socket, head and framing included, into writes of `bytes` each.
    #[must_use]
    pub fn writes(mut self, bytes: usize) -> Self {
        self.delivery.writes = Some(bytes);
        self
    }

    /// Waits between two chunks.
    #[must_use]
    pub fn delay(mut self, delay: Duration) -> Self {
        self.delivery.delay_ms = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
        self
    }

    /// Stops at a position until the test calls [`crate::MockLlm::release`] with this token.
    #[must_use]
    pub fn hold(mut self, at: Position, token: impl Into<String>) -> Self {
        self.delivery.holds.push(Hold {
            at,
            token: token.into(),
        });
        self
    }

    /// Sends nothing from this position on and leaves the connection open.
    #[must_use]
    pub fn hang(mut self, at: Position) -> Self {
        self.delivery.hang = Some(at);
        self
    }

    /// Cuts the connection.
    #[must_use]
    pub fn cut(mut self, at: CutAt, how: CutHow) -> Self {
        self.delivery.cut = Some(Cut { at, how });
        self
    }

    /// Sets what follows the last byte of the body.
    #[must_use]
    pub fn ending(mut self, ending: Ending) -> Self {
        self.delivery.ending = ending;
        self
    }

    /// Sets how the client learns where the body ends.
    #[must_use]
    pub fn framing(mut self, framing: Framing) -> Self {
        self.delivery.framing = Some(framing);
        self
    }
}

impl From<ReplyKind> for Reply {
    fn from(kind: ReplyKind) -> Self {
        Self {
            kind,
            delivery: Delivery::default(),
        }
    }
}

impl From<Message> for Reply {
    fn from(message: Message) -> Self {
        ReplyKind::Message(Box::new(message)).into()
    }
}

impl From<ErrorReply> for Reply {
    fn from(error: ErrorReply) -> Self {
        ReplyKind::Error(error).into()
    }
}

impl From<HttpReply> for Reply {
    fn from(http: HttpReply) -> Self {
        ReplyKind::Http(http).into()
    }
}

/// An error in the provider's shape.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct ErrorReply {
    /// The HTTP status (default 500).
    pub status: u16,
    /// The error's type; default: the provider's for this status. Where it is one of Anthropic's, the
    /// other wires tell their own word for it.
    pub kind: Option<String>,
    /// The error's code, on the wires of `OpenAI`; default: the provider's for this status.
    pub code: Option<String>,
    /// The text; default: one that names the status.
    pub message: Option<String>,
    /// The `retry-after` header: seconds or an HTTP date.
    pub retry_after: Option<String>,
    /// More headers.
    pub headers: BTreeMap<String, String>,
}

impl Default for ErrorReply {
    fn default() -> Self {
        Self {
            status: 500,
            kind: None,
            code: None,
            message: None,
            retry_after: None,
            headers: BTreeMap::new(),
        }
    }
}

impl ErrorReply {
    /// The provider's error for an HTTP status.
    #[must_use]
    pub fn new(status: u16) -> Self {
        Self {
            status,
            ..Self::default()
        }
    }

    /// `retry-after`, if there is one, and the script's other headers.
    pub(crate) fn extra_headers(&self) -> Vec<(String, String)> {
        let retry = self.retry_after.iter();
        retry
            .map(|value| ("retry-after".to_owned(), value.clone()))
            .chain(self.headers.clone())
            .collect()
    }

    /// Sets the text.
    #[must_use]
    pub fn message(mut self, message: impl Into<String>) -> Self {
        self.message = Some(message.into());
        self
    }

    /// Sets the `retry-after` header: seconds or an HTTP date.
    #[must_use]
    pub fn retry_after(mut self, value: impl Into<String>) -> Self {
        self.retry_after = Some(value.into());
        self
    }
}

/// Any HTTP answer.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct HttpReply {
    /// The HTTP status (default 200).
    pub status: u16,
    /// The headers, apart from those of the framing.
    pub headers: BTreeMap<String, String>,
    /// The body.
    pub body: String,
    /// How often the body is written, one after the other (default 1): a large page is made of a small
    /// text.
    pub times: u64,
}

impl Default for HttpReply {
    fn default() -> Self {
        Self {
            status: 200,
            headers: BTreeMap::new(),
            body: String::new(),
            times: 1,
        }
    }
}
