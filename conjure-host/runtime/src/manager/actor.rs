//! The actor of one saved session: takes what is asked of it in order, begins the turns that wait one
//! after the other, and drives the thread that is open.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use conjure_core::chat::Message;
use conjure_core::routing::{PolicyDecision, Rule};
use conjure_core::switch::SwitchReport;
use conjure_core::turn::{ApprovalDecision, EffectiveFrom};
use futures_util::FutureExt as _;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::actor_thread::ActorThread;
use super::approvals::DecisionScope;
use super::changes::ActorStatus;
use super::opening::OpenSessionThread;
use super::requests::{ActorRequest, CancelRequest, Responder, TurnOrigin};
use super::running_turn::{FinishedTurn, RunningTurnEvent};
use super::runs::Turn;
use super::saving::{active, turn_running_error};
use super::session_row::SessionRow;
use super::spec::SettingsDigest;
use super::terms::TurnTerms;
use super::turn_queue::{QueuedTurn, TurnQueue};
use super::turn_runner::{RunnerEvent, TurnRunner};
use super::view::{SessionPatch, SessionState};
use super::{ManagerError, ManagerState};
use crate::session::{SessionSettings, UnfoldError, wait_until};
use conjure_store::{Run, RunState, SavedSession as Row, StoreError, ThreadId};

/// After how long without anything to do an open thread keeps no events in memory.
const REST: Duration = Duration::from_secs(1);

/// Why a turn that waited never began.
const HOST_STOPPED: &str = "the host went down before it began";

/// Keeps one session.
pub(super) struct SavedSessionActor {
    manager: Arc<ManagerState>,
    /// The session.
    id: String,
    row: SessionRow,
    mailbox: mpsc::Receiver<Box<ActorRequest>>,
    queue: TurnQueue,
    runner: TurnRunner,
    /// The turn of which other processes know that it waits for a person.
    noted_waiting: Option<String>,
    /// When there was something to do last.
    last_used: Instant,
    /// The session is gone for good.
    is_over: bool,
}

impl SavedSessionActor {
    pub(super) fn new(
        manager: Arc<ManagerState>,
        id: String,
        mailbox: mpsc::Receiver<Box<ActorRequest>>,
    ) -> Self {
        Self {
            row: SessionRow::new(Arc::clone(&manager), &id),
            queue: TurnQueue::new(Arc::clone(&manager), &id),
            runner: TurnRunner::new(Arc::clone(&manager), &id),
            manager,
            id,
            mailbox,
            noted_waiting: None,
            last_used: Instant::now(),
            is_over: false,
        }
    }

    /// Runs it. What breaks here ends this session's turns and nobody else's.
    pub(super) async fn run_supervised(mut self: Box<Self>) {
        let is_broken = loop {
            let abandoned = self.runner.abandoned();
            tokio::select! {
                biased;
                () = abandoned.cancelled() => self.runner.abandon(),
                done = AssertUnwindSafe(self.run()).catch_unwind() => break done.is_err(),
            }
        };
        if is_broken {
            tracing::error!(session = self.id, "its actor broke; its turns are lost");
            self.runner.abandon();
        }
        if !self.runner.is_running() {
            self.manager.states.set(&self.id, ActorStatus::default());
        }
        // From here on another actor may begin.
        self.mailbox.close();
        Box::pin(self.wind_down(is_broken)).await;
    }

    /// The last that it does.
    async fn wind_down(&mut self, is_broken: bool) {
        self.restart_opening();
        if is_broken {
            self.queue.drop_all(RunState::Lost, HOST_STOPPED).await;
        } else {
            let state = RunState::Interrupted;
            self.queue.drop_own(state, HOST_STOPPED).await;
        }
        let was_running = self.runner.is_running();
        self.runner.leave().await;
        if let Err(error) = self.manager.record_unbegun().await {
            tracing::warn!("what was said in turns that never began is not written yet: {error}");
        }
        // The last that is done with the thread: whoever takes it over opens that.
        self.queue.release().await;
        if was_running {
            self.manager.states.set(&self.id, ActorStatus::default());
        }
        self.manager.forget(&self.id);
    }

    async fn run(&mut self) {
        // What is seldom waited for is boxed, so that it takes no room in an actor that is idle.
        let (closing, ending) = (self.manager.closing.clone(), self.manager.ending.clone());
        // Pieces of an answer come by the thousand and change nothing about how it is.
        let mut is_told = false;
        while !self.is_over {
            let mut can_note = true;
            while !std::mem::replace(&mut is_told, true) {
                Box::pin(self.begin_next()).await;
                let status = self.runner.status(self.queue.len());
                let waits = status.state == SessionState::Waiting;
                let waiting = status.turn.clone().filter(|_| waits);
                self.manager.states.set(&self.id, status);
                if can_note && waiting != self.noted_waiting {
                    // Where it cannot, the next change is another occasion.
                    can_note = Box::pin(self.note_waiting(waiting)).await;
                    // It may be another way by now.
                    is_told = false;
                }
            }
            let (is_idle, is_free) = (self.runner.is_idle(), self.runner.is_free());
            let idle = is_free.then(|| self.last_used + self.manager.options.idle);
            let restless = self.runner.open().is_some_and(|open| !open.is_at_rest());
            let rest = (is_free && restless).then(|| self.last_used + REST);
            // Neither many requests hold up the thread, nor a quick stream a cancel.
            tokio::select! {
                () = ending.cancelled() => return,
                () = closing.cancelled(), if is_idle => return,
                ask = self.mailbox.recv() => match ask {
                    Some(ask) => {
                        Box::pin(self.handle_request(*ask)).await;
                        is_told = false;
                    }
                    None => return,
                },
                event = self.runner.next() => is_told = !self.handle(event).await,
                () = wait_until(rest) => self.runner.rest(),
                () = wait_until(idle) => return,
            }
        }
    }

    /// Takes note for other processes of the turn that waits for a person. Whether it is noted; where
    /// it is not, what was noted before holds.
    async fn note_waiting(&mut self, waiting: Option<String>) -> bool {
        let before = self.noted_waiting.clone();
        let over = before.filter(|before| Some(before) != waiting.as_ref());
        for (turn, waits) in [(over, false), (waiting.clone(), true)] {
            let Some(turn) = turn else { continue };
            let noted = self.manager.store.set_run_waiting(&turn, waits);
            if let Err(error) = self.runner.drive_while(noted).await {
                tracing::debug!(
                    run = turn,
                    "other processes do not see how it waits: {error}"
                );
                return false;
            }
        }
        self.noted_waiting = waiting;
        true
    }

    /// Handles what comes of the thread and the turn. Whether that changes how it is with the session.
    async fn handle(&mut self, event: RunnerEvent) -> bool {
        match event {
            RunnerEvent::Turn(RunningTurnEvent::Over(answer)) => {
                self.last_used = Instant::now();
                if let Some(finished) = self.runner.finish(answer) {
                    Box::pin(self.finish_turn(finished)).await;
                }
                true
            }
            RunnerEvent::Turn(RunningTurnEvent::PresenceChanged(is_there)) => {
                self.runner.set_attended(is_there);
                false
            }
            RunnerEvent::Opened(opened) => {
                Box::pin(self.handle_opened(opened)).await;
                true
            }
            RunnerEvent::Thread(event) => self.runner.handle_thread_event(event).await,
        }
    }

    /// A turn is over. One that goes on from there with other settings waits first, so that the session
    /// has a turn here all the time and no other process begins one in between.
    async fn finish_turn(&mut self, finished: FinishedTurn) {
        if let Some(turn) = finished.continuation()
            && let Err(error) = self.queue.add(turn, true).await
        {
            tracing::error!(
                session = self.id,
                "the turn does not go on with its new settings: {error}"
            );
        }
        self.runner.note_over(finished).await;
    }

    async fn handle_request(&mut self, ask: ActorRequest) {
        self.last_used = Instant::now();
        match ask {
            ActorRequest::Say {
                turn_id,
                message,
                thread,
                terms,
                origin,
                done,
            } => {
                let said = self.say(turn_id, message, thread, terms, origin).await;
                let _ = done.send(said);
            }
            ActorRequest::Reword {
                turn_id,
                message,
                done,
            } => {
                let reworded = self.queue.reword(&turn_id, message);
                drop(done.send(self.runner.drive_while(reworded).await));
            }
            ActorRequest::Adopt => self.runner.drive_while(self.queue.adopt()).await,
            ActorRequest::Cancel { what, done } => {
                self.cancel(what).await;
                let _ = done.send(());
            }
            ActorRequest::Approvals(done) => drop(done.send(self.runner.approvals())),
            ActorRequest::Decide {
                call_id,
                decision,
                scope,
                done,
            } => drop(done.send(self.decide(&call_id, decision, scope).await)),
            ActorRequest::Update { patch, when, done } => {
                drop(done.send(Box::pin(self.update(&patch, when)).await));
            }
            ActorRequest::Choose { thread, done } => {
                let choosing = Box::pin(self.row.choose(&thread));
                drop(done.send(self.runner.drive_while(choosing).await));
            }
            ActorRequest::Release { thread, done } => {
                if self.runner.is_idle() && self.runner.open_on(&thread).is_some() {
                    self.runner.close().await;
                }
                let _ = done.send(());
            }
            ActorRequest::Compact { thread, done } => {
                drop(done.send(self.runner.compact(&thread).await));
            }
            ActorRequest::Unfold { thread, fold, done } => match self.runner.open_on(&thread) {
                Some(open) => drop(open.with(|thread| thread.unfold(fold, done))),
                None => drop(done.send(Err(UnfoldError::Ended))),
            },
            ActorRequest::Leave { thread, done } => {
                self.queue.drop_thread(&thread).await;
                self.runner.leave_thread(&thread).await;
                let _ = done.send(());
            }
            ActorRequest::Tools(done) => {
                let fits = |open: &&mut ActorThread| !open.is_outdated;
                if let Some(open) = self.runner.open_mut().filter(fits) {
                    open.with(|thread| thread.preview_tools(done));
                }
            }
            ActorRequest::Measure {
                thread,
                settings_digest: made,
                done,
            } => self.measure(&thread, made, done),
            ActorRequest::Alive(done) => {
                let _ = done.send(());
            }
            ActorRequest::End(done) => {
                self.is_over = true;
                let (state, why) = (RunState::Cancelled, "the session was deleted");
                self.queue.drop_all(state, why).await;
                self.runner.leave().await;
                let _ = done.send(());
            }
            #[cfg(test)]
            ActorRequest::Hang => std::future::pending().await,
            #[cfg(test)]
            ActorRequest::Panic => {
                if let Some(open) = self.runner.open_mut() {
                    open.with(|_| panic!("as a test wants it"));
                }
            }
        }
    }

    /// Says what the next request would be like. It is compiled where it holds up no turn.
    fn measure(
        &mut self,
        thread: &ThreadId,
        made: SettingsDigest,
        done: Responder<Result<SwitchReport, ManagerError>>,
    ) {
        if !self.runner.is_idle() {
            let _ = done.send(Err(turn_running_error()));
            return;
        }
        let fits = |open: &&mut ActorThread| open.settings_digest == made && !open.is_outdated;
        if let Some(open) = self.runner.open_on(thread).filter(fits)
            && let Some(check) = open.with(|thread| thread.check(&SessionSettings::default()))
        {
            tokio::task::spawn_blocking(move || {
                let _ = done.send(check.report().map_err(ManagerError::from));
            });
        }
    }

    async fn say(
        &mut self,
        turn_id: String,
        message: Option<Message>,
        thread: Option<ThreadId>,
        terms: Box<TurnTerms>,
        origin: TurnOrigin,
    ) -> Result<Turn, ManagerError> {
        if self.runner.open().is_none() {
            self.queue.adopt().await;
        }
        let known = self.manager.store.run(&turn_id);
        match self.runner.drive_while(known).await {
            Ok(run) => return self.existing_turn(run),
            Err(StoreError::NotFound { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        let queued = self.queue.len();
        if queued >= self.manager.options.max_queued {
            return Err(ManagerError::Full { queued });
        }
        let reading = Box::pin(self.row.read());
        let (row, made) = self.runner.drive_while(reading).await?;
        self.runner.note_saved_settings(made);
        let thread = match thread {
            // One that is not there is refused before anything is done.
            Some(thread) => {
                let known = self.manager.store.thread(&thread);
                self.runner.drive_while(known).await?.id
            }
            None => active(&row)?,
        };
        // Here, where nobody who asks can go away between this and the turn that has the files.
        let claimed = self.manager.claim_files(&turn_id, message.as_ref())?;
        let turn = QueuedTurn {
            turn_id: turn_id.clone(),
            thread: thread.clone(),
            message,
            terms,
            origin,
        };
        if let Err(error) = self.enqueue(turn, &row).await {
            self.manager.free_claimed(&turn_id, &claimed);
            return Err(error);
        }
        Ok(Turn {
            id: turn_id,
            thread,
            before: queued + usize::from(!self.runner.is_idle()),
        })
    }

    /// Has a turn wait, and the session go on with its thread; where it cannot wait, with what it went
    /// on with before.
    async fn enqueue(&mut self, turn: QueuedTurn, before: &Row) -> Result<(), ManagerError> {
        let thread = turn.thread.clone();
        let is_chosen = before.chat_thread_id.as_deref() != Some(thread.as_str());
        if is_chosen {
            let choosing = Box::pin(self.row.choose(&thread));
            self.runner.drive_while(choosing).await?;
        }
        let adding = Box::pin(self.queue.add(turn, false));
        let added = self.runner.drive_while(adding).await;
        if added.is_err() && is_chosen {
            let back = Box::pin(self.row.restore_choice(&thread, before));
            if let Err(error) = self.runner.drive_while(back).await {
                let session = &self.id;
                tracing::warn!(session, %thread, "it stays chosen, and nothing was said in it: {error}");
            }
        }
        added
    }

    /// The turn that there is already under an id.
    fn existing_turn(&self, run: Run) -> Result<Turn, ManagerError> {
        if run.session_id.as_deref() != Some(&self.id) {
            return Err(ManagerError::Conflict {
                message: format!(
                    "the turn `{}` is another session's; take another id",
                    run.id
                ),
            });
        }
        let before = self.queue.position(&run.id);
        Ok(Turn {
            id: run.id,
            thread: run.thread,
            before: before.map_or(0, |before| before + 1),
        })
    }

    /// Begins the next turn that waits, where one can begin.
    async fn begin_next(&mut self) {
        if self.manager.closing.is_cancelled() {
            // What others asked for waits until nothing runs here, and is theirs then.
            let state = RunState::Interrupted;
            self.queue.drop_own(state, HOST_STOPPED).await;
            return;
        }
        let begins_for_others = self.manager.options.begins_for_others;
        if !begins_for_others && self.runner.is_free() && !self.queue.has_own() {
            self.queue.release().await;
            return;
        }
        while self.runner.is_free() {
            let Some(turn) = self.queue.pop() else {
                return;
            };
            self.runner.begin_or_open(turn).await;
        }
    }

    /// Gives up opening for the turn that is next, which then begins with what is saved now.
    fn restart_opening(&mut self) {
        if let Some(turn) = self.runner.give_up_opening() {
            self.queue.put_back(turn);
        }
    }

    async fn handle_opened(&mut self, opened: Result<OpenSessionThread, ManagerError>) {
        self.last_used = Instant::now();
        if let Some((turn, saved)) = self.runner.finish_opening(opened).await {
            self.queue.put_back(turn);
            // The process that had the thread may be known as gone only now.
            self.queue.adopt().await;
            if let Some(first) = self.queue.pop() {
                self.runner.begin_or_open(first).await;
            }
            if let Some(saved) = saved {
                self.runner.apply_saved_settings(saved).await;
            }
        }
    }

    async fn cancel(&mut self, what: CancelRequest) {
        if what.drop_queued {
            self.runner.drive_while(self.queue.adopt()).await;
            let (state, why) = (RunState::Cancelled, "it was dropped before it began");
            let dropping = self.queue.drop_all(state, why);
            self.runner.drive_while(dropping).await;
        }
        if let Some(only) = &what.turn
            && (self.queue.cancel(only).await || what.only_queued || !self.runner.has_turn(only))
        {
            return;
        }
        self.runner.cancel().await;
    }

    async fn decide(
        &mut self,
        call_id: &str,
        decision: ApprovalDecision,
        scope: DecisionScope,
    ) -> Result<(), ManagerError> {
        let rule = match decision {
            ApprovalDecision::Allow => PolicyDecision::Allow,
            ApprovalDecision::Deny { .. } => PolicyDecision::Deny,
        };
        let Some(asked) = self.runner.decide(call_id, decision) else {
            return Err(ManagerError::NotFound {
                kind: "call that waits for a decision",
                id: call_id.to_owned(),
            });
        };
        let Some(pattern) = scope.pattern(&asked.call.name)? else {
            return Ok(());
        };
        let rule = Rule {
            pattern,
            decision: rule,
        };
        let adding = Box::pin(self.row.add_rule(&rule));
        let row = self.runner.drive_while(adding).await?;
        self.runner.add_rule(rule, &row);
        Ok(())
    }

    async fn update(
        &mut self,
        patch: &SessionPatch,
        when: EffectiveFrom,
    ) -> Result<Row, ManagerError> {
        let open = self.runner.open().map(|open| open.settings_digest);
        // Credentials may have to be asked for elsewhere.
        let saving = Box::pin(self.row.save(patch, open));
        let saved = self.runner.drive_while(saving).await?;
        if when == EffectiveFrom::Now {
            self.restart_opening();
        }
        self.runner.take_over(saved, when).await
    }
}
