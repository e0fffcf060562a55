//! When a stream of events is opened again: not at once, however often the server ends it.
//!
//! rmcp asks again at once after a stream that broke, and after one that ended as soon as the server
//! likes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sse_stream::Sse;
use tokio::time::Instant;

use crate::backoff::Backoff;
use crate::digest::digest;

/// After a stream that lasted so long the next is opened at once.
const GOOD_STREAM: Duration = Duration::from_secs(10);
/// How long after the end of a shorter one that brought an event with a new id. After one that did
/// not it is 1 s, doubling to 30 s.
const SHORT_STREAM_DELAY: Duration = Duration::from_millis(500);
/// The most streams that are remembered.
const MAX_STREAMS: usize = 256;

/// The streams that ended early, by the last event that came on them: behind it the next begins.
#[derive(Default)]
pub(super) struct ReopenDelays(Mutex<HashMap<Option<String>, EndedStream>>);

struct EndedStream {
    /// When the next may be opened.
    reopen_at: Instant,
    backoff: Backoff,
}

/// A stream that is being opened, or is open until this is dropped.
pub(super) struct OpenStream {
    /// Whether it had to wait.
    pub(super) is_late: bool,
    streams: Arc<ReopenDelays>,
    opened_at: Instant,
    /// Digests of the ids of the event behind which it begins, and of the newest one.
    first: Option<String>,
    last_event: Option<String>,
    backoff: Backoff,
}

impl ReopenDelays {
    /// Waits until the stream behind this event may be opened.
    pub(super) async fn open(self: &Arc<Self>, behind: Option<&str>) -> OpenStream {
        let first = behind.map(|id| digest(id.as_bytes()));
        let next = self.lock().get(&first).map(|ended| ended.reopen_at);
        let is_late = next.is_some_and(|next| next > Instant::now());
        if let Some(next) = next {
            tokio::time::sleep_until(next).await;
        }
        let ended = self.lock().remove(&first);
        OpenStream {
            is_late,
            streams: Arc::clone(self),
            opened_at: Instant::now(),
            last_event: first.clone(),
            first,
            backoff: ended.map(|ended| ended.backoff).unwrap_or_default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Option<String>, EndedStream>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OpenStream {
    /// An event came on it.
    pub(super) fn record(&mut self, event: &Sse) {
        if let Some(id) = &event.id {
            self.last_event = Some(digest(id.as_bytes()));
        }
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        let now = Instant::now();
        if now.duration_since(self.opened_at) >= GOOD_STREAM {
            return;
        }
        let mut backoff = Backoff::default();
        let delay = if self.last_event == self.first {
            backoff = std::mem::take(&mut self.backoff);
            backoff.next()
        } else {
            SHORT_STREAM_DELAY
        };
        let mut ended = self.streams.lock();
        if ended.len() >= MAX_STREAMS {
            ended.retain(|_, ended| ended.reopen_at > now);
        }
        if ended.len() >= MAX_STREAMS {
            ended.clear();
        }
        let next = now + delay;
        ended.insert(
            self.last_event.take(),
            EndedStream {
                reopen_at: next,
                backoff,
            },
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(id: &str) -> Sse {
        Sse {
            id: Some(id.to_owned()),
            ..Sse::default()
        }
    }

    /// How long it took until a stream was open, in seconds.
    async fn opened(streams: &Arc<ReopenDelays>, behind: Option<&str>) -> (f64, OpenStream) {
        let asked = Instant::now();
        let open = streams.open(behind).await;
        (asked.elapsed().as_secs_f64(), open)
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_that_breaks_again_and_again_is_opened_ever_later() {
        let streams = Arc::default();
        assert!(opened(&streams, None).await.0 < 0.01, "the first");
        for expected in [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0] {
            let (took, _) = opened(&streams, None).await;
            let range = expected * 0.79..=expected * 1.21;
            assert!(range.contains(&took), "{took} is not about {expected}");
        }
        let (_, long) = opened(&streams, None).await;
        tokio::time::sleep(GOOD_STREAM).await;
        drop(long);
        assert!(opened(&streams, None).await.0 < 0.01, "it was a good one");
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_that_goes_on_a_little_each_time_is_opened_twice_a_second() {
        let streams = Arc::default();
        let mut behind = "0".to_owned();
        let begun = Instant::now();
        for next in 1..=20 {
            let (_, mut open) = opened(&streams, Some(&behind)).await;
            behind = next.to_string();
            open.record(&event(&behind));
        }
        assert!(begun.elapsed() >= SHORT_STREAM_DELAY * 19);
        // What passed meanwhile counts, and other streams wait for nobody.
        tokio::time::sleep(SHORT_STREAM_DELAY).await;
        assert!(opened(&streams, Some(&behind)).await.0 < 0.01);
        assert!(opened(&streams, Some("another")).await.0 < 0.01);
    }
}
