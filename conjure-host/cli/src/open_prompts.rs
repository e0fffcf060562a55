//! What turns that somebody else began ask a person, until it is told: what comes at once may have been
//! settled long ago, so it is looked up, all of it together, which of it still waits.

use std::time::Duration;

use conjure_core::chat::Event;
use tokio::time::Instant;

use super::sessions::SavedSessions;

/// Time without events after which the prompts are told: what was there before comes at once.
const SETTLE_TIME: Duration = Duration::from_millis(200);
/// Time after which the prompts are told however much comes.
const MAX_SETTLE_TIME: Duration = Duration::from_secs(1);

/// Calls and questions that wait, in the order in which they were asked.
#[derive(Debug)]
pub(crate) struct OpenPrompts {
    events: Vec<Event>,
    /// Time since which a prompt is to be told.
    since: Instant,
    /// Time of the last event.
    last_event_at: Instant,
}

impl Default for OpenPrompts {
    fn default() -> Self {
        let now = Instant::now();
        Self {
            events: Vec::new(),
            since: now,
            last_event_at: now,
        }
    }
}

impl OpenPrompts {
    pub(crate) fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// Time at which the prompts are to be told.
    pub(crate) fn due(&self) -> Instant {
        (self.last_event_at + SETTLE_TIME).min(self.since + MAX_SETTLE_TIME)
    }

    /// Takes in what asks something, and leaves out what an event settles.
    pub(crate) fn record(&mut self, event: Event) {
        self.last_event_at = Instant::now();
        if prompt_id(&event).is_some() {
            if self.events.is_empty() {
                self.since = self.last_event_at;
            }
            self.events.push(event);
            return;
        }
        let is_settled = |open: &Event| prompt_id(open).is_some_and(|id| settles(&event, id));
        self.events.retain(|open| !is_settled(open));
    }

    /// What of this still waits for a person; all that cannot be looked up.
    pub(crate) async fn still_waiting(self, sessions: &SavedSessions, session: &str) -> Vec<Event> {
        let calls = sessions.approvals(session).await.ok();
        let questions = sessions.questions(session).await.ok();
        let waits = |event: &Event| match event {
            Event::Approval { call, .. } => {
                let mut calls = calls.iter().flatten();
                calls.any(|waiting| waiting.call.id == call.id)
            }
            Event::Question(asked) => {
                let mut questions = questions.iter().flatten();
                questions.any(|waiting| waiting.question.id == asked.id)
            }
            _ => false,
        };
        let is_known = |event: &Event| match event {
            Event::Approval { .. } => calls.is_some(),
            _ => questions.is_some(),
        };
        let mut open = self.events;
        open.retain(|event| !is_known(event) || waits(event));
        open
    }
}

/// The id of the call or the question that an event asks about.
pub(crate) fn prompt_id(event: &Event) -> Option<&str> {
    match event {
        Event::Approval { call, .. } => Some(&call.id),
        Event::Question(asked) => Some(&asked.id),
        _ => None,
    }
}

/// The id of the call or the question that waits no longer after an event.
pub(crate) fn settled_id(event: &Event) -> Option<&str> {
    match event {
        Event::QuestionOver { id, .. } => Some(id),
        Event::ApprovalOver { call_id, .. } | Event::CallStarted { call_id, .. } => Some(call_id),
        Event::FunctionCallOutput(output) => Some(&output.call_id),
        _ => None,
    }
}

/// Whether what waited for a person does so no longer, after this.
pub(crate) fn settles(event: &Event, id: &str) -> bool {
    matches!(event, Event::Done { .. }) || settled_id(event) == Some(id)
}

#[cfg(test)]
mod tests {
    use conjure_core::chat::CallAnnounced;
    use serde_json::json;

    use super::*;

    fn asked(id: &str) -> Event {
        Event::Approval {
            call: CallAnnounced {
                id: id.to_owned(),
                name: "sh".to_owned(),
                arguments: json!({}),
            },
            reason: String::new(),
        }
    }

    fn heard() -> Event {
        Event::Content {
            delta: "x".to_owned(),
        }
    }

    #[test]
    fn what_was_settled_before_is_not_asked_again() {
        let mut open = OpenPrompts::default();
        for id in ["a", "b", "c"] {
            open.record(asked(id));
        }
        open.record(Event::CallStarted {
            call_id: "b".to_owned(),
            backend: "local".to_owned(),
            plugin: None,
        });
        let ids: Vec<&str> = open.events.iter().filter_map(prompt_id).collect();
        assert_eq!(ids, ["a", "c"]);
    }

    #[test]
    fn what_waits_is_told_however_much_comes() {
        let mut open = OpenPrompts::default();
        open.record(asked("a"));
        assert_eq!(open.due(), open.since + SETTLE_TIME);
        // What comes puts it off, and not for ever.
        open.last_event_at = open.since + MAX_SETTLE_TIME;
        assert_eq!(open.due(), open.since + MAX_SETTLE_TIME);
        let since = open.since;
        open.record(heard());
        open.record(asked("b"));
        assert_eq!(open.since, since);
    }
}
