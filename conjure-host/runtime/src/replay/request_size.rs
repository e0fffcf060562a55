//! How large the requests of a thread are together, before anything is made of them.

use conjure_core::log::{Entry, EntryBody};
use conjure_core::replay::ReplaySetup;
use serde::Serialize;

/// How many requests a thread has, and how large the conversations in them are together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RequestSizes {
    requests: u64,
    conversations: u64,
}

impl RequestSizes {
    /// Goes along a thread: each request has what was said before it, or a summary in place of its
    /// older part while nobody took that back.
    pub(super) fn of(entries: &[Entry]) -> Self {
        let mut conversation = ConversationSize::default();
        let mut sizes = Self {
            requests: 0,
            conversations: 0,
        };
        for entry in entries {
            if entry.body.meta().is_some() {
                sizes.requests += 1;
                sizes.conversations = sizes.conversations.saturating_add(conversation.current);
            }
            conversation.add(entry);
        }
        sizes
    }

    /// About how many bytes the bodies have in all, without what is the same in each.
    pub(super) fn conversations(self) -> u64 {
        self.conversations
    }

    /// About how many bytes the bodies have in all, where each has besides its conversation the
    /// tools and the instructions of this setup.
    pub(super) fn with(self, setup: &ReplaySetup) -> u64 {
        let tools = setup.tools.iter().map(|tool| {
            let definition = &tool.definition;
            let texts = tool.name.as_str().len() + definition.description.len();
            (texts as u64).saturating_add(json_size(&definition.input_schema))
        });
        let texts = [&setup.skills_prompt, &setup.instructions];
        let texts = texts.into_iter().chain(setup.persona.as_ref());
        let each = tools
            .chain(texts.map(|text| text.len() as u64))
            .chain([json_size(&setup.memory)])
            .fold(0, u64::saturating_add);
        self.conversations
            .saturating_add(self.requests.saturating_mul(each))
    }
}

/// How large the conversation is at a place of a thread.
#[derive(Default)]
struct ConversationSize {
    current: u64,
    /// What was said: the entry, and its size.
    messages: Vec<(u64, u64)>,
    /// The folds that nobody took back: the entry, the first entry behind it, and the summary's size.
    folds: Vec<(u64, u64, u64)>,
}

impl ConversationSize {
    fn add(&mut self, entry: &Entry) {
        match &entry.body {
            EntryBody::Message { message } => self.add_message(entry.seq, json_size(message)),
            EntryBody::CallEnded { output, .. } => self.add_message(entry.seq, json_size(output)),
            EntryBody::Compacted { upto, summary, .. } => {
                self.folds.push((entry.seq, *upto, summary.len() as u64));
                self.count();
            }
            EntryBody::Unfolded { fold } => {
                self.folds.retain(|(seq, ..)| seq != fold);
                self.count();
            }
            _ => {}
        }
    }

    fn add_message(&mut self, seq: u64, size: u64) {
        self.messages.push((seq, size));
        self.current = self.current.saturating_add(size);
    }

    /// Counts anew what the newest fold leaves.
    fn count(&mut self) {
        let (upto, summary) = self
            .folds
            .last()
            .map_or((0, 0), |(_, upto, summary)| (*upto, *summary));
        let shown = self.messages.iter().filter(|(seq, _)| *seq >= upto);
        self.current = shown.fold(summary, |all, (_, size)| all.saturating_add(*size));
    }
}

fn json_size(value: &impl Serialize) -> u64 {
    serde_json::to_vec(value).map_or(0, |json| json.len() as u64)
}

#[cfg(test)]
mod tests {
    use conjure_core::chat::{Message, Meta};
    use conjure_core::turn::TurnSettings;

    use super::*;

    fn entry(seq: u64, body: EntryBody) -> Entry {
        Entry {
            seq,
            turn: 1,
            at_ms: 0,
            body,
        }
    }

    fn asked(text: &str) -> EntryBody {
        let message = Message::user(text);
        EntryBody::Message { message }
    }

    fn answered() -> EntryBody {
        let mut message = Message::assistant("yes");
        message.meta = Some(Meta::default());
        EntryBody::Message { message }
    }

    #[test]
    fn every_request_has_what_was_said_before_it_and_a_summary_makes_it_less() {
        let long = "x".repeat(10_000);
        let two = [
            entry(1, asked(&long)),
            entry(2, answered()),
            entry(3, asked("and?")),
            entry(4, answered()),
        ];
        let of_two = RequestSizes::of(&two).conversations();
        assert!((20_000..21_500).contains(&of_two), "{of_two}");
        let none = RequestSizes::of(&two[..1]);
        assert_eq!((none.requests, none.conversations), (0, 0));
        let folded = EntryBody::Compacted {
            upto: 3,
            summary: "short".to_owned(),
            meta: None,
        };
        let folded = [
            entry(1, asked(&long)),
            entry(2, answered()),
            entry(3, asked("and?")),
            entry(4, folded),
            entry(5, answered()),
        ];
        let of_folded = RequestSizes::of(&folded).conversations();
        assert!((10_000..11_000).contains(&of_folded), "{of_folded}");
    }

    #[test]
    fn what_a_person_took_back_is_in_the_later_requests_again() {
        let folded = EntryBody::Compacted {
            upto: 3,
            summary: "short".to_owned(),
            meta: None,
        };
        let log = [
            entry(1, asked(&"x".repeat(10_000))),
            entry(2, answered()),
            entry(3, asked("and?")),
            entry(4, folded),
            entry(5, answered()),
            entry(6, EntryBody::Unfolded { fold: 4 }),
            entry(7, answered()),
        ];
        let of_folded = RequestSizes::of(&log[..5]).conversations();
        let of_all = RequestSizes::of(&log).conversations();
        let more = of_all - of_folded;
        assert!((10_000..11_000).contains(&more), "{more}");
    }

    #[test]
    fn tools_and_instructions_are_in_every_request() {
        let log = [
            entry(1, asked("hello")),
            entry(2, answered()),
            entry(3, answered()),
        ];
        let sizes = RequestSizes::of(&log);
        let mut setup = ReplaySetup::new(TurnSettings::new("anthropic", "a-model"));
        let bare = sizes.with(&setup);
        setup.instructions = "i".repeat(5_000);
        setup.skills_prompt = "s".repeat(2_000);
        setup.persona = Some("p".repeat(1_000));
        assert_eq!(sizes.with(&setup) - bare, 2 * 8_000);
    }
}
