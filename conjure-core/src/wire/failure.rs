//! What goes wrong with a reply, in the words that all wires share.
//!
//! A wire reads its provider's error and finds the kind; the sentences that tell a person what
//! failed and what to do, and whether waiting helps, are made here.

use std::borrow::Cow;

use serde_json::Value;

use super::{Endpoint, WireError};
use crate::sentence::sentence;

/// An HTTP status that is no reply, as a wire read it.
pub(super) struct StatusFailure<'a> {
    /// Provider that refused, as a person calls it.
    pub(super) provider: &'a str,
    /// Where the request went, and for which model.
    pub(super) endpoint: &'a Endpoint,
    /// The HTTP status.
    pub(super) status: u16,
    /// The provider's word for the error; may be empty.
    pub(super) word: &'a str,
    /// The provider's sentence, or the start of a body that is not its own; may be empty.
    pub(super) text: &'a str,
    /// Whether `text` comes out of the provider's own error form.
    pub(super) is_api_error: bool,
    /// A word for programs.
    pub(super) kind: &'static str,
    /// The provider's id of the request.
    pub(super) request_id: Option<&'a str>,
    /// The headers of the reply.
    pub(super) headers: &'a [(String, String)],
}

impl StatusFailure<'_> {
    pub(super) fn error(&self) -> WireError {
        let Self {
            provider: who,
            status,
            ..
        } = self;
        // Whatever word a provider has for it: what was asked for is not there.
        let kind = if *status == 404 {
            "not_found"
        } else {
            self.kind
        };
        let what = if self.word.is_empty() {
            format!("HTTP status {status}")
        } else {
            format!("HTTP status {status}, {}", self.word)
        };
        let told = match (self.is_api_error, self.text.trim()) {
            (_, "") => "It gave no reason.".to_owned(),
            (true, text) => sentence(text).into_owned(),
            (false, text) => format!("What it sent is not this API's error: {}", sentence(text)),
        };
        let id = self
            .request_id
            .or_else(|| header(self.headers, "x-request-id"))
            .or_else(|| header(self.headers, "request-id"))
            .map(|id| format!(" (request {id})"))
            .unwrap_or_default();
        // The server's own word on whether trying again is of use.
        let retryable = match header(self.headers, "x-should-retry") {
            Some("true") => true,
            Some("false") => false,
            _ => is_transient(kind, self.status),
        };
        let advice = RequestTarget::from(self.endpoint).advice(kind);
        WireError::new(
            kind,
            format!("{who} gave no reply ({what}). {told} {advice}{id}"),
            retryable,
        )
    }
}

/// What a request asked for, and where, as a person may see it: this is named where nothing is there.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RequestTarget<'a> {
    /// The model.
    pub(super) model: Option<&'a str>,
    /// Where the provider is.
    pub(super) base_url: Option<&'a str>,
}

impl<'a> From<&'a Endpoint> for RequestTarget<'a> {
    fn from(endpoint: &'a Endpoint) -> Self {
        Self {
            model: endpoint.model.as_deref(),
            base_url: endpoint.base_url.as_deref(),
        }
    }
}

impl RequestTarget<'_> {
    /// What to do about an error of this kind.
    fn advice(self, kind: &str) -> Cow<'static, str> {
        match kind {
            "not_found" => Cow::Owned(self.not_found_advice()),
            kind => Cow::Borrowed(advice(kind)),
        }
    }

    /// What to do when nothing is there: the model and the address that were used, which are what
    /// is wrong.
    fn not_found_advice(self) -> String {
        let address = match self.base_url {
            Some(url) => format!("the base URL `{url}`"),
            None => "the base URL".to_owned(),
        };
        match self.model {
            Some(model) => format!(
                "Check that the provider has the model `{model}` (`conjure models` lists what it \
                 has), and that {address} is its API's."
            ),
            None => format!("Check the name or id that was asked for, and {address}."),
        }
    }
}

/// An error inside the reply to a request; `shown`: whether a person has seen something of it. A call
/// that was being written does not count: nothing of it ran, so the request may be made again.
pub(super) fn in_stream(
    who: &str,
    target: RequestTarget<'_>,
    kind: &'static str,
    message: &str,
    shown: bool,
) -> WireError {
    WireError::new(
        kind,
        format!(
            "{who} broke its reply off with an error: {} {}",
            sentence(message),
            target.advice(kind)
        ),
        !shown && is_transient(kind, 0),
    )
}

/// A reply that cannot be read.
pub(super) fn protocol(who: &str, found: &str) -> WireError {
    WireError::new(
        REPLY_UNREADABLE,
        format!(
            "{who}'s reply cannot be read: {found}. Check the base URL and any proxy on the way."
        ),
        false,
    )
}

/// The kind of a reply that has more than is read: what came of it is kept.
pub const REPLY_TOO_LARGE: &str = "reply_too_large";

/// The kind of a reply whose end is missing.
pub const REPLY_CUT: &str = "cut";

/// The kind of a reply that cannot be read: an event or a body that is none of the wire's, which a JSON
/// body is too that was cut. What ran at the provider until then is not known.
pub const REPLY_UNREADABLE: &str = "protocol";

/// A reply that has more than is read, in place of an error about what was read of it. An error of
/// the provider's stays.
pub(super) fn too_large(error: &mut Option<WireError>, found: &str) {
    if error
        .as_ref()
        .is_none_or(|known| known.kind == REPLY_UNREADABLE)
    {
        *error = Some(WireError::new(REPLY_TOO_LARGE, found, false));
    }
}

/// A reply whose end is missing; `shown` as in [`in_stream`].
pub(super) fn cut(who: &str, shown: bool) -> WireError {
    let rest = if shown {
        "What came is kept; send the message again to go on."
    } else {
        "Nothing of it was said or run."
    };
    WireError::new(
        REPLY_CUT,
        format!("{who}'s reply broke off before its end. {rest}"),
        !shown,
    )
}

/// What a status means where the body does not say.
pub(super) fn kind_of_status(status: u16) -> &'static str {
    match status {
        401..=403 => "auth",
        404 => "not_found",
        413 => "too_large",
        429 => "rate_limited",
        503 | 529 => "overloaded",
        408 | 409 => "api",
        400..=499 => "bad_request",
        _ => "api",
    }
}

/// Whether the failure passes by itself; a status of 0 stands for inside a stream.
fn is_transient(kind: &str, status: u16) -> bool {
    match kind {
        "overloaded" | "rate_limited" => true,
        // 501 and 505 say that it will never work.
        "api" => !matches!(status, 501 | 505 | 100..=399),
        _ => false,
    }
}

/// What to do about an error of any kind but one for which the request's target is named.
fn advice(kind: &str) -> &'static str {
    match kind {
        "overloaded" => "The service is overloaded; try again in a while or use another model.",
        "rate_limited" => "The account's rate limit is reached; wait, or send less at a time.",
        "auth" => {
            "Check the API key that the session uses, and that its account may use this model."
        }
        "too_large" => "The conversation is too long for the model; compact it or fork it earlier.",
        "bad_request" => "The request is wrong as it is, so sending it again will not help.",
        _ => "Something failed on the provider's side; try again.",
    }
}

/// A string field, or an empty string.
pub(super) fn text_of<'a>(value: &'a Value, name: &str) -> &'a str {
    value.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// A header's value, whatever the case of its name.
pub(super) fn header<'a>(headers: &'a [(String, String)], name: &str) -> Option<&'a str> {
    headers
        .iter()
        .find(|(known, _)| known.eq_ignore_ascii_case(name))
        .map(|(_, value)| value.trim())
}

/// A body for people: the title of an HTML page, or the first line or so of a text.
pub(super) fn describe_body(body: &[u8]) -> String {
    // A title stands near the beginning, and nobody reads more than a line.
    let text = String::from_utf8_lossy(body.get(..64 * 1024).unwrap_or(body));
    let lower = text.to_ascii_lowercase();
    let title = lower.find("<title>").and_then(|start| {
        let start = start + "<title>".len();
        let end = lower.get(start..)?.find("</title>")?;
        text.get(start..start + end)
    });
    let text = title.unwrap_or(&text);
    let words: Vec<&str> = text.split_whitespace().collect();
    let line = words.join(" ");
    match line.char_indices().nth(200) {
        Some((cut, _)) => format!("{}…", line.get(..cut).unwrap_or_default()),
        None => line,
    }
}
