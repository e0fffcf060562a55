//! One wake-up for all replies that stream.
//!
//! Waking a session costs far more than taking a piece of a reply does, and a session that is woken
//! appends to the log and wakes who follows it. So what arrives is not told at once: the first piece
//! begins a beat, and at its end all sessions are told that got something meanwhile. They then
//! append together, and the log writes once.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Notify;

/// How long a beat is. A piece is shown at most 10 ms after it came: a beat, and what the log's
/// writer waits for others and needs to write.
const BEAT: Duration = Duration::from_millis(3);

/// The beat of a host.
#[derive(Debug, Default)]
pub(crate) struct Beat {
    waiting: Mutex<Vec<Arc<Notify>>>,
}

impl Beat {
    /// Tells somebody at the end of the running beat, or of a new one; at once where a provider
    /// gives its reply on a thread without a runtime.
    pub(crate) fn tell(self: &Arc<Self>, arrived: &Arc<Notify>) {
        let is_first = {
            let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            waiting.push(Arc::clone(arrived));
            waiting.len() == 1
        };
        if is_first {
            let end = End(Arc::clone(self));
            if let Ok(runtime) = Handle::try_current() {
                runtime.spawn(async move {
                    tokio::time::sleep(BEAT).await;
                    drop(end);
                });
            }
        }
    }
}

/// The end of a beat, also when the runtime that it began on ends before.
struct End(Arc<Beat>);

impl Drop for End {
    fn drop(&mut self) {
        let waiting = {
            let mut waiting = self
                .0
                .waiting
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut *waiting)
        };
        for arrived in waiting {
            arrived.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn all_that_arrives_in_a_beat_is_told_at_its_end() {
        let beat = Arc::<Beat>::default();
        let (one, two) = (Arc::<Notify>::default(), Arc::<Notify>::default());
        let begun = tokio::time::Instant::now();
        beat.tell(&one);
        tokio::time::sleep(BEAT / 2).await;
        beat.tell(&two);
        one.notified().await;
        two.notified().await;
        assert!(begun.elapsed() < BEAT * 2, "{:?}", begun.elapsed());
        assert!(begun.elapsed() >= BEAT);
        // What comes later begins a beat of its own.
        beat.tell(&one);
        one.notified().await;
    }

    #[test]
    fn a_beat_ends_with_its_runtime() {
        let beat = Arc::<Beat>::default();
        let (one, two) = (Arc::<Notify>::default(), Arc::<Notify>::default());
        let runtime = || {
            let mut builder = tokio::runtime::Builder::new_current_thread();
            builder.enable_time().build().unwrap()
        };
        let first = runtime();
        first.block_on(async { beat.tell(&one) });
        drop(first);
        runtime().block_on(async {
            one.notified().await;
            beat.tell(&two);
            two.notified().await;
        });
    }
}
