//! How soon a server's lists are read again: at once when one changes now and then, and ever more
//! seldom when they change all the time.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

/// Changes that come together are one.
const FIRST_DELAY: Duration = Duration::from_millis(10);
/// The longest that a change waits; each one that comes soon after another waits twice as long.
const MAX_DELAY: Duration = Duration::from_secs(30);
/// Lists that have not changed for so long are read at once again.
const QUIET_TIME: Duration = Duration::from_secs(5);

/// The delays of one connection.
pub(super) struct RefreshDelay {
    changes: watch::Receiver<u64>,
    delay: Duration,
    /// When the lists were read last.
    read: Instant,
}

impl RefreshDelay {
    pub(super) fn new(seen: watch::Receiver<u64>) -> Self {
        Self {
            changes: seen,
            delay: FIRST_DELAY,
            read: Instant::now(),
        }
    }

    /// The lists were read just now.
    pub(super) fn note_read(&mut self) {
        self.read = Instant::now();
    }

    /// Waits until they changed, and then until they are to be read. What changes meanwhile is read
    /// with it.
    pub(super) async fn next(&mut self) {
        if self.changes.changed().await.is_err() {
            // Nobody is there to say so any more.
            return std::future::pending().await;
        }
        if self.read.elapsed() >= QUIET_TIME {
            self.delay = FIRST_DELAY;
        }
        let delay = self.delay;
        self.delay = delay.saturating_mul(2).min(MAX_DELAY);
        tokio::time::sleep(delay).await;
        self.changes.mark_unchanged();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How late a timer may be.
    const LATE: Duration = Duration::from_millis(2);

    async fn waited(refresh: &mut RefreshDelay) -> Duration {
        let begun = Instant::now();
        refresh.next().await;
        refresh.note_read();
        begun.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn lists_that_change_all_the_time_are_read_ever_more_seldom() {
        let says = watch::Sender::new(0_u64);
        let mut refresh = RefreshDelay::new(says.subscribe());
        let mut longest = Duration::ZERO;
        for times in 0..20 {
            says.send_modify(|changes| *changes += 1);
            let waited = waited(&mut refresh).await;
            assert!(times > 0 || waited <= FIRST_DELAY + LATE, "{waited:?}");
            assert!(waited + LATE >= longest, "{waited:?}");
            assert!(waited <= MAX_DELAY + LATE, "{waited:?}");
            longest = waited;
        }
        assert!(longest > MAX_DELAY / 2, "{longest:?}");
        tokio::time::sleep(QUIET_TIME).await;
        says.send_modify(|changes| *changes += 1);
        assert!(waited(&mut refresh).await <= FIRST_DELAY + LATE);
    }

    #[tokio::test(start_paused = true)]
    async fn changes_that_come_together_are_read_once() {
        let says = watch::Sender::new(0_u64);
        let mut refresh = RefreshDelay::new(says.subscribe());
        says.send_modify(|changes| *changes += 1);
        says.send_modify(|changes| *changes += 1);
        refresh.next().await;
        let again = tokio::time::timeout(MAX_DELAY, refresh.next()).await;
        assert!(again.is_err());
    }
}
