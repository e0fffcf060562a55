//! The one way to a plugin's instance, wherever it runs.
//!
//! Message-shaped, so that a worker process can stand behind it: [`Link::request`] is the frame
//! *request* and its result the frame *reply*; a [`Call`] being cancelled is *cancel*; its
//! context's methods are *emit* (with *credit* when there is room again), *log*, *host request*
//! and *host reply*. Nothing of a plugin's types is seen here or beyond.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use conjure_abi::{CallContext, Fault, PluginObject, RResult, RSlice, RVec, Reply};
use conjure_skill_sdk::protocol::{Empty, Request, op};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tokio::sync::oneshot;

use super::call::Call;
use super::pool::POOL;

/// What came of a request.
pub(super) enum Answer {
    /// The plugin answered.
    Reply(Result<Vec<u8>, Fault>),
    /// The plugin's side broke the contract of the boundary.
    Broken(String),
    /// The host has no thread; the plugin's code did not run.
    NoThread(String),
}

/// An instance of a plugin.
pub(super) trait Link: Send + Sync + 'static {
    /// Carries out a request. Dropping the future gives the request up; what of it occupies a
    /// thread goes on there.
    fn request(&self, op: &str, json: Vec<u8>, call: Arc<Call>) -> BoxFuture<'static, Answer>;

    /// Carries out a request on the calling thread, where the link can.
    fn in_place(&self, op: &str, json: &[u8], cx: CallContext) -> Option<Result<RVec<u8>, Fault>>;

    /// Says that the instance was told to shut down.
    fn closed(&self);
}

/// An instance in this process: of a library, or of something linked into the host.
pub(super) struct InProcess {
    object: Arc<Held>,
    asynchronous: bool,
}

impl InProcess {
    /// `context` is the one that the instance was made with.
    pub(super) fn new(object: PluginObject, context: Arc<Call>, asynchronous: bool) -> Self {
        Self {
            object: Arc::new(Held {
                object: Some(object),
                context,
                closed: AtomicBool::new(false),
            }),
            asynchronous,
        }
    }
}

impl Link for InProcess {
    fn request(&self, op: &str, json: Vec<u8>, call: Arc<Call>) -> BoxFuture<'static, Answer> {
        let (sender, receiver) = oneshot::channel();
        let (held, op) = (Arc::clone(&self.object), op.to_owned());
        let asynchronous = self.asynchronous;
        let job = move || {
            let begun = Instant::now();
            let started = held.run(&op, &json, &call, asynchronous);
            let took = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
            call.took.store(took, Ordering::Relaxed);
            call.leave();
            let _ = sender.send(started);
        };
        if let Err(error) = POOL.run(job) {
            return Box::pin(std::future::ready(Answer::NoThread(error.to_string())));
        }
        Box::pin(async move {
            match receiver.await {
                Ok(Started::Done(reply)) => Answer::Reply(unpack(reply)),
                Ok(Started::Pending(future)) => {
                    match AssertUnwindSafe(future).catch_unwind().await {
                        Ok(reply) => Answer::Reply(unpack(reply)),
                        Err(_) => Answer::Broken("its future panicked at the boundary".to_owned()),
                    }
                }
                Err(_) => Answer::Broken("its call ended without an answer".to_owned()),
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

    fn closed(&self) {
        self.object.closed.store(true, Ordering::Release);
    }
}

enum Started {
    Done(Reply),
    Pending(conjure_abi::FfiFuture<Reply>),
}

/// The plugin's object. Its destructor is author code and never runs on a thread of the host's.
struct Held {
    object: Option<PluginObject>,
    context: Arc<Call>,
    closed: AtomicBool,
}

impl Held {
    fn run(&self, op: &str, json: &[u8], call: &Arc<Call>, asynchronous: bool) -> Started {
        let Some(object) = &self.object else {
            let fault = Fault::new(conjure_abi::code::GONE, "the instance is over");
            return Started::Done(RResult::RErr(fault));
        };
        let op = RSlice::from_slice(op.as_bytes());
        let json = RSlice::from_slice(json);
        if asynchronous {
            Started::Pending(object.start(op, json, call.context()))
        } else {
            Started::Done(object.call(op, json, call.context()))
        }
    }
}

impl Drop for Held {
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
