//! What arrives at a session's actor: from its clients, and from its own tasks.

use std::sync::Arc;

use conjure_core::chat::Message;
use conjure_core::cost::ThreadCost;
use conjure_core::log::Entry;
use conjure_core::routing::Rule;
use conjure_core::switch::SwitchReport;
use conjure_core::turn::{ApprovalDecision, EffectiveFrom};
use tokio::sync::oneshot;

use super::approvals::{ApprovalMode, PendingApproval};
use super::compaction::{CompactError, UnfoldResult};
use super::error::SessionError;
use super::output_form::OutputForm;
use super::settings::SessionSettings;
use super::tool_preview::ToolPreview;
use super::turns::AnswerTo;
use crate::backend::BackendStatus;

/// Messages that may wait in a mailbox.
pub(crate) const MAILBOX: usize = 256;

/// What clients ask of a session. Boxed in the mailbox, as all that arrives: a mailbox takes up the
/// room of dozens as soon as it is made.
pub(crate) enum SessionCommand {
    /// Begin a turn in which this is said, or nothing new.
    Begin {
        turn_id: String,
        message: Option<Message>,
        done: AnswerTo,
    },
    Cancel {
        drop_queued: bool,
    },
    Decide {
        call_id: String,
        decision: ApprovalDecision,
    },
    Attend(ApprovalMode),
    Form(Option<Arc<OutputForm>>),
    Pending(oneshot::Sender<Vec<PendingApproval>>),
    Change {
        settings: SessionSettings,
        when: EffectiveFrom,
        done: oneshot::Sender<Result<(), SessionError>>,
    },
    Messages(oneshot::Sender<Vec<Message>>),
    Check {
        settings: SessionSettings,
        done: oneshot::Sender<Result<SwitchReport, SessionError>>,
    },
    Unfold {
        fold: Option<u64>,
        done: oneshot::Sender<UnfoldResult>,
    },
    Compact(oneshot::Sender<Result<(u64, u64), CompactError>>),
    Cost(oneshot::Sender<ThreadCost>),
    Entries(oneshot::Sender<Vec<Entry>>),
    Status(oneshot::Sender<Vec<BackendStatus>>),
    ToolPreview(oneshot::Sender<ToolPreview>),
    Allow(Rule),
    End,
}
