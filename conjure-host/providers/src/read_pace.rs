//! How often a reply is read while its pieces come fast.
//!
//! Being woken for a piece takes far longer than decoding it. Where pieces come every few
//! milliseconds they are left to gather between two reads, and are shown together. A reply that comes
//! faster than it is read needs no rest: there the pieces gather by themselves.

use std::time::Duration;

use tokio::time::Instant;

/// Pieces that are no farther apart than two reads and this come fast.
const FAST_GAP: Duration = Duration::from_millis(5);
/// For how long they must have come fast. A short reply ends before there is a rest.
const STEADY_TIME: Duration = Duration::from_millis(100);
/// How long a batch is read at the most. Where more is there the reader is what is slow, and reads on.
const MAX_READ_TIME: Duration = Duration::from_millis(2);
/// The most pieces of a batch, for the same reason.
const MAX_PIECES: usize = 256;
/// The longest time between two reads.
const MAX_INTERVAL: Duration = Duration::from_secs(1);

/// When replies that come fast are read: all of a host at the same moments, so that what they say is
/// written together.
#[derive(Debug, Clone, Copy)]
pub struct ReadTicks {
    begin: Instant,
    interval: Duration,
}

impl ReadTicks {
    /// Moments that are so far apart, a second at the most, counted from `begin`.
    pub fn new(begin: Instant, every: Duration) -> Self {
        let every = every.clamp(Duration::from_millis(1), MAX_INTERVAL);
        Self {
            begin,
            interval: every,
        }
    }

    /// The next one.
    fn next(&self, now: Instant) -> Instant {
        let every = self.interval.as_micros();
        let left = every - now.duration_since(self.begin).as_micros() % every;
        now + Duration::from_micros(u64::try_from(left).unwrap_or_default())
    }
}

/// The pace of one reply.
#[derive(Debug)]
pub(crate) struct ReadPace {
    ticks: Option<ReadTicks>,
    /// When the newest piece was read.
    newest: Option<Instant>,
    /// Moment at which pieces began to come fast; `None` where they do not.
    fast_since: Option<Instant>,
}

/// A batch of pieces: they are read together, and shown together.
#[derive(Debug, Default)]
pub(crate) struct ReadBatch {
    /// When the first one came.
    started_at: Option<Instant>,
    pieces: usize,
    is_full: bool,
}

impl ReadBatch {
    /// A piece more was read; whether there is room for another one.
    pub(crate) fn add_piece(&mut self) -> bool {
        self.pieces += 1;
        let begun = *self.started_at.get_or_insert_with(Instant::now);
        self.is_full = self.pieces >= MAX_PIECES || begun.elapsed() >= MAX_READ_TIME;
        !self.is_full
    }
}

impl ReadPace {
    /// A pace at which pieces that come fast are read at these moments; without them each is read at
    /// once.
    pub(crate) fn new(ticks: Option<ReadTicks>) -> Self {
        Self {
            ticks,
            newest: None,
            fast_since: None,
        }
    }

    /// Something was read: one piece, or a batch.
    pub(crate) fn record(&mut self, batch: Option<ReadBatch>) {
        let now = Instant::now();
        let before = self.newest.replace(now);
        let every = self.ticks.map_or(Duration::ZERO, |ticks| ticks.interval);
        let is_fast = before.is_some_and(|before| now.duration_since(before) <= every + FAST_GAP);
        let is_slow_reader = batch.is_some_and(|batch| batch.is_full);
        self.fast_since = match self.fast_since {
            Some(since) if is_fast && !is_slow_reader => Some(since),
            _ => is_fast.then_some(now),
        };
    }

    /// Lets pieces gather where they come fast, until `end` at the latest. The batch that is to be read
    /// then; nothing where the next piece is read alone.
    pub(crate) async fn wait_for_batch(&self, end: Instant) -> Option<ReadBatch> {
        let is_steady = |since: &Instant| since.elapsed() >= STEADY_TIME;
        self.fast_since.filter(is_steady)?;
        let tick = self.ticks?.next(Instant::now());
        tokio::time::sleep_until(tick.min(end)).await;
        Some(ReadBatch::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVERY: Duration = Duration::from_millis(5);

    fn pace() -> ReadPace {
        ReadPace::new(Some(ReadTicks::new(Instant::now(), EVERY)))
    }

    fn never() -> Instant {
        Instant::now() + Duration::from_secs(3600)
    }

    /// A pace after so many pieces that are so far apart.
    async fn after(mut pace: ReadPace, pieces: u32, apart: Duration) -> ReadPace {
        for _ in 0..pieces {
            tokio::time::sleep(apart).await;
            pace.record(None);
        }
        pace
    }

    #[tokio::test(start_paused = true)]
    async fn only_pieces_that_come_fast_for_a_while_gather() {
        let ms = Duration::from_millis;
        let rests = async |pace, pieces, apart| {
            let pace = after(pace, pieces, ms(apart)).await;
            pace.wait_for_batch(never()).await.is_some()
        };
        assert!(rests(pace(), 102, 1).await);
        assert!(!rests(pace(), 50, 1).await);
        assert!(!rests(pace(), 1000, 11).await);
        assert!(!rests(pace(), 0, 0).await);
        assert!(
            !rests(ReadPace::new(None), 200, 1).await,
            "nobody takes them"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_gap_and_too_many_pieces_end_it() {
        let mut pace = after(self::pace(), 102, Duration::from_millis(1)).await;
        let mut batch = pace.wait_for_batch(never()).await.unwrap();
        assert!(batch.add_piece());
        pace.record(Some(batch));
        batch = pace
            .wait_for_batch(never())
            .await
            .expect("it goes on while they come");
        let pieces = 1
            + (0..MAX_PIECES * 2)
                .take_while(|_| batch.add_piece())
                .count();
        assert_eq!(pieces, MAX_PIECES);
        pace.record(Some(batch));
        assert!(pace.wait_for_batch(never()).await.is_none());
        pace = after(self::pace(), 102, Duration::from_millis(1)).await;
        tokio::time::sleep((EVERY + FAST_GAP) * 2).await;
        pace.record(None);
        assert!(pace.wait_for_batch(never()).await.is_none());
    }

    #[test]
    fn replies_of_a_host_are_read_at_the_same_moments() {
        let begin = Instant::now();
        let ticks = ReadTicks::new(begin, EVERY);
        for micros in [0, 1, 2_300, 4_999] {
            let now = begin + Duration::from_micros(micros);
            assert_eq!(ticks.next(now), begin + EVERY, "{micros}");
            assert_eq!(ticks.next(now + EVERY), begin + 2 * EVERY, "{micros}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn no_rest_passes_the_end() {
        let pace = after(self::pace(), 102, Duration::from_millis(1)).await;
        pace.wait_for_batch(never()).await.unwrap();
        let end = Instant::now() + Duration::from_millis(1);
        pace.wait_for_batch(end).await.unwrap();
        assert!(Instant::now() <= end + Duration::from_millis(1));
    }

    #[tokio::test(start_paused = true)]
    async fn reading_together_ends_after_a_moment() {
        let pace = after(self::pace(), 102, Duration::from_millis(1)).await;
        let mut batch = pace.wait_for_batch(never()).await.unwrap();
        assert!(batch.add_piece());
        tokio::time::sleep(MAX_READ_TIME).await;
        assert!(!batch.add_piece());
        let mut pace = pace;
        pace.record(Some(batch));
        assert!(pace.wait_for_batch(never()).await.is_none(), "it is behind");
    }

    #[test]
    fn any_distance_is_one() {
        let begin = Instant::now();
        for every in [Duration::ZERO, Duration::MAX] {
            let next = ReadTicks::new(begin, every).next(begin);
            assert!(next > begin && next <= begin + MAX_INTERVAL);
        }
    }
}
