//! When a command must be over, so that there is time left to end it and to answer.

use std::time::{Duration, Instant};

/// How much of the call's time is kept back for ending the command and answering.
const MARGIN: Duration = Duration::from_millis(700);
/// How long processes have to react to SIGTERM.
const GRACE: Duration = Duration::from_millis(500);

/// Deadlines of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Deadline of the command.
    pub deadline: Instant,
    /// How long its processes then have to react to SIGTERM.
    pub grace: Duration,
}

impl Limits {
    /// `left` is what the host gives the whole call from now on, ending the command included;
    /// without it the command has `default`.
    #[must_use]
    pub fn new(left: Option<Duration>, default: Duration) -> Self {
        let now = Instant::now();
        match left {
            Some(left) => {
                let margin = MARGIN.min(left / 4);
                Self {
                    deadline: now + (left - margin),
                    grace: GRACE.min(margin * 5 / 7),
                }
            }
            None => Self {
                deadline: now + default,
                grace: GRACE,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_command_fits_into_its_time() {
        for milliseconds in [1, 40, 1_000, 2_800, 30_000, 600_000] {
            let left = Duration::from_millis(milliseconds);
            let before = Instant::now();
            let limits = Limits::new(Some(left), Duration::ZERO);
            let used = limits.deadline - before + limits.grace;
            assert!(used <= left + before.elapsed(), "{milliseconds} ms");
        }
        assert_eq!(
            Limits::new(Some(Duration::from_secs(30)), Duration::ZERO).grace,
            GRACE
        );
    }
}
