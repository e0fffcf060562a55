//! The turn that runs in a session.

use std::collections::BTreeSet;

use conjure_core::chat::Event;
use tokio::task::JoinHandle;

use crate::session::{Answer, ChatError};
use crate::store::{Spent, ThreadId};

/// The turn that runs.
pub(super) struct Running {
    pub(super) turn_id: String,
    pub(super) thread: ThreadId,
    pub(super) answer: JoinHandle<Result<Answer, ChatError>>,
    pub(super) spent: Spent,
    /// Calls and questions that wait for a person.
    pub(super) asked: BTreeSet<String>,
    /// Whether the model goes on with other settings when it is over.
    pub(super) goes_on: bool,
}

impl Running {
    /// Takes in what the session shows of it. Whether others wait for a person now.
    pub(super) fn see(&mut self, event: &Event) -> bool {
        match event {
            Event::Approval { call, .. } => self.asked.insert(call.id.clone()),
            Event::Question(question) => self.asked.insert(question.id.clone()),
            Event::QuestionOver { id, .. } => self.asked.remove(id),
            Event::CallStarted { call_id, .. } => {
                self.spent.calls += 1;
                self.asked.remove(call_id)
            }
            Event::FunctionCallOutput(output) => self.asked.remove(&output.call_id),
            Event::Usage(usage) => {
                self.spent.usage = usage.usage;
                false
            }
            Event::Cost { turn, .. } => {
                self.spent.usage = turn.cost.usage;
                let is_priced = turn.cost.unpriced_tokens == 0;
                self.spent.usd = (is_priced || turn.cost.usd > 0.0).then_some(turn.cost.usd);
                false
            }
            _ => false,
        }
    }
}

/// Its answer, when it is over; never where none runs.
pub(super) async fn answered(running: &mut Option<Running>) -> Result<Answer, ChatError> {
    match running {
        Some(running) => match (&mut running.answer).await {
            Ok(answer) => answer,
            Err(error) => Err(ChatError::Ended {
                reason: Some(error.to_string()),
            }),
        },
        None => std::future::pending().await,
    }
}
