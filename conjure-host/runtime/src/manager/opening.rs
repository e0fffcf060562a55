//! Opening a session's thread.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::active_thread::ActiveThread;
use super::remote::RemoteRequest;
use super::requests::ActorRequest;
use super::spec::SettingsDigest;
use super::{Manager, ManagerError, ManagerState, lock};
use crate::session::{
    ApprovalMode, OpenThread, PriorUsage, SavedSessionState, SessionError, ThreadHandle, end_thread,
};
use conjure_config::SessionSpec;
use conjure_store::{SavedSession as Row, StoreError, ThreadId};

/// How long is waited before a thread that another session writes is asked for again.
pub(super) const RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// The open thread of a session, on the way to its actor. Where the actor does not take it, it is
/// ended.
pub(super) struct OpenSessionThread {
    thread: Option<(Box<OpenThread>, ThreadHandle)>,
    /// What it was opened with.
    pub(super) settings_digest: SettingsDigest,
}

impl OpenSessionThread {
    /// The thread, once.
    pub(super) fn take(&mut self) -> Option<(Box<OpenThread>, ThreadHandle)> {
        self.thread.take()
    }
}

impl Drop for OpenSessionThread {
    fn drop(&mut self) {
        if let Some((thread, _)) = self.thread.take()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            runtime.spawn(end_thread(thread, None));
        }
    }
}

impl ManagerState {
    /// Opens a thread for a session. Where another one writes it, that one is asked to close it,
    /// and waited for.
    pub(super) async fn open(
        self: &Arc<Self>,
        row: &Row,
        thread: &ThreadId,
    ) -> Result<OpenSessionThread, ManagerError> {
        let settled = self.resolve_working_dir(row).await?;
        let row = &*settled;
        let (spec, made) = self.spec_and_digest(row).await?;
        let until = Instant::now() + self.options.patience;
        loop {
            match self.open_now(row, &spec, made, thread).await {
                Err(ManagerError::Session(SessionError::Store(StoreError::Busy { .. })))
                    if Instant::now() < until =>
                {
                    self.request_release(thread).await;
                    tokio::time::sleep(RETRY_INTERVAL).await;
                }
                opened => return opened,
            }
        }
    }

    async fn open_now(
        &self,
        row: &Row,
        spec: &SessionSpec,
        made: SettingsDigest,
        thread: &ThreadId,
    ) -> Result<OpenSessionThread, ManagerError> {
        let totals = self.store.session_totals(&row.id).await?;
        let saved = SavedSessionState {
            spent: PriorUsage {
                tokens: totals.spent.usage.total(),
                calls: totals.spent.calls,
                wall_ms: totals.wall_ms,
                usd: totals.spent.usd.unwrap_or_default(),
            },
            approvals: ApprovalMode::Within(self.options.approval),
        };
        let opened = self.host.open_saved(spec.clone(), thread.clone(), saved);
        Ok(OpenSessionThread {
            thread: Some(opened.await?),
            settings_digest: made,
        })
    }

    /// A thread is open.
    pub(super) fn register_open(&self, live: &ActiveThread) {
        let thread = live.handle.thread().clone();
        lock(&self.active_threads).insert(thread.clone(), live.clone());
        self.thread_watches.notify(&thread);
    }

    /// Asks the session that has a thread open to close it, here or in another process.
    async fn request_release(self: &Arc<Self>, thread: &ThreadId) {
        if lock(&self.active_threads).contains_key(thread) {
            self.release(thread).await;
            return;
        }
        let manager = Manager {
            inner: Arc::clone(self),
        };
        let remote = || RemoteRequest::Release {
            thread: thread.clone(),
        };
        if let Err(error) = manager.at_writer::<()>(thread, remote).await {
            tracing::debug!(%thread, "it is not given back yet: {error}");
        }
    }

    /// Has a thread closed that is open here, where nothing runs on it.
    pub(super) async fn release(&self, thread: &ThreadId) {
        let owner = lock(&self.active_threads)
            .get(thread)
            .map(|live| live.owner.clone());
        let actor = owner.and_then(|owner| lock(&self.actors).get(&owner).cloned());
        if let Some(actor) = actor {
            let (done, released) = tokio::sync::oneshot::channel();
            let thread = thread.clone();
            if actor
                .try_send(Box::new(ActorRequest::Release { thread, done }))
                .is_ok()
            {
                let _ = tokio::time::timeout(RETRY_INTERVAL, released).await;
            }
        }
    }

    /// A thread is open no more.
    pub(super) fn unregister_open(&self, live: &ActiveThread) {
        let thread = live.handle.thread();
        let mut all = lock(&self.active_threads);
        if all
            .get(thread)
            .is_some_and(|known| Arc::ptr_eq(&known.handle, &live.handle))
        {
            all.remove(thread);
        }
        drop(all);
        self.thread_watches.notify(thread);
    }
}
