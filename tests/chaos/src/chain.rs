//! A hash chain over the numbers and bodies of events: two that are equal saw the same events in
//! the same order, each once.

use conjure_core::chat::EventId;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

/// The chain so far.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Chain {
    hash: [u8; 32],
    length: usize,
}

impl Chain {
    /// Takes the next event in.
    pub fn add(&mut self, id: EventId, event: &Value) {
        let mut hash = Sha256::new();
        hash.update(self.hash);
        hash.update(id.epoch.to_le_bytes());
        hash.update(id.seq.to_le_bytes());
        hash.update(event.to_string());
        self.hash = hash.finalize().into();
        self.length += 1;
    }

    /// How many events it holds.
    #[must_use]
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether it holds none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn chain(events: &[(u64, &str)]) -> Chain {
        let mut chain = Chain::default();
        for (seq, body) in events {
            let id = EventId {
                epoch: 1,
                seq: *seq,
            };
            chain.add(id, &json!({ "body": body }));
        }
        chain
    }

    #[test]
    fn order_repetition_and_content_all_count() {
        let right = chain(&[(1, "a"), (2, "b")]);
        assert_eq!(right, chain(&[(1, "a"), (2, "b")]));
        assert_eq!(right.len(), 2);
        for wrong in [
            chain(&[(2, "b"), (1, "a")]),
            chain(&[(1, "a"), (1, "a"), (2, "b")]),
            chain(&[(1, "a"), (2, "c")]),
            chain(&[(1, "a")]),
        ] {
            assert_ne!(right, wrong);
        }
    }
}
