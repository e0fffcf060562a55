//! What a thread's records hold: entries, events, and what closes a thread that its host left open.

use conjure_core::chat::{Event, Message, Meta};
use conjure_core::log::{Entry, EntryBody};
use conjure_core::turn::recover;

use super::unfinished_turn::UnfinishedTurn;
use conjure_store::Record;

/// Whether a thread was left as it should be: nothing is to be written behind its entries.
pub(crate) fn is_closed(entries: &[Entry]) -> bool {
    recover(entries).is_empty()
}

/// The entries of a thread, as they were read.
pub(crate) struct LoadedThread {
    pub(crate) entries: Vec<Entry>,
    /// What is to be written behind the entries before anything else: what a reply had shown when
    /// the host ended, and what [`recover`] makes of open calls and turns.
    pub(crate) closing: Vec<EntryBody>,
    /// What those who follow the thread are told of that.
    pub(super) told: Vec<Event>,
}

impl LoadedThread {
    /// Takes a thread's records apart.
    pub(crate) fn of(records: Vec<Record>) -> Self {
        let mut closing: Vec<EntryBody> = unfinished(&records).into_iter().collect();
        let turn = UnfinishedTurn::of(&records);
        let entries: Vec<Entry> = records
            .into_iter()
            .filter_map(|record| match record {
                Record::Entry(entry) => Some(entry),
                Record::Event { .. } | Record::Opened { .. } => None,
            })
            .collect();
        closing.extend(recover(&entries));
        Self {
            told: turn.ended_by(&closing),
            entries,
            closing,
        }
    }

    /// Of a thread that was left as it should be.
    pub(super) fn closed_before(entries: Vec<Entry>) -> Self {
        Self {
            entries,
            closing: Vec::new(),
            told: Vec::new(),
        }
    }

    /// The entries as the next session finds them.
    pub(crate) fn closed(self) -> Vec<Entry> {
        let mut entries = self.entries;
        for body in self.closing {
            entries.push(Entry {
                seq: entries.last().map_or(1, |last| last.seq + 1),
                turn: entries.last().map_or(0, |last| last.turn),
                at_ms: 0,
                body,
            });
        }
        entries
    }
}

/// What a reply had said when the host ended, as the unfinished message that it is: a person has
/// read it, so the model knows of it too. Nothing when no reply was streaming.
fn unfinished(records: &[Record]) -> Option<EntryBody> {
    let mut reply: Option<(Meta, String)> = None;
    for record in records {
        match record {
            Record::Event {
                event: Event::Round {
                    provider, model, ..
                },
                ..
            } => {
                let meta = Meta {
                    provider: provider.clone(),
                    model: model.clone(),
                    partial: true,
                    ..Meta::default()
                };
                reply = Some((meta, String::new()));
            }
            Record::Event {
                event: Event::Content { delta },
                ..
            } => {
                if let Some((_, text)) = &mut reply {
                    text.push_str(delta);
                }
            }
            // A reply that became an entry, and the end of its turn.
            Record::Entry(entry) => match &entry.body {
                EntryBody::Message { message } if message.meta.is_some() => reply = None,
                EntryBody::TurnEnded { .. } => reply = None,
                _ => {}
            },
            Record::Event { .. } | Record::Opened { .. } => {}
        }
    }
    let (meta, text) = reply?;
    (!text.trim().is_empty()).then(|| EntryBody::Message {
        message: Message {
            meta: Some(meta),
            ..Message::assistant(text)
        },
    })
}

#[cfg(test)]
mod tests {
    use conjure_core::chat::EventId;

    use super::*;

    fn event(event: Event) -> Record {
        let id = EventId { epoch: 1, seq: 1 };
        Record::Event { id, event }
    }

    fn round() -> Record {
        event(Event::Round {
            round: 1,
            provider: "anthropic".to_owned(),
            model: "m".to_owned(),
            table: 1,
        })
    }

    fn said(text: &str) -> Record {
        event(Event::Content {
            delta: text.to_owned(),
        })
    }

    fn kept(text: &str) -> Record {
        let mut message = Message::assistant(text);
        message.meta = Some(Meta::default());
        Record::Entry(Entry {
            seq: 1,
            turn: 1,
            at_ms: 0,
            body: EntryBody::Message { message },
        })
    }

    #[test]
    fn what_was_shown_of_a_reply_is_kept_and_what_is_kept_already_is_not_kept_twice() {
        let text = |records: &[Record]| match unfinished(records)? {
            EntryBody::Message { message } => {
                assert!(message.meta.as_ref()?.partial);
                Some(message.text())
            }
            _ => None,
        };
        assert_eq!(text(&[round(), said("It "), said("is")]).unwrap(), "It is");
        assert_eq!(text(&[round(), said("It is"), kept("It is")]), None);
        let again = [round(), said("It is"), kept("It is"), round(), said("So")];
        assert_eq!(text(&again).unwrap(), "So");
        assert_eq!(text(&[round(), said(" ")]), None);
        assert_eq!(text(&[round()]), None);
        assert_eq!(text(&[]), None);
    }
}
