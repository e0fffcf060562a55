//! The actor of one saved session: takes what is asked of it in order, has one thread open and drives
//! it, and runs one turn at a time.

use std::collections::BTreeSet;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use conjure_core::chat::Message;
use futures_util::FutureExt as _;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::actor_thread::{ActorThread, ThreadHappening, thread_happening};
use super::changes::ActorStatus;
use super::opening::OpenSessionThread;
use super::requests::ActorRequest;
use super::running::{Happening, RunningTurn, happening};
use super::runs::Turn;
use super::saving::active;
use super::session_row::SessionRow;
use super::terms::TurnTerms;
use super::turn_queue::{QueuedTurn, TurnQueue};
use super::view::SessionState;
use super::{ManagerError, ManagerState};
use crate::session::{CompactError, CompactionResult, Stamped, UnfoldError, passed};
use conjure_store::{Run, RunState, RunUsage, StoreError, ThreadId};

/// After how long without anything to do an open thread keeps no events in memory.
const REST: Duration = Duration::from_secs(1);

/// Why a turn that waited never began.
const GOING_DOWN: &str = "the host went down before it began";

/// Keeps one session.
pub(super) struct SavedSessionActor {
    pub(super) inner: Arc<ManagerState>,
    /// The session.
    pub(super) id: String,
    pub(super) row: SessionRow,
    mailbox: mpsc::Receiver<Box<ActorRequest>>,
    pub(super) open: Option<ActorThread>,
    pub(super) waiting: TurnQueue,
    pub(super) opening: Option<OpeningTurn>,
    pub(super) running: Option<RunningTurn>,
    /// When there was something to do last.
    pub(super) used: Instant,
    /// The session is gone for good.
    is_over: bool,
    /// Somebody found that it hangs.
    abandoned: CancellationToken,
}

/// A turn whose session is being opened.
pub(super) struct OpeningTurn {
    pub(super) turn: QueuedTurn,
    task: AbortOnDropHandle<Result<OpenSessionThread, ManagerError>>,
}

impl SavedSessionActor {
    pub(super) fn new(
        inner: Arc<ManagerState>,
        id: String,
        mailbox: mpsc::Receiver<Box<ActorRequest>>,
    ) -> Self {
        Self {
            row: SessionRow::new(Arc::clone(&inner), &id),
            waiting: TurnQueue::new(Arc::clone(&inner), &id),
            inner,
            id,
            mailbox,
            open: None,
            opening: None,
            running: None,
            used: Instant::now(),
            is_over: false,
            abandoned: CancellationToken::new(),
        }
    }

    /// Runs it. What breaks here ends this session's turns and nobody else's.
    pub(super) async fn supervised(mut self: Box<Self>) {
        let is_broken = loop {
            let abandoned = self.abandoned.clone();
            tokio::select! {
                biased;
                () = abandoned.cancelled() => self.abandon_thread(),
                done = AssertUnwindSafe(self.run()).catch_unwind() => break done.is_err(),
            }
        };
        if is_broken {
            tracing::error!(session = self.id, "its actor broke; its turns are lost");
            self.abandon_thread();
        }
        if self.running.is_none() {
            self.inner.states.set(&self.id, ActorStatus::default());
        }
        // From here on another actor may begin.
        self.mailbox.close();
        let left = if is_broken {
            RunState::Lost
        } else {
            RunState::Interrupted
        };
        Box::pin(self.wound_up(left)).await;
    }

    /// The last that it does.
    async fn wound_up(&mut self, left: RunState) {
        self.open_anew();
        self.waiting.drop_all(left, GOING_DOWN).await;
        let was_running = self.running.is_some();
        self.leave().await;
        if let Err(error) = self.inner.record_unbegun().await {
            tracing::warn!("what was said in turns that never began is not written yet: {error}");
        }
        if was_running {
            self.inner.states.set(&self.id, ActorStatus::default());
        }
        self.inner.forget(&self.id);
    }

    async fn run(&mut self) {
        // What is seldom waited for is boxed, so that it takes no room in an actor that is idle.
        let (closing, ending) = (self.inner.closing.clone(), self.inner.ending.clone());
        // Pieces of an answer come by the thousand and change nothing about how it is.
        let mut is_told = false;
        while !self.is_over {
            if !std::mem::replace(&mut is_told, true) {
                Box::pin(self.begin_next()).await;
                self.tell();
            }
            let is_idle = self.is_idle();
            let idle = is_idle.then(|| self.used + self.inner.options.idle);
            let restless = self.open.as_ref().is_some_and(|open| !open.is_at_rest());
            let rest = (is_idle && restless).then(|| self.used + REST);
            tokio::select! {
                biased;
                () = ending.cancelled() => return,
                () = closing.cancelled(), if is_idle => return,
                happening = happening(&mut self.running) => match happening {
                    Happening::Over(answer) => {
                        Box::pin(self.turn_over(answer)).await;
                        is_told = false;
                    }
                    Happening::Presence(is_there) => self.attended(is_there),
                },
                opened = opened(&mut self.opening) => {
                    Box::pin(self.opened(opened)).await;
                    is_told = false;
                }
                ask = self.mailbox.recv() => match ask {
                    Some(ask) => {
                        Box::pin(self.take(*ask)).await;
                        is_told = false;
                    }
                    None => return,
                },
                // Behind what is asked: a cancel waits for no stream.
                happening = thread_happening(&mut self.open) => {
                    is_told = !self.thread_happened(happening).await;
                }
                () = passed(rest) => {
                    if let Some(open) = &mut self.open {
                        open.rest();
                    }
                }
                () = passed(idle) => return,
            }
        }
    }

    async fn take(&mut self, ask: ActorRequest) {
        self.used = Instant::now();
        match ask {
            ActorRequest::Say {
                turn_id,
                message,
                terms,
                done,
            } => {
                let said = self.say(turn_id, message, terms).await;
                let _ = done.send(said);
            }
            ActorRequest::Adopt => self.waiting.adopt().await,
            ActorRequest::Cancel { what, done } => {
                if what.drop_queued {
                    self.waiting.adopt().await;
                }
                self.cancel(what).await;
                let _ = done.send(());
            }
            ActorRequest::Approvals(done) => {
                let _ = done.send(self.approvals());
            }
            ActorRequest::Decide {
                call_id,
                decision,
                scope,
                done,
            } => {
                let decided = self.decide(&call_id, decision, scope).await;
                let _ = done.send(decided);
            }
            ActorRequest::Update { patch, when, done } => {
                let updated = self.update(&patch, when).await;
                let _ = done.send(updated);
            }
            ActorRequest::Choose { thread, done } => {
                let chosen = self.row.choose(&thread).await;
                let _ = done.send(chosen);
            }
            ActorRequest::Release { thread, done } => {
                if self.is_idle() && self.has_open(&thread) {
                    self.close().await;
                }
                let _ = done.send(());
            }
            ActorRequest::Compact { thread, done } => {
                let _ = done.send(self.compact(&thread).await);
            }
            ActorRequest::Unfold { thread, fold, done } => {
                let open = self.open.as_mut().filter(|open| open.is_on(&thread));
                let unfolded = open.map(|open| open.thread.unfold(fold));
                let _ = done.send(unfolded.unwrap_or(Err(UnfoldError::Ended)));
            }
            ActorRequest::Leave { thread, done } => {
                self.leave_thread(&thread).await;
                let _ = done.send(());
            }
            ActorRequest::Tools(done) => {
                let fits = |open: &&ActorThread| !open.is_outdated;
                let open = self.open.as_ref().filter(fits);
                if let Some(open) = open {
                    open.thread.preview_tools(done);
                }
            }
            ActorRequest::Alive(done) => {
                let _ = done.send(());
            }
            ActorRequest::End(done) => {
                self.is_over = true;
                let (state, why) = (RunState::Cancelled, "the session was deleted");
                self.waiting.drop_all(state, why).await;
                self.leave().await;
                let _ = done.send(());
            }
            #[cfg(test)]
            ActorRequest::Hang => std::future::pending().await,
            #[cfg(test)]
            ActorRequest::Panic => {
                if let Some(open) = &mut self.open {
                    open.panics = true;
                }
            }
        }
    }

    async fn say(
        &mut self,
        turn_id: String,
        message: Option<Message>,
        terms: Box<TurnTerms>,
    ) -> Result<Turn, ManagerError> {
        if self.open.is_none() {
            self.waiting.adopt().await;
        }
        match self.inner.store.run(&turn_id).await {
            Ok(run) => return self.known(run),
            Err(StoreError::NotFound { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        let queued = self.waiting.len();
        if queued >= self.inner.options.queued {
            return Err(ManagerError::Full { queued });
        }
        let row = self.inner.store.session(&self.id).await?;
        let (_, made) = self.inner.made_of(&row).await?;
        if let Some(open) = self.open.as_mut().filter(|open| open.made != made) {
            open.is_outdated = true;
        }
        let thread = active(&row)?;
        let turn = QueuedTurn {
            turn_id: turn_id.clone(),
            thread: thread.clone(),
            message,
            terms,
        };
        self.waiting.add(turn, false).await?;
        let runs = self.running.is_some() || self.opening.is_some();
        Ok(Turn {
            id: turn_id,
            thread,
            before: queued + usize::from(runs),
        })
    }

    /// The turn that there is already under an id.
    fn known(&self, run: Run) -> Result<Turn, ManagerError> {
        if run.session_id.as_deref() != Some(&self.id) {
            return Err(ManagerError::Conflict {
                message: format!(
                    "the turn `{}` is another session's; take another id",
                    run.id
                ),
            });
        }
        let before = self.waiting.position(&run.id);
        Ok(Turn {
            id: run.id,
            thread: run.thread,
            before: before.map_or(0, |before| before + 1),
        })
    }

    /// Begins the next turn that waits, if none runs, and no summary is on its way that a person
    /// wants.
    async fn begin_next(&mut self) {
        if self.inner.closing.is_cancelled() {
            let state = RunState::Interrupted;
            self.waiting.drop_all(state, GOING_DOWN).await;
        }
        while self.is_idle() && !self.is_compacting() {
            let Some(turn) = self.waiting.pop() else {
                return;
            };
            self.begin_or_open(turn).await;
        }
    }

    async fn begin_or_open(&mut self, turn: QueuedTurn) {
        let fits = |open: &ActorThread| !open.is_outdated && open.is_on(&turn.thread);
        if self.open.as_ref().is_some_and(fits) {
            self.begin(turn).await;
            return;
        }
        self.close().await;
        let inner = Arc::clone(&self.inner);
        let (id, thread) = (self.id.clone(), turn.thread.clone());
        let task = tokio::spawn(async move {
            let row = inner.store.session(&id).await?;
            inner.open(&row, &thread).await
        });
        let task = AbortOnDropHandle::new(task);
        self.opening = Some(OpeningTurn { turn, task });
    }

    /// Gives up opening for the turn that is next, which then begins with what is saved now.
    pub(super) fn open_anew(&mut self) {
        if let Some(OpeningTurn { turn, .. }) = self.opening.take() {
            self.waiting.put_back(turn);
        }
    }

    async fn opened(&mut self, opened: Result<OpenSessionThread, ManagerError>) {
        let Some(OpeningTurn { turn, .. }) = self.opening.take() else {
            return;
        };
        match opened {
            Ok(opened) => {
                self.has_opened(opened);
                // The process that had the thread may be known as gone only now.
                self.waiting.put_back(turn);
                self.waiting.adopt().await;
                if let Some(first) = self.waiting.pop() {
                    self.begin_or_open(first).await;
                }
            }
            Err(error) => self.failed(turn, &error.to_string()).await,
        }
    }

    /// Begins to write a summary of a thread, which is opened for it, as somebody wants it.
    async fn compact(
        &mut self,
        thread: &ThreadId,
    ) -> Result<oneshot::Receiver<CompactionResult>, ManagerError> {
        if !self.is_idle() {
            return Err(CompactError::Busy.into());
        }
        let row = self.inner.store.session(&self.id).await?;
        let (_, made) = self.inner.made_of(&row).await?;
        let fits =
            |open: &ActorThread| open.made == made && !open.is_outdated && open.is_on(thread);
        if !self.open.as_ref().is_some_and(fits) {
            self.close().await;
            let opened = self.inner.open(&row, thread).await?;
            self.has_opened(opened);
        }
        let (done, summary) = oneshot::channel();
        if let Some(open) = &mut self.open {
            open.wake();
            open.thread.compact(done);
        }
        Ok(summary)
    }

    fn has_opened(&mut self, opened: OpenSessionThread) {
        self.open = ActorThread::new(opened, &self.id, self.abandoned.clone());
        if let Some(open) = &self.open {
            self.inner.opened(&open.live);
        }
    }

    async fn begin(&mut self, turn: QueuedTurn) {
        let Some(open) = &mut self.open else { return };
        open.wake();
        let store = &self.inner.store;
        let noted = store.update_run(&turn.turn_id, RunState::Running, None);
        match noted.await {
            Ok(true) => {}
            // Another process took it for one of a process that is gone, and keeps what it says.
            Ok(false) => {
                tracing::warn!(run = turn.turn_id, "it was ended elsewhere");
                return;
            }
            Err(error) => tracing::warn!(
                run = turn.turn_id,
                "the run was not noted as running: {error}"
            ),
        }
        open.live.set_run(Some(turn.turn_id.clone()));
        let (approvals, presence) = self.inner.approvals(&turn.terms, &turn.thread).await;
        open.thread.set_terms(turn.terms.rules(), approvals);
        let (done, answer) = oneshot::channel();
        open.thread.begin(turn.turn_id.clone(), turn.message, done);
        self.running = Some(RunningTurn {
            turn_id: turn.turn_id,
            thread: turn.thread,
            answer,
            spent: RunUsage::default(),
            asked: BTreeSet::new(),
            goes_on: false,
            terms: turn.terms,
            presence,
        });
    }

    /// A turn that could not begin.
    async fn failed(&mut self, turn: QueuedTurn, error: &str) {
        self.used = Instant::now();
        let recorded = self
            .inner
            .record_failure(&turn.thread, &turn.turn_id, turn.message, error);
        match recorded.await {
            Ok(()) => {
                let (id, state) = (&turn.turn_id, RunState::Failed);
                self.inner.end_run(id, state, None, Some(error)).await;
            }
            // The run keeps what was said until it is.
            Err(why) => {
                tracing::warn!(
                    run = turn.turn_id,
                    "what was said is not in its thread yet: {why}"
                );
                let failed = self.inner.store.fail_unwritten(&turn.turn_id, error);
                if let Err(failed) = failed.await {
                    tracing::error!(run = turn.turn_id, "its end was not noted: {failed}");
                }
            }
        }
        self.inner.note_latest(&self.id, &turn.thread).await;
    }

    /// Does something about what happens to its thread. Whether that changes how it is with the
    /// session.
    pub(super) async fn thread_happened(&mut self, happening: ThreadHappening) -> bool {
        match happening {
            ThreadHappening::Shown(event) => self.seen(&event),
            ThreadHappening::Compacted => true,
            ThreadHappening::Failed(error) => {
                self.see_shown();
                if let Some(open) = self.open.take() {
                    let live = Box::pin(open.end(Some(error))).await;
                    self.inner.closed(&live);
                }
                true
            }
            ThreadHappening::Broke => {
                tracing::error!(session = self.id, "its thread broke and is closed");
                self.see_shown();
                self.abandon_thread();
                true
            }
        }
    }

    /// Lets go of its thread without ending it. Whoever waits for its turn is told that it ended.
    fn abandon_thread(&mut self) {
        self.abandoned = CancellationToken::new();
        if let Some(open) = self.open.take() {
            self.inner.closed(&open.live);
        }
    }

    /// Does something that takes a while. Its thread goes on meanwhile.
    pub(super) async fn driving<T>(&mut self, work: impl Future<Output = T>) -> T {
        let mut work = std::pin::pin!(work);
        loop {
            tokio::select! {
                biased;
                done = &mut work => return done,
                happening = thread_happening(&mut self.open) => {
                    self.thread_happened(happening).await;
                }
            }
        }
    }

    /// Looks at what the session shows, and at what is there behind it. Whether that changes how it
    /// is with the session.
    fn seen(&mut self, first: &Stamped) -> bool {
        let Some(running) = &mut self.running else {
            return false;
        };
        let changes = running.see(&first.event);
        self.see_shown() || changes
    }

    /// Looks at all that the session shows by now. Whether that changes how it is with the session.
    pub(super) fn see_shown(&mut self) -> bool {
        let (Some(running), Some(open)) = (&mut self.running, &mut self.open) else {
            return false;
        };
        let mut changes = false;
        while let Some(next) = open.try_shown() {
            changes |= running.see(&next.event);
        }
        changes
    }

    fn is_idle(&self) -> bool {
        self.running.is_none() && self.opening.is_none()
    }

    fn is_compacting(&self) -> bool {
        let open = self.open.as_ref();
        open.is_some_and(|open| open.thread.is_compacting())
    }

    /// Tells how it is with the session.
    fn tell(&self) {
        let turn = self.running.as_ref().map(|running| running.turn_id.clone());
        let opening = self.opening.as_ref();
        let state = match &self.running {
            Some(running) if !running.asked.is_empty() => SessionState::Waiting,
            Some(_) => SessionState::Running,
            None if opening.is_some() => SessionState::Running,
            None => SessionState::Idle,
        };
        let thread = self.running.as_ref().map(|running| running.thread.clone());
        self.inner.states.set(
            &self.id,
            ActorStatus {
                state,
                turn: turn.or_else(|| opening.map(|opening| opening.turn.turn_id.clone())),
                thread: thread.or_else(|| opening.map(|opening| opening.turn.thread.clone())),
                queued: self.waiting.len(),
            },
        );
    }
}

async fn opened(opening: &mut Option<OpeningTurn>) -> Result<OpenSessionThread, ManagerError> {
    match opening {
        Some(opening) => match (&mut opening.task).await {
            Ok(opened) => opened,
            Err(error) => Err(ManagerError::Conflict {
                message: format!("opening the session broke: {error}"),
            }),
        },
        None => std::future::pending().await,
    }
}
