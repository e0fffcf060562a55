//! An answer that must have a form, such as one JSON value that fits a schema: where it has not, the
//! model is told what is wrong and asked again, a few times.

use super::{Judge, Machine, ModelFailure};
use crate::chat::{ErrorEvent, Event, Message};
use crate::context::notes;
use crate::log::{EntryBody, TurnOutcome};

/// How often a model is asked again in a turn.
const MAX_REPAIRS: u32 = 2;
/// The kind of failure of a turn whose answers never had their form.
pub(crate) const UNFIT_ANSWER: &str = "unfit_answer";

impl Machine {
    /// The model has said all, and calls nothing more.
    pub(super) fn finish_answer(&mut self, answer: &str, judge: &dyn Judge) {
        let Some(wrong) = judge.check_answer(answer) else {
            self.finish(TurnOutcome::Completed);
            return;
        };
        let Some(turn) = &mut self.turn else { return };
        turn.unfit_answers += 1;
        if turn.unfit_answers > MAX_REPAIRS {
            let failure = unfit_failure(&wrong);
            self.publish(Event::Error(ErrorEvent {
                error: failure.error.clone(),
                kind: failure.kind.clone(),
            }));
            self.finish(TurnOutcome::Failed {
                error: failure.error,
                kind: failure.kind,
            });
        } else if let Some(outcome) = self.exceeded_limit(0) {
            self.finish(outcome);
        } else {
            self.publish(Event::Notice {
                text: format!(
                    "The answer does not fit the schema: {wrong}. The model is asked again."
                ),
            });
            let message = Message::user(notes::answer_does_not_fit(&wrong));
            self.write(EntryBody::Message { message });
            self.continue_turn();
        }
    }
}

fn unfit_failure(wrong: &str) -> ModelFailure {
    let asked = MAX_REPAIRS + 1;
    ModelFailure {
        error: format!(
            "The model answered {asked} times with something that does not fit the schema: {wrong}. \
             Try another model, or a simpler schema."
        ),
        kind: UNFIT_ANSWER.to_owned(),
    }
}
