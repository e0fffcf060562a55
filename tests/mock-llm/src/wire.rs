//! The providers' wires: how a reply is written down for each, and which request speaks which.
//!
//! A request's path says its wire. One folder or file a wire; none of them knows about sockets.

mod anthropic;
mod chat;
mod gemini;
mod models;
mod openai;
mod responses;
mod text;

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::delivery::RenderedAnswer;
use crate::message::Message;
use crate::mint;
use crate::reply::ErrorReply;
use crate::request::Request;

pub(crate) use gemini::is_third_generation;
pub(crate) use models::list as models;

/// The wires that the mock speaks.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Wire {
    /// Anthropic Messages: `POST …/v1/messages`.
    Anthropic,
    /// `OpenAI` Responses: `POST …/responses`.
    Responses,
    /// `OpenAI` Chat Completions and its compatible servers: `POST …/chat/completions`.
    Chat,
    /// Gemini: `POST …/models/{model}:generateContent` and `:streamGenerateContent`.
    Gemini,
}

impl Wire {
    /// All four.
    pub const ALL: [Self; 4] = [Self::Anthropic, Self::Responses, Self::Chat, Self::Gemini];

    /// The wire of a request, if its method and path are those that ask a model. What stands before
    /// the path (`/api`, a gateway's prefix) does not matter.
    #[must_use]
    pub fn of(request: &Request) -> Option<Self> {
        let path = request.path.as_str();
        if request.method != "POST" {
            return None;
        }
        if path.ends_with("/v1/messages") {
            return Some(Self::Anthropic);
        }
        if path.ends_with("/responses") {
            return Some(Self::Responses);
        }
        if path.ends_with("/chat/completions") {
            return Some(Self::Chat);
        }
        let (_, model) = path.rsplit_once("/models/")?;
        let (_, action) = model.rsplit_once(':')?;
        matches!(action, "generateContent" | "streamGenerateContent").then_some(Self::Gemini)
    }

    /// The path on which a request for a model is sent, without stream.
    #[must_use]
    pub fn path(self, model: &str) -> String {
        match self {
            Self::Anthropic => "/v1/messages".to_owned(),
            Self::Responses => "/v1/responses".to_owned(),
            Self::Chat => "/v1/chat/completions".to_owned(),
            Self::Gemini => format!("/v1beta/models/{model}:generateContent"),
        }
    }

    /// Whether a request has a credential where this wire has it. Any will do.
    pub(crate) fn has_credential(self, request: &Request) -> bool {
        let headers = self.credential_headers();
        let in_header = headers.iter().any(|name| {
            request
                .header(name)
                .is_some_and(|value| !value.trim().is_empty())
        });
        let in_query = request.query_value("key").filter(|_| self == Self::Gemini);
        in_header || in_query.is_some_and(|value| !value.is_empty())
    }

    /// The headers that may have it.
    pub(crate) fn credential_headers(self) -> [&'static str; 2] {
        match self {
            Self::Anthropic => ["x-api-key", "authorization"],
            Self::Responses | Self::Chat => ["authorization", "api-key"],
            Self::Gemini => ["x-goog-api-key", "authorization"],
        }
    }

    /// The id under which a scripted call goes out on this wire. The two wires of `OpenAI` have ids
    /// that begin with `call_`: another one becomes such an id, always the same. The other wires
    /// take every id as it is scripted.
    #[must_use]
    pub fn call_id(self, scripted: &str) -> String {
        match self {
            Self::Responses | Self::Chat if !scripted.starts_with("call_") => {
                mint::random_word("call_", scripted, 24)
            }
            _ => scripted.to_owned(),
        }
    }

    /// A message as the request asks for it: as a stream or whole.
    pub(crate) fn message(self, message: &Message, request: &Request) -> RenderedAnswer {
        let message = &message.with_bulk_mark();
        let rendered = match self {
            Self::Anthropic => anthropic::message(message, request),
            Self::Responses => responses::message(message, request),
            Self::Chat => chat::message(message, request),
            Self::Gemini => gemini::message(message, request),
        };
        match message.faults.bulk {
            Some(bulk) => bulk.expand(rendered),
            None => rendered,
        }
    }

    /// An error in the provider's own shape.
    pub(crate) fn error(self, error: &ErrorReply, request: &Request) -> RenderedAnswer {
        match self {
            Self::Anthropic => anthropic::error(error, request),
            Self::Responses | Self::Chat => openai::error(error, request),
            Self::Gemini => gemini::error(error),
        }
    }
}

impl fmt::Display for Wire {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Anthropic => "anthropic",
            Self::Responses => "openai-responses",
            Self::Chat => "openai-chat",
            Self::Gemini => "gemini",
        })
    }
}
