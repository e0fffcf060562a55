//! The thread that a saved session's actor has open, and drives.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use conjure_store::{StoreError, ThreadId};
use futures_util::FutureExt as _;
use tokio_util::sync::CancellationToken;

use super::approvals::Approval;
use super::open::ActiveThread;
use super::opening::OpenSessionThread;
use super::spec::MadeOf;
use crate::session::{OpenThread, Stamped, Subscription, end_thread};

/// The open thread of an actor.
pub(super) struct ActorThread {
    pub(super) thread: Box<OpenThread>,
    pub(super) live: ActiveThread,
    /// What it was opened with, and took over since.
    pub(super) made: MadeOf,
    /// Its settings are others by now, which it cannot take over.
    pub(super) is_outdated: bool,
    /// What it shows beyond pieces of texts, until that is over.
    shown: Option<Subscription>,
    is_at_rest: bool,
    /// It panics at its next step.
    #[cfg(test)]
    pub(super) panics: bool,
}

/// What happens to an actor's thread that the actor has to do something about.
pub(super) enum ThreadHappening {
    /// It shows this.
    Shown(Arc<Stamped>),
    /// A summary that a person wanted is there, or does not come: turns can begin.
    Compacted,
    /// Its log failed; nothing more can be written.
    Failed(StoreError),
    /// It panicked.
    Broke,
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
            shown: Some(handle.events_beyond_pieces()),
            live: ActiveThread::new(owner, handle, abandoned),
            made: opened.made,
            is_outdated: false,
            is_at_rest: false,
            #[cfg(test)]
            panics: false,
        })
    }

    pub(super) fn is_on(&self, thread: &ThreadId) -> bool {
        self.live.handle.thread() == thread
    }

    /// Waits for what happens to it, and does meanwhile what it has to do. Safe to drop and call
    /// again.
    pub(super) async fn next(&mut self) -> ThreadHappening {
        let driven = async {
            #[cfg(test)]
            assert!(!self.panics, "as a test wants it");
            drive(&mut self.thread).await
        };
        tokio::select! {
            biased;
            event = next_shown(&mut self.shown) => ThreadHappening::Shown(event),
            happening = AssertUnwindSafe(driven).catch_unwind() => {
                happening.unwrap_or(ThreadHappening::Broke)
            }
        }
    }

    /// The calls that wait for a decision.
    pub(super) fn approvals(&self) -> Vec<Approval> {
        let pending = self.thread.pending().into_iter();
        pending.map(Approval::from).collect()
    }

    /// What it shows by now.
    pub(super) fn try_shown(&mut self) -> Option<Arc<Stamped>> {
        self.shown.as_mut()?.try_next()
    }

    pub(super) fn is_at_rest(&self) -> bool {
        self.is_at_rest
    }

    /// Gives room back, as long as there is nothing to do: whoever has not seen the newest events
    /// reads them in the log.
    pub(super) fn rest(&mut self) {
        self.is_at_rest = true;
        self.thread.rest();
    }

    /// There is something to do again.
    pub(super) fn wake(&mut self) {
        self.is_at_rest = false;
    }

    /// Ends it, with all that runs on it; at once where its log failed.
    pub(super) async fn end(self, failed: Option<StoreError>) -> ActiveThread {
        end_thread(self.thread, failed).await;
        self.live
    }
}

/// What happens next to the thread that is open; never anything where none is.
pub(super) async fn thread_happening(open: &mut Option<ActorThread>) -> ThreadHappening {
    match open {
        Some(open) => open.next().await,
        None => std::future::pending().await,
    }
}

/// The next that is shown. Never anything once it is over: then the thread says why.
async fn next_shown(shown: &mut Option<Subscription>) -> Arc<Stamped> {
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
async fn drive(thread: &mut OpenThread) -> ThreadHappening {
    loop {
        let event = thread.next().await;
        let was_compacting = thread.is_compacting();
        if let Err(failed) = thread.handle(event) {
            return ThreadHappening::Failed(failed);
        }
        if was_compacting && !thread.is_compacting() {
            return ThreadHappening::Compacted;
        }
    }
}
