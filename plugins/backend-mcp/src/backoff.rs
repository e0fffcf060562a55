//! How long to wait before the next try: 1 s, doubling to 30 s, give or take a fifth.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hasher as _};
use std::time::Duration;

const FIRST_DELAY: Duration = Duration::from_secs(1);
const MAX_DELAY: Duration = Duration::from_secs(30);

/// The waits between tries.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    tries: u32,
}

impl Backoff {
    /// The next try was a success.
    pub(crate) fn reset(&mut self) {
        self.tries = 0;
    }

    /// Number of tries that failed in a row.
    pub(crate) fn tries(&self) -> u32 {
        self.tries
    }

    /// The next wait.
    pub(crate) fn next(&mut self) -> Duration {
        let wait = FIRST_DELAY
            .saturating_mul(1 << self.tries.min(10))
            .min(MAX_DELAY);
        self.tries = self.tries.saturating_add(1);
        // Every state of the standard library's hasher begins with a random number.
        let random = RandomState::new().build_hasher().finish() % 1_000;
        let fifth = wait / 5;
        let more = fifth.saturating_mul(2).mul_f64(random as f64 / 1_000.0);
        wait - fifth + more
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_most_and_vary_by_a_fifth() {
        let mut backoff = Backoff::default();
        for expected in [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0] {
            let wait = backoff.next().as_secs_f64();
            let range = expected * 0.8..=expected * 1.2;
            assert!(range.contains(&wait), "{wait} is not about {expected}");
        }
        backoff.reset();
        assert!(backoff.next() <= Duration::from_millis(1_200));
    }
}
