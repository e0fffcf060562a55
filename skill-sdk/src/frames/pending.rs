//! A call that is under way at the other end of a stream, as whoever asked for it sees it.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use conjure_abi::{CallContext, EmitStatus, Fault, FfiFuture, RResult, RSlice, Reply};
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;

use super::client::ClientCore;
use super::message::{Cancel, Message};
use crate::protocol::host_op;

/// What comes for a call, in its order. Bounded by the call's credit.
pub(super) enum CallItem {
    Piece(u32, Vec<u8>),
    Reply(Reply),
}

/// A call that is under way; dropping it releases it.
pub(super) struct PendingCall {
    shared: Arc<ClientCore>,
    pub(super) call_id: u64,
    state: ReplyWait,
}

enum ReplyWait {
    Refused(Option<Fault>),
    Reply {
        reply: oneshot::Receiver<Reply>,
        cancel: CancelWait,
    },
    Done,
}

/// Waits for the end of whom a call is for, to tell the plugin.
enum CancelWait {
    Idle(CallContext),
    Watching(CallContext, Pin<Box<FfiFuture<Reply>>>),
    Finished,
}

impl CancelWait {
    /// Whether the plugin is to be told now.
    fn is_due(&mut self, task: &mut Context<'_>) -> bool {
        if let Self::Idle(cx) = self {
            let op = RSlice::from_slice(host_op::CALL_CANCELLED.as_bytes());
            let asked = cx.host(op, RSlice::from_slice(b"{}"));
            *self = Self::Watching(cx.clone(), Box::pin(asked));
        }
        let Self::Watching(cx, asked) = self else {
            return false;
        };
        let Poll::Ready(reply) = asked.as_mut().poll(task) else {
            return false;
        };
        let is_due = matches!(reply, RResult::ROk(_)) && cx.cancelled();
        *self = Self::Finished;
        is_due
    }
}

impl PendingCall {
    /// One whose reply comes here. With a context the plugin is told of the end of whom it is for.
    pub(super) fn new(
        shared: Arc<ClientCore>,
        call_id: u64,
        reply: oneshot::Receiver<Reply>,
        watched: Option<CallContext>,
    ) -> Self {
        let cancel = watched.map_or(CancelWait::Finished, CancelWait::Idle);
        Self {
            shared,
            call_id,
            state: ReplyWait::Reply { reply, cancel },
        }
    }

    /// A call that was answered before it was asked for.
    pub(super) fn refused(shared: Arc<ClientCore>, fault: Fault) -> Self {
        Self {
            shared,
            call_id: 0,
            state: ReplyWait::Refused(Some(fault)),
        }
    }

    fn end_reply(&self) -> Reply {
        RResult::RErr(self.shared.end_of())
    }
}

/// What it waits for is pinned by itself.
impl Unpin for PendingCall {}

impl Future for PendingCall {
    type Output = Reply;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Reply> {
        let this = &mut *self;
        let reply = match &mut this.state {
            ReplyWait::Refused(fault) => fault.take().map(RResult::RErr),
            ReplyWait::Reply { reply, cancel } => match Pin::new(reply).poll(cx) {
                Poll::Pending => {
                    if cancel.is_due(cx) {
                        let cancelled = Message::Cancel(Cancel::Call);
                        let _ = this.shared.outbox.send(this.call_id, cancelled);
                    }
                    return Poll::Pending;
                }
                Poll::Ready(reply) => reply.ok(),
            },
            ReplyWait::Done => None,
        };
        self.state = ReplyWait::Done;
        Poll::Ready(reply.unwrap_or_else(|| self.end_reply()))
    }
}

impl Drop for PendingCall {
    fn drop(&mut self) {
        if matches!(self.state, ReplyWait::Reply { .. }) {
            self.shared.release(self.call_id);
        }
    }
}

/// Hands what comes for a call to its context, in order, and then the reply to whoever waits.
pub(super) async fn pump(
    shared: Arc<ClientCore>,
    call_id: u64,
    cx: CallContext,
    mut items: mpsc::UnboundedReceiver<CallItem>,
    mut replies: Option<oneshot::Sender<Reply>>,
    watches: bool,
) {
    let _watcher = watches.then(|| {
        let (cx, outbox) = (cx.clone(), shared.outbox.clone());
        let watcher = shared.runtime.spawn(async move {
            if host_confirms(&cx, host_op::CALL_CANCELLED).await && cx.cancelled() {
                let _ = outbox.send(call_id, Message::Cancel(Cancel::Call));
            }
        });
        AbortOnDrop(watcher.abort_handle())
    });
    while let Some(item) = items.recv().await {
        match item {
            CallItem::Piece(kind, bytes) => {
                deliver(&cx, kind, &bytes).await;
                shared.grant_credit(call_id);
            }
            CallItem::Reply(reply) => {
                if let Some(replies) = replies.take() {
                    let _ = replies.send(reply);
                }
            }
        }
    }
}

struct AbortOnDrop(AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn deliver(cx: &CallContext, kind: u32, bytes: &[u8]) {
    loop {
        let status = cx.emit(kind, RSlice::from_slice(bytes));
        match EmitStatus::from_number(status) {
            EmitStatus::Ok | EmitStatus::Cancelled => return,
            EmitStatus::Full => {
                if !host_confirms(cx, host_op::CALL_WRITABLE).await {
                    return;
                }
            }
        }
    }
}

async fn host_confirms(cx: &CallContext, op: &str) -> bool {
    let pending = cx.host(RSlice::from_slice(op.as_bytes()), RSlice::from_slice(b"{}"));
    matches!(pending.await, RResult::ROk(_))
}
