//! The providers' wires: how a reply is written down for each.
//!
//! A request's path says which wire it speaks. One file a wire; none of them knows about sockets.

mod anthropic;

use crate::delivery::Rendered;
use crate::message::Message;
use crate::reply::ErrorReply;
use crate::request::Request;
use crate::validate::{Violation, validate};

/// The wires that the mock speaks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Wire {
    Anthropic,
}

impl Wire {
    /// The wire of a request, if its path is one that asks a model.
    pub(crate) fn of(request: &Request) -> Option<Self> {
        (request.method == "POST" && request.path == "/v1/messages").then_some(Self::Anthropic)
    }

    /// What the provider would refuse in a request.
    pub(crate) fn violations(self, request: &Request) -> Vec<Violation> {
        match self {
            Self::Anthropic => validate(request),
        }
    }

    pub(crate) fn message(self, message: &Message, request: &Request) -> Rendered {
        match self {
            Self::Anthropic => anthropic::message(message, request),
        }
    }

    pub(crate) fn error(self, error: &ErrorReply, request: &Request) -> Rendered {
        match self {
            Self::Anthropic => anthropic::error(error, request),
        }
    }
}
