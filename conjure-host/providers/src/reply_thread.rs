//! Where requests to models are carried, and their replies read: one thread for all sessions of a process.
//!
//! A thread of a pool that is woken for a piece of a reply wakes another one, in case that there is more to
//! do, and waking costs more than a piece does. Here nobody else is woken, and where many replies come the
//! thread rests between two looks. What takes long is done elsewhere: a request is encoded by who asks, and
//! a large reply is put together on a thread for what blocks.

use std::cell::Cell;
use std::future::Future;
use std::io;
use std::panic::{catch_unwind, resume_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinError;
use tokio_util::task::AbortOnDropHandle;

/// How long the thread rests at the most.
const LONGEST_REST: Duration = Duration::from_millis(10);

thread_local! {
    /// Moment until which this thread rests.
    static REST_UNTIL: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Says on the thread of the replies that what comes before a moment, 10 ms from now at the most, may be
/// read then: once it has nothing to do it rests until that, and is not woken for each piece. A new request
/// ends the rest. On other threads it means nothing.
pub fn rest_until(moment: Instant) {
    REST_UNTIL.set(Some(moment.min(Instant::now() + LONGEST_REST)));
}

/// Does something on the thread of the replies. It ends when the future is dropped, perhaps a moment later,
/// and its panic is the caller's. Where the system gives no thread, the caller does it itself.
pub(crate) async fn on_reply_thread<T: Send + 'static>(
    work: impl Future<Output = T> + Send + 'static,
) -> T {
    match ReplyThread::of_process() {
        Some(thread) => thread.run(work).await,
        None => work.await,
    }
}

struct ReplyThread {
    runtime: Runtime,
    waiting: Arc<WaitingWork>,
}

impl ReplyThread {
    /// The thread of this process, made at first use. `None` where the system gives none now.
    fn of_process() -> Option<&'static Self> {
        static MADE: OnceLock<ReplyThread> = OnceLock::new();
        static MAKING: Mutex<()> = Mutex::new(());
        // Elsewhere the system looks at the certificate of a connection, and may ask others about it: no
        // other reply is read meanwhile.
        if cfg!(not(target_os = "linux")) {
            return None;
        }
        if let Some(made) = MADE.get() {
            return Some(made);
        }
        let _making = MAKING.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(made) = MADE.get() {
            return Some(made);
        }
        // A runtime that gets no thread panics.
        let made = catch_unwind(Self::start).ok()?.ok()?;
        Some(MADE.get_or_init(|| made))
    }

    fn start() -> io::Result<Self> {
        let waiting = Arc::<WaitingWork>::default();
        let resting = Arc::clone(&waiting);
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("model-replies")
            .on_thread_park(move || resting.rest())
            .enable_all()
            .build()?;
        Ok(Self { runtime, waiting })
    }

    async fn run<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> T {
        // Before it is given to the thread, which goes to no rest then.
        let waits = self.waiting.add();
        let done = AbortOnDropHandle::new(self.runtime.spawn(async move {
            drop(waits);
            work.await
        }));
        result_of(done).await
    }
}

/// What comes of a task; its panic is the caller's.
pub(crate) async fn result_of<T>(task: impl Future<Output = Result<T, JoinError>>) -> T {
    match task.await {
        Ok(done) => done,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => resume_unwind(panic),
            // Its runtime ends, and the caller with it.
            Err(_) => std::future::pending().await,
        },
    }
}

/// How much work was given to the thread that it has not begun.
#[derive(Default)]
struct WaitingWork {
    count: Mutex<usize>,
    added: Condvar,
}

/// Counts among it, until it is dropped.
struct WaitingGuard(Arc<WaitingWork>);

impl WaitingWork {
    fn add(self: &Arc<Self>) -> WaitingGuard {
        *self.lock() += 1;
        self.added.notify_one();
        WaitingGuard(Arc::clone(self))
    }

    /// Rests, where this thread is to, until that moment or until there is work.
    fn rest(&self) {
        let Some(moment) = REST_UNTIL.get() else {
            return;
        };
        let left = moment.saturating_duration_since(Instant::now());
        if left.is_zero() {
            REST_UNTIL.set(None);
            return;
        }
        let is_idle = |count: &mut usize| *count == 0;
        drop(self.added.wait_timeout_while(self.lock(), left, is_idle));
    }

    fn lock(&self) -> MutexGuard<'_, usize> {
        self.count.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for WaitingGuard {
    fn drop(&mut self) {
        *self.0.lock() -= 1;
    }
}

#[cfg(test)]
mod tests {
    use std::panic::AssertUnwindSafe;
    use std::thread;

    use futures_util::FutureExt as _;
    use tokio::sync::oneshot;

    use super::*;

    /// One that nobody else gives work to. It is never ended, since a test's runtime cannot wait for that.
    fn reply_thread() -> &'static ReplyThread {
        Box::leak(Box::new(ReplyThread::start().unwrap()))
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn all_of_a_process_is_done_on_one_thread() {
        let ids = (0..20).map(|_| {
            on_reply_thread(async {
                tokio::task::yield_now().await;
                thread::current().id()
            })
        });
        let mut ids = futures_util::future::join_all(ids).await;
        ids.dedup();
        assert_eq!(ids.len(), 1);
        assert_ne!(ids, [thread::current().id()]);
    }

    #[tokio::test]
    async fn who_gives_up_ends_what_is_done_for_it() {
        let (begun, begins) = oneshot::channel();
        let (held, ended) = oneshot::channel::<()>();
        let work = tokio::spawn(on_reply_thread(async move {
            let _held = held;
            let _ = begun.send(());
            std::future::pending::<()>().await;
        }));
        begins.await.unwrap();
        work.abort();
        assert!(ended.await.is_err(), "what it held was used");
    }

    #[tokio::test]
    async fn what_comes_in_a_rest_is_read_behind_it() {
        let replies = reply_thread();
        // It may come before the thread rests.
        for _ in 0..1000 {
            let begin_rest = async {
                let end = Instant::now() + LONGEST_REST;
                rest_until(end);
                end
            };
            let end = replies.run(begin_rest).await;
            // A piece is no new work: nobody ends the rest for it.
            let read = replies.runtime.spawn(async { Instant::now() });
            if read.await.unwrap() >= end {
                return;
            }
        }
        panic!("it was woken each time");
    }

    #[test]
    fn a_rest_is_as_long_as_is_said_also_behind_work_that_was_begun() {
        let waiting = Arc::<WaitingWork>::default();
        drop(waiting.add());
        let end = Instant::now() + LONGEST_REST;
        rest_until(end);
        waiting.rest();
        assert!(Instant::now() >= end);
    }

    #[test]
    fn new_work_ends_a_rest_and_lets_none_begin() {
        let waiting = Arc::<WaitingWork>::default();
        let (resting, rests) = std::sync::mpsc::channel();
        let thread = thread::spawn({
            let waiting = Arc::clone(&waiting);
            move || {
                for _ in 0..2 {
                    // Far longer than the test may take.
                    REST_UNTIL.set(Some(Instant::now() + Duration::from_secs(3600)));
                    let _ = resting.send(());
                    waiting.rest();
                }
            }
        });
        rests.recv().unwrap();
        let _work = waiting.add();
        thread.join().unwrap();
    }

    #[tokio::test]
    async fn a_rest_is_no_longer_than_is_said() {
        let replies = reply_thread();
        let hour = Duration::from_secs(3600);
        let rest = async move {
            rest_until(Instant::now() + hour);
            REST_UNTIL.get()
        };
        let rest = replies.run(rest).await.unwrap();
        assert!(rest <= Instant::now() + LONGEST_REST);
    }

    #[tokio::test]
    async fn a_panic_is_the_callers_and_the_thread_goes_on() {
        let replies = reply_thread();
        let panicked = AssertUnwindSafe(replies.run(async { panic!("broken") }));
        let panic = panicked.catch_unwind().await.unwrap_err();
        assert_eq!(panic.downcast_ref::<&str>(), Some(&"broken"));
        assert_eq!(replies.run(async { 1 }).await, 1);
    }
}
