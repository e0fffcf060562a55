//! The envelope that every request to a plugin comes in.

use serde::{Deserialize, Serialize};

/// One request of the host's.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Request<B> {
    /// The session that asks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// The tool call that this is for, unique in its thread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call_id: Option<String>,
    /// The turn that the call belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn_id: Option<String>,
    /// The session's working directory, absolute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub working_dir: Option<String>,
    /// The directory of the skill that the call is for, absolute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skill_dir: Option<String>,
    /// Where payloads over 64 KiB cross as files, absolute; one a session, both sides write.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exchange_dir: Option<String>,
    /// Milliseconds that are left for this request; 0 when there is no deadline.
    #[serde(default)]
    pub deadline_ms: u64,
    /// W3C trace context.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
    /// A remote peer's session id, where one is required.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// The program on the other side of the session, where there is one: an MCP client that the
    /// host serves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<ServedClient>,
    /// The operation's own request.
    pub body: B,
}

/// A program on the other side of a session. It gets what a plugin says word for word, and what
/// is asked of the person, a model or the directories is asked of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct ServedClient {
    /// Whether a form can be filled in there: `elicit` with a schema.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub form: bool,
    /// Whether a page can be visited there: `elicit` with an address.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub url: bool,
    /// Whether a model can be asked: `sample`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub sample: bool,
    /// Whether the directories can be asked for: `roots`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub roots: bool,
}

impl<B> Request<B> {
    /// A request with nothing but a body.
    pub fn new(body: B) -> Self {
        Self {
            session: None,
            call_id: None,
            turn_id: None,
            working_dir: None,
            skill_dir: None,
            exchange_dir: None,
            deadline_ms: 0,
            traceparent: None,
            session_id: None,
            client: None,
            body,
        }
    }

    /// Puts another body into the envelope.
    pub fn with_body<C>(self, body: C) -> Request<C> {
        self.split().1.wrap(body)
    }

    /// The body, and the envelope without it.
    pub fn split(self) -> (B, Request<()>) {
        let Self {
            session,
            call_id,
            turn_id,
            working_dir,
            skill_dir,
            exchange_dir,
            deadline_ms,
            traceparent,
            session_id,
            client,
            body,
        } = self;
        let envelope = Request {
            session,
            call_id,
            turn_id,
            working_dir,
            skill_dir,
            exchange_dir,
            deadline_ms,
            traceparent,
            session_id,
            client,
            body: (),
        };
        (body, envelope)
    }
}

impl Request<()> {
    fn wrap<C>(self, body: C) -> Request<C> {
        Request {
            session: self.session,
            call_id: self.call_id,
            turn_id: self.turn_id,
            working_dir: self.working_dir,
            skill_dir: self.skill_dir,
            exchange_dir: self.exchange_dir,
            deadline_ms: self.deadline_ms,
            traceparent: self.traceparent,
            session_id: self.session_id,
            client: self.client,
            body,
        }
    }
}

/// A body without content, and a reply without content: `{}`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Empty {}
