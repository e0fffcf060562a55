//! The turn that runs, and who waits for the answers of turns.

use std::collections::HashMap;
use std::sync::Arc;

use conjure_core::chat::Usage;
use conjure_core::log::{Entry, EntryBody, TurnOutcome};
use conjure_core::turn::TurnInput;
use tokio::sync::oneshot;
use tracing::Span;

use super::error::ChatError;
use super::output_form::OutputForm;
use super::turn_summary::TurnSummary;
use crate::spans;
use conjure_store::ThreadId;

/// The result of a turn, for whoever waits for it.
pub(crate) type TurnResult = Result<TurnSummary, ChatError>;

/// Channel to whoever waits for the result of a turn.
pub(crate) type AnswerTo = oneshot::Sender<TurnResult>;

/// The turns that were begun or wait to be.
pub(super) struct Turns {
    /// Channels to those who wait, by the turn's id.
    waiting: HashMap<String, AnswerTo>,
    /// The newest turn.
    newest: Option<Arc<str>>,
    /// Span of the newest turn, while it runs.
    span: Span,
    /// The form that answers must have from the next turn on.
    next_form: Option<Arc<OutputForm>>,
    /// The form that answers of the newest turn must have.
    form: Option<Arc<OutputForm>>,
}

impl Default for Turns {
    fn default() -> Self {
        Self {
            waiting: HashMap::new(),
            newest: None,
            span: Span::none(),
            next_form: None,
            form: None,
        }
    }
}

impl Turns {
    /// Somebody waits for a turn's answer.
    pub(super) fn wait(&mut self, turn_id: String, answer: AnswerTo) {
        self.waiting.insert(turn_id, answer);
    }

    /// Answers have this form from the next turn on.
    pub(super) fn set_form(&mut self, form: Option<Arc<OutputForm>>) {
        self.next_form = form;
    }

    /// The form that answers of the turn that runs must have.
    pub(super) fn form(&self) -> Option<&OutputForm> {
        self.form.as_deref()
    }

    /// Takes the answer of a whole reply out of the wrapper that its form asked for.
    pub(super) fn unwrap_answer(&self, input: &mut TurnInput) {
        if let (TurnInput::ModelDone { response, .. }, Some(form)) = (input, &self.form) {
            form.unwrap_answer(response);
        }
    }

    /// A turn begins.
    pub(super) fn begin(&mut self, thread: &ThreadId, turn_id: &str) {
        self.newest = Some(Arc::from(turn_id));
        self.form.clone_from(&self.next_form);
        self.span = spans::turn(thread.as_str(), turn_id);
    }

    /// Ends the span of the running turn.
    pub(super) fn end(&mut self, outcome: &TurnOutcome, usage: &Usage) {
        spans::record_turn_end(&self.span, outcome, usage);
        self.span = Span::none();
    }

    /// The turn that runs, or the last that did.
    pub(super) fn running(&self) -> Option<&Arc<str>> {
        self.newest.as_ref()
    }

    /// The span that what happens in the running turn is part of.
    pub(super) fn span(&self) -> &Span {
        &self.span
    }

    /// Takes the channel to whoever waits for a turn that never begins.
    pub(super) fn take_dropped(&mut self, turn_id: &str) -> Option<(AnswerTo, TurnResult)> {
        let answer_to = self.waiting.remove(turn_id)?;
        Some((answer_to, Err(ChatError::Cancelled)))
    }

    /// Takes the channel to whoever waits for a turn that is over, and what the turn came to.
    pub(super) fn take_finished(
        &mut self,
        turn_id: &str,
        entries: &[Entry],
    ) -> Option<(AnswerTo, TurnResult)> {
        let answer_to = self.waiting.remove(turn_id)?;
        Some((answer_to, turn_result(turn_id, entries)?))
    }

    /// Tells all who still wait that the session ended.
    pub(super) fn give_up(&mut self, reason: Option<&str>) {
        for (_, answer_to) in self.waiting.drain() {
            let reason = reason.map(str::to_owned);
            let _ = answer_to.send(Err(ChatError::Ended { reason }));
        }
    }

    /// Gives room back.
    pub(super) fn shrink_to_fit(&mut self) {
        self.waiting.shrink_to_fit();
    }
}

/// What the log says that a turn came to.
fn turn_result(turn_id: &str, entries: &[Entry]) -> Option<TurnResult> {
    let (turn, outcome, usage, stop_reason) =
        entries.iter().rev().find_map(|entry| match &entry.body {
            EntryBody::TurnEnded {
                turn_id: id,
                outcome,
                usage,
                stop_reason,
            } if id == turn_id => Some((entry.turn, outcome.clone(), *usage, stop_reason.clone())),
            _ => None,
        })?;
    let of_turn = entries.iter().rev().take_while(|entry| entry.turn == turn);
    let text = of_turn
        .filter_map(|entry| match &entry.body {
            EntryBody::Message { message } if message.meta.is_some() => Some(message.text()),
            _ => None,
        })
        .find(|text| !text.is_empty());
    Some(match outcome {
        TurnOutcome::Completed | TurnOutcome::CutShort => Ok(TurnSummary {
            turn_id: turn_id.to_owned(),
            text: text.unwrap_or_default(),
            outcome,
            usage,
            stop_reason,
        }),
        TurnOutcome::Cancelled => Err(ChatError::Cancelled),
        TurnOutcome::Limit { limit, value } => Err(ChatError::Limit { limit, value }),
        TurnOutcome::Failed { error, kind } => Err(ChatError::Provider { error, kind }),
        TurnOutcome::Interrupted => Err(ChatError::Ended { reason: None }),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_form_that_is_set_while_a_turn_runs_is_that_of_the_next_one() {
        let thread = ThreadId::fresh();
        let form = OutputForm::read(&json!({ "type": "array" })).unwrap();
        let mut turns = Turns::default();
        turns.begin(&thread, "t1");
        turns.set_form(Some(Arc::new(form)));
        assert!(turns.form().is_none());
        turns.begin(&thread, "t2");
        assert!(turns.form().is_some());
        turns.set_form(None);
        assert!(turns.form().is_some());
        turns.begin(&thread, "t3");
        assert!(turns.form().is_none());
    }
}
