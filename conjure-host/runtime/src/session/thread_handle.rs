//! An open thread, as everybody but its actor has it.

use std::path::PathBuf;
use std::sync::Arc;

use arc_swap::ArcSwap;
use conjure_core::chat::EventId;
use conjure_core::routing::RoutingTable;

use super::hub::{Hub, Subscription};
use super::questions::Questions;
use super::recorder::Recorder;
use super::thread_resources::ThreadResources;
use super::tools::Tools;
use crate::artifacts::{Artifact, Artifacts, FileError};
use crate::backend::ToolSnapshot;
use conjure_store::{Log, ThreadId};

/// What can be had of an open thread without asking its actor: its events, its files, and the
/// questions that wait.
pub(crate) struct ThreadHandle {
    thread: ThreadId,
    hub: Arc<Hub>,
    log: Arc<dyn Log>,
    artifacts: Arc<Artifacts>,
    questions: Option<Arc<Questions>>,
    snapshot: Arc<ArcSwap<ToolSnapshot>>,
    epoch: u64,
    /// The event behind which comes what is shown since it was opened.
    opening: EventId,
}

impl ThreadHandle {
    pub(super) fn new(
        recorder: &Recorder,
        resources: &ThreadResources,
        tools: &Tools,
        questions: Option<Arc<Questions>>,
    ) -> Self {
        Self {
            thread: recorder.thread().clone(),
            hub: Arc::clone(recorder.hub()),
            log: Arc::clone(&resources.host.log),
            artifacts: Arc::clone(&resources.artifacts),
            questions,
            snapshot: Arc::clone(tools.shared_snapshot()),
            epoch: recorder.epoch(),
            opening: recorder.opening_event_id(),
        }
    }

    /// Id of the thread.
    pub(crate) fn thread(&self) -> &ThreadId {
        &self.thread
    }

    /// How often the thread was opened, with this time.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Follows the thread's events: behind `after`, or from its beginning.
    pub(crate) fn events(&self, after: Option<EventId>) -> Subscription {
        self.hub
            .subscribe(after, Arc::clone(&self.log), self.thread.clone())
    }

    /// The last event before the turn that runs, or before now where none does: never before those
    /// that end a turn whose host was gone.
    pub(crate) fn before_turn(&self) -> Option<EventId> {
        self.hub.before_turn().max(Some(self.opening))
    }

    /// Follows the thread's events since it was opened, without those that end a turn whose host was
    /// gone.
    pub(crate) fn events_since_opened(&self) -> Subscription {
        self.events(Some(self.opening))
    }

    /// Follows the thread's events from now on.
    pub(crate) fn events_from_now(&self) -> Subscription {
        self.hub
            .subscribe_from_now(Arc::clone(&self.log), self.thread.clone())
    }

    /// Like [`Self::events_from_now`], for whoever does nothing about pieces of a text: they wake
    /// nobody.
    pub(crate) fn events_beyond_pieces(&self) -> Subscription {
        self.hub
            .subscribe_beyond_pieces(Arc::clone(&self.log), self.thread.clone())
    }

    /// The questions that wait for a person, where somebody may come.
    pub(crate) fn questions(&self) -> Option<&Arc<Questions>> {
        self.questions.as_ref()
    }

    /// The routing table that the next request would use.
    pub(crate) fn table(&self) -> Arc<RoutingTable> {
        Arc::clone(self.snapshot.load().table())
    }

    /// Every file that a call made, with the backend that made it.
    pub(crate) fn created_files(&self) -> Vec<Artifact> {
        self.artifacts.list()
    }

    /// Where a file is on this machine; a remote one is fetched first, once.
    pub(crate) async fn resolve(&self, file: &str) -> Result<PathBuf, FileError> {
        self.artifacts.resolve(file).await
    }
}
