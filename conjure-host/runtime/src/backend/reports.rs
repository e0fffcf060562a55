//! What the tasks of a session report to whoever runs it: results of calls, output as it comes, new
//! catalogs, words for a person.

use conjure_abi::EmitKind;
use conjure_core::chat::Event;
use conjure_core::log::StateMove;
use conjure_core::turn::TurnInput;
use conjure_skill_sdk::protocol::ToolDecl;
use serde_json::Value;
use tokio::sync::mpsc;

use super::catalogs::FetchedCatalog;
use super::report::CallReport;
use crate::artifacts::Artifact;
use conjure_plugins::PluginId;

/// Reports that may wait.
const CAPACITY: usize = 256;

/// The way on which tasks of a session report to it.
#[derive(Debug, Clone)]
pub(crate) struct ReportSender(mpsc::Sender<Box<TaskReport>>);

impl ReportSender {
    pub(crate) fn channel() -> (Self, mpsc::Receiver<Box<TaskReport>>) {
        let (reports, received) = mpsc::channel(CAPACITY);
        (Self(reports), received)
    }

    /// Sends it without waiting: where the mailbox is full, as soon as it is not.
    pub(crate) fn post(&self, report: TaskReport) {
        if let Err(mpsc::error::TrySendError::Full(report)) = self.0.try_send(Box::new(report))
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            let reports = self.0.clone();
            runtime.spawn(async move { reports.send(report).await });
        }
    }

    /// Whether the session still listens.
    pub(crate) async fn send(&self, report: TaskReport) -> bool {
        self.0.send(Box::new(report)).await.is_ok()
    }
}

/// A report of one of the session's tasks to its actor.
pub(crate) enum TaskReport {
    Input(Box<TurnInput>),
    /// A call is over.
    CallDone(Box<CallReport>),
    Output {
        call_id: String,
        kind: EmitKind,
        bytes: Vec<u8>,
    },
    Catalog {
        /// Provider that the session talked to when the catalog was asked for.
        provider: Option<String>,
        catalog: FetchedCatalog,
    },
    /// What skills have at run time only.
    SkillTools(Vec<(PluginId, Vec<ToolDecl>)>),
    BackendState {
        backend: String,
        state: Value,
    },
    /// Something to be shown.
    Event(Event),
    /// What has become of a plugin's state: to be shown, and to be found in the thread later.
    StateMoved(StateMove),
    Files {
        backend: String,
        files: Vec<Artifact>,
    },
}
