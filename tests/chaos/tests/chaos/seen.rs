//! What a client saw of a thread, and whether it is all that there is, each once and in order.

use conjure_chaos::Chain;
use conjure_core::chat::EventId;
use conjure_host::store::{Store, ThreadId};
use serde_json::Value;

/// What a client saw.
#[derive(Default)]
pub(crate) struct Seen {
    chain: Chain,
    all: Vec<(EventId, Value)>,
    /// How often it dropped its stream and came back.
    pub(crate) returns: usize,
}

impl Seen {
    /// The newest that it saw.
    pub(crate) fn last(&self) -> Option<EventId> {
        self.all.last().map(|(id, _)| *id)
    }

    /// Takes the next event in, which must be a later one.
    pub(crate) fn add(&mut self, id: EventId, event: Value) {
        assert!(Some(id) > self.last(), "{id} came again");
        self.chain.add(id, &event);
        self.all.push((id, event));
    }

    /// Compares it with what the log holds, which is more than so many events.
    pub(crate) async fn is_all_of(&self, store: &Store, thread: &ThreadId, more_than: usize) {
        let mut kept = Chain::default();
        let events = store.events_after(thread, None, usize::MAX).await;
        for (place, (id, event)) in events.unwrap().into_iter().enumerate() {
            let event = serde_json::to_value(&event).unwrap();
            kept.add(id, &event);
            assert_eq!(self.all.get(place), Some(&(id, event)), "thread {thread}");
        }
        assert_eq!(self.chain, kept, "thread {thread}");
        assert!(kept.len() > more_than, "thread {thread} streamed");
    }
}
