//! When a worker that ended may be started again.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::end::WorkerEnd;

/// Number of ends without an answer between them that cost no pause.
const FREE_RESTARTS: u32 = 5;
/// The first pause; each further end doubles it.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// The ends of an instance's workers. One that answers in between makes up for all before.
#[derive(Debug)]
pub(super) struct Restarts {
    consecutive_ends: AtomicU32,
    /// Ends of the workers of all instances of the plugin.
    total: Arc<AtomicU64>,
    last: Mutex<Option<(Instant, WorkerEnd)>>,
}

/// Why there is no worker now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RestartPause {
    pub(super) ends: u32,
    pub(super) end: WorkerEnd,
    pub(super) remaining: Duration,
}

impl Restarts {
    /// `total` counts the ends of all workers of a plugin.
    pub(super) fn new(total: Arc<AtomicU64>) -> Self {
        Self {
            consecutive_ends: AtomicU32::new(0),
            total,
            last: Mutex::default(),
        }
    }

    /// A worker ended by itself.
    pub(super) fn record_end(&self, end: WorkerEnd) {
        self.consecutive_ends.fetch_add(1, Ordering::AcqRel);
        self.total.fetch_add(1, Ordering::Relaxed);
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        *last = Some((Instant::now(), end));
    }

    /// A worker answered.
    pub(super) fn record_answer(&self) {
        if self.consecutive_ends.load(Ordering::Relaxed) != 0 {
            self.consecutive_ends.store(0, Ordering::Release);
        }
    }

    /// Why none may be started at this moment, if so.
    pub(super) fn pause(&self, now: Instant) -> Option<RestartPause> {
        let ends = self.consecutive_ends.load(Ordering::Acquire);
        let doublings = ends.checked_sub(FREE_RESTARTS + 1)?;
        let pause = FIRST_PAUSE
            .saturating_mul(1 << doublings.min(16))
            .min(LONGEST_PAUSE);
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let (at, end) = last.as_ref()?;
        let left = pause.checked_sub(now.saturating_duration_since(*at))?;
        Some(RestartPause {
            ends,
            end: end.clone(),
            remaining: left,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_ends_cost_nothing_then_pauses_grow_and_an_answer_makes_up_for_all() {
        let total = Arc::<AtomicU64>::default();
        let restarts = Restarts::new(Arc::clone(&total));
        let end = || WorkerEnd::unknown("a test");
        for _ in 0..FREE_RESTARTS {
            restarts.record_end(end());
            assert_eq!(restarts.pause(Instant::now()), None);
        }
        let mut longest = Duration::ZERO;
        for ends in FREE_RESTARTS + 1..40 {
            restarts.record_end(end());
            let pause = restarts.pause(Instant::now()).unwrap();
            assert_eq!(pause.ends, ends);
            assert!(pause.remaining <= LONGEST_PAUSE);
            longest = longest.max(pause.remaining);
        }
        assert!(longest > LONGEST_PAUSE / 2);
        assert_eq!(restarts.pause(Instant::now() + LONGEST_PAUSE * 2), None);
        restarts.record_answer();
        assert_eq!(restarts.pause(Instant::now()), None);
        assert_eq!(total.load(Ordering::Relaxed), 39);
    }
}
