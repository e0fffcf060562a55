//! The plugin's end of one call: its context, when the host is behind a stream.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use conjure_abi::{
    CallContext, CallCx, CallCx_TO, EmitStatus, Fault, FfiFuture, FutureExt, RArc, RResult, RSlice,
    RVec, Reply, TD_Opaque, code,
};
use tokio::sync::{oneshot, watch};

use super::MAX_HOST_REQUESTS;
use super::codec::MAX_BYTES;
use super::message::{Cancel, Message};
use super::stream::Outbox;
use crate::protocol::host_op;

/// A log line is cut behind so many bytes.
const MAX_LOG: usize = 16 * 1024;

/// Room in a frame for what is not the payload itself.
const OVERHEAD: usize = 128 * 1024;

/// One call, or one instance.
pub(super) struct CallLine {
    call_id: u64,
    outbox: Outbox,
    stopped: AtomicBool,
    state: Mutex<LineState>,
    changed: watch::Sender<()>,
}

struct LineState {
    credit: u32,
    closed: bool,
    next_host: u32,
    waiting: HashMap<u32, oneshot::Sender<Reply>>,
}

impl CallLine {
    pub(super) fn new(call_id: u64, credit: u32, outbox: Outbox) -> Arc<Self> {
        Arc::new(Self {
            call_id,
            outbox,
            stopped: AtomicBool::new(false),
            state: Mutex::new(LineState {
                credit,
                closed: false,
                next_host: 0,
                waiting: HashMap::new(),
            }),
            changed: watch::Sender::new(()),
        })
    }

    /// The context that the plugin gets.
    pub(super) fn context(self: &Arc<Self>) -> CallContext {
        CallCx_TO::from_ptr(RArc::new(FramedCx(Arc::clone(self))), TD_Opaque)
    }

    pub(super) fn add_credit(&self, pieces: u32) {
        {
            let mut state = self.state();
            state.credit = state.credit.saturating_add(pieces);
        }
        self.changed.send_replace(());
    }

    pub(super) fn cancel(&self) {
        self.stopped.store(true, Ordering::Release);
        self.changed.send_replace(());
    }

    pub(super) fn host_reply(&self, id: u32, reply: Result<Vec<u8>, Fault>) {
        if let Some(waiting) = self.state().waiting.remove(&id) {
            let _ = waiting.send(match reply {
                Ok(json) => RResult::ROk(json.into()),
                Err(fault) => RResult::RErr(fault),
            });
        }
    }

    /// Sends the reply. Nothing of the call follows it on the stream.
    pub(super) fn finish(&self, reply: Result<Vec<u8>, Fault>) {
        let reply = match reply {
            Ok(json) if json.len() > MAX_BYTES - OVERHEAD => Err(Fault::new(
                code::FAILED,
                format!(
                    "the reply has {} bytes, which is over the limit: send what is large as a file",
                    json.len()
                ),
            )),
            other => other,
        };
        let mut state = self.state();
        if !state.closed {
            // Over first: whoever has the reply finds the call over, on this end too.
            self.end(&mut state);
            let _ = self.outbox.send(self.call_id, Message::Reply(reply));
        }
    }

    /// Answers without ending the call, which for an instance goes on.
    pub(super) fn answer(&self, reply: Result<Vec<u8>, Fault>) {
        let _ = self.outbox.send(self.call_id, Message::Reply(reply));
    }

    /// Whether it was answered or released.
    pub(super) fn is_closed(&self) -> bool {
        self.state().closed
    }

    /// Ends the call without a reply, for nobody waits for one.
    pub(super) fn release(&self) {
        self.end(&mut self.state());
    }

    fn end(&self, state: &mut LineState) {
        state.closed = true;
        // Dropping the senders answers whoever waits with GONE.
        state.waiting.clear();
        self.cancel();
    }

    fn state(&self) -> MutexGuard<'_, LineState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    async fn wait_until(&self, ready: impl Fn(&Self) -> bool) {
        let mut changes = self.changed.subscribe();
        while !ready(self) {
            if changes.changed().await.is_err() {
                return;
            }
        }
    }

    /// Asks the host, or says at once why not.
    fn ask(self: &Arc<Self>, op: &[u8], json: &[u8]) -> Result<PendingHostCall, Fault> {
        if op.len() + json.len() > MAX_BYTES - OVERHEAD {
            return Err(Fault::new(
                code::INVALID,
                "the host request is over the limit: send what is large as a file",
            ));
        }
        let mut state = self.state();
        if state.closed {
            return Err(call_gone());
        }
        if state.waiting.len() >= MAX_HOST_REQUESTS {
            return Err(Fault::new(
                code::BUSY,
                format!("{MAX_HOST_REQUESTS} host requests of this call are under way already"),
            ));
        }
        let id = state.next_host;
        state.next_host = state.next_host.wrapping_add(1);
        let (sender, reply) = oneshot::channel();
        state.waiting.insert(id, sender);
        let _ = self.outbox.send(
            self.call_id,
            Message::HostRequest {
                id,
                op: op.to_vec(),
                json: json.to_vec(),
            },
        );
        Ok(PendingHostCall {
            line: Arc::clone(self),
            id,
            reply,
        })
    }
}

fn call_gone() -> Fault {
    Fault::new(code::GONE, "the call is over")
}

/// A host request that is under way; dropping it cancels it.
struct PendingHostCall {
    line: Arc<CallLine>,
    id: u32,
    reply: oneshot::Receiver<Reply>,
}

impl Future for PendingHostCall {
    type Output = Reply;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Reply> {
        Pin::new(&mut self.reply)
            .poll(cx)
            .map(|reply| reply.unwrap_or_else(|_| RResult::RErr(call_gone())))
    }
}

impl Drop for PendingHostCall {
    fn drop(&mut self) {
        if self.line.state().waiting.remove(&self.id).is_some() {
            let _ = self.line.outbox.send(
                self.line.call_id,
                Message::Cancel(Cancel::HostRequest(self.id)),
            );
        }
    }
}

#[derive(Clone)]
struct FramedCx(Arc<CallLine>);

impl CallCx for FramedCx {
    fn emit(&self, kind: u32, bytes: RSlice<'_, u8>) -> u32 {
        let mut state = self.0.state();
        let status = if state.closed || self.0.is_stopped() {
            EmitStatus::Cancelled
        } else if state.credit == 0 {
            EmitStatus::Full
        } else {
            let piece = Message::Emit {
                kind,
                bytes: bytes.as_slice().to_vec(),
            };
            match self.0.outbox.send(self.0.call_id, piece) {
                Ok(()) => {
                    state.credit -= 1;
                    EmitStatus::Ok
                }
                Err(_) => EmitStatus::Cancelled,
            }
        };
        status as u32
    }

    fn cancelled(&self) -> bool {
        self.0.is_stopped()
    }

    fn host(&self, op: RSlice<'_, u8>, json: RSlice<'_, u8>) -> FfiFuture<Reply> {
        let line = Arc::clone(&self.0);
        // These two are about this end of the stream, which knows the answer itself.
        if op.as_slice() == host_op::CALL_CANCELLED.as_bytes() {
            return async move {
                line.wait_until(CallLine::is_stopped).await;
                empty()
            }
            .into_ffi();
        }
        if op.as_slice() == host_op::CALL_WRITABLE.as_bytes() {
            return async move {
                line.wait_until(|line| line.is_stopped() || line.state().credit > 0)
                    .await;
                if line.state().closed {
                    RResult::RErr(call_gone())
                } else {
                    empty()
                }
            }
            .into_ffi();
        }
        match line.ask(op.as_slice(), json.as_slice()) {
            Ok(asked) => asked.into_ffi(),
            Err(fault) => std::future::ready(RResult::RErr(fault)).into_ffi(),
        }
    }

    fn log(&self, level: u32, target: RSlice<'_, u8>, message: RSlice<'_, u8>) {
        let line = Message::Log {
            level,
            target: target.as_slice().to_vec(),
            message: message.iter().copied().take(MAX_LOG).collect(),
        };
        self.0.outbox.log(self.0.call_id, line);
    }
}

fn empty() -> Reply {
    RResult::ROk(RVec::from(b"{}".to_vec()))
}
