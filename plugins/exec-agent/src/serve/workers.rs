//! Threads for calls: one that has done its work waits a while for the next.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use super::lock;

/// How long a thread without work stays.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);

type WorkerJob = Box<dyn FnOnce() + Send>;

/// The threads that wait, each by its number with the way to it.
#[derive(Default)]
struct Idle {
    idle: Mutex<Vec<(u64, Sender<WorkerJob>)>>,
    next: AtomicU64,
}

/// The threads.
pub(super) struct Workers {
    stack: usize,
    idle: Arc<Idle>,
}

impl Workers {
    /// A pool without threads yet; each will have a stack of so many bytes.
    pub(super) fn new(stack: usize) -> Self {
        Self {
            stack,
            idle: Arc::default(),
        }
    }

    /// Lets a thread do this: one that waits, or a new one.
    ///
    /// # Errors
    /// When there is none and the system gives no more.
    pub(super) fn run(&self, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let mut work: WorkerJob = Box::new(work);
        let waiting = || lock(&self.idle.idle).pop();
        while let Some((_, worker)) = waiting() {
            match worker.send(work) {
                Ok(()) => return Ok(()),
                Err(unsent) => work = unsent.0,
            }
        }
        let idle = Arc::clone(&self.idle);
        let thread = thread::Builder::new().stack_size(self.stack);
        thread.spawn(move || idle.live(work)).map(drop)
    }
}

impl Idle {
    /// The life of a thread.
    fn live(&self, first: WorkerJob) {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let (sender, more) = channel();
        first();
        loop {
            lock(&self.idle).push((number, sender.clone()));
            let mut work = more.recv_timeout(IDLE_TIMEOUT).ok();
            if work.is_none() && !self.leaves(number) {
                // Whoever took it from the list is about to send.
                work = more.recv().ok();
            }
            match work {
                Some(work) => work(),
                None => return,
            }
        }
    }

    /// Takes a thread off the list; false when somebody else has.
    fn leaves(&self, number: u64) -> bool {
        let mut waiting = lock(&self.idle);
        let before = waiting.len();
        waiting.retain(|(other, _)| *other != number);
        waiting.len() < before
    }
}

#[cfg(test)]
mod tests {
    use std::thread::{ThreadId, current};

    use super::*;

    #[test]
    fn a_thread_is_used_again_and_work_never_waits_for_another() {
        let workers = Workers::new(256 * 1024);
        let (sender, done) = channel::<ThreadId>();
        let seen = |sender: &Sender<ThreadId>| {
            let sender = sender.clone();
            move || sender.send(current().id()).unwrap()
        };
        workers.run(seen(&sender)).unwrap();
        let first = done.recv().unwrap();
        while lock(&workers.idle.idle).is_empty() {
            thread::yield_now();
        }
        let (go, wait) = channel::<()>();
        let second = seen(&sender);
        let held = move || {
            wait.recv().unwrap();
            second();
        };
        workers.run(held).unwrap();
        workers.run(seen(&sender)).unwrap();
        assert_ne!(done.recv().unwrap(), first);
        go.send(()).unwrap();
        assert_eq!(done.recv().unwrap(), first);
    }
}
