//! Operations that wait and are no tasks yet.
//!
//! An operation that starts in place is polled on the thread that asks for it. A task of the
//! runtime made of the rest at once would wake one of the runtime's threads for nothing: there is
//! nothing to do before what it waits for comes. So it is put by, and becomes a task when it is
//! woken, which is a thing of the runtime's threads as a rule.

use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::error::{Error, Result};
use crate::guard::CatchPanic;

/// Result of an operation.
type OperationResult = Result<Vec<u8>>;

/// The operations of one instance that wait.
pub(crate) struct ParkedOperations {
    runtime: Handle,
    operations: Mutex<HashMap<u64, ParkedOperation>>,
    next: AtomicU64,
}

/// An operation, and where its result goes.
struct ParkedOperation {
    operation: CatchPanic<Vec<u8>>,
    reply: oneshot::Sender<OperationResult>,
}

impl ParkedOperation {
    /// The rest of it, until it is done or nobody waits for it.
    async fn run_rest(self) {
        let Self {
            mut operation,
            mut reply,
        } = self;
        let done = poll_fn(|cx| {
            if reply.poll_closed(cx).is_ready() {
                return Poll::Ready(None);
            }
            Pin::new(&mut operation).poll(cx).map(Some)
        });
        if let Some(done) = done.await {
            // Whoever asked may have gone just now.
            let _ = reply.send(done);
        }
    }
}

/// An operation that was begun.
pub(crate) enum OperationStart {
    Done(OperationResult),
    Pending(ParkedReply),
}

/// The result of an operation that waits. Dropping it cancels the operation, on the runtime.
pub(crate) struct ParkedReply {
    result: oneshot::Receiver<OperationResult>,
    waker: Arc<ParkedWaker>,
}

/// State of an operation while it is no task.
struct ParkedWaker {
    number: u64,
    is_woken: AtomicBool,
    parked: Arc<ParkedOperations>,
}

impl ParkedOperations {
    pub(crate) fn new(runtime: &Handle) -> Arc<Self> {
        Arc::new(Self {
            runtime: runtime.clone(),
            operations: Mutex::default(),
            next: AtomicU64::new(0),
        })
    }

    /// Polls an operation once, here.
    pub(crate) fn begin(self: &Arc<Self>, mut operation: CatchPanic<Vec<u8>>) -> OperationStart {
        let place = Arc::new(ParkedWaker {
            number: self.next.fetch_add(1, Ordering::Relaxed),
            // A runtime of the same library may be about to wake it and then be left with that, so
            // there it waits for nothing. One of another library knows nothing of it.
            is_woken: AtomicBool::new(Handle::try_current().is_ok()),
            parked: Arc::clone(self),
        });
        let polled = {
            let _entered = self.runtime.enter();
            let waker = Waker::from(Arc::clone(&place));
            Pin::new(&mut operation).poll(&mut Context::from_waker(&waker))
        };
        if let Poll::Ready(done) = polled {
            return OperationStart::Done(done);
        }
        let (reply, result) = oneshot::channel();
        let waiting = ParkedOperation { operation, reply };
        self.lock().insert(place.number, waiting);
        // It may have been woken before it could be found.
        if place.is_woken.load(Ordering::SeqCst) {
            place.spawn_rest();
        }
        OperationStart::Pending(ParkedReply {
            result,
            waker: place,
        })
    }

    /// All that wait, for whoever ends them. Those who wait for their results hear of it here.
    pub(crate) fn take(&self) -> Vec<CatchPanic<Vec<u8>>> {
        let waiting = std::mem::take(&mut *self.lock());
        let waiting = waiting.into_values();
        waiting.map(|waiting| waiting.operation).collect()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, ParkedOperation>> {
        self.operations
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl ParkedWaker {
    /// Makes the operation a task, unless it is one.
    fn spawn_rest(&self) {
        // Under the lock, so that whoever ends the runtime finds it here or the runtime has it.
        let mut waiting = self.parked.lock();
        if let Some(waiting) = waiting.remove(&self.number) {
            self.parked.runtime.spawn(waiting.run_rest());
        }
    }
}

impl Wake for ParkedWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.is_woken.store(true, Ordering::SeqCst);
        self.spawn_rest();
    }
}

impl Future for ParkedReply {
    type Output = OperationResult;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<OperationResult> {
        let result = Pin::new(&mut self.result).poll(cx);
        // The operation catches its own panics; what is left is that it was cancelled.
        result.map(|done| done.unwrap_or_else(|_| Err(Error::cancelled())))
    }
}

impl Drop for ParkedReply {
    fn drop(&mut self) {
        self.result.close();
        // One that waits has to see that nobody waits for it.
        self.waker.spawn_rest();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::mpsc::{Sender, channel};
    use std::thread::{self, ThreadId};

    use super::*;

    struct Tells(Sender<ThreadId>);

    impl Drop for Tells {
        fn drop(&mut self) {
            let _ = self.0.send(thread::current().id());
        }
    }

    #[test]
    fn one_that_is_given_up_as_its_runtime_ends_is_dropped_on_neither_of_those_threads() {
        for _ in 0..2_000 {
            let mut runtime = tokio::runtime::Builder::new_multi_thread();
            let runtime = runtime.worker_threads(1).build().unwrap();
            let parked = ParkedOperations::new(runtime.handle());
            let (tell, told) = channel();
            let operation = CatchPanic::new(Box::pin(async move {
                let _here = Tells(tell);
                std::future::pending().await
            }));
            let OperationStart::Pending(reply) = parked.begin(operation) else {
                panic!("it is done");
            };
            let both = Arc::new(Barrier::new(2));
            let gives_up = thread::spawn({
                let both = Arc::clone(&both);
                move || {
                    both.wait();
                    drop(reply);
                }
            });
            both.wait();
            let waiting = parked.take();
            runtime.spawn_blocking(move || drop(waiting));
            runtime.shutdown_background();
            let dropped = told.recv().unwrap();
            assert!(![gives_up.thread().id(), thread::current().id()].contains(&dropped));
            gives_up.join().unwrap();
        }
    }
}
