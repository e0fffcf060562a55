//! How often a reply is read while its pieces come fast.
//!
//! Being woken for a piece takes far longer than decoding it. Where pieces come every few
//! milliseconds they are left to gather between two reads, and are shown together. A reply that comes
//! faster than it is read needs no rest: there the pieces gather by themselves.

use std::time::Duration;

use tokio::time::Instant;

/// Pieces that are no farther apart than a rest and this come fast.
const FAST: Duration = Duration::from_millis(5);
/// For how long they must have come fast. A short reply ends before there is a rest.
const STEADY: Duration = Duration::from_millis(100);
/// The most pieces that are read together; where there are so many the reader is what is slow.
pub(crate) const MOST: usize = 256;

/// The pace of one reply.
#[derive(Debug)]
pub(crate) struct ReadPace {
    /// How long pieces that come fast may gather.
    rest: Option<Duration>,
    /// When the newest piece was read.
    newest: Option<Instant>,
    /// Since when pieces come fast.
    fast_since: Option<Instant>,
}

impl ReadPace {
    /// A pace at which pieces that come fast gather for so long; without it each is read at once.
    pub(crate) fn new(rest: Option<Duration>) -> Self {
        Self {
            rest,
            newest: None,
            fast_since: None,
        }
    }

    /// So many pieces were read together.
    pub(crate) fn came(&mut self, pieces: usize) {
        let now = Instant::now();
        let before = self.newest.replace(now);
        let fast = self.rest.unwrap_or_default() + FAST;
        let is_fast = before.is_some_and(|before| now.duration_since(before) <= fast);
        self.fast_since = match self.fast_since {
            Some(since) if is_fast && pieces < MOST => Some(since),
            _ => is_fast.then_some(now),
        };
    }

    /// Lets pieces gather where they come fast. Whether they are to be read, and shown, together.
    pub(crate) async fn rest(&self) -> bool {
        let is_steady = |since: &Instant| since.elapsed() >= STEADY;
        let since = self.fast_since.filter(is_steady);
        let Some(rest) = self.rest.filter(|_| since.is_some()) else {
            return false;
        };
        tokio::time::sleep(rest).await;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REST: Duration = Duration::from_millis(7);

    /// Whether there is a rest after so many pieces that are so far apart.
    async fn rests(pieces: u32, apart: Duration) -> bool {
        let mut pace = ReadPace::new(Some(REST));
        for _ in 0..pieces {
            assert!(!pace.rest().await);
            tokio::time::sleep(apart).await;
            pace.came(1);
        }
        pace.rest().await
    }

    #[tokio::test(start_paused = true)]
    async fn only_pieces_that_come_fast_for_a_while_gather() {
        assert!(rests(102, Duration::from_millis(1)).await);
        assert!(!rests(50, Duration::from_millis(1)).await);
        assert!(!rests(1000, Duration::from_millis(13)).await);
        assert!(!rests(0, Duration::ZERO).await);
        let mut pace = ReadPace::new(None);
        for _ in 0..200 {
            tokio::time::sleep(Duration::from_millis(1)).await;
            pace.came(1);
        }
        assert!(!pace.rest().await, "nobody takes them together");
    }

    #[tokio::test(start_paused = true)]
    async fn a_gap_and_too_many_pieces_end_it() {
        let fast = async || {
            let mut pace = ReadPace::new(Some(REST));
            for _ in 0..102 {
                tokio::time::sleep(Duration::from_millis(1)).await;
                pace.came(1);
            }
            pace
        };
        let mut pace = fast().await;
        assert!(pace.rest().await);
        pace.came(5);
        assert!(pace.rest().await, "it goes on while they come");
        pace.came(MOST);
        assert!(!pace.rest().await);
        let mut pace = fast().await;
        tokio::time::sleep(REST + FAST * 2).await;
        pace.came(1);
        assert!(!pace.rest().await);
    }
}
