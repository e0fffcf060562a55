//! A turn of a chat while it runs, in a session of its own or in a saved one: its events, and how it
//! ended.

use conjure_core::chat::Event;
use conjure_core::log::TurnOutcome;
use conjure_runtime::session::{ChatError, TurnSummary};
use conjure_store::{Run, RunState, ThreadId};
use tokio::task::JoinHandle;

use super::answer_end::{CUT_SHORT, cut_short};
use super::attachments::AttachedMessage;
use super::chat_following::{OthersUpdate, next_others_update};
use super::chat_session::{ChatSession, OwnChat, SavedChat};
use super::error::CliError;
use super::exit::Exit;
use super::sessions::StartedTurn;
use super::thread_feed::{FollowPause, Following, ThreadFeed, concerns_person};

/// What happens next in a turn.
pub(crate) enum ChatTurnEvent {
    Event(Box<Event>),
    /// What others do in a saved session.
    Others(OthersUpdate),
    /// The turn is over; an error that no event told.
    Over(Result<(), CliError>),
}

/// The turn that runs, if one does.
pub(crate) enum ChatTurn {
    None,
    Own(OwnTurn),
    Saved(Box<SavedTurn>),
}

/// A turn of a session of the chat's own.
pub(crate) struct OwnTurn {
    answer: JoinHandle<Result<TurnSummary, ChatError>>,
    /// The error that an event told last.
    last_error: Option<String>,
}

/// A turn of a saved session.
pub(crate) struct SavedTurn {
    turn: StartedTurn,
    completion: JoinHandle<Result<Run, CliError>>,
    /// Whether it began in another thread than the person sees, and that is still to be told.
    has_moved: bool,
    /// Whether an event of it came.
    has_begun: bool,
    /// Whether its last event came.
    has_ended: bool,
    /// What its last event says of an answer that was cut short.
    cut_short: Option<String>,
    /// The error that an event told last.
    last_error: Option<String>,
}

impl ChatTurn {
    /// Says something.
    pub(crate) async fn begin(
        chat: &mut ChatSession,
        said: AttachedMessage,
    ) -> Result<Self, CliError> {
        match chat {
            ChatSession::Own(own) => {
                let session = std::sync::Arc::clone(&own.session);
                let answer = tokio::spawn(async move { session.say(said.message()).await });
                Ok(Self::Own(OwnTurn {
                    answer,
                    last_error: None,
                }))
            }
            ChatSession::Saved(saved) => {
                let turn = SavedTurn::begin(saved, &said).await?;
                Ok(Self::Saved(Box::new(turn)))
            }
        }
    }

    /// Whether one runs.
    pub(crate) fn runs(&self) -> bool {
        !matches!(self, Self::None)
    }

    /// The id of one in a saved session: its thread may be shown while it runs.
    pub(crate) fn id(&self) -> Option<&str> {
        match self {
            Self::Saved(running) => Some(&running.turn.id),
            Self::None | Self::Own(_) => None,
        }
    }

    /// Ends it; what came so far is kept.
    pub(crate) async fn stop(&self, chat: &ChatSession) -> Result<(), CliError> {
        match (self, chat) {
            (Self::Saved(running), ChatSession::Saved(saved)) => {
                let turn = &running.turn.id;
                saved.sessions.cancel_turn(&saved.id, turn).await
            }
            (_, ChatSession::Own(own)) => {
                own.session.cancel(true).await;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// What happens next: in the turn, or between turns in a session of the chat's own, or in turns
    /// that others begin in a saved one. May be dropped and called again.
    pub(crate) async fn next(&mut self, chat: &mut ChatSession) -> ChatTurnEvent {
        let step = match (&mut *self, chat) {
            (Self::Own(turn), ChatSession::Own(own)) => turn.step(own).await,
            (Self::Saved(turn), ChatSession::Saved(saved)) => turn.next(saved).await,
            (_, ChatSession::Own(own)) => {
                let event = own.events.next().await;
                ChatTurnEvent::Event(Box::new(event.event.clone()))
            }
            (_, ChatSession::Saved(saved)) => {
                ChatTurnEvent::Others(next_others_update(saved).await)
            }
        };
        if matches!(step, ChatTurnEvent::Over(_)) {
            *self = Self::None;
        }
        step
    }
}

impl OwnTurn {
    async fn step(&mut self, own: &mut OwnChat) -> ChatTurnEvent {
        tokio::select! {
            biased;
            event = own.events.next() => {
                if let Event::Error(error) = &event.event {
                    self.last_error = Some(error.error.clone());
                }
                ChatTurnEvent::Event(Box::new(event.event.clone()))
            }
            // Its events have all come when it is the turn's turn here.
            done = &mut self.answer => ChatTurnEvent::Over(match done {
                Ok(Ok(answer)) if answer.outcome == TurnOutcome::CutShort => {
                    let why = cut_short(answer.stop_reason.as_deref(), &answer.text);
                    Err(CliError::new(Exit::Limit, why))
                }
                Ok(Ok(_) | Err(ChatError::Cancelled)) => Ok(()),
                // A limit's event and its error say the same in other words.
                Ok(Err(ChatError::Limit { .. })) if self.last_error.is_some() => Ok(()),
                Ok(Err(error)) if self.last_error == Some(error.to_string()) => Ok(()),
                Ok(Err(error)) => Err(error.into()),
                Err(error) => Err(CliError::host_from(error)),
            }),
        }
    }
}

impl SavedTurn {
    async fn begin(saved: &mut SavedChat, said: &AttachedMessage) -> Result<Self, CliError> {
        let sessions = &saved.sessions;
        let turn = sessions.say(&saved.id, said, &saved.terms).await?;
        let has_moved = saved.shows_another(&turn.thread);
        if has_moved {
            saved.shown_thread = None;
        }
        if saved.following.of(&turn.thread).is_none() {
            let feed = ThreadFeed::from_turn(sessions, &turn.thread).await?;
            saved.following = Following::Yes(Box::new(feed));
        }
        let (sessions, id) = (sessions.clone(), turn.id.clone());
        let over = tokio::spawn(async move { sessions.wait(&id).await });
        Ok(Self {
            turn,
            completion: over,
            has_moved,
            has_begun: false,
            has_ended: false,
            cut_short: None,
            last_error: None,
        })
    }

    async fn next(&mut self, saved: &mut SavedChat) -> ChatTurnEvent {
        if std::mem::take(&mut self.has_moved) {
            return ChatTurnEvent::Others(OthersUpdate::Moved);
        }
        self.step(saved).await
    }

    async fn step(&mut self, saved: &mut SavedChat) -> ChatTurnEvent {
        loop {
            if self.has_ended {
                let run = (&mut self.completion).await;
                return ChatTurnEvent::Over(self.turn_result(run));
            }
            let event = tokio::select! {
                biased;
                event = next_of(&mut saved.following, &self.turn.thread) => event,
                // A turn that was dropped while it waited for others tells nothing of itself.
                run = &mut self.completion, if !self.has_begun => {
                    let never_began = matches!(&run, Ok(Ok(run)) if run.started_at_ms.is_none());
                    if never_began || !matches!(run, Ok(Ok(_))) {
                        return ChatTurnEvent::Over(self.turn_result(run));
                    }
                    let (manager, id) = (saved.sessions.manager().clone(), self.turn.id.clone());
                    self.completion = tokio::spawn(async move { Ok(manager.wait(&id).await?) });
                    self.has_begun = true;
                    continue;
                }
            };
            let event = match event {
                Ok(Some(event)) => event,
                Ok(None) => {
                    self.has_ended = true;
                    continue;
                }
                Err(error) => {
                    let failures = saved.following.failures() + 1;
                    saved.following = Following::Paused(FollowPause::after(failures));
                    return ChatTurnEvent::Over(Err(error));
                }
            };
            self.has_begun |=
                matches!(&event, Event::TurnStarted { turn_id } if *turn_id == self.turn.id);
            if !self.has_begun {
                if concerns_person(&event) {
                    // What the turn before it waits for holds it up too.
                    return ChatTurnEvent::Others(OthersUpdate::Event(Box::new(event)));
                }
                continue;
            }
            match &event {
                Event::Error(error) => self.last_error = Some(error.error.clone()),
                Event::Done {
                    turn_id,
                    stop_reason,
                    text,
                    ..
                } if *turn_id == self.turn.id => {
                    self.has_ended = true;
                    self.cut_short = Some(cut_short(stop_reason.as_deref(), text));
                }
                _ => {}
            }
            return ChatTurnEvent::Event(Box::new(event));
        }
    }

    /// Result of the turn, as far as no event told it.
    fn turn_result(
        &self,
        run: Result<Result<Run, CliError>, tokio::task::JoinError>,
    ) -> Result<(), CliError> {
        let run = run.map_err(CliError::host_from)??;
        match (&run.error, run.state) {
            (_, RunState::Completed | RunState::Cancelled) => Ok(()),
            (Some(error), _) if self.last_error.as_ref() == Some(error) => Ok(()),
            (Some(error), _) => Err(CliError::new(Exit::Host, error.clone())),
            (None, RunState::CutShort) => {
                let why = self.cut_short.clone();
                let why = why.unwrap_or_else(|| CUT_SHORT.to_owned());
                Err(CliError::new(Exit::Limit, why))
            }
            (None, state) => {
                let state = state.as_str().replace('_', " ");
                Err(CliError::new(Exit::Host, format!("the turn was {state}")))
            }
        }
    }
}

/// The next event of a thread that is followed; nothing where none comes any more.
async fn next_of(following: &mut Following, thread: &ThreadId) -> Result<Option<Event>, CliError> {
    match following.of(thread) {
        Some(feed) => feed.next().await,
        None => Ok(None),
    }
}
