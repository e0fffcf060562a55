//! What is asked of a session's actor.

use conjure_core::chat::Message;
use conjure_core::switch::SwitchReport;
use conjure_core::turn::{ApprovalDecision, EffectiveFrom};
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use super::approvals::{Approval, DecisionScope};
use super::runs::Turn;
use super::spec::SettingsDigest;
use super::terms::TurnTerms;
use super::{ManagerError, SessionPatch};
use crate::session::{CompactionResult, ToolPreview, UnfoldError};
use conjure_store::{SavedSession as Row, ThreadId};

/// An answer to give.
pub(super) type Responder<T> = oneshot::Sender<T>;

/// Origin of a turn: the process whose client asks for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TurnOrigin {
    /// A client of this process.
    ThisProcess,
    /// A client of another process, which may run it where this one goes down before it begins.
    OtherProcess,
}

/// What of a session is cancelled.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct CancelRequest {
    /// Only this turn, whether it runs or waits; without it the one that runs.
    #[serde(default)]
    pub(super) turn: Option<String>,
    /// The turn only while it waits; one that runs goes on.
    #[serde(default)]
    pub(super) only_queued: bool,
    /// What waits never begins.
    pub(super) drop_queued: bool,
}

/// A request to a session's actor.
pub(super) enum ActorRequest {
    /// Say something, or go on where there is no message.
    Say {
        turn_id: String,
        message: Option<Message>,
        /// Thread of the turn, which the session goes on with; `None` for its active thread.
        thread: Option<ThreadId>,
        terms: Box<TurnTerms>,
        origin: TurnOrigin,
        done: Responder<Result<Turn, ManagerError>>,
    },
    /// Say something else in a turn that waits, in its place. Whether it waited still.
    Reword {
        turn_id: String,
        message: Message,
        done: Responder<Result<bool, ManagerError>>,
    },
    /// Take over what waited in a process that is gone.
    Adopt,
    Cancel {
        what: CancelRequest,
        done: Responder<()>,
    },
    Approvals(Responder<Vec<Approval>>),
    Decide {
        call_id: String,
        decision: ApprovalDecision,
        scope: DecisionScope,
        done: Responder<Result<(), ManagerError>>,
    },
    /// Change what is saved.
    Update {
        patch: Box<SessionPatch>,
        when: EffectiveFrom,
        done: Responder<Result<Row, ManagerError>>,
    },
    /// Go on with another thread from the next turn on.
    Choose {
        thread: ThreadId,
        done: Responder<Result<Row, ManagerError>>,
    },
    /// Close the thread, if it is open and nothing runs on it.
    Release {
        thread: ThreadId,
        done: Responder<()>,
    },
    /// Open the thread, if nothing runs, and put a summary in place of its older part. Turns wait for
    /// that.
    Compact {
        thread: ThreadId,
        done: Responder<Result<oneshot::Receiver<CompactionResult>, ManagerError>>,
    },
    /// Let the model read again what a compaction of the thread hides, if it is open.
    Unfold {
        thread: ThreadId,
        fold: Option<u64>,
        done: Responder<Result<(u64, u64), UnfoldError>>,
    },
    /// End what runs on this thread, and close it.
    Leave {
        thread: ThreadId,
        done: Responder<()>,
    },
    /// The tools of the next request; nothing where no thread is open that has them.
    Tools(Responder<ToolPreview>),
    /// What the next request would be like, which cannot be told while a turn runs; nothing where the
    /// thread is not open with these settings.
    Measure {
        thread: ThreadId,
        settings_digest: SettingsDigest,
        done: Responder<Result<SwitchReport, ManagerError>>,
    },
    /// A sign of life.
    Alive(Responder<()>),
    /// End everything, for good.
    End(Responder<()>),
    /// Do nothing any more.
    #[cfg(test)]
    Hang,
    /// Let the open thread panic.
    #[cfg(test)]
    Panic,
}
