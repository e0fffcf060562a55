//! The host's side of one call: what the plugin's context object does.
//!
//! Nothing here may panic, because a panic would meet the library boundary and end the process.
//! A context may outlive its call in the plugin; then it answers that the call is gone, and holds
//! nothing of the host's alive.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use conjure_abi::{
    CallContext, CallCx, CallCx_TO, EmitKind, EmitStatus, Fault, FfiFuture, FutureExt as _, RArc,
    RResult, RSlice, Reply, TD_Opaque, code,
};
use conjure_skill_sdk::frames::MAX_HOST_REQUEST_BYTES;
use conjure_skill_sdk::protocol::host_op;
use tokio::runtime::Handle;
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::CallMeta;
use super::clock::CallClock;
use super::emit::EmitSink;
use super::health::SharedHealth;
use super::services::HostServices;

/// Host operations of one call that run at the same time.
const HOST_OPERATIONS: usize = 64;

/// How often one call may wait at the same time for its end and for room for output. More than what a
/// stream carries of a call ([`MAX_HOST_REQUESTS`](conjure_skill_sdk::frames::MAX_HOST_REQUESTS)), so
/// that the host itself can wait beside that.
const HOST_WAITS: usize = 1024;

/// One call, or the life of an instance.
pub(super) struct CallRecord {
    pub(super) health: Arc<SharedHealth>,
    pub(super) clock: CallClock,
    meta: CallMeta,
    runtime: Handle,
    cancelled: AtomicBool,
    /// Cancelled with the call, and when it is over.
    stop: CancellationToken,
    /// Cancelled when it is over.
    finished: CancellationToken,
    services: Mutex<Option<CallServices>>,
    slot: Mutex<Option<OwnedSemaphorePermit>>,
    thread: AtomicU8,
    /// Whether the call was given up: it did not stop when it was told to, in a worker.
    given_up: AtomicBool,
    operations: AtomicUsize,
    /// How often its end and room for output are waited for.
    pending_waits: AtomicUsize,
    /// Whether it made any use of its context that a call in place may not.
    pub(super) used_context: AtomicBool,
    /// How long the plugin's code took, in nanoseconds.
    pub(super) elapsed_nanos: AtomicU64,
}

/// What a call holds of the host, until it is over.
struct CallServices {
    sink: Option<EmitSink>,
    services: Arc<dyn HostServices>,
}

const OFF_THREAD: u8 = 0;
const ON_THREAD: u8 = 1;
const LOST: u8 = 2;

impl CallRecord {
    pub(super) fn new(
        health: Arc<SharedHealth>,
        runtime: Handle,
        services: Arc<dyn HostServices>,
        limit: Option<Duration>,
        sink: Option<EmitSink>,
        meta: CallMeta,
    ) -> Arc<Self> {
        Arc::new(Self {
            health,
            clock: CallClock::new(limit),
            meta,
            runtime,
            cancelled: AtomicBool::new(false),
            stop: CancellationToken::new(),
            finished: CancellationToken::new(),
            services: Mutex::new(Some(CallServices { sink, services })),
            slot: Mutex::new(None),
            thread: AtomicU8::new(OFF_THREAD),
            given_up: AtomicBool::new(false),
            operations: AtomicUsize::new(0),
            pending_waits: AtomicUsize::new(0),
            used_context: AtomicBool::new(false),
            elapsed_nanos: AtomicU64::new(0),
        })
    }

    /// The object that the plugin gets.
    pub(super) fn context(self: &Arc<Self>) -> CallContext {
        CallCx_TO::from_ptr(RArc::new(Port(Arc::clone(self))), TD_Opaque)
    }

    /// Tells the plugin to stop.
    pub(super) fn cancel(&self) {
        self.cancelled.store(true, Ordering::Release);
        self.stop.cancel();
    }

    /// The call is over: its context does nothing from now on.
    pub(super) fn finish(&self) {
        // First what it can still do, then the word that wakes whoever waits for the end.
        drop(lock(&self.services).take());
        self.cancel();
        self.finished.cancel();
    }

    /// The call takes a thread of the plugin's.
    pub(super) fn enter(&self) {
        self.thread.store(ON_THREAD, Ordering::Release);
    }

    /// The call's code came back from its thread, which is free again.
    pub(super) fn leave(&self) {
        if self.thread.swap(OFF_THREAD, Ordering::AcqRel) == LOST {
            self.health.note_thread_returned();
        }
        drop(lock(&self.slot).take());
    }

    /// Gives the call up. A thread that it is on is lost.
    pub(super) fn abandon(&self) {
        let on_thread =
            self.thread
                .compare_exchange(ON_THREAD, LOST, Ordering::AcqRel, Ordering::Acquire);
        if on_thread.is_ok() {
            self.health.abandon();
        }
    }

    /// Gives up a call in a worker, which is ended for that.
    pub(super) fn give_up(&self) {
        self.given_up.store(true, Ordering::Release);
    }

    /// Whether it was given up.
    pub(super) fn is_given_up(&self) -> bool {
        self.given_up.load(Ordering::Acquire)
    }

    pub(super) fn hold(&self, slot: OwnedSemaphorePermit) {
        *lock(&self.slot) = Some(slot);
    }

    fn emit(&self, kind: u32, bytes: &[u8]) -> EmitStatus {
        self.used_context.store(true, Ordering::Relaxed);
        if self.cancelled.load(Ordering::Acquire) {
            return EmitStatus::Cancelled;
        }
        let sink = match &*lock(&self.services) {
            None => return EmitStatus::Cancelled,
            Some(live) => live.sink.clone(),
        };
        match (sink, EmitKind::from_number(kind)) {
            (Some(sink), Some(kind)) => sink.offer(kind, bytes),
            // Nobody listens, or a newer plugin says what this host does not know.
            _ => EmitStatus::Ok,
        }
    }

    fn log(&self, level: u32, target: &[u8], message: &[u8]) {
        let services = lock(&self.services)
            .as_ref()
            .map(|live| Arc::clone(&live.services));
        self.health
            .log(services.as_ref(), &self.meta, level, target, message);
    }

    fn host(self: &Arc<Self>, op: &[u8], json: &[u8]) -> FfiFuture<Reply> {
        self.used_context.store(true, Ordering::Relaxed);
        let (sink, services) = match &*lock(&self.services) {
            None => return ready_fault(code::GONE, "the call is over"),
            Some(live) => (live.sink.clone(), Arc::clone(&live.services)),
        };
        let Ok(op) = std::str::from_utf8(op) else {
            return ready_fault(code::INVALID, "the operation's name is not UTF-8");
        };
        if json.len() > MAX_HOST_REQUEST_BYTES {
            return ready_fault(
                code::INVALID,
                "the request has more than 1 MiB; hand over a file instead",
            );
        }
        match op {
            host_op::CALL_CANCELLED => self.wait(|stop| async move { stop.cancelled().await }),
            host_op::CALL_WRITABLE => self.wait(|stop| async move {
                if let Some(sink) = sink {
                    tokio::select! {
                        () = sink.writable() => {}
                        () = stop.cancelled() => {}
                    }
                }
            }),
            _ if self.operations.fetch_add(1, Ordering::AcqRel) >= HOST_OPERATIONS => {
                self.operations.fetch_sub(1, Ordering::AcqRel);
                ready_fault(code::BUSY, "the call has 64 host operations under way")
            }
            _ => {
                let operation = HostOperation(Arc::clone(self));
                let (op, json) = (op.to_owned(), json.to_vec());
                let task = self
                    .runtime
                    .spawn(async move { operation.run(services, op, json).await });
                CancelOnDrop(task).into_ffi()
            }
        }
    }

    /// Waits for what the call's end ends too, unless too much is waited for.
    fn wait<F>(self: &Arc<Self>, until: impl FnOnce(CancellationToken) -> F) -> FfiFuture<Reply>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        if self.pending_waits.fetch_add(1, Ordering::AcqRel) >= HOST_WAITS {
            self.pending_waits.fetch_sub(1, Ordering::AcqRel);
            return ready_fault(code::BUSY, "the call waits 1,024 times already");
        }
        let waiting = HostWait(Arc::clone(self));
        let until = until(self.stop.clone());
        async move {
            until.await;
            drop(waiting);
            empty_reply()
        }
        .into_ffi()
    }

    /// Gives the call's thread slot back while somebody else is waited for.
    fn release_slot(&self) -> bool {
        lock(&self.slot).take().is_some()
    }

    async fn reacquire_slot(&self) {
        let slot = tokio::select! {
            slot = Arc::clone(&self.health.slots).acquire_owned() => slot.ok(),
            () = self.finished.cancelled() => None,
        };
        // When the call has left its thread meanwhile, nobody needs the slot.
        let mut held = lock(&self.slot);
        if self.thread.load(Ordering::Acquire) != OFF_THREAD {
            *held = slot;
        }
    }
}

/// A host operation under way.
struct HostOperation(Arc<CallRecord>);

impl HostOperation {
    async fn run(
        self,
        services: Arc<dyn HostServices>,
        op: String,
        json: Vec<u8>,
    ) -> Result<Vec<u8>, Fault> {
        let call = &self.0;
        let waits = services.is_interactive(&op);
        let paused = waits.then(|| call.clock.pause());
        let gave_back = waits && call.release_slot();
        let work = services.host(&call.health.id, &call.meta, &op, json);
        drop(services);
        let result = tokio::select! {
            result = work => result,
            () = call.finished.cancelled() => Err(Fault::new(code::GONE, "the call is over")),
        };
        if gave_back {
            call.reacquire_slot().await;
        }
        drop(paused);
        result
    }
}

impl Drop for HostOperation {
    fn drop(&mut self) {
        self.0.operations.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A wait of a call for its end or for room for output.
struct HostWait(Arc<CallRecord>);

impl Drop for HostWait {
    fn drop(&mut self) {
        self.0.pending_waits.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A task of the host's runtime; dropping it cancels the task there.
struct CancelOnDrop(JoinHandle<Result<Vec<u8>, Fault>>);

impl Future for CancelOnDrop {
    type Output = Reply;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Reply> {
        Pin::new(&mut self.0).poll(cx).map(|joined| match joined {
            Ok(Ok(bytes)) => RResult::ROk(bytes.into()),
            Ok(Err(fault)) => RResult::RErr(fault),
            Err(error) if error.is_panic() => {
                RResult::RErr(Fault::new(code::FAILED, "the host failed at the operation"))
            }
            Err(_) => RResult::RErr(Fault::new(code::GONE, "the host is shutting down")),
        })
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The context object. Cloned with every clone of the ABI's object.
#[derive(Clone)]
struct Port(Arc<CallRecord>);

impl CallCx for Port {
    fn emit(&self, kind: u32, bytes: RSlice<'_, u8>) -> u32 {
        self.0.emit(kind, bytes.as_slice()) as u32
    }

    fn cancelled(&self) -> bool {
        self.0.cancelled.load(Ordering::Acquire)
    }

    fn host(&self, op: RSlice<'_, u8>, json: RSlice<'_, u8>) -> FfiFuture<Reply> {
        self.0.host(op.as_slice(), json.as_slice())
    }

    fn log(&self, level: u32, target: RSlice<'_, u8>, message: RSlice<'_, u8>) {
        self.0.log(level, target.as_slice(), message.as_slice());
    }
}

pub(super) fn ready_fault(code: u32, message: &str) -> FfiFuture<Reply> {
    std::future::ready(RResult::RErr(Fault::new(code, message))).into_ffi()
}

fn empty_reply() -> Reply {
    RResult::ROk(b"{}".to_vec().into())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
