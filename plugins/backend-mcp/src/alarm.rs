//! The time limits of a connection's requests, behind one timer.
//!
//! A timer for every request would wake the thread that waits for the server's answers each time,
//! only to tell it when to wake again. This one is set when a request has an earlier limit than it
//! was set to, which the second and every further one in a row has not.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{Notify, watch};
use tokio::time::Instant;

/// One timer. Its task ends with the last clone of the `Arc`.
#[derive(Debug)]
pub(crate) struct Alarm {
    /// When it rings; nothing while nobody waits.
    deadline: Mutex<Option<Instant>>,
    rescheduled: Arc<Notify>,
    rings: watch::Sender<()>,
}

impl Alarm {
    /// Starts its task.
    pub(crate) fn start() -> Arc<Self> {
        let alarm = Arc::new(Self {
            deadline: Mutex::default(),
            rescheduled: Arc::default(),
            rings: watch::Sender::new(()),
        });
        let (weak, earlier) = (Arc::downgrade(&alarm), Arc::clone(&alarm.rescheduled));
        tokio::spawn(async move {
            while let Some(at) = weak.upgrade().map(|alarm| alarm.deadline()) {
                let rings = async {
                    match at {
                        Some(at) => tokio::time::sleep_until(at).await,
                        None => std::future::pending().await,
                    }
                };
                tokio::select! {
                    () = earlier.notified() => {}
                    () = rings => if let Some(alarm) = weak.upgrade() {
                        alarm.ring(at);
                    },
                }
            }
        });
        alarm
    }

    /// Waits until a time. It may become ready earlier.
    pub(crate) async fn wait_until(&self, time: Instant) {
        // Before it is set, so that no ring is missed.
        let mut rung = self.rings.subscribe();
        self.set(time);
        let _ = rung.changed().await;
    }

    fn set(&self, time: Instant) {
        let mut at = self.deadline.lock().unwrap_or_else(PoisonError::into_inner);
        if at.is_none_or(|at| at > time) {
            *at = Some(time);
            self.rescheduled.notify_one();
        }
    }

    fn ring(&self, rang: Option<Instant>) {
        let mut at = self.deadline.lock().unwrap_or_else(PoisonError::into_inner);
        if *at == rang {
            // Whoever still waits sets it again.
            *at = None;
        }
        drop(at);
        self.rings.send_replace(());
    }

    fn deadline(&self) -> Option<Instant> {
        *self.deadline.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        self.rescheduled.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    async fn wait(alarm: &Alarm, time: Instant) {
        while Instant::now() < time {
            alarm.wait_until(time).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn each_is_woken_at_its_time_whoever_came_first() {
        let alarm = Alarm::start();
        let begun = Instant::now();
        let waits = [30, 10, 20, 10].map(|seconds| {
            let alarm = Arc::clone(&alarm);
            async move {
                wait(&alarm, begun + Duration::from_secs(seconds)).await;
                begun.elapsed().as_secs()
            }
        });
        let woken = futures_util::future::join_all(waits).await;
        assert_eq!(woken, [30, 10, 20, 10]);
        // And again, after it had nothing to wait for.
        wait(&alarm, begun + Duration::from_secs(40)).await;
        assert_eq!(begun.elapsed().as_secs(), 40);
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_no_more_costs_no_timer() {
        let alarm = Alarm::start();
        let begun = Instant::now();
        for _ in 0..100 {
            let late = begun + Duration::from_secs(3_600);
            let waited = tokio::time::timeout(Duration::ZERO, alarm.wait_until(late)).await;
            assert!(waited.is_err());
        }
        assert_eq!(alarm.deadline(), Some(begun + Duration::from_secs(3_600)));
        let earlier = Arc::downgrade(&alarm.rescheduled);
        drop(alarm);
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(earlier.upgrade().is_none(), "its task is over");
        assert!(begun.elapsed() < Duration::from_secs(3_600));
    }
}
