//! One window for all replies that stream.
//!
//! An append to the log, and waking who follows a thread, costs far more than taking a piece of a reply
//! does. So what arrives is not handed over at once: the first piece opens a window, and at its end all
//! threads that got something meanwhile are appended to together, and the log writes once.
//!
//! Where four or more replies came in the window before, they are not even read before the end of this one:
//! what comes in a window is shown at its end anyway. Where very many did, it is shorter, since reading and
//! writing all of them takes a part of the time. Pieces that come fast gather before they are read, too, at
//! moments that all replies share: what a provider gives as a batch waits for no window.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use conjure_providers::{ReadTicks, rest_until};
use tokio::runtime::Handle;
use tokio::time::Instant;

use super::record_queue::RecordQueue;

/// How long pieces gather. A piece is shown at most 10 ms after it came: this, and what the
/// log's writer waits for others and needs to write.
const WINDOW: Duration = Duration::from_millis(6);
/// Length of a window where there are very many replies.
const SHORT_WINDOW: Duration = Duration::from_millis(4);
/// How often replies that come fast are read, unless somebody says otherwise. What they say waits for
/// no window then, so it is shown within the same 10 ms.
const FRAME: Duration = Duration::from_millis(5);
/// Number of replies in a window that makes it worth reading those of the next one together. What is no
/// piece waits as long then, too: an end of a reply, a step of a new connection.
const MANY: usize = 4;
/// Number of replies in a window that makes the next one short.
const VERY_MANY: usize = 40;
/// For how long a window says how many come in the next one.
const RECENT: Duration = Duration::from_millis(20);

/// The window of a host's sessions.
pub(crate) struct GatherWindow {
    state: Mutex<WindowState>,
    begin: Instant,
    /// In microseconds.
    frame: AtomicU64,
}

#[derive(Default)]
struct WindowState {
    /// The threads that got something.
    threads: Vec<Arc<RecordQueue>>,
    /// When the window before ended, and how many threads had got something in it.
    previous: Option<(Instant, usize)>,
}

impl Default for GatherWindow {
    fn default() -> Self {
        let made = Self {
            state: Mutex::default(),
            begin: Instant::now(),
            frame: AtomicU64::default(),
        };
        made.set_frame(FRAME);
        made
    }
}

impl GatherWindow {
    /// When replies that come fast are read.
    pub(crate) fn ticks(&self) -> ReadTicks {
        let every = Duration::from_micros(self.frame.load(Ordering::Relaxed));
        ReadTicks::new(self.begin, every)
    }

    pub(crate) fn set_frame(&self, frame: Duration) {
        let micros = u64::try_from(frame.as_micros()).unwrap_or(u64::MAX);
        self.frame.store(micros, Ordering::Relaxed);
    }

    /// Hands over what a thread got at the end of the open window, or of a new one; at once where a
    /// provider gives its reply on a thread without a runtime.
    pub(crate) fn add(self: &Arc<Self>, thread: &Arc<RecordQueue>) {
        let replies = {
            let mut state = self.state();
            state.threads.push(Arc::clone(thread));
            if state.threads.len() > 1 {
                return;
            }
            state.recent_replies(Instant::now())
        };
        let end = WindowGuard(Arc::clone(self));
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        let window = match replies {
            VERY_MANY.. => SHORT_WINDOW,
            _ => WINDOW,
        };
        if replies >= MANY {
            rest_until(std::time::Instant::now() + window);
        }
        runtime.spawn(async move {
            tokio::time::sleep(window).await;
            drop(end);
        });
    }

    fn end(&self) {
        let threads = {
            let mut state = self.state();
            state.previous = Some((Instant::now(), state.threads.len()));
            std::mem::take(&mut state.threads)
        };
        for thread in threads {
            thread.end_window();
        }
    }

    fn state(&self) -> MutexGuard<'_, WindowState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl WindowState {
    /// How many replies came in the window before, if that is not long ago.
    fn recent_replies(&self, now: Instant) -> usize {
        let recent = self
            .previous
            .filter(|(ended, _)| now.duration_since(*ended) < RECENT);
        recent.map_or(0, |(_, replies)| replies)
    }
}

/// Ends a window when dropped, also when the runtime ends first.
struct WindowGuard(Arc<GatherWindow>);

impl Drop for WindowGuard {
    fn drop(&mut self) {
        self.0.end();
    }
}

#[cfg(test)]
mod tests {
    use conjure_core::chat::Event;
    use conjure_store::{MemoryLog, ThreadId};

    use super::super::hub::Subscription;
    use super::super::recorder::Recorder;
    use super::*;

    /// A thread, and what it shows.
    async fn thread() -> (Recorder, Subscription) {
        let log = MemoryLog::default();
        let recorder = Recorder::open(&log, &ThreadId::fresh()).await.unwrap();
        let thread = recorder.thread().clone();
        let shown = recorder.hub().subscribe(None, Arc::new(log), thread);
        (recorder, shown)
    }

    fn piece(window: &Arc<GatherWindow>, of: &Recorder, text: &str) {
        let delta = text.to_owned();
        if of.queue().piece(Event::Content { delta }, &false.into()) {
            window.add(of.queue());
        }
    }

    async fn text(shown: &mut Subscription) -> String {
        match &shown.next().await.event {
            Event::Content { delta } => delta.clone(),
            event => panic!("{event:?}"),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_comes_in_a_window_is_shown_at_its_end() {
        let window = Arc::<GatherWindow>::default();
        let ((one, mut of_one), (two, mut of_two)) = (thread().await, thread().await);
        let begun = Instant::now();
        piece(&window, &one, "a");
        tokio::time::sleep(WINDOW / 2).await;
        piece(&window, &two, "b");
        piece(&window, &one, "c");
        assert!(of_one.try_next().is_none());
        assert_eq!(text(&mut of_one).await, "ac");
        assert_eq!(text(&mut of_two).await, "b");
        assert!(begun.elapsed() < WINDOW * 2, "{:?}", begun.elapsed());
        assert!(begun.elapsed() >= WINDOW);
        // What comes later opens a window of its own.
        piece(&window, &one, "d");
        assert_eq!(text(&mut of_one).await, "d");
    }

    #[tokio::test(start_paused = true)]
    async fn what_gathered_already_waits_for_no_window_and_what_comes_late_is_left() {
        let (one, mut shown) = thread().await;
        let event = |text: &str| Event::Content {
            delta: text.to_owned(),
        };
        let is_over = false.into();
        let pieces = [event("a"), event("b")];
        one.queue().pieces(pieces.into_iter(), &is_over);
        let shown_first = shown.try_next().unwrap();
        assert_eq!(shown_first.event, event("ab"));
        one.queue().end_reply(&is_over);
        assert!(!one.queue().piece(event("c"), &is_over));
        one.queue().pieces([event("d")].into_iter(), &is_over);
        one.queue().end_window();
        assert!(shown.try_next().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn how_many_replies_came_is_known_for_a_while() {
        let window = Arc::<GatherWindow>::default();
        let mut threads = Vec::new();
        for _ in 0..MANY {
            threads.push(thread().await);
        }
        let recent = || window.state().recent_replies(Instant::now());
        assert_eq!(recent(), 0);
        for (of, _) in &threads {
            piece(&window, of, "a");
            piece(&window, of, "b");
        }
        for (_, shown) in &mut threads {
            assert_eq!(text(shown).await, "ab");
        }
        assert_eq!(recent(), MANY);
        tokio::time::sleep(RECENT).await;
        assert_eq!(recent(), 0);
    }

    #[test]
    fn a_window_ends_with_its_runtime() {
        let window = Arc::<GatherWindow>::default();
        let runtime = || {
            let mut builder = tokio::runtime::Builder::new_current_thread();
            builder.enable_time().build().unwrap()
        };
        let first = runtime();
        let (one, mut shown) = first.block_on(async {
            let (one, shown) = thread().await;
            piece(&window, &one, "a");
            (one, shown)
        });
        drop(first);
        runtime().block_on(async {
            assert_eq!(text(&mut shown).await, "a");
            piece(&window, &one, "b");
            assert_eq!(text(&mut shown).await, "b");
        });
    }
}
