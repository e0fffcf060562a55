//! What a request says beside its body, read and kept in one allocation.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeOwned, Error as _};

use crate::protocol::{Request, ServedClient};

/// The texts of an envelope.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EnvelopeField {
    Session,
    CallId,
    TurnId,
    WorkingDir,
    SkillDir,
    ExchangeDir,
    Traceparent,
    SessionId,
}

const FIELDS: usize = 8;

/// The end of a text that is not there.
const ABSENT: u32 = u32::MAX;

/// A request without its body.
#[derive(Clone)]
pub(crate) struct Envelope {
    /// All texts, one after the other.
    texts: String,
    /// End of each text; [`ABSENT`] for one that is not there.
    ends: [u32; FIELDS],
    pub(crate) deadline_ms: u64,
    pub(crate) client: Option<ServedClient>,
}

impl Envelope {
    pub(crate) fn get(&self, field: EnvelopeField) -> Option<&str> {
        let (before, rest) = self.ends.split_at(field as usize);
        let there = |end: &&u32| **end != ABSENT;
        let end = rest.first().filter(there)?;
        let start = before.iter().rev().find(there).unwrap_or(&0);
        self.texts.get(*start as usize..*end as usize)
    }

    /// The envelope as the protocol's type, without a body.
    pub(crate) fn to_request(&self) -> Request<()> {
        let text = |field| self.get(field).map(str::to_owned);
        Request {
            session: text(EnvelopeField::Session),
            call_id: text(EnvelopeField::CallId),
            turn_id: text(EnvelopeField::TurnId),
            working_dir: text(EnvelopeField::WorkingDir),
            skill_dir: text(EnvelopeField::SkillDir),
            exchange_dir: text(EnvelopeField::ExchangeDir),
            deadline_ms: self.deadline_ms,
            traceparent: text(EnvelopeField::Traceparent),
            session_id: text(EnvelopeField::SessionId),
            client: self.client,
            body: (),
        }
    }

    /// An envelope that says nothing but the session.
    pub(crate) fn of_session(session: Option<&str>) -> Self {
        let session = session.map(|session| BorrowedText(Cow::Borrowed(session)));
        Self::of([session, None, None, None, None, None, None, None], 0)
    }

    fn of(texts: [Option<BorrowedText<'_>>; FIELDS], deadline_ms: u64) -> Self {
        let length = texts.iter().flatten().map(|text| text.0.len()).sum();
        let mut envelope = Self {
            texts: String::with_capacity(length),
            ends: [ABSENT; FIELDS],
            deadline_ms,
            client: None,
        };
        for (end, text) in envelope.ends.iter_mut().zip(texts) {
            if let Some(BorrowedText(text)) = text {
                envelope.texts.push_str(&text);
                *end = u32::try_from(envelope.texts.len()).unwrap_or(ABSENT);
            }
        }
        envelope
    }
}

impl fmt::Debug for Envelope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.to_request().fmt(f)
    }
}

/// The protocol's request, as it lies in the bytes.
#[derive(Deserialize)]
#[serde(bound(deserialize = "B: DeserializeOwned"))]
struct Incoming<'a, B> {
    #[serde(default, borrow)]
    session: Option<BorrowedText<'a>>,
    #[serde(default, borrow)]
    call_id: Option<BorrowedText<'a>>,
    #[serde(default, borrow)]
    turn_id: Option<BorrowedText<'a>>,
    #[serde(default, borrow)]
    working_dir: Option<BorrowedText<'a>>,
    #[serde(default, borrow)]
    skill_dir: Option<BorrowedText<'a>>,
    #[serde(default, borrow)]
    exchange_dir: Option<BorrowedText<'a>>,
    #[serde(default)]
    deadline_ms: u64,
    #[serde(default, borrow)]
    traceparent: Option<BorrowedText<'a>>,
    #[serde(default, borrow)]
    session_id: Option<BorrowedText<'a>>,
    #[serde(default)]
    client: Option<ServedClient>,
    body: B,
}

/// A text that is copied only when it has escapes.
#[derive(Deserialize)]
struct BorrowedText<'a>(#[serde(borrow)] Cow<'a, str>);

/// Reads a request.
pub(crate) fn read<B: DeserializeOwned>(json: &[u8]) -> serde_json::Result<(B, Envelope)> {
    let json = std::str::from_utf8(json).map_err(|error| {
        serde_json::Error::custom(format_args!("the request is not UTF-8 ({error})"))
    })?;
    let incoming: Incoming<'_, B> = serde_json::from_str(json)?;
    let texts = [
        incoming.session,
        incoming.call_id,
        incoming.turn_id,
        incoming.working_dir,
        incoming.skill_dir,
        incoming.exchange_dir,
        incoming.traceparent,
        incoming.session_id,
    ];
    let envelope = Envelope {
        client: incoming.client,
        ..Envelope::of(texts, incoming.deadline_ms)
    };
    Ok((incoming.body, envelope))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn whole() -> Request<Value> {
        let text = |text: &str| Some(text.to_owned());
        Request {
            session: text("s"),
            call_id: text("c\"\u{e9}"),
            turn_id: text("t"),
            working_dir: text("/work"),
            skill_dir: text(""),
            exchange_dir: text("/exchange"),
            deadline_ms: 30_000,
            traceparent: text("00-1"),
            session_id: text("remote"),
            client: Some(ServedClient {
                form: true,
                ..ServedClient::default()
            }),
            body: json!({ "command": "x" }),
        }
    }

    fn assert_same(request: Request<Value>) {
        let json = serde_json::to_vec(&request).unwrap();
        let (body, envelope) = read::<Value>(&json).unwrap();
        let (expected_body, expected) = request.split();
        assert_eq!(body, expected_body);
        assert_eq!(envelope.to_request(), expected);
    }

    #[test]
    fn it_reads_what_the_protocol_writes() {
        assert_same(whole());
        assert_same(Request::new(Value::Null));
        assert_same(Request {
            call_id: None,
            skill_dir: None,
            session_id: None,
            ..whole()
        });
        assert_same(Request {
            session: None,
            ..whole()
        });
    }

    #[test]
    fn what_it_does_not_know_is_left_out() {
        let json = br#"{ "new": [1], "session": null, "body": 7, "deadline_ms": 1 }"#;
        let (body, envelope) = read::<u32>(json).unwrap();
        assert_eq!((body, envelope.deadline_ms), (7, 1));
        assert_eq!(envelope.get(EnvelopeField::Session), None);
    }

    #[test]
    fn what_is_no_request_is_told() {
        let error = read::<Value>(b"{\"body\": \"\xff\"}").unwrap_err();
        assert!(error.to_string().contains("not UTF-8"), "{error}");
        let error = read::<Value>(b"{}").unwrap_err();
        assert!(error.to_string().contains("`body`"), "{error}");
    }
}
