//! Whether a server answers late on connections that are kept.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

/// Answers in a row that must look delayed before connections are no longer kept.
const MAX_DELAYED_ANSWERS: u32 = 8;
/// What Linux's delayed acknowledgement looks like.
const DELAYED_ACK: std::ops::Range<Duration> = Duration::from_millis(38)..Duration::from_millis(55);

/// How quickly a server's answers begin.
#[derive(Default)]
pub(super) struct Pace {
    delayed: AtomicU32,
    prefers_unpooled: AtomicBool,
}

impl Pace {
    /// Notes how long the beginning of an answer took.
    pub(super) fn record(&self, took: Duration) {
        if !DELAYED_ACK.contains(&took) {
            self.delayed.store(0, Ordering::Relaxed);
        } else if self.delayed.fetch_add(1, Ordering::Relaxed) + 1 >= MAX_DELAYED_ANSWERS {
            self.prefers_unpooled.store(true, Ordering::Relaxed);
        }
    }

    /// Whether each request had better have a connection of its own.
    pub(super) fn prefers_unpooled(&self) -> bool {
        self.prefers_unpooled.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trap04_connections_that_answer_late_are_no_longer_kept() {
        let pace = Pace::default();
        let note = |milliseconds: &[u64]| {
            for took in milliseconds {
                pace.record(Duration::from_millis(*took));
            }
            pace.prefers_unpooled()
        };
        assert!(!note(&[44; 7]));
        assert!(!note(&[3]), "one that is quick was not delayed");
        assert!(!note(&[200; 20]), "slow is not delayed");
        assert!(note(&[44; 8]));
    }
}
