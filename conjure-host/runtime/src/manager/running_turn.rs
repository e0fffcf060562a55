//! The turn that runs in a session.

use std::collections::BTreeSet;

use conjure_core::chat::{Cost, Event};
use tokio::sync::oneshot;

use super::attendance::Presence;
use super::requests::TurnOrigin;
use super::terms::TurnTerms;
use super::turn_queue::QueuedTurn;
use crate::session::{ChatError, TurnResult};
use conjure_store::{RunUsage, ThreadId};

/// The turn that a session runs now.
pub(super) struct RunningTurn {
    pub(super) turn_id: String,
    pub(super) thread: ThreadId,
    /// Opening of the thread in which the turn runs.
    pub(super) epoch: u64,
    pub(super) answer: oneshot::Receiver<TurnResult>,
    pub(super) spent: RunUsage,
    /// Calls and questions that wait for a person.
    pub(super) waiting_ids: BTreeSet<String>,
    /// Whether the model goes on with other settings when it is over.
    pub(super) continues: bool,
    /// What holds for it.
    pub(super) terms: Box<TurnTerms>,
    /// Process whose client asked for the turn.
    origin: TurnOrigin,
    /// Tells of clients that come and leave, where whoever said it cannot be asked.
    presence: Option<Presence>,
}

impl RunningTurn {
    /// A turn that has just begun, on a thread as it was opened.
    pub(super) fn new(
        turn_id: String,
        (thread, epoch): (ThreadId, u64),
        (terms, origin): (Box<TurnTerms>, TurnOrigin),
        answer: oneshot::Receiver<TurnResult>,
        presence: Option<Presence>,
    ) -> Self {
        Self {
            turn_id,
            thread,
            epoch,
            answer,
            spent: RunUsage::default(),
            waiting_ids: BTreeSet::new(),
            continues: false,
            terms,
            origin,
            presence,
        }
    }

    /// Takes in what the session shows of it. Whether others wait for a person now.
    pub(super) fn handle_event(&mut self, event: &Event) -> bool {
        match event {
            Event::Approval { call, .. } => self.waiting_ids.insert(call.id.clone()),
            Event::Question(question) => self.waiting_ids.insert(question.id.clone()),
            Event::ApprovalOver { call_id, .. } => self.waiting_ids.remove(call_id),
            Event::QuestionOver { id, .. } => self.waiting_ids.remove(id),
            Event::CallStarted { call_id, .. } => {
                self.spent.calls += 1;
                self.waiting_ids.remove(call_id)
            }
            Event::FunctionCallOutput(output) => self.waiting_ids.remove(&output.call_id),
            Event::Usage(usage) => {
                self.spent.usage = usage.usage;
                false
            }
            Event::Cost { turn, .. } => {
                self.spent.usage = turn.cost.usage;
                self.spent.usd = usd(&turn.cost);
                false
            }
            _ => false,
        }
    }
}

/// A turn that runs no more, and whose end is not noted yet.
pub(super) struct FinishedTurn {
    pub(super) turn: RunningTurn,
    pub(super) answer: TurnResult,
}

impl FinishedTurn {
    /// The turn that goes on from here with other settings, for whoever asked for this one. It has to
    /// wait in the store before the end of this one is noted: a session without a turn may be taken by
    /// another process.
    pub(super) fn continuation(&self) -> Option<QueuedTurn> {
        // One that had its answer before it was stopped is over.
        let is_stopped = matches!(self.answer, Err(ChatError::Cancelled));
        (self.turn.continues && is_stopped).then(|| QueuedTurn {
            turn_id: uuid::Uuid::now_v7().to_string(),
            thread: self.turn.thread.clone(),
            message: None,
            terms: self.turn.terms.clone(),
            origin: self.turn.origin,
        })
    }
}

/// The money of a turn; nothing where no price of it is known.
pub(super) fn usd(cost: &Cost) -> Option<f64> {
    (cost.unpriced_tokens == 0 || cost.usd > 0.0).then_some(cost.usd)
}

/// What comes of a turn that runs.
pub(super) enum RunningTurnEvent {
    /// The turn is over.
    Over(TurnResult),
    /// Somebody came who can decide, or nobody is there any more.
    PresenceChanged(bool),
}

/// The next event of the turn that runs; never one where none does.
pub(super) async fn next_turn_event(running: &mut Option<RunningTurn>) -> RunningTurnEvent {
    let Some(running) = running else {
        return std::future::pending().await;
    };
    tokio::select! {
        biased;
        answer = answer(&mut running.answer) => RunningTurnEvent::Over(answer),
        is_there = next_presence(&mut running.presence) => RunningTurnEvent::PresenceChanged(is_there),
    }
}

/// What a turn came to; where nobody says it any more, that its session ended.
pub(super) async fn answer(answer: &mut oneshot::Receiver<TurnResult>) -> TurnResult {
    let ended = Err(ChatError::Ended { reason: None });
    answer.await.unwrap_or(ended)
}

async fn next_presence(presence: &mut Option<Presence>) -> bool {
    match presence {
        Some(presence) => presence.changed().await,
        None => std::future::pending().await,
    }
}
