//! The actor of one session: takes what is asked of it in order, and runs one turn at a time.

use std::collections::{BTreeSet, VecDeque};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use conjure_core::chat::Message;
use futures_util::FutureExt as _;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use super::changes::ActorStatus;
use super::opening::OpenSessionThread;
use super::requests::ActorRequest;
use super::running::{Happening, RunningTurn, happening};
use super::runs::Turn;
use super::saving::active;
use super::terms::TurnTerms;
use super::view::SessionState;
use super::{ManagerError, ManagerState};
use crate::session::{CompactError, Session, Stamped, Subscription, passed};
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
    mailbox: mpsc::Receiver<Box<ActorRequest>>,
    pub(super) open: Option<ActorThread>,
    pub(super) waiting: VecDeque<QueuedTurn>,
    pub(super) opening: Option<OpeningTurn>,
    pub(super) running: Option<RunningTurn>,
    /// When there was something to do last.
    pub(super) used: Instant,
    /// The session is gone for good.
    is_over: bool,
}

/// The open thread of an actor.
pub(super) struct ActorThread {
    pub(super) opened: OpenSessionThread,
    pub(super) events: Subscription,
    /// Its settings are others by now, which it cannot take over.
    pub(super) is_outdated: bool,
    is_at_rest: bool,
}

impl ActorThread {
    fn is_on(&self, thread: &ThreadId) -> bool {
        self.opened.live.session.thread() == thread
    }
}

/// A turn that waits for its session.
pub(super) struct QueuedTurn {
    pub(super) turn_id: String,
    pub(super) thread: ThreadId,
    /// What is said; where there is nothing the model goes on.
    pub(super) message: Option<Message>,
    pub(super) terms: Box<TurnTerms>,
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
            inner,
            id,
            mailbox,
            open: None,
            waiting: VecDeque::new(),
            opening: None,
            running: None,
            used: Instant::now(),
            is_over: false,
        }
    }

    /// Runs it. What breaks here ends this session's turns and nobody else's.
    pub(super) async fn supervised(mut self: Box<Self>) {
        let done = AssertUnwindSafe(self.run()).catch_unwind().await;
        if done.is_err() {
            tracing::error!(session = self.id, "its actor broke; its turns are lost");
        }
        if self.running.is_none() {
            self.inner.states.set(&self.id, ActorStatus::default());
        }
        // From here on another actor may begin.
        self.mailbox.close();
        let left = if done.is_err() {
            RunState::Lost
        } else {
            RunState::Interrupted
        };
        Box::pin(self.wound_up(left)).await;
    }

    /// The last that it does.
    async fn wound_up(&mut self, left: RunState) {
        self.open_anew();
        self.drop_waiting(left, GOING_DOWN).await;
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
            let is_idle = self.running.is_none() && self.opening.is_none();
            let idle = is_idle.then(|| self.used + self.inner.options.idle);
            let restless = self.open.as_ref().is_some_and(|open| !open.is_at_rest);
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
                    Happening::Presence(is_there) => self.attended(is_there).await,
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
                event = next_event(&mut self.open) => match event {
                    Some(event) => is_told = !self.seen(&event),
                    None => {
                        Box::pin(self.ended()).await;
                        is_told = false;
                    }
                },
                () = passed(rest) => {
                    if let Some(open) = &mut self.open {
                        open.is_at_rest = true;
                        open.opened.live.session.rest();
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
            ActorRequest::Adopt => self.adopt().await,
            ActorRequest::Cancel { what, done } => {
                if what.drop_queued {
                    self.adopt().await;
                }
                self.cancel(what).await;
                let _ = done.send(());
            }
            ActorRequest::Approvals(done) => {
                let _ = done.send(self.approvals().await);
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
                let chosen = self.choose(&thread).await;
                let _ = done.send(chosen);
            }
            ActorRequest::Release { thread, done } => {
                let is_idle = self.running.is_none() && self.opening.is_none();
                if is_idle && self.has_open(&thread) {
                    self.close().await;
                }
                let _ = done.send(());
            }
            ActorRequest::Open { thread, done } => {
                let _ = done.send(self.open_idle(&thread).await);
            }
            ActorRequest::Leave { thread, done } => {
                self.leave_thread(&thread).await;
                let _ = done.send(());
            }
            ActorRequest::Tools(done) => {
                let fits = |open: &&ActorThread| !open.is_outdated;
                let open = self.open.as_ref().filter(fits);
                let tool_preview = open.map(|open| open.opened.live.session.tool_preview());
                tokio::spawn(async move {
                    let tool_preview = match tool_preview {
                        Some(tool_preview) => tool_preview.await,
                        None => None,
                    };
                    let _ = done.send(tool_preview);
                });
            }
            ActorRequest::End(done) => {
                self.is_over = true;
                self.drop_waiting(RunState::Cancelled, "the session was deleted")
                    .await;
                self.leave().await;
                let _ = done.send(());
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
            self.adopt().await;
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
        if let Some(open) = self.open.as_mut().filter(|open| open.opened.made != made) {
            open.is_outdated = true;
        }
        let thread = active(&row)?;
        let turn = QueuedTurn {
            turn_id: turn_id.clone(),
            thread: thread.clone(),
            message,
            terms,
        };
        self.enqueue(turn, false).await?;
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
        let before = self.waiting.iter().position(|turn| turn.turn_id == run.id);
        Ok(Turn {
            id: run.id,
            thread: run.thread,
            before: before.map_or(0, |before| before + 1),
        })
    }

    /// Takes over what waited in a process that is gone, ahead of what was said since.
    async fn adopt(&mut self) {
        let adopted = match self.inner.store.adopt_runs(&self.id).await {
            Ok(adopted) => adopted,
            Err(error) => {
                tracing::warn!(
                    session = self.id,
                    "what waited in a process that is gone is not taken over yet: {error}"
                );
                return;
            }
        };
        for run in adopted.into_iter().rev() {
            tracing::info!(run = run.id, "it waited in a process that is gone");
            let terms = run.terms.as_deref().map(serde_json::from_str);
            match terms.transpose() {
                Ok(terms) => self.waiting.push_front(QueuedTurn {
                    turn_id: run.id,
                    thread: run.thread,
                    message: run.message,
                    terms: terms.unwrap_or_default(),
                }),
                // Rules that are not understood may be some that deny.
                Err(error) => {
                    let why = format!("what holds for it is not understood: {error}");
                    let state = RunState::Failed;
                    self.end_run(&run.id, state, None, Some(&why)).await;
                }
            }
        }
    }

    pub(super) async fn enqueue(
        &mut self,
        turn: QueuedTurn,
        first: bool,
    ) -> Result<(), ManagerError> {
        let run = Run::new(&turn.turn_id, Some(self.id.clone()), turn.thread.clone());
        let run = run.with_message(turn.message.clone());
        let terms = (*turn.terms != TurnTerms::default())
            .then(|| serde_json::to_string(&turn.terms))
            .transpose()
            .map_err(|error| ManagerError::Invalid {
                message: format!("what holds for the turn cannot be written: {error}"),
            })?;
        let run = run.with_terms(terms);
        self.inner.store.begin_run(run).await?;
        if first {
            self.waiting.push_front(turn);
        } else {
            self.waiting.push_back(turn);
        }
        Ok(())
    }

    /// Begins the next turn that waits, if none runs.
    async fn begin_next(&mut self) {
        if self.inner.closing.is_cancelled() {
            self.drop_waiting(RunState::Interrupted, GOING_DOWN).await;
        }
        while self.running.is_none() && self.opening.is_none() {
            let Some(turn) = self.waiting.pop_front() else {
                return;
            };
            if self.waiting.is_empty() {
                self.waiting.shrink_to_fit();
            }
            self.begin_or_open(turn).await;
        }
    }

    async fn begin_or_open(&mut self, turn: QueuedTurn) {
        let fits = |open: &ActorThread| {
            !open.is_outdated && open.opened.live.session.thread() == &turn.thread
        };
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
            self.waiting.push_front(turn);
        }
    }

    async fn opened(&mut self, opened: Result<OpenSessionThread, ManagerError>) {
        let Some(OpeningTurn { turn, .. }) = self.opening.take() else {
            return;
        };
        match opened {
            Ok(opened) => {
                self.is_open(opened);
                // The process that had the thread may be known as gone only now.
                self.waiting.push_front(turn);
                self.adopt().await;
                if let Some(first) = self.waiting.pop_front() {
                    self.begin_or_open(first).await;
                }
            }
            Err(error) => self.failed(turn, &error.to_string()).await,
        }
    }

    /// Opens a thread for something else than a turn.
    async fn open_idle(&mut self, thread: &ThreadId) -> Result<Arc<Session>, ManagerError> {
        if self.running.is_some() || self.opening.is_some() {
            return Err(CompactError::Busy.into());
        }
        let row = self.inner.store.session(&self.id).await?;
        let (_, made) = self.inner.made_of(&row).await?;
        let fits = |open: &&ActorThread| {
            open.opened.made == made && !open.is_outdated && open.is_on(thread)
        };
        if let Some(open) = self.open.as_ref().filter(fits) {
            return Ok(Arc::clone(&open.opened.live.session));
        }
        self.close().await;
        let opened = self.inner.open(&row, thread).await?;
        let session = Arc::clone(&opened.live.session);
        self.is_open(opened);
        Ok(session)
    }

    fn is_open(&mut self, opened: OpenSessionThread) {
        // Only now: what nobody takes is dropped, and its session ends with it.
        self.inner.opened(&opened.live);
        let events = opened.live.session.events_beyond_pieces();
        self.open = Some(ActorThread {
            opened,
            events,
            is_outdated: false,
            is_at_rest: false,
        });
    }

    async fn begin(&mut self, turn: QueuedTurn) {
        let Some(open) = &mut self.open else { return };
        open.is_at_rest = false;
        let live = open.opened.live.clone();
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
        live.set_run(Some(turn.turn_id.clone()));
        let (approvals, presence) = self.inner.approvals(&turn.terms, &turn.thread).await;
        live.session.terms(turn.terms.rules(), approvals).await;
        // Asked here, so that a cancel that comes next finds it.
        let answer = live.session.begin(turn.turn_id.clone(), turn.message).await;
        let answer = tokio::spawn(answer);
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
                self.end_run(&turn.turn_id, RunState::Failed, None, Some(error))
                    .await;
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

    /// Looks at what the session shows, and at what is there behind it. Whether that changes how it
    /// is with the session.
    fn seen(&mut self, first: &Stamped) -> bool {
        let (Some(running), Some(open)) = (&mut self.running, &mut self.open) else {
            return false;
        };
        let mut changes = running.see(&first.event);
        while let Some(next) = open.events.try_next() {
            changes |= running.see(&next.event);
        }
        changes
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

async fn next_event(open: &mut Option<ActorThread>) -> Option<Arc<Stamped>> {
    match open {
        Some(open) if !open.is_outdated => open.events.next_or_end().await,
        _ => std::future::pending().await,
    }
}
