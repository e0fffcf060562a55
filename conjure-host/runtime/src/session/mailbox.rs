//! What arrives at a session's actor: from its clients, and from its own tasks.

use conjure_abi::EmitKind;
use conjure_core::chat::{Event, Message};
use conjure_core::cost::ThreadCost;
use conjure_core::log::Entry;
use conjure_core::routing::Rule;
use conjure_core::switch::SwitchReport;
use conjure_core::turn::{Decision, Input, When};
use conjure_skill_sdk::protocol::{CatalogReply, ToolDecl};
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};

use super::asking::{ApprovalMode, PendingApproval};
use super::compaction::{CompactError, UnfoldError};
use super::handle::{Answer, ChatError, SessionError, Settings};
use crate::artifacts::Artifact;
use crate::backend::{BackendStatus, CallReport};
use crate::outlook::Outlooks;
use conjure_config::SessionSpec;
use conjure_plugins::PluginId;

/// Messages that may wait in a mailbox.
pub(crate) const MAILBOX: usize = 256;

/// What clients ask of a session. Boxed in the mailbox, as all that arrives: a mailbox takes up the
/// room of dozens as soon as it is made.
pub(crate) enum Command {
    Say {
        turn_id: String,
        message: Message,
        done: oneshot::Sender<Result<Answer, ChatError>>,
    },
    GoOn {
        turn_id: String,
        done: oneshot::Sender<Result<Answer, ChatError>>,
    },
    Cancel {
        drop_queued: bool,
    },
    Decide {
        call_id: String,
        decision: Decision,
    },
    Attend(ApprovalMode),
    /// What holds for the next turn, in place of what held for the one before.
    Terms {
        rules: Vec<Rule>,
        approvals: ApprovalMode,
    },
    Pending(oneshot::Sender<Vec<PendingApproval>>),
    Change {
        settings: Settings,
        when: When,
        done: oneshot::Sender<Result<(), SessionError>>,
    },
    Reconfigure {
        spec: Box<SessionSpec>,
        when: When,
        done: oneshot::Sender<Result<(), SessionError>>,
    },
    Messages(oneshot::Sender<Vec<Message>>),
    Check {
        settings: Settings,
        done: oneshot::Sender<Result<SwitchReport, SessionError>>,
    },
    Unfold {
        fold: Option<u64>,
        done: oneshot::Sender<Result<(u64, u64), UnfoldError>>,
    },
    Compact(oneshot::Sender<Result<(u64, u64), CompactError>>),
    Cost(oneshot::Sender<ThreadCost>),
    Entries(oneshot::Sender<Vec<Entry>>),
    Status(oneshot::Sender<Vec<BackendStatus>>),
    Outlooks(oneshot::Sender<Outlooks>),
    Allow(Rule),
    /// Give room back that was for work.
    Rest,
    End,
    /// Do nothing any more.
    #[cfg(test)]
    Hang,
}

/// The way on which tasks of a session report to it.
#[derive(Debug, Clone)]
pub(crate) struct Reports(mpsc::Sender<Box<Internal>>);

impl Reports {
    pub(crate) fn channel() -> (Self, mpsc::Receiver<Box<Internal>>) {
        let (reports, received) = mpsc::channel(MAILBOX);
        (Self(reports), received)
    }

    /// Sends it without waiting: where the mailbox is full, as soon as it is not.
    pub(crate) fn post(&self, report: Internal) {
        if let Err(mpsc::error::TrySendError::Full(report)) = self.0.try_send(Box::new(report))
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            let reports = self.0.clone();
            runtime.spawn(async move { reports.send(report).await });
        }
    }

    /// Whether the session still listens.
    pub(crate) async fn send(&self, report: Internal) -> bool {
        self.0.send(Box::new(report)).await.is_ok()
    }
}

/// What tasks of the session report.
pub(crate) enum Internal {
    Input(Box<Input>),
    Report(Box<CallReport>),
    Output {
        call_id: String,
        kind: EmitKind,
        bytes: Vec<u8>,
    },
    Catalog {
        backend: String,
        /// Whose catalog it is: of a session that talked to this provider.
        provider: Option<String>,
        catalog: CatalogReply,
    },
    /// What skills have at run time only.
    SkillTools(Vec<(PluginId, Vec<ToolDecl>)>),
    BackendState {
        backend: String,
        state: Value,
    },
    /// Something to be shown.
    Event(Event),
    /// Something to be shown, and to be found in the thread later.
    Notice {
        text: String,
    },
    Files {
        backend: String,
        files: Vec<Artifact>,
    },
}
