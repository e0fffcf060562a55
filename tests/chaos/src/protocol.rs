//! What a host under test is told, and what it says: one line of JSON each.

use conjure_core::chat::EventId;
use conjure_host::manager::NewSession;
use conjure_host::store::ThreadId;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// An order to the host under test.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub(crate) enum Order {
    /// Save a session.
    Create { session: Box<NewSession> },
    /// Follow a thread from behind an event on.
    Follow {
        thread: ThreadId,
        after: Option<EventId>,
    },
    /// Begin a turn.
    Say {
        session: String,
        turn: String,
        text: String,
    },
}

/// A line from the host under test. Whatever stands in one was acknowledged with it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub(crate) enum HostReport {
    /// The host takes orders.
    Ready,
    /// A session was saved.
    Created { session: String, thread: ThreadId },
    /// A turn was taken in.
    Accepted { turn: String },
    /// A follower got an event.
    Event {
        thread: ThreadId,
        id: EventId,
        event: Value,
    },
    /// A turn is over.
    Over {
        turn: String,
        state: String,
        error: Option<String>,
    },
    /// An order could not be carried out.
    Wrong { error: String },
}
