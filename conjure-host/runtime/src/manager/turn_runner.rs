//! The thread that a saved session's actor has open, and the turn that runs on it.

use std::sync::Arc;
use std::time::Duration;

use conjure_core::routing::Rule;
use conjure_core::turn::{ApprovalDecision, EffectiveFrom};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::actor_thread::{ActorThread, ActorThreadEvent, next_thread_event};
use super::adoption::CANCELLED_WAITING;
use super::approvals::Approval;
use super::changes::ActorStatus;
use super::interrupted_turns::InterruptedTurn;
use super::opening::OpenSessionThread;
use super::opening_turn::OpeningTurn;
use super::running_turn::{FinishedTurn, RunningTurn, RunningTurnEvent, answer, next_turn_event};
use super::runs::run_end;
use super::session_row::SavedChange;
use super::spec::SettingsDigest;
use super::turn_queue::QueuedTurn;
use super::view::SessionState;
use super::{ManagerError, ManagerState};
use crate::session::{ChatError, CompactError, CompactionResult, Stamped, TurnResult};
use conjure_store::{RunState, SavedSession as Row, ThreadId};

/// How long a turn that is ended may take to come to its end.
const END_TIMEOUT: Duration = Duration::from_secs(10);
/// How often a sign of life is given while something takes long.
const ALIVE_INTERVAL: Duration = Duration::from_millis(500);
/// For how long: somebody may have to type a password, and something may hang.
const ALIVE_LIMIT: Duration = Duration::from_mins(5);

/// Opens threads of one session, one at a time, and runs one turn at a time.
pub(super) struct TurnRunner {
    manager: Arc<ManagerState>,
    session: String,
    open: Option<ActorThread>,
    opening: Option<OpeningTurn>,
    running: Option<RunningTurn>,
    /// A thread that is being ended: whatever opens one waits for it.
    ending: Option<JoinHandle<()>>,
    /// Somebody found that the actor hangs.
    abandoned: CancellationToken,
}

/// What the actor of a session waits for, besides requests.
pub(super) enum RunnerEvent {
    /// The turn that runs is over, or somebody comes or leaves who can decide in it.
    Turn(RunningTurnEvent),
    /// The thread for the next turn is open, or cannot be opened.
    Opened(Result<OpenSessionThread, ManagerError>),
    /// The open thread shows something, or has ended or failed.
    Thread(ActorThreadEvent),
}

impl TurnRunner {
    pub(super) fn new(manager: Arc<ManagerState>, session: &str) -> Self {
        Self {
            manager,
            session: session.to_owned(),
            open: None,
            opening: None,
            running: None,
            ending: None,
            abandoned: CancellationToken::new(),
        }
    }

    /// Waits for what happens next. Safe to drop and call again.
    pub(super) async fn next(&mut self) -> RunnerEvent {
        let opened = async {
            match &mut self.opening {
                Some(opening) => opening.wait().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            event = next_turn_event(&mut self.running) => RunnerEvent::Turn(event),
            opened = opened => RunnerEvent::Opened(opened),
            event = next_thread_event(&mut self.open) => RunnerEvent::Thread(event),
        }
    }

    /// Tells when somebody finds that the actor hangs.
    pub(super) fn abandoned(&self) -> CancellationToken {
        self.abandoned.clone()
    }

    /// Whether no turn runs or is about to.
    pub(super) fn is_idle(&self) -> bool {
        self.running.is_none() && self.opening.is_none()
    }

    /// Whether a turn runs.
    pub(super) fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// Whether a turn can begin: none runs, and no summary is on its way that a person wants.
    pub(super) fn is_free(&self) -> bool {
        let open = self.open.as_ref();
        self.is_idle() && !open.is_some_and(ActorThread::is_compacting)
    }

    /// Whether this turn runs or is about to.
    pub(super) fn has_turn(&self, turn_id: &str) -> bool {
        let opens = self.opening.as_ref().map(|opening| &opening.turn.turn_id);
        let runs = self.running.as_ref().map(|running| &running.turn_id);
        opens.or(runs).is_some_and(|turn| turn == turn_id)
    }

    /// The thread that is open.
    pub(super) fn open(&self) -> Option<&ActorThread> {
        self.open.as_ref()
    }

    /// The thread that is open, to do something with.
    pub(super) fn open_mut(&mut self) -> Option<&mut ActorThread> {
        self.open.as_mut()
    }

    /// The thread that is open, if it is this one.
    pub(super) fn open_on(&mut self, thread: &ThreadId) -> Option<&mut ActorThread> {
        self.open.as_mut().filter(|open| open.is_on(thread))
    }

    /// Status of the session, with so many turns that wait.
    pub(super) fn status(&self, queued: usize) -> ActorStatus {
        let (running, opening) = (self.running.as_ref(), self.opening.as_ref());
        let state = match running {
            Some(running) if !running.waiting_ids.is_empty() => SessionState::Waiting,
            Some(_) => SessionState::Running,
            None if opening.is_some() => SessionState::Running,
            None => SessionState::Idle,
        };
        let turn = running.map(|running| (&running.turn_id, &running.thread));
        let turn =
            turn.or_else(|| opening.map(|opening| (&opening.turn.turn_id, &opening.turn.thread)));
        ActorStatus {
            state,
            turn: turn.map(|(id, _)| id.clone()),
            thread: turn.map(|(_, thread)| thread.clone()),
            queued,
        }
    }

    /// Begins a turn, or opens its thread first.
    pub(super) async fn begin_or_open(&mut self, turn: QueuedTurn) {
        let fits = |open: &ActorThread| !open.is_outdated && open.is_on(&turn.thread);
        if self.open.as_ref().is_some_and(fits) {
            self.begin(turn).await;
        } else {
            self.close().await;
            let (manager, ending) = (Arc::clone(&self.manager), self.ending.take());
            let opening = OpeningTurn::start(manager, &self.session, turn, ending);
            self.opening = Some(opening);
        }
    }

    async fn begin(&mut self, turn: QueuedTurn) {
        let Some(open) = &mut self.open else { return };
        open.wake();
        let store = &self.manager.store;
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
        let (approvals, presence) = self.manager.approvals(&turn.terms, &turn.thread).await;
        let (done, answer) = oneshot::channel();
        let (id, rules) = (turn.turn_id.clone(), turn.terms.rules());
        // It was looked at when the turn was taken.
        let form = turn.terms.form().unwrap_or_default();
        // First, so that its end is seen whatever comes of it.
        self.running = Some(RunningTurn::new(
            turn.turn_id,
            (turn.thread, open.live.epoch()),
            (turn.terms, turn.origin),
            answer,
            presence,
        ));
        open.with(|thread| {
            thread.set_terms(rules, approvals);
            thread.set_form(form);
            thread.begin(id, turn.message, done);
        });
    }

    /// The thread for the next turn is open, or cannot be opened. Gives back the turn where it can
    /// begin, and what was saved meanwhile, for [`TurnRunner::apply_saved_settings`] once it has.
    pub(super) async fn finish_opening(
        &mut self,
        opened: Result<OpenSessionThread, ManagerError>,
    ) -> Option<(QueuedTurn, Option<SettingsDigest>)> {
        let OpeningTurn {
            turn,
            changed_settings: saved,
            ..
        } = self.opening.take()?;
        match opened {
            Ok(opened) => {
                self.take_thread(opened);
                Some((turn, saved))
            }
            Err(error) => {
                let why = error.to_string();
                let failed = self.manager.fail_unbegun(&self.session, turn, &why);
                Box::pin(failed).await;
                None
            }
        }
    }

    fn take_thread(&mut self, opened: OpenSessionThread) {
        self.open = ActorThread::new(opened, &self.session, self.abandoned.clone());
        if let Some(open) = &self.open {
            self.manager.register_open(&open.live);
        }
    }

    /// Gives up opening for the turn that is next, and gives that back.
    pub(super) fn give_up_opening(&mut self) -> Option<QueuedTurn> {
        Some(self.opening.take()?.turn)
    }

    /// Begins to write a summary of a thread, which is opened for it, as somebody wants it.
    ///
    /// # Errors
    /// [`CompactError::Busy`] where a turn runs, and why the thread cannot be opened.
    pub(super) async fn compact(
        &mut self,
        thread: &ThreadId,
    ) -> Result<oneshot::Receiver<CompactionResult>, ManagerError> {
        if !self.is_idle() {
            return Err(CompactError::Busy.into());
        }
        let row = self.manager.store.session(&self.session).await?;
        let (_, made) = self.manager.spec_and_digest(&row).await?;
        let fits = |open: &ActorThread| {
            open.settings_digest == made && !open.is_outdated && open.is_on(thread)
        };
        if !self.open.as_ref().is_some_and(fits) {
            self.close().await;
            if let Some(ending) = self.ending.take() {
                let _ = ending.await;
            }
            let opened = self.manager.open(&row, thread).await?;
            self.take_thread(opened);
        }
        let (done, summary) = oneshot::channel();
        if let Some(open) = &mut self.open {
            open.wake();
            open.with(|thread| thread.compact(done));
        }
        Ok(summary)
    }

    /// Handles what comes of the thread. Whether that changes how it is with the
    /// session.
    pub(super) async fn handle_thread_event(&mut self, event: ActorThreadEvent) -> bool {
        match event {
            ActorThreadEvent::Event(event) => self.handle_shown(&event),
            ActorThreadEvent::Compacted => {
                self.close_other_grants().await;
                true
            }
            ActorThreadEvent::LogFailed(error) => {
                self.drain_shown();
                if let Some(open) = self.open.take() {
                    // Aside: backends may take their time, and its turn is over.
                    let (ended, live) = open.end(Some(error));
                    self.ending = Some(self.manager.tasks.spawn(ended));
                    self.manager.unregister_open(&live);
                }
                true
            }
            ActorThreadEvent::Panicked => {
                tracing::error!(session = self.session, "its thread broke and is closed");
                self.drain_shown();
                self.abandon();
                true
            }
        }
    }

    /// Lets go of the thread without ending it. Whoever waits for its turn is told that it ended.
    pub(super) fn abandon(&mut self) {
        if self.abandoned.is_cancelled() {
            self.abandoned = CancellationToken::new();
        }
        if let Some(open) = self.open.take() {
            self.manager.unregister_open(&open.live);
        }
    }

    /// Does something that takes a while. The thread goes on meanwhile.
    pub(super) async fn drive_while<T>(&mut self, work: impl Future<Output = T>) -> T {
        let mut work = std::pin::pin!(work);
        let mut alive = tokio::time::interval(ALIVE_INTERVAL);
        let begun = Instant::now();
        loop {
            tokio::select! {
                biased;
                done = &mut work => return done,
                event = next_thread_event(&mut self.open) => {
                    self.handle_thread_event(event).await;
                }
                _ = alive.tick() => if let Some(open) = &self.open && begun.elapsed() < ALIVE_LIMIT {
                    open.live.note_alive();
                }
            }
        }
    }

    /// Looks at what the session shows, and at what is there behind it. Whether that changes how it
    /// is with the session.
    fn handle_shown(&mut self, first: &Stamped) -> bool {
        let Some(running) = &mut self.running else {
            return false;
        };
        let changes = running.handle_event(&first.event);
        self.drain_shown() || changes
    }

    /// Looks at all that the session shows by now. Whether that changes how it is with the session.
    fn drain_shown(&mut self) -> bool {
        let (Some(running), Some(open)) = (&mut self.running, &mut self.open) else {
            return false;
        };
        let mut changes = false;
        while let Some(next) = open.try_next_event() {
            changes |= running.handle_event(&next.event);
        }
        changes
    }

    /// The turn that runs is over. For [`TurnRunner::note_over`], once the one that goes on from there
    /// waits, where there is one.
    pub(super) fn finish(&mut self, answer: TurnResult) -> Option<FinishedTurn> {
        self.drain_shown();
        let turn = self.running.take()?;
        if let Some(open) = &self.open {
            open.live.set_run(None);
        }
        Some(FinishedTurn { turn, answer })
    }

    /// Takes note of the end of a turn.
    pub(super) async fn note_over(&mut self, finished: FinishedTurn) {
        let FinishedTurn {
            turn: running,
            answer,
        } = finished;
        let (state, error) = run_end(&answer);
        self.notify_interrupted(&running, &answer);
        let (id, spent) = (&running.turn_id, running.spent);
        let ended = self
            .manager
            .end_run(id, state, Some(spent), error.as_deref());
        ended.await;
        let noted = self.manager.note_latest(&self.session, &running.thread);
        noted.await;
        self.close_other_grants().await;
    }

    /// Tells those who follow the thread of a turn whose end is not in its log: that failed or broke,
    /// and nothing more is shown of it.
    fn notify_interrupted(&self, running: &RunningTurn, answer: &TurnResult) {
        let interrupted = &self.manager.interrupted;
        match answer {
            Err(error @ ChatError::Ended { .. }) => {
                // What a thread that is open shows may still have it.
                if self.open.is_none() {
                    let turn = InterruptedTurn {
                        epoch: running.epoch,
                        turn_id: running.turn_id.clone(),
                        error: error.to_string(),
                    };
                    interrupted.set(&running.thread, turn);
                }
            }
            _ => interrupted.forget(&running.thread),
        }
        self.manager.thread_watches.notify(&running.thread);
    }

    /// Ends the turn that runs or is about to, or the summary that a person wants.
    pub(super) async fn cancel(&mut self) {
        if let Some(turn) = self.give_up_opening() {
            let (id, why) = (&turn.turn_id, Some(CANCELLED_WAITING));
            let ended = self.manager.end_run(id, RunState::Cancelled, None, why);
            ended.await;
            self.manager.free_files(id, turn.message.as_ref());
        }
        if let Some(running) = &mut self.running {
            running.continues = false;
        }
        if let Some(open) = &mut self.open {
            open.with(|thread| thread.cancel(false));
        }
    }

    /// Somebody came while an unattended turn runs: calls that ask wait for them from now on. Or
    /// the last one has left, and what waits is denied.
    pub(super) fn set_attended(&mut self, is_there: bool) {
        if let (Some(open), Some(running)) = (&mut self.open, &self.running) {
            let mode = self.manager.approval_mode(is_there);
            open.with(|thread| thread.set_terms(running.terms.rules(), mode));
        }
    }

    /// The calls of the running turn that wait for a decision.
    pub(super) fn approvals(&mut self) -> Vec<Approval> {
        let open = self.open.as_mut().filter(|_| self.running.is_some());
        open.map(ActorThread::approvals).unwrap_or_default()
    }

    /// Decides about a call, and gives back what it was, if it waits.
    pub(super) fn decide(&mut self, call_id: &str, decision: ApprovalDecision) -> Option<Approval> {
        let mut asked = self.approvals().into_iter();
        let asked = asked.find(|asked| asked.call.id == call_id)?;
        let (id, open) = (call_id.to_owned(), self.open.as_mut()?);
        open.with(|thread| thread.decide(id, decision))?;
        Some(asked)
    }

    /// Adds a rule that is saved in this row.
    pub(super) fn add_rule(&mut self, rule: Rule, row: &Row) {
        if let Some(open) = &mut self.open {
            if let Ok(spec) = super::spec::tools(&row.tools.0) {
                open.settings_digest.set_policy(&spec.policy);
            }
            open.with(|thread| thread.add_rule(rule));
        }
    }

    /// The settings that are saved: where the open thread has others, it is opened anew for the
    /// next turn. One that opens may have read others, which shows when it is open.
    pub(super) fn note_saved_settings(&mut self, made: SettingsDigest) {
        match (&mut self.open, &mut self.opening) {
            (Some(open), _) if open.settings_digest != made => {
                open.is_outdated = true;
                open.has_other_grants = !open.settings_digest.has_same_grants(&made);
            }
            (None, Some(opening)) => opening.changed_settings = Some(made),
            _ => {}
        }
    }

    /// What was saved while the thread was opened for a turn that has begun: it holds from the next
    /// turn on.
    pub(super) async fn apply_saved_settings(&mut self, made: SettingsDigest) {
        self.note_saved_settings(made);
        // The turn may have been ended elsewhere.
        self.close_other_grants().await;
    }

    /// Takes over settings that were saved, now or from the next turn on. Where the thread has to be
    /// opened anew for that, a turn that is to have them now is ended, and goes on then. Where plugins
    /// are granted something else, the thread is closed, at the end of what runs on it.
    ///
    /// # Errors
    /// When the thread breaks. What cannot be taken over after all holds from the next turn on.
    pub(super) async fn take_over(
        &mut self,
        change: SavedChange,
        when: EffectiveFrom,
    ) -> Result<Row, ManagerError> {
        let SavedChange {
            row,
            settings_digest: made,
            open_spec: ready,
        } = change;
        let Some(open) = &mut self.open else {
            self.note_saved_settings(made);
            return Ok(row);
        };
        open.has_other_grants = !open.settings_digest.has_same_grants(&made);
        if let Some(ready) = ready {
            if open.settings_digest != made {
                let when = match self.running {
                    Some(_) => when,
                    None => EffectiveFrom::Now,
                };
                let taken = open.with(|thread| thread.reconfigure(ready, when));
                let taken = taken.ok_or_else(|| ManagerError::Conflict {
                    message: "the session's thread broke while it took this over; what is saved \
                              holds from the next turn on"
                        .to_owned(),
                })?;
                match taken {
                    Ok(()) => open.settings_digest = made,
                    // It is saved: whoever opens the thread says why it cannot be.
                    Err(_) => open.is_outdated = true,
                }
            }
        } else {
            open.is_outdated = true;
            if let Some(running) = self.running.as_mut().filter(|_| when == EffectiveFrom::Now) {
                running.continues = true;
                open.with(|thread| thread.cancel(false));
            }
            self.close_other_grants().await;
        }
        Ok(row)
    }

    /// Closes a thread whose plugins are granted something else by now, where nothing runs on it. Workers
    /// have what they were granted for as long as they are there, and nobody may say anything here for
    /// days.
    async fn close_other_grants(&mut self) {
        let open = self.open.as_ref();
        if self.is_free() && open.is_some_and(|open| open.has_other_grants) {
            Box::pin(self.close()).await;
        }
    }

    /// Gives room back, while there is nothing to do.
    pub(super) fn rest(&mut self) {
        if let Some(open) = &mut self.open {
            open.rest();
        }
    }

    /// Ends what runs on a thread, and closes it, if it is the one that is open or to be.
    pub(super) async fn leave_thread(&mut self, thread: &ThreadId) {
        let opens = self.opening.as_ref();
        let opens = opens.is_some_and(|opening| &opening.turn.thread == thread);
        if opens || self.open_on(thread).is_some() {
            self.leave().await;
        }
    }

    /// Ends the turn that runs, what came so far is kept, and closes the thread.
    pub(super) async fn leave(&mut self) {
        self.cancel().await;
        if self.running.is_some() {
            let answered = tokio::time::timeout(END_TIMEOUT, self.wait_for_answer()).await;
            let answer = answered.unwrap_or_else(|_| {
                Err(ChatError::Ended {
                    reason: Some("it was ended and gave no answer in time".to_owned()),
                })
            });
            if let Some(finished) = self.finish(answer) {
                self.note_over(finished).await;
            }
        }
        self.close().await;
    }

    /// Lets the turn that runs come to its end.
    async fn wait_for_answer(&mut self) -> TurnResult {
        loop {
            let Some(running) = &mut self.running else {
                return Err(ChatError::Ended { reason: None });
            };
            tokio::select! {
                biased;
                answer = answer(&mut running.answer) => return answer,
                event = next_thread_event(&mut self.open) => {
                    self.handle_thread_event(event).await;
                }
            }
        }
    }

    /// Closes the thread, if it is open.
    pub(super) async fn close(&mut self) {
        if let Some(open) = self.open.take() {
            let (ended, live) = open.end(None);
            ended.await;
            self.manager.unregister_open(&live);
        }
    }
}
