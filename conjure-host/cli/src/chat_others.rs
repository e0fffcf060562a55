//! Turns of the session that somebody else began. What waits for the person in them is shown in the chat and
//! answered there, as what waits in the chat's own turns; what was said in one is shown when it is over.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use conjure_core::chat::Event;
use conjure_terminal::{OthersPrompt, PastItem, Update};
use tokio::sync::mpsc;
use tokio::time::{Interval, MissedTickBehavior};

use super::chat_commands;
use super::chat_face::FacedChat;
use super::chat_following::OthersUpdate;
use super::chat_session::{ChatSession, SavedChat};
use super::error::CliError;
use super::open_prompts::{OpenPrompts, settled_id};
use super::output::{DIM, RESET, print_note};
use super::overwritten;
use super::past_turns;
use super::signals::{Signal, Signals};

/// How often it is looked what of others still waits.
const POLL_INTERVAL: Duration = Duration::from_secs(5);

impl FacedChat<'_> {
    /// Shows what others do in the session.
    pub(crate) async fn show_others_update(&mut self, news: OthersUpdate) {
        match news {
            OthersUpdate::Event(event) => self.apply_others_event(*event).await,
            OthersUpdate::Moved => {
                let words = "Somebody else took the session to another thread.";
                print_note(format_args!("{DIM}{words} The chat goes on there.{RESET}"));
                if let Err(error) = self.show_current_thread().await {
                    chat_commands::report_error(&error);
                }
            }
            OthersUpdate::Unfollowed(error) => {
                let context =
                    "what others begin in the session is not seen for now, and is tried again";
                chat_commands::report_error(&error.context(context));
                self.withdraw_others().await;
            }
        }
    }

    /// Takes in what an event of somebody else's turn says of what waits in it, and of its end.
    async fn apply_others_event(&mut self, event: Event) {
        if let Event::Done { turn_id, .. } = &event {
            self.withdraw_others().await;
            self.show_others_turn(turn_id).await;
        } else if let Some(id) = settled_id(&event) {
            self.withdraw(id).await;
        }
        self.open_prompts.record(event);
    }

    /// Shows what was said in a turn of somebody else's that is over, and what the conversation came to
    /// with it. One that is shown already may be told of again, and one that cannot be read is left out.
    async fn show_others_turn(&mut self, turn_id: &str) {
        let Some(said) = self.take_unshown_items(turn_id).await else {
            return;
        };
        if said.is_empty() {
            return;
        }
        let words = "In a turn that somebody else began:".to_owned();
        let mut items = vec![PastItem::Note(words)];
        items.extend(said);
        self.was_used = true;
        self.send_update(Update::OthersItems(items)).await;
        if self.update_totals().await.is_ok() {
            self.send_update(Update::Status(self.status.clone())).await;
        }
    }

    /// What was said in a turn of a saved session that is over and was not shown yet; it counts as shown
    /// from here on.
    async fn take_unshown_items(&mut self, turn_id: &str) -> Option<Vec<PastItem>> {
        let ChatSession::Saved(saved) = &mut self.chat else {
            return None;
        };
        let thread = saved.shown_thread.clone()?;
        let store = saved.sessions.manager().store();
        let turn = past_turns::turn(store, &thread, turn_id).await.ok()??;
        let is_new = turn.number > saved.shown_turn;
        saved.shown_turn = saved.shown_turn.max(turn.number);
        is_new.then_some(turn.items)
    }

    /// The chat's own turn is over, and is shown.
    pub(crate) async fn mark_shown(&mut self, turn_id: &str) {
        // What was said in it is known.
        let _ = self.take_unshown_items(turn_id).await;
    }

    /// Shows what others asked, as far as it still waits.
    pub(crate) async fn show_open_prompts(&mut self) {
        let noted = std::mem::take(&mut self.open_prompts);
        let ChatSession::Saved(saved) = &self.chat else {
            return;
        };
        for event in noted.still_waiting(&saved.sessions, &saved.id).await {
            if let Some((id, prompt)) = prompt_of(saved, event).await {
                self.shown_prompts.insert(id, prompt.clone());
                self.send_update(Update::Others(prompt)).await;
            }
        }
    }

    /// Looks what of others still waits: no event tells of what waited in a process that is gone.
    pub(crate) async fn refresh_others(&mut self) {
        let ChatSession::Saved(saved) = &self.chat else {
            return;
        };
        let Ok(waiting) = pending_prompt_ids(saved).await else {
            // The next look may say more.
            return;
        };
        for id in withdrawn_ids(&self.shown_prompts, &waiting) {
            self.withdraw(&id).await;
        }
    }

    /// Nothing of others waits any more, as far as the chat shows it.
    pub(crate) async fn withdraw_others(&mut self) {
        self.open_prompts = OpenPrompts::default();
        for (id, _) in std::mem::take(&mut self.shown_prompts) {
            self.send_update(Update::Others(OthersPrompt::Settled { id }))
                .await;
        }
    }

    /// Something of others does not wait any more; whether it did.
    pub(crate) async fn withdraw(&mut self, id: &str) -> bool {
        let is_of_others = self.shown_prompts.remove(id).is_some();
        if is_of_others {
            let id = id.to_owned();
            self.send_update(Update::Others(OthersPrompt::Settled { id }))
                .await;
        }
        is_of_others
    }

    /// Tells again what still waits: an answer was not heard where a command had the chat, or could not
    /// be sent.
    pub(crate) async fn repeat_others_prompts(&self) {
        for prompt in self.shown_prompts.values() {
            self.send_update(Update::Others(prompt.clone())).await;
        }
    }
}

/// The looks at what of others still waits, none sooner than it is due.
pub(crate) fn poll_interval() -> Interval {
    let mut look = tokio::time::interval(POLL_INTERVAL);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    look
}

/// Waits for something that a server may take its time for, unless the chat is left meanwhile: the
/// signal that ended it. A face that is gone is told by what it was told with.
pub(crate) async fn unless_interrupted(
    work: impl Future<Output = ()>,
    updates: &mpsc::Sender<Update>,
    signals: &mut Signals,
) -> Option<Signal> {
    tokio::select! {
        biased;
        signal = signals.next() => Some(signal),
        () = updates.closed() => None,
        () = work => None,
    }
}

/// The ids of the calls and the questions of a session that wait for a person.
async fn pending_prompt_ids(saved: &SavedChat) -> Result<BTreeSet<String>, CliError> {
    let calls = saved.sessions.approvals(&saved.id).await?;
    let questions = saved.sessions.questions(&saved.id).await?;
    let calls = calls.into_iter().map(|waiting| waiting.call.id);
    let questions = questions.into_iter().map(|waiting| waiting.question.id);
    Ok(calls.chain(questions).collect())
}

/// The ids of what is shown and does not wait any more.
fn withdrawn_ids(
    shown: &BTreeMap<String, OthersPrompt>,
    waiting: &BTreeSet<String>,
) -> Vec<String> {
    let gone = shown.keys().filter(|id| !waiting.contains(*id));
    gone.cloned().collect()
}

/// What an event asks of the person, with its id; nothing where it asks nothing.
async fn prompt_of(saved: &SavedChat, event: Event) -> Option<(String, OthersPrompt)> {
    match event {
        Event::Approval { call, reason } => {
            let manager = saved.sessions.manager();
            let overwritten = overwritten::text_in_saved_session(manager, &saved.id, &call).await;
            let id = call.id.clone();
            let prompt = OthersPrompt::Approval {
                call,
                reason,
                overwritten,
            };
            Some((id, prompt))
        }
        Event::Question(asked) => Some((asked.id.clone(), OthersPrompt::Question(asked))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use conjure_core::chat::CallAnnounced;
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_shown_and_waits_no_more_is_gone() {
        let prompt = |id: &str| OthersPrompt::Approval {
            call: CallAnnounced {
                id: id.to_owned(),
                name: "sh".to_owned(),
                arguments: json!({}),
            },
            reason: String::new(),
            overwritten: None,
        };
        let shown = BTreeMap::from(["a", "b"].map(|id| (id.to_owned(), prompt(id))));
        let waiting = BTreeSet::from(["b", "c"].map(str::to_owned));
        assert_eq!(withdrawn_ids(&shown, &waiting), ["a"]);
    }
}
