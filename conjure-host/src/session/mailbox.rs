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
use tokio::sync::oneshot;

use super::asking::{ApprovalMode, PendingApproval};
use super::compaction::UnfoldError;
use super::handle::{Answer, ChatError, SessionError, Settings};
use super::spec::SessionSpec;
use crate::artifacts::Artifact;
use crate::backend::{BackendStatus, CallReport};
use crate::plugin::PluginId;

/// Messages that may wait in a mailbox.
pub(crate) const MAILBOX: usize = 256;

/// What clients ask of a session.
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
    Cost(oneshot::Sender<ThreadCost>),
    Entries(oneshot::Sender<Vec<Entry>>),
    Status(oneshot::Sender<Vec<BackendStatus>>),
    Allow(Rule),
    End,
    /// Do nothing any more.
    #[cfg(test)]
    Hang,
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
    Files {
        backend: String,
        files: Vec<Artifact>,
    },
}
