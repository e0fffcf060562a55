//! One wake-up for all replies that stream.
//!
//! Waking a session costs far more than taking a piece of a reply does, and a session that is woken
//! appends to the log and wakes who follows it. So what arrives is not told at once: the first piece
//! opens a window, and at its end all sessions are woken that got something meanwhile. They then
//! append together, and the log writes once.
//!
//! Pieces that come fast gather before they are read, at moments that all replies share: what a
//! provider gives as a batch wakes its session at once.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use conjure_providers::ReadTicks;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::Instant;

/// How long wake-ups are held back. A piece is shown at most 10 ms after it came: this, and what the
/// log's writer waits for others and needs to write.
const WINDOW: Duration = Duration::from_millis(6);
/// How often replies that come fast are read, unless somebody says otherwise. What they say waits for
/// no window then, so it is shown within the same 10 ms.
const FRAME: Duration = Duration::from_millis(5);

/// What holds back the wake-ups of a host's sessions.
#[derive(Debug)]
pub(crate) struct WakeCoalescer {
    waiting: Mutex<Vec<Arc<Notify>>>,
    begin: Instant,
    /// In microseconds.
    frame: AtomicU64,
}

impl Default for WakeCoalescer {
    fn default() -> Self {
        let made = Self {
            waiting: Mutex::default(),
            begin: Instant::now(),
            frame: AtomicU64::default(),
        };
        made.set_frame(FRAME);
        made
    }
}

impl WakeCoalescer {
    /// When replies that come fast are read.
    pub(crate) fn ticks(&self) -> ReadTicks {
        let every = Duration::from_micros(self.frame.load(Ordering::Relaxed));
        ReadTicks::new(self.begin, every)
    }

    pub(crate) fn set_frame(&self, frame: Duration) {
        let micros = u64::try_from(frame.as_micros()).unwrap_or(u64::MAX);
        self.frame.store(micros, Ordering::Relaxed);
    }

    /// Wakes somebody at the end of the open window, or of a new one; at once where a provider
    /// gives its reply on a thread without a runtime.
    pub(crate) fn wake(self: &Arc<Self>, sleeper: &Arc<Notify>) {
        let is_first = {
            let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            waiting.push(Arc::clone(sleeper));
            waiting.len() == 1
        };
        if is_first {
            let end = WindowGuard(Arc::clone(self));
            if let Ok(runtime) = Handle::try_current() {
                runtime.spawn(async move {
                    tokio::time::sleep(WINDOW).await;
                    drop(end);
                });
            }
        }
    }
}

/// Ends a window when dropped, also when the runtime ends first.
struct WindowGuard(Arc<WakeCoalescer>);

impl Drop for WindowGuard {
    fn drop(&mut self) {
        let waiting = {
            let mut waiting = self
                .0
                .waiting
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut *waiting)
        };
        for sleeper in waiting {
            sleeper.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn all_who_get_something_in_a_window_are_woken_at_its_end() {
        let wakes = Arc::<WakeCoalescer>::default();
        let (one, two) = (Arc::<Notify>::default(), Arc::<Notify>::default());
        let begun = tokio::time::Instant::now();
        wakes.wake(&one);
        tokio::time::sleep(WINDOW / 2).await;
        wakes.wake(&two);
        one.notified().await;
        two.notified().await;
        assert!(begun.elapsed() < WINDOW * 2, "{:?}", begun.elapsed());
        assert!(begun.elapsed() >= WINDOW);
        // What comes later opens a window of its own.
        wakes.wake(&one);
        one.notified().await;
    }

    #[test]
    fn a_window_ends_with_its_runtime() {
        let wakes = Arc::<WakeCoalescer>::default();
        let (one, two) = (Arc::<Notify>::default(), Arc::<Notify>::default());
        let runtime = || {
            let mut builder = tokio::runtime::Builder::new_current_thread();
            builder.enable_time().build().unwrap()
        };
        let first = runtime();
        first.block_on(async { wakes.wake(&one) });
        drop(first);
        runtime().block_on(async {
            one.notified().await;
            wakes.wake(&two);
            two.notified().await;
        });
    }
}
