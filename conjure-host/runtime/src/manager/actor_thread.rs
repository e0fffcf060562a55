//! The thread that a saved session's actor has open, and drives.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use conjure_store::{StoreError, ThreadId};
use futures_util::FutureExt as _;
use tokio_util::sync::CancellationToken;

use super::active_thread::ActiveThread;
use super::approvals::Approval;
use super::opening::OpenSessionThread;
use super::spec::SettingsDigest;
use crate::session::{OpenThread, Stamped, Subscription, end_thread};

/// The open thread of an actor. What panics in it breaks it and nothing else.
pub(super) struct ActorThread {
    thread: Box<OpenThread>,
    pub(super) live: ActiveThread,
    /// What it was opened with, and took over since.
    pub(super) settings_digest: SettingsDigest,
    /// Whether the settings are others by now, which the thread cannot take over.
    pub(super) is_outdated: bool,
    /// Whether what is saved grants the plugins something else, which the thread cannot take over.
    pub(super) has_other_grants: bool,
    /// What it shows beyond pieces of texts, until that is over.
    events: Option<Subscription>,
    is_at_rest: bool,
    /// Whether the thread panicked: nothing of it can be relied on.
    is_broken: bool,
}

/// What comes of an actor's thread that the actor has to do something about.
pub(super) enum ActorThreadEvent {
    /// The thread shows this event.
    Event(Arc<Stamped>),
    /// A summary that a person wanted is there, or does not come: turns can begin.
    Compacted,
    /// The thread's log failed; nothing more can be written.
    LogFailed(StoreError),
    /// The thread panicked.
    Panicked,
}

impl ActorThread {
    /// A thread that was opened for this session. Nothing where somebody took it already.
    pub(super) fn new(
        mut opened: OpenSessionThread,
        owner: &str,
        abandoned: CancellationToken,
    ) -> Option<Self> {
        let (thread, handle) = opened.take()?;
        Some(Self {
            thread,
            events: Some(handle.events_beyond_pieces()),
            live: ActiveThread::new(owner, handle, abandoned),
            settings_digest: opened.settings_digest,
            is_outdated: false,
            has_other_grants: false,
            is_at_rest: false,
            is_broken: false,
        })
    }

    pub(super) fn is_on(&self, thread: &ThreadId) -> bool {
        self.live.handle.thread() == thread
    }

    /// Waits for what happens to it, and does meanwhile what it has to do. Safe to drop and call
    /// again.
    pub(super) async fn next(&mut self) -> ActorThreadEvent {
        if self.is_broken {
            return ActorThreadEvent::Panicked;
        }
        let driven = AssertUnwindSafe(drive(&mut self.thread)).catch_unwind();
        tokio::select! {
            biased;
            event = next_event(&mut self.events) => ActorThreadEvent::Event(event),
            event = driven => event.unwrap_or(ActorThreadEvent::Panicked),
        }
    }

    /// Does something with the thread. Nothing comes of it where that panics: then the thread is
    /// broken, which is what happens to it next.
    pub(super) fn with<T>(&mut self, work: impl FnOnce(&mut OpenThread) -> T) -> Option<T> {
        let done = std::panic::catch_unwind(AssertUnwindSafe(|| work(&mut self.thread)));
        self.is_broken |= done.is_err();
        done.ok()
    }

    /// Whether a summary is on its way that a person wants.
    pub(super) fn is_compacting(&self) -> bool {
        self.thread.is_compacting()
    }

    /// The calls that wait for a decision.
    pub(super) fn approvals(&mut self) -> Vec<Approval> {
        let pending = self.with(|thread| thread.pending()).unwrap_or_default();
        pending.into_iter().map(Approval::from).collect()
    }

    /// What it shows by now.
    pub(super) fn try_next_event(&mut self) -> Option<Arc<Stamped>> {
        self.events.as_mut()?.try_next()
    }

    pub(super) fn is_at_rest(&self) -> bool {
        self.is_at_rest
    }

    /// Gives room back, as long as there is nothing to do: whoever has not seen the newest events
    /// reads them in the log.
    pub(super) fn rest(&mut self) {
        self.is_at_rest = true;
        self.with(OpenThread::rest);
    }

    /// There is something to do again.
    pub(super) fn wake(&mut self) {
        self.is_at_rest = false;
    }

    /// What ends it, with all that runs on it, at once where its log failed; and what others have of
    /// it.
    pub(super) fn end(
        self,
        failed: Option<StoreError>,
    ) -> (impl Future<Output = ()>, ActiveThread) {
        let ended = AssertUnwindSafe(end_thread(self.thread, failed)).catch_unwind();
        let ended = async {
            if ended.await.is_err() {
                tracing::error!("a thread broke while it was ended");
            }
        };
        (ended, self.live)
    }
}

/// The next event of the thread that is open; never one where none is.
pub(super) async fn next_thread_event(open: &mut Option<ActorThread>) -> ActorThreadEvent {
    match open {
        Some(open) => open.next().await,
        None => std::future::pending().await,
    }
}

/// The next that is shown. Never anything once it is over: then the thread says why.
async fn next_event(shown: &mut Option<Subscription>) -> Arc<Stamped> {
    if let Some(events) = shown {
        if let Some(event) = events.next_or_end().await {
            return event;
        }
        *shown = None;
    }
    std::future::pending().await
}

/// Lets a thread do what it has to do. Nothing is waited for between what happens and what is done
/// about it, so that this may be dropped at any time.
async fn drive(thread: &mut OpenThread) -> ActorThreadEvent {
    loop {
        let event = thread.next().await;
        let was_compacting = thread.is_compacting();
        if let Err(failed) = thread.handle(event) {
            return ActorThreadEvent::LogFailed(failed);
        }
        if was_compacting && !thread.is_compacting() {
            return ActorThreadEvent::Compacted;
        }
    }
}
