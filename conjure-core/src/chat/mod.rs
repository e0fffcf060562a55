//! Canonical chat: the provider-neutral form of messages, parts, events and usage.
//!
//! What a thread's log holds and what every wire is compiled from and decoded to. Knows no
//! provider; what only one provider understands travels as a [`Sidecar`] or a server item.

mod cost;
mod event;
pub mod media_type;
mod message;
mod part;
mod response;
mod usage;

pub use cost::{Cause, CauseCost, Cost, MissReason, TurnCost};
pub use event::{CallAnnounced, CallOutput, ErrorEvent, Event, EventId, QuestionAsked, UsageEvent};
pub use message::{Message, Meta, Role};
pub use part::{ArtifactRef, Content, FunctionCall, FunctionCallOutput, OutputPart, Part, Sidecar};
pub use response::{Response, Stop, StopReason, StreamEvent};
pub use usage::Usage;
