//! The one way to a plugin's instance, wherever it runs.
//!
//! Message-shaped, so that a worker process can stand behind it (`worker/`): [`InstanceLink::request`] is the frame
//! *request* and its result the frame *reply*; a [`CallRecord`] being cancelled is *cancel*; its
//! context's methods are *emit* (with *credit* when there is room again), *log*, *host request*
//! and *host reply*. Nothing of a plugin's types is seen here or beyond.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use conjure_abi::{CallContext, Fault, PluginObject, RResult, RSlice, RVec, Reply};
use conjure_skill_sdk::protocol::{Empty, Request, op};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tokio::sync::oneshot;

use super::call::CallRecord;
use super::pool::POOL;
use super::services::AfterStop;

/// A `start` that takes no longer hands a task to the plugin's runtime and does little more. It
/// counts one point for doing without a thread of its own.
const QUICK_START: Duration = Duration::from_micros(100);
/// From so many points on the next one needs none.
const MIN_POINTS: u32 = 64;
/// More are not kept.
const MAX_POINTS: u32 = 256;
/// What longer ones cost. A busy machine makes some of any plugin's long; one that takes longer
/// than these takes all points.
const COSTS: [(Duration, u32); 2] = [
    (Duration::from_millis(1), 4),
    (Duration::from_millis(10), 32),
];
/// A request with more bytes always has a thread: the plugin reads it before it starts.
const MAX_UNTHREADED_BYTES: usize = 16 * 1024;

/// What came of a request.
pub(super) enum LinkReply {
    /// The plugin answered.
    Reply(Result<Vec<u8>, Fault>),
    /// The plugin's side broke the contract of the boundary.
    Broken(String),
    /// The host has no thread; the plugin's code did not run.
    NoThread(String),
    /// The plugin's worker ended while the request ran, in this way.
    WorkerEnded(String),
    /// The plugin has no worker; its code did not run.
    NoWorker(String),
}

/// An instance of a plugin.
pub(super) trait InstanceLink: Send + Sync + 'static {
    /// Carries out a request. Dropping the future gives the request up; what of it occupies a
    /// thread goes on there.
    fn request(
        &self,
        op: &str,
        json: Vec<u8>,
        call: Arc<CallRecord>,
    ) -> BoxFuture<'static, LinkReply>;

    /// Carries out a request on the calling thread, where the link can.
    fn in_place(&self, op: &str, json: &[u8], cx: CallContext) -> Option<Result<RVec<u8>, Fault>>;

    /// Says that the instance was told to shut down.
    fn mark_closed(&self);

    /// Gives up a call that did not stop when it was told to; its request is dropped next. What
    /// becomes of the plugin's code.
    fn abandon(&self, call: &CallRecord) -> AfterStop;
}

/// An instance in this process: of a library, or of something linked into the host.
pub(super) struct InProcess {
    object: Arc<InstanceObject>,
    asynchronous: bool,
}

impl InProcess {
    /// `context` is the one that the instance was made with.
    pub(super) fn new(object: PluginObject, context: Arc<CallRecord>, asynchronous: bool) -> Self {
        Self {
            object: Arc::new(InstanceObject {
                object: Some(object),
                context,
                closed: AtomicBool::new(false),
                starts: StartScore::default(),
            }),
            asynchronous,
        }
    }
}

impl InstanceLink for InProcess {
    fn request(
        &self,
        op: &str,
        json: Vec<u8>,
        call: Arc<CallRecord>,
    ) -> BoxFuture<'static, LinkReply> {
        let asynchronous = self.asynchronous;
        if asynchronous && json.len() <= MAX_UNTHREADED_BYTES && self.object.starts.is_quick() {
            let started = self.object.run(op, &json, &call, asynchronous);
            return Box::pin(started.answer());
        }
        let (sender, receiver) = oneshot::channel();
        let (held, op) = (Arc::clone(&self.object), op.to_owned());
        let job = move || {
            let _ = sender.send(held.run(&op, &json, &call, asynchronous));
        };
        if let Err(error) = POOL.run(job) {
            return Box::pin(std::future::ready(LinkReply::NoThread(error.to_string())));
        }
        Box::pin(async move {
            match receiver.await {
                Ok(started) => started.answer().await,
                Err(_) => LinkReply::Broken("its call ended without an answer".to_owned()),
            }
        })
    }

    fn in_place(&self, op: &str, json: &[u8], cx: CallContext) -> Option<Result<RVec<u8>, Fault>> {
        if self.asynchronous {
            return None;
        }
        let object = self.object.object.as_ref()?;
        let reply = object.call(
            RSlice::from_slice(op.as_bytes()),
            RSlice::from_slice(json),
            cx,
        );
        Some(reply.into_result())
    }

    fn mark_closed(&self) {
        self.object.closed.store(true, Ordering::Release);
    }

    fn abandon(&self, call: &CallRecord) -> AfterStop {
        call.abandon();
        AfterStop::StillRunning
    }
}

enum RequestStart {
    Done(Reply),
    Pending(conjure_abi::FfiFuture<Reply>),
}

impl RequestStart {
    async fn answer(self) -> LinkReply {
        match self {
            Self::Done(reply) => LinkReply::Reply(unpack(reply)),
            Self::Pending(future) => match AssertUnwindSafe(future).catch_unwind().await {
                Ok(reply) => LinkReply::Reply(unpack(reply)),
                Err(_) => LinkReply::Broken("its future panicked at the boundary".to_owned()),
            },
        }
    }
}

/// How an instance's starts were, of which the plugin's contract says that they take microseconds. A
/// thread for one costs two changes of thread.
#[derive(Default)]
struct StartScore(AtomicU32);

impl StartScore {
    /// Whether the next one may run on whatever thread asks for it.
    fn is_quick(&self) -> bool {
        self.0.load(Ordering::Relaxed) >= MIN_POINTS
    }

    fn record(&self, took: Duration) {
        let points = self.0.load(Ordering::Relaxed);
        let after = if took <= QUICK_START {
            MAX_POINTS.min(points + 1)
        } else {
            let cost = COSTS.iter().find(|(limit, _)| took <= *limit);
            cost.map_or(0, |(_, cost)| points.saturating_sub(*cost))
        };
        // Whoever notes at the same moment may win: it is a rule of thumb.
        if after != points {
            self.0.store(after, Ordering::Relaxed);
        }
    }
}

/// The plugin's object. Its destructor is author code and never runs on a thread of the host's.
struct InstanceObject {
    object: Option<PluginObject>,
    context: Arc<CallRecord>,
    closed: AtomicBool,
    starts: StartScore,
}

impl InstanceObject {
    /// Calls the plugin, and notes how long that took.
    fn run(
        &self,
        op: &str,
        json: &[u8],
        call: &Arc<CallRecord>,
        asynchronous: bool,
    ) -> RequestStart {
        let begun = Instant::now();
        let started = self.enter(op, json, call, asynchronous);
        let took = begun.elapsed();
        self.starts.record(took);
        let took = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        call.elapsed_nanos.store(took, Ordering::Relaxed);
        call.leave();
        started
    }

    fn enter(
        &self,
        op: &str,
        json: &[u8],
        call: &Arc<CallRecord>,
        asynchronous: bool,
    ) -> RequestStart {
        let Some(object) = &self.object else {
            let fault = Fault::new(conjure_abi::code::GONE, "the instance is over");
            return RequestStart::Done(RResult::RErr(fault));
        };
        let op = RSlice::from_slice(op.as_bytes());
        let json = RSlice::from_slice(json);
        if asynchronous {
            RequestStart::Pending(object.start(op, json, call.context()))
        } else {
            RequestStart::Done(object.call(op, json, call.context()))
        }
    }
}

impl Drop for InstanceObject {
    fn drop(&mut self) {
        let Some(object) = self.object.take() else {
            return;
        };
        let context = self.context.context();
        let closed = self.closed.load(Ordering::Acquire);
        let job = move || {
            if !closed {
                let json = serde_json::to_vec(&Request::new(Empty {})).unwrap_or_default();
                let op = RSlice::from_slice(op::SHUTDOWN.as_bytes());
                drop(object.call(op, RSlice::from_slice(&json), context));
            }
            drop(object);
        };
        // Without a thread the object is dropped here after all, with the job.
        if let Err(error) = POOL.run(job) {
            tracing::warn!(
                "no thread to end an instance of {}: {error}",
                self.context.health.id
            );
        }
    }
}

fn unpack(reply: Reply) -> Result<Vec<u8>, Fault> {
    reply.into_result().map(RVec::into_vec)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_need_no_thread_after_many_quick_ones_until_too_many_are_slow() {
        let [quick, longer, slow] = [100, 1_000, 10_000].map(Duration::from_micros);
        let starts = StartScore::default();
        for _ in 0..2 {
            for _ in 0..MIN_POINTS - 1 {
                starts.record(quick);
            }
            assert!(!starts.is_quick());
            starts.record(quick);
            assert!(starts.is_quick());
            // One that really waits is one too many.
            starts.record(slow + Duration::from_nanos(1));
            assert!(!starts.is_quick());
        }
        for _ in 0..10 * MAX_POINTS {
            starts.record(quick);
        }
        for _ in 0..6 {
            starts.record(slow);
            assert!(starts.is_quick());
        }
        starts.record(slow);
        assert!(!starts.is_quick());
        starts.record(slow);
        // Where one in four is not quick, the rest makes up for nothing.
        for _ in 0..1_000 {
            for took in [quick, quick, quick, longer] {
                starts.record(took);
            }
        }
        assert!(!starts.is_quick());
    }
}
