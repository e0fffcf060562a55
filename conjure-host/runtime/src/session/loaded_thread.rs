//! What a thread's records hold: entries, events, and what closes a thread that its host left open.

use conjure_core::chat::{Event, Message, Meta};
use conjure_core::log::{Entry, EntryBody};
use conjure_core::turn::recover;

use super::unfinished_turn::UnfinishedTurn;
use conjure_store::{Log, Record, StoreError, ThreadId};

/// The entries of a thread, as they were read.
pub(crate) struct LoadedThread {
    pub(crate) entries: Vec<Entry>,
    /// What is to be written behind the entries before anything else: what a reply had shown when
    /// the host ended, and what [`recover`] makes of open calls and turns.
    pub(crate) closing: Vec<EntryBody>,
    /// What those who follow the thread are told of that.
    pub(super) closing_events: Vec<Event>,
}

impl LoadedThread {
    /// Reads the entries of a thread. Its events are read where its host ended in the middle of a turn,
    /// for what that had shown.
    ///
    /// # Errors
    /// The store's.
    pub(crate) async fn read(log: &dyn Log, thread: &ThreadId) -> Result<Self, StoreError> {
        let entries = log.read_entries(thread).await?;
        if recover(&entries).is_empty() {
            return Ok(Self {
                entries,
                closing: Vec::new(),
                closing_events: Vec::new(),
            });
        }
        Ok(Self::of(log.read(thread).await?))
    }

    /// Takes a thread's records apart.
    pub(crate) fn of(records: Vec<Record>) -> Self {
        let mut closing: Vec<EntryBody> = unfinished_reply(&records).into_iter().collect();
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
            closing_events: turn.closing_events(&closing),
            entries,
            closing,
        }
    }

    /// The entries as the next session finds them.
    pub(crate) fn into_closed_entries(self) -> Vec<Entry> {
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
fn unfinished_reply(records: &[Record]) -> Option<EntryBody> {
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
    use std::sync::atomic::{AtomicUsize, Ordering};

    use conjure_core::chat::{EventId, Usage};
    use conjure_core::log::TurnOutcome;
    use conjure_store::{MemoryLog, ThreadLog};
    use futures_util::FutureExt as _;
    use futures_util::future::BoxFuture;

    use super::*;

    /// A log that counts how often events are read.
    #[derive(Default)]
    struct CountingLog {
        log: MemoryLog,
        reads: AtomicUsize,
    }

    impl Log for CountingLog {
        fn open<'a>(
            &'a self,
            thread: &'a ThreadId,
        ) -> BoxFuture<'a, Result<Box<dyn ThreadLog>, StoreError>> {
            self.log.open(thread)
        }

        fn read<'a>(
            &'a self,
            thread: &'a ThreadId,
        ) -> BoxFuture<'a, Result<Vec<Record>, StoreError>> {
            self.reads.fetch_add(1, Ordering::Relaxed);
            self.log.read(thread)
        }

        fn read_entries<'a>(
            &'a self,
            thread: &'a ThreadId,
        ) -> BoxFuture<'a, Result<Vec<Entry>, StoreError>> {
            async {
                let records = self.log.read(thread).await?.into_iter();
                let entries = records.filter_map(|record| match record {
                    Record::Entry(entry) => Some(entry),
                    _ => None,
                });
                Ok(entries.collect())
            }
            .boxed()
        }

        fn threads(&self) -> BoxFuture<'_, Result<Vec<ThreadId>, StoreError>> {
            self.log.threads()
        }
    }

    #[tokio::test]
    async fn events_are_read_only_where_a_turn_was_left_in_its_middle() {
        let entry = |seq, body| {
            Record::Entry(Entry {
                seq,
                turn: 1,
                at_ms: 0,
                body,
            })
        };
        let turn_id = || "t".to_owned();
        let begun = entry(1, EntryBody::TurnStarted { turn_id: turn_id() });
        let over = EntryBody::TurnEnded {
            turn_id: turn_id(),
            outcome: TurnOutcome::Completed,
            usage: Usage::default(),
            stop_reason: None,
        };
        let over = entry(2, over);
        for (records, reads) in [
            (vec![begun.clone(), over], 0),
            (vec![begun, round(), said("It is")], 1),
        ] {
            let (log, thread) = (CountingLog::default(), ThreadId::fresh());
            let mut open = log.open(&thread).await.unwrap();
            open.append(&records, false).await.unwrap();
            let loaded = LoadedThread::read(&log, &thread).await.unwrap();
            assert_eq!(log.reads.load(Ordering::Relaxed), reads);
            assert_eq!(loaded.closing.is_empty(), reads == 0);
        }
    }

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
        let text = |records: &[Record]| match unfinished_reply(records)? {
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
