//! The deadline of one call, which stands still while a person or a model is waited for.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

pub(super) struct CallClock {
    state: Mutex<ClockState>,
    changed: Notify,
}

struct ClockState {
    deadline: Option<Instant>,
    pause_count: u32,
    paused_at: Instant,
}

impl CallClock {
    pub(super) fn new(limit: Option<Duration>) -> Self {
        let now = Instant::now();
        Self {
            state: Mutex::new(ClockState {
                deadline: limit.and_then(|limit| now.checked_add(limit)),
                pause_count: 0,
                paused_at: now,
            }),
            changed: Notify::new(),
        }
    }

    /// Stops the clock until the guard is dropped. Several may hold it.
    pub(super) fn pause(&self) -> PauseGuard<'_> {
        let mut state = self.lock();
        if state.pause_count == 0 {
            state.paused_at = Instant::now();
        }
        state.pause_count += 1;
        drop(state);
        self.changed.notify_waiters();
        PauseGuard(self)
    }

    /// Becomes ready when the time is up.
    pub(super) async fn expired(&self) {
        loop {
            let changed = self.changed.notified();
            let until = {
                let state = self.lock();
                state.deadline.filter(|_| state.pause_count == 0)
            };
            let Some(until) = until else {
                changed.await;
                continue;
            };
            tokio::select! {
                () = tokio::time::sleep_until(until) => {
                    let state = self.lock();
                    if state.pause_count == 0 && state.deadline.is_some_and(|d| d <= Instant::now()) {
                        return;
                    }
                }
                () = changed => {}
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, ClockState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) struct PauseGuard<'a>(&'a CallClock);

impl Drop for PauseGuard<'_> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.pause_count = state.pause_count.saturating_sub(1);
        if state.pause_count == 0 {
            let waited = state.paused_at.elapsed();
            state.deadline = state.deadline.and_then(|d| d.checked_add(waited));
        }
        drop(state);
        self.0.changed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_clock_that_stands_still_never_expires() {
        let clock = CallClock::new(Some(Duration::from_secs(5)));
        let begun = Instant::now();
        let person = async {
            tokio::time::sleep(Duration::from_secs(2)).await;
            let first = clock.pause();
            tokio::time::sleep(Duration::from_secs(600)).await;
            let second = clock.pause();
            drop(first);
            tokio::time::sleep(Duration::from_secs(60)).await;
            drop(second);
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = clock.expired() => {}
            () = person => {}
        }
        assert_eq!(begun.elapsed(), Duration::from_secs(5 + 660));
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_limit_it_never_expires() {
        let clock = CallClock::new(None);
        let waited = tokio::time::timeout(Duration::from_secs(1 << 20), clock.expired()).await;
        assert!(waited.is_err());
    }
}
