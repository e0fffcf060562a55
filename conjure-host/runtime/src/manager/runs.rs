//! Turns: begun, waited for, cancelled.

use std::time::Duration;

use async_recursion::async_recursion as boxed;
use conjure_core::chat::{Content, Message};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::remote::{RemoteRequest, RemoteTurn};
use super::requests::{ActorRequest, CancelRequest, TurnOrigin};
use super::terms::{TurnRequest, TurnTerms};
use super::turn_files::unknown_upload_to_invalid;
use super::{Manager, ManagerError};
use conjure_store::{Run, RunFilter, RunState, StoreSignal, StoreSignals, ThreadId};

/// How often the store is asked about a turn of another process.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// How long to wait before a turn is begun, said otherwise or cancelled anew that goes from one process
/// to another.
const MOVE_RETRY_DELAY: Duration = Duration::from_millis(50);

/// A turn that is to be begun in a session, by its id.
#[derive(Debug)]
pub(super) struct NewTurn {
    pub(super) session: String,
    pub(super) turn_id: String,
    pub(super) message: Option<Message>,
    /// Thread of the turn; `None` for the session's active thread.
    pub(super) thread: Option<ThreadId>,
    pub(super) terms: Box<TurnTerms>,
}

impl NewTurn {
    /// How another process is asked to begin it.
    fn remote(&self) -> RemoteRequest {
        let turn = RemoteTurn {
            session: self.session.clone(),
            turn_id: self.turn_id.clone(),
            message: self.message.clone(),
            terms: self.terms.clone(),
            may_come: self.terms.may_come,
        };
        match self.thread.clone() {
            Some(thread) => RemoteRequest::SayIn { thread, turn },
            None => RemoteRequest::Say(turn),
        }
    }
}

/// A turn that was begun, or waits to be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Turn {
    /// Id of the turn.
    pub id: String,
    /// The thread that it is in, whatever the session's active thread is later.
    pub thread: ThreadId,
    /// How many turns come before it.
    pub before: usize,
}

impl Manager {
    /// Says something in a session. A turn that runs comes to its end first. The same turn id again
    /// begins nothing and gives the turn that there is.
    ///
    /// # Errors
    /// [`ManagerError::NotFound`], [`ManagerError::Full`], [`ManagerError::Conflict`] when the turn
    /// id is another session's, and the store's. What goes wrong later is the run's error.
    #[boxed]
    pub async fn say(
        &self,
        session: &str,
        message: Message,
        turn_id: Option<String>,
    ) -> Result<Turn, ManagerError> {
        let request = TurnRequest {
            message: Some(message),
            turn_id,
            ..TurnRequest::default()
        };
        self.begin(session, request).await
    }

    /// Lets the model go on from where the session's thread ends, with nothing new said, as after
    /// a turn that was cancelled.
    ///
    /// # Errors
    /// As [`Manager::say`].
    #[boxed]
    pub async fn continue_thread(&self, session: &str) -> Result<Turn, ManagerError> {
        self.begin(session, TurnRequest::default()).await
    }

    /// [`Manager::say`] and [`Manager::continue_thread`] with what holds for the turn only.
    ///
    /// # Errors
    /// As [`Manager::say`], [`ManagerError::NotFound`] when the thread that it names is not there, and
    /// [`ManagerError::Invalid`] when the schema of the answer is none.
    #[boxed]
    pub async fn begin(&self, session: &str, request: TurnRequest) -> Result<Turn, ManagerError> {
        let session = self.id_of(session).await?;
        let TurnRequest {
            message,
            turn_id,
            thread,
            terms,
        } = request;
        if let Err(error) = terms.form() {
            let message = error.to_string();
            return Err(ManagerError::Invalid {
                field: None,
                message,
            });
        }
        if let Some(message) = &message {
            self.check_images(&session, message).await?;
        }
        let turn = NewTurn {
            session,
            turn_id: turn_id.unwrap_or_else(|| uuid::Uuid::now_v7().to_string()),
            message,
            thread,
            terms: Box::new(terms),
        };
        let deadline = Instant::now() + self.inner.options.patience;
        loop {
            match Box::pin(self.begin_at_owner(&turn)).await {
                Err(error) if error.is_session_moved() && Instant::now() < deadline => {
                    tokio::time::sleep(MOVE_RETRY_DELAY).await;
                }
                begun => return begun,
            }
        }
    }

    /// Begins a turn in the process that has the session's turns, or here where none does.
    async fn begin_at_owner(&self, turn: &NewTurn) -> Result<Turn, ManagerError> {
        let NewTurn {
            session, message, ..
        } = turn;
        if !self.inner.closing.is_cancelled() {
            match self.at_owner(session, || turn.remote()).await {
                Ok(Some(begun)) => {
                    self.inner.own_turns.add(session, &turn.turn_id);
                    return Ok(begun);
                }
                Ok(None) => {}
                Err(error) => {
                    let message = message.as_ref();
                    return Err(self.explain_missing_files(session, message, error).await);
                }
            }
        }
        let begun = self.begin_here(turn, TurnOrigin::ThisProcess).await;
        let begun = begun.map_err(unknown_upload_to_invalid)?;
        if !self.inner.options.adopts {
            self.inner.own_turns.add(session, &turn.turn_id);
        }
        Ok(begun)
    }

    /// Refuses images for a model that cannot look at them, before anything is kept.
    async fn check_images(&self, session: &str, message: &Message) -> Result<(), ManagerError> {
        let mut parts = message.content.iter();
        let image = parts.find_map(|part| match &part.content {
            Content::Image { artifact } => Some(&artifact.name),
            _ => None,
        });
        let Some(name) = image else { return Ok(()) };
        let row = self.inner.store.session(session).await?;
        let (spec, _) = self.inner.spec_and_digest(&row).await?;
        let shared = &self.inner.host.shared;
        let spec = shared.with_auths(spec, false).await?;
        if shared.recipient(&spec)?.0.images {
            return Ok(());
        }
        Err(ManagerError::Invalid {
            field: None,
            message: format!(
                "the model `{}` cannot look at images, and `{name}` is one; choose another model, \
                 or put it into the working directory and name its path",
                row.model_id
            ),
        })
    }

    pub(super) async fn begin_here(
        &self,
        turn: &NewTurn,
        origin: TurnOrigin,
    ) -> Result<Turn, ManagerError> {
        self.ask(&turn.session, |done| ActorRequest::Say {
            turn_id: turn.turn_id.clone(),
            message: turn.message.clone(),
            thread: turn.thread.clone(),
            terms: turn.terms.clone(),
            origin,
            done,
        })
        .await?
    }

    /// Says something else in a turn that waits for others; it keeps its place among them.
    ///
    /// # Errors
    /// [`ManagerError::NotFound`], [`ManagerError::Conflict`] where it waits no more,
    /// [`ManagerError::Invalid`] for images that the model cannot look at, and the store's.
    #[boxed]
    pub async fn reword(&self, turn_id: &str, message: Message) -> Result<(), ManagerError> {
        let session = self.run(turn_id).await?.session_id.unwrap_or_default();
        let session = self.id_of(&session).await?;
        self.check_images(&session, &message).await?;
        let deadline = Instant::now() + self.inner.options.patience;
        loop {
            let owner = self.run(turn_id).await?.owner;
            let reworded = self.reword_at_owner(&session, turn_id, &message);
            let (refused, has_moved) = match reworded.await {
                Ok(true) => return Ok(()),
                Ok(false) => (
                    not_queued_error(),
                    self.turn_has_moved(turn_id, Some(&owner)).await?,
                ),
                Err(error) => {
                    let has_moved = error.is_session_moved();
                    (error, has_moved)
                }
            };
            if !has_moved {
                return Err(refused);
            }
            if Instant::now() >= deadline {
                return Err(moving_error());
            }
            tokio::time::sleep(MOVE_RETRY_DELAY).await;
        }
    }

    /// Says something else in a turn, in the process that has it, or here where none does. Whether it
    /// waited still, as far as that process knows.
    async fn reword_at_owner(
        &self,
        session: &str,
        turn_id: &str,
        message: &Message,
    ) -> Result<bool, ManagerError> {
        let remote = || RemoteRequest::Reword {
            session: session.to_owned(),
            turn_id: turn_id.to_owned(),
            message: message.clone(),
        };
        match self.at_owner_of_turn(turn_id, remote).await? {
            Some(waited) => Ok(waited),
            None => self.reword_here(session, turn_id, message).await,
        }
    }

    pub(super) async fn reword_here(
        &self,
        session: &str,
        turn_id: &str,
        message: &Message,
    ) -> Result<bool, ManagerError> {
        self.ask(session, |done| ActorRequest::Reword {
            turn_id: turn_id.to_owned(),
            message: message.clone(),
            done,
        })
        .await?
    }

    /// A turn.
    ///
    /// # Errors
    /// [`ManagerError::NotFound`], and the store's.
    #[boxed]
    pub async fn run(&self, turn_id: &str) -> Result<Run, ManagerError> {
        let run = self.inner.store.run(turn_id).await?;
        Ok(self.inner.run_ends.applied_to(run))
    }

    /// The newest turns of a session.
    ///
    /// # Errors
    /// [`ManagerError::NotFound`], and the store's.
    #[boxed]
    pub async fn runs(&self, session: &str, limit: u64) -> Result<Vec<Run>, ManagerError> {
        let session = self.id_of(session).await?;
        let inner = &self.inner;
        let runs = inner.store.runs(RunFilter::Session(&session), None, limit);
        let runs = runs.await?.into_iter();
        Ok(runs.map(|run| inner.run_ends.applied_to(run)).collect())
    }

    /// The turns of a session, by its id, that run or wait, the oldest first.
    ///
    /// # Errors
    /// The store's.
    #[boxed]
    pub async fn open_runs(&self, session: &str) -> Result<Vec<Run>, ManagerError> {
        Ok(self.inner.open_runs(session).await?)
    }

    /// Whether a turn runs or waits in a thread, for whichever session.
    ///
    /// # Errors
    /// The store's.
    #[boxed]
    pub async fn runs_in(&self, thread: &ThreadId) -> Result<bool, ManagerError> {
        let inner = &self.inner;
        let mut runs = inner.store.open_runs_in(thread).await?.into_iter();
        Ok(runs.any(|run| !inner.run_ends.applied_to(run).state.is_over()))
    }

    /// Waits until a turn is over. One that ran here is over for whoever waits here also where the
    /// store cannot take that note yet.
    ///
    /// # Errors
    /// As [`Manager::run`].
    #[boxed]
    pub async fn wait(&self, turn_id: &str) -> Result<Run, ManagerError> {
        let mut changes = self.own_changes();
        let mut signals = None;
        loop {
            let run = self.run(turn_id).await?;
            if run.state.is_over() {
                return Ok(run);
            }
            let session = run.session_id.as_deref().unwrap_or_default();
            if !self.inner.states.is_known(session) {
                // Another process has it.
                if signals.is_none() {
                    signals = Some(self.inner.store.signals());
                    continue;
                }
                self.inner.adopt_awaited(&run).await;
            }
            tokio::select! {
                () = changes.of(session) => {}
                () = wait_for_signal(signals.as_mut(), &run.thread) => {}
                () = tokio::time::sleep(POLL_INTERVAL) => {}
            }
        }
    }

    /// Ends the turn that runs; what came so far is kept. With `drop_queued` the follow-ups that
    /// wait never begin. Where nothing runs, nothing happens.
    ///
    /// # Errors
    /// As [`Manager::cancel_turn`], of the follow-ups that wait.
    #[boxed]
    pub async fn cancel(&self, session: &str, drop_queued: bool) -> Result<(), ManagerError> {
        let what = CancelRequest {
            drop_queued,
            ..CancelRequest::default()
        };
        self.cancel_what(session, what).await
    }

    /// Ends a turn, whether it runs or waits for others; those go on. What came so far is kept.
    /// Where it is over, nothing happens.
    ///
    /// # Errors
    /// [`ManagerError::NotFound`], [`ManagerError::Conflict`] where it waits still and is on its way from
    /// one process to another, and the store's.
    #[boxed]
    pub async fn cancel_turn(&self, session: &str, turn_id: &str) -> Result<(), ManagerError> {
        let what = CancelRequest {
            turn: Some(turn_id.to_owned()),
            ..CancelRequest::default()
        };
        self.cancel_what(session, what).await
    }

    /// Takes a turn out of the queue that waits for others. Where it runs already or is over,
    /// nothing happens: [`Manager::run`] says which.
    ///
    /// # Errors
    /// As [`Manager::cancel_turn`].
    #[boxed]
    pub async fn cancel_queued(&self, session: &str, turn_id: &str) -> Result<(), ManagerError> {
        let what = CancelRequest {
            turn: Some(turn_id.to_owned()),
            only_queued: true,
            ..CancelRequest::default()
        };
        self.cancel_what(session, what).await
    }

    async fn cancel_what(&self, session: &str, what: CancelRequest) -> Result<(), ManagerError> {
        let session = self.id_of(session).await?;
        if let Some(turn) = &what.turn {
            let deadline = Instant::now() + self.inner.options.patience;
            return self.cancel_until(&session, turn, &what, deadline).await;
        }
        let waiting = match what.drop_queued {
            true => self.waiting_turns(&session).await?,
            false => Vec::new(),
        };
        let remote = || RemoteRequest::Cancel {
            session: session.clone(),
            what: what.clone(),
        };
        if self.at_owner::<()>(&session, remote).await?.is_none() {
            self.cancel_here(&session, what).await;
        }
        // Those that were on their way to another process. One that stays takes no other along.
        let deadline = Instant::now() + self.inner.options.patience;
        let mut cancelled = Ok(());
        for turn in waiting {
            let ended = self.cancel_waiting(&session, &turn, deadline).await;
            cancelled = cancelled.and(ended);
        }
        cancelled
    }

    async fn cancel_waiting(
        &self,
        session: &str,
        turn: &str,
        deadline: Instant,
    ) -> Result<(), ManagerError> {
        if self.cancel_orphan(session, turn).await? {
            return Ok(());
        }
        let only = CancelRequest {
            turn: Some(turn.to_owned()),
            ..CancelRequest::default()
        };
        self.cancel_until(session, turn, &only, deadline).await
    }

    /// Cancels one turn where it runs or waits. A process that lets go of it before it is asked has
    /// nothing to cancel and says the same as one that cancelled it, so it is looked whether it waits
    /// still.
    async fn cancel_until(
        &self,
        session: &str,
        turn: &str,
        what: &CancelRequest,
        deadline: Instant,
    ) -> Result<(), ManagerError> {
        let remote = || RemoteRequest::Cancel {
            session: session.to_owned(),
            what: what.clone(),
        };
        loop {
            let owner = self.find_run(turn).await?.map(|run| run.owner);
            if self.at_owner_of_turn::<()>(turn, remote).await?.is_none() {
                self.cancel_here(session, what.clone()).await;
            }
            if self.cancel_orphan(session, turn).await? {
                return Ok(());
            }
            // One that is about to run is only cancelled where that is wanted, too.
            if what.only_queued && !self.turn_has_moved(turn, owner.as_deref()).await? {
                return Ok(());
            }
            if Instant::now() >= deadline {
                return Err(not_cancelled_error());
            }
            tokio::time::sleep(MOVE_RETRY_DELAY).await;
        }
    }

    /// The turns of a session that wait, wherever they do.
    async fn waiting_turns(&self, session: &str) -> Result<Vec<String>, ManagerError> {
        let mut open = self.open_runs(session).await?;
        open.retain(|run| run.state == RunState::Queued);
        Ok(open.into_iter().map(|run| run.id).collect())
    }

    pub(super) async fn cancel_here(&self, session: &str, what: CancelRequest) {
        let drop_queued = what.drop_queued;
        let ask = |done| ActorRequest::Cancel {
            what: what.clone(),
            done,
        };
        if drop_queued && !self.inner.closing.is_cancelled() {
            // Also what waited in a process that is gone.
            let _ = self.ask(session, ask).await;
        } else {
            let _ = self.ask_running(session, ask).await;
        }
    }
}

/// Why what is said in a turn cannot be said otherwise.
fn not_queued_error() -> ManagerError {
    ManagerError::Conflict {
        message: "this turn waits no more: it has begun or is over, and what is said in it stays; \
                  say it in a turn of its own"
            .to_owned(),
    }
}

/// Why something else could not be said in a turn that waits.
fn moving_error() -> ManagerError {
    ManagerError::Conflict {
        message:
            "nothing else was said in this turn: it waits, and is on its way from one process \
                  to another; try again"
                .to_owned(),
    }
}

/// Why a turn waits still that was to be cancelled.
fn not_cancelled_error() -> ManagerError {
    ManagerError::Conflict {
        message: "this turn was not cancelled: it waits, and is on its way from one process to \
                  another; try again"
            .to_owned(),
    }
}

/// Waits for word of a thread that another process writes.
pub(super) async fn wait_for_signal(signals: Option<&mut StoreSignals>, thread: &ThreadId) {
    let Some(signals) = signals else {
        return std::future::pending().await;
    };
    loop {
        match signals.next().await {
            StoreSignal::Anywhere => return,
            StoreSignal::Thread(written) if written == *thread => return,
            StoreSignal::Thread(_) | StoreSignal::Requests | StoreSignal::Sessions => {}
        }
    }
}

/// How a run ended.
pub(super) fn run_end(
    answer: &Result<crate::session::TurnSummary, crate::session::ChatError>,
) -> (RunState, Option<String>) {
    use conjure_core::log::TurnOutcome;

    use crate::session::ChatError;
    match answer {
        Ok(answer) if answer.outcome == TurnOutcome::CutShort => (RunState::CutShort, None),
        Ok(_) => (RunState::Completed, None),
        Err(ChatError::Cancelled) => (RunState::Cancelled, None),
        Err(error @ ChatError::Limit { .. }) => (RunState::Limit, Some(error.to_string())),
        Err(error @ ChatError::Provider { .. }) => (RunState::Failed, Some(error.to_string())),
        Err(error @ ChatError::Ended { .. }) => (RunState::Interrupted, Some(error.to_string())),
    }
}
