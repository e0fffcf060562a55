//! Turns whose thread's log has no end of them, since it could not be written or the thread broke:
//! whoever follows the thread here is told of their end all the same.
//!
//! What is told stands in no log. Its numbers lie behind all that the log can have of the thread's
//! opening, and before the next one. That closes the turn in the log, for those who were not told
//! here.

use std::collections::HashMap;
use std::sync::Mutex;

use conjure_core::chat::{ErrorEvent, Event, EventId};
use conjure_core::log::TurnOutcome;

use super::lock;
use crate::session::Stamped;
use conjure_store::ThreadId;

/// The highest number in an epoch, as high as the API takes one.
const LAST_SEQ: u64 = 999_999_999_999_999_999;

/// A turn that ended without its log.
#[derive(Debug, Clone)]
pub(super) struct InterruptedTurn {
    /// Opening of its thread in which the turn ran.
    pub(super) epoch: u64,
    pub(super) turn_id: String,
    /// Why it ended.
    pub(super) error: String,
}

/// The last such turn of each thread, until another turn there has come to its end.
#[derive(Debug, Default)]
pub(super) struct InterruptedTurns(Mutex<HashMap<ThreadId, InterruptedTurn>>);

/// Whether an event is the last that is told of a turn whose end its log has not.
pub(super) fn is_unlogged_end(id: EventId) -> bool {
    id.seq == LAST_SEQ
}

impl InterruptedTurn {
    /// The number of the last event of it.
    pub(super) fn last_id(&self) -> EventId {
        self.id(LAST_SEQ)
    }

    /// What is told of it: why it ended, and that it did.
    pub(super) fn events(self) -> [Stamped; 2] {
        let (error_id, done_id) = (self.id(LAST_SEQ - 1), self.last_id());
        let error = Event::Error(ErrorEvent {
            error: self.error,
            kind: "session".to_owned(),
        });
        let done = Event::Done {
            turn_id: self.turn_id,
            outcome: TurnOutcome::Interrupted.as_str().to_owned(),
            stop_reason: None,
            text: String::new(),
        };
        [(error_id, error), (done_id, done)].map(|(id, event)| Stamped { id, event })
    }

    fn id(&self, seq: u64) -> EventId {
        EventId {
            epoch: self.epoch,
            seq,
        }
    }
}

impl InterruptedTurns {
    pub(super) fn set(&self, thread: &ThreadId, turn: InterruptedTurn) {
        lock(&self.0).insert(thread.clone(), turn);
    }

    pub(super) fn of(&self, thread: &ThreadId) -> Option<InterruptedTurn> {
        lock(&self.0).get(thread).cloned()
    }

    /// Another turn of the thread is over, and its log says so.
    pub(super) fn forget(&self, thread: &ThreadId) {
        lock(&self.0).remove(thread);
    }
}
