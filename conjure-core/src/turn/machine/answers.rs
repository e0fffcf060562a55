//! An answer that must have a form, such as one JSON value that fits a schema: where it has not, the
//! model is told what is wrong and asked again, a few times.

use super::{Judge, Machine, ModelFailure};
use crate::chat::{ErrorEvent, Event, Message};
use crate::context::notes;
use crate::log::{EntryBody, TurnOutcome};

/// How often a model is asked again in a turn.
const MOST_REPAIRS: u32 = 2;
/// The kind of failure of a turn whose answers never had their form.
pub(crate) const UNFIT_ANSWER: &str = "unfit_answer";

impl Machine {
    /// The model has said all, and calls nothing more.
    pub(super) fn answered(&mut self, answer: &str, judge: &dyn Judge) {
        let Some(wrong) = judge.unfit(answer) else {
            self.finish(TurnOutcome::Completed);
            return;
        };
        let Some(turn) = &mut self.turn else { return };
        turn.unfit += 1;
        if turn.unfit > MOST_REPAIRS {
            let failure = never_fits(&wrong);
            self.tell(Event::Error(ErrorEvent {
                error: failure.error.clone(),
                kind: failure.kind.clone(),
            }));
            self.finish(TurnOutcome::Failed {
                error: failure.error,
                kind: failure.kind,
            });
        } else if let Some(outcome) = self.spent(0) {
            self.finish(outcome);
        } else {
            self.tell(Event::Notice {
                text: format!(
                    "The answer does not fit the schema: {wrong}. The model is asked again."
                ),
            });
            let message = Message::user(notes::answer_does_not_fit(&wrong));
            self.write(EntryBody::Message { message });
            self.go_on();
        }
    }
}

fn never_fits(wrong: &str) -> ModelFailure {
    let asked = MOST_REPAIRS + 1;
    ModelFailure {
        error: format!(
            "The model answered {asked} times with something that does not fit the schema: {wrong}. \
             Try another model, or a simpler schema."
        ),
        kind: UNFIT_ANSWER.to_owned(),
    }
}
