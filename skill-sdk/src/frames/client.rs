//! The host's end of a stream with a plugin behind it: looks like a plugin in this process.

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use conjure_abi::{
    CallContext, EmitStatus, Fault, FfiFuture, FutureExt, Plugin, Plugin_TO, PluginObject, RResult,
    RSlice, Reply, TD_Opaque, code,
};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;

use super::codec::{Frame, FrameError, Kind};
use super::message::{Cancel, Message, Verb};
use super::pending::{CallItem, PendingCall, pump};
use super::stream::{self, Outbox};
use super::{MAX_HOST_REQUEST_BYTES, MAX_HOST_REQUESTS, PluginRoot};
use crate::block_on::block_on;
use crate::error::to_fault;
use crate::guard::CatchPanic;

/// Pieces of output that a call may have on the way, unless [`Client::with_credit`] says other.
const DEFAULT_CREDIT: u32 = 32;

/// The host's end of a stream with a plugin behind it.
///
/// The methods are those of [`PluginRoot`]; what `create` gives is an ordinary
/// [`PluginObject`]. The context of a call stays here: what the plugin emits, logs and asks for
/// goes to it, in order, and the reply comes behind the last piece of output. When the stream
/// ends, whatever is under way fails with [`code::GONE`]. The stream is closed when the client,
/// its clones and all instances are dropped.
#[derive(Clone)]
pub struct Client {
    shared: Arc<ClientCore>,
    credit: u32,
    _tasks: Arc<Tasks>,
}

impl Client {
    /// Takes over both directions of a stream. Spawns on the tokio runtime that it is called on;
    /// the blocking methods must be called from elsewhere.
    pub fn connect<R, W>(reader: R, writer: W) -> Self
    where
        R: AsyncRead + Unpin + Send + 'static,
        W: AsyncWrite + Send + 'static,
    {
        let outbox = Outbox::new(writer);
        let shared = Arc::new(ClientCore {
            outbox,
            runtime: Handle::current(),
            state: Mutex::default(),
        });
        let reading = tokio::spawn({
            let shared = Arc::clone(&shared);
            async move {
                // A runtime that ends drops its tasks.
                let _ends = EndOnDrop(Arc::clone(&shared));
                let reading =
                    stream::read(reader, |frame| shared.take(frame), || shared.give_credits());
                let ended = reading.await;
                shared.end(ended);
            }
        });
        let writing = tokio::spawn({
            let shared = Arc::clone(&shared);
            async move {
                let ended = shared.outbox.run().await;
                shared.end(ended);
            }
        });
        let tasks = Tasks {
            shared: Arc::clone(&shared),
            tasks: [reading.abort_handle(), writing.abort_handle()],
        };
        Self {
            shared,
            credit: DEFAULT_CREDIT,
            _tasks: Arc::new(tasks),
        }
    }

    /// How many pieces of output of a call may be on the way (at least 1; 32 unless set).
    #[must_use]
    pub fn with_credit(mut self, pieces: u32) -> Self {
        self.credit = pieces.max(1);
        self
    }

    /// Why the stream ended, once it has.
    pub fn ended(&self) -> Option<String> {
        self.shared.state().ended.clone()
    }

    /// What the other side sent that is not the protocol, if the stream ended for that.
    pub fn violation(&self) -> Option<String> {
        self.shared.state().violation.clone()
    }

    fn begin(
        &self,
        verb: Verb,
        instance: u64,
        op: &[u8],
        json: &[u8],
        cx: Option<CallContext>,
    ) -> PendingCall {
        let (replies, reply) = oneshot::channel();
        let lasts = verb == Verb::Create;
        let call_id = {
            let mut state = self.shared.state();
            if let Some(reason) = &state.ended {
                return PendingCall::refused(Arc::clone(&self.shared), plugin_gone(reason));
            }
            state.last_call_id += 1;
            let call_id = state.last_call_id;
            let delivery = match &cx {
                // Its context is told of things for as long as the instance lives.
                Some(cx) if lasts => {
                    let replies = Some(replies);
                    CallDelivery::Queued(self.shared.pump(call_id, cx.clone(), replies, true))
                }
                _ => CallDelivery::Direct(Some(replies)),
            };
            let call = ClientCall {
                delivery,
                cx: cx.clone(),
                credit: self.credit,
                is_instance: lasts,
                host: HashMap::new(),
            };
            state.calls.insert(call_id, call);
            call_id
        };
        let request = Message::Request {
            verb,
            instance,
            credit: self.credit,
            op: op.to_vec(),
            json: json.to_vec(),
        };
        if let Err(error) = self.shared.outbox.send(call_id, request) {
            self.shared.state().calls.remove(&call_id);
            let fault = Fault::new(code::INVALID, error.to_string());
            return PendingCall::refused(Arc::clone(&self.shared), fault);
        }
        PendingCall::new(
            Arc::clone(&self.shared),
            call_id,
            reply,
            cx.filter(|_| !lasts),
        )
    }
}

impl PluginRoot for Client {
    fn manifest(&self) -> Result<Vec<u8>, Fault> {
        block_on(self.read_manifest())
    }

    fn create(&self, create: &[u8], cx: CallContext) -> Result<PluginObject, Fault> {
        let instance = block_on(self.create_instance(create, cx))?;
        Ok(Plugin_TO::from_value(instance, TD_Opaque))
    }
}

impl Client {
    /// The manifest, as JSON. Does not block.
    ///
    /// # Errors
    /// The plugin's fault, or [`code::GONE`] when the other side is gone.
    pub async fn read_manifest(&self) -> Result<Vec<u8>, Fault> {
        match self.begin(Verb::Manifest, 0, b"", b"", None).await {
            RResult::ROk(json) => Ok(json.into_vec()),
            RResult::RErr(fault) => Err(fault),
        }
    }

    /// Makes an instance at the other end. Does not block; dropping the future gives it up.
    ///
    /// # Errors
    /// The plugin's fault, or [`code::GONE`] when the other side is gone.
    pub async fn create_instance(
        &self,
        create: &[u8],
        cx: CallContext,
    ) -> Result<RemoteInstance, Fault> {
        let pending = self.begin(Verb::Create, 0, b"", create, Some(cx));
        let instance = pending.call_id;
        match pending.await {
            RResult::ROk(_) => Ok(RemoteInstance {
                client: self.clone(),
                instance,
            }),
            RResult::RErr(fault) => Err(fault),
        }
    }
}

/// An instance at the other end. It ends there when this is dropped.
pub struct RemoteInstance {
    client: Client,
    instance: u64,
}

impl RemoteInstance {
    /// Carries out an operation without blocking: started on the plugin's own runtime where
    /// `asynchronous`, else on a thread of the other end. Dropping the future gives the call up.
    pub fn request(
        &self,
        op: &[u8],
        json: &[u8],
        asynchronous: bool,
        cx: CallContext,
    ) -> impl Future<Output = Reply> + Send + use<> {
        let verb = if asynchronous {
            Verb::Start
        } else {
            Verb::Call
        };
        self.begin(verb, op, json, cx)
    }

    fn begin(&self, verb: Verb, op: &[u8], json: &[u8], cx: CallContext) -> PendingCall {
        self.client.begin(verb, self.instance, op, json, Some(cx))
    }
}

impl Plugin for RemoteInstance {
    fn call(&self, op: RSlice<'_, u8>, json: RSlice<'_, u8>, cx: CallContext) -> Reply {
        block_on(self.begin(Verb::Call, op.as_slice(), json.as_slice(), cx))
    }

    fn start(&self, op: RSlice<'_, u8>, json: RSlice<'_, u8>, cx: CallContext) -> FfiFuture<Reply> {
        self.begin(Verb::Start, op.as_slice(), json.as_slice(), cx)
            .into_ffi()
    }
}

impl Drop for RemoteInstance {
    fn drop(&mut self) {
        self.client.shared.release(self.instance);
    }
}

/// The two directions of the stream; they end with the last client and instance.
struct Tasks {
    shared: Arc<ClientCore>,
    tasks: [AbortHandle; 2],
}

impl Drop for Tasks {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
        self.shared
            .end(Err(std::io::Error::other("the host closed it").into()));
    }
}

/// Ends what is under way when nobody reads the stream any more.
struct EndOnDrop(Arc<ClientCore>);

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        let reason = "the runtime that read its stream has ended";
        self.0.end(Err(std::io::Error::other(reason).into()));
    }
}

pub(super) struct ClientCore {
    pub(super) outbox: Outbox,
    pub(super) runtime: Handle,
    state: Mutex<ClientState>,
}

#[derive(Default)]
struct ClientState {
    last_call_id: u64,
    calls: HashMap<u64, ClientCall>,
    /// The calls that a credit is due to, once for each piece that was delivered since the stream was
    /// read last.
    credits_due: Vec<u64>,
    ended: Option<String>,
    violation: Option<String>,
}

struct ClientCall {
    delivery: CallDelivery,
    cx: Option<CallContext>,
    credit: u32,
    /// An instance: its context stays after the reply.
    is_instance: bool,
    host: HashMap<u32, AbortHandle>,
}

/// Destination of what arrives for a call.
enum CallDelivery {
    /// The caller itself: whoever reads the stream hands over. `None` once the reply was taken.
    Direct(Option<oneshot::Sender<Reply>>),
    /// A task that keeps the order, since the caller had no room.
    Queued(mpsc::UnboundedSender<CallItem>),
}

impl ClientCore {
    fn take(self: &Arc<Self>, frame: Frame) -> Result<(), FrameError> {
        let (kind, call_id) = (frame.kind, frame.call_id);
        let message = Message::from_frame(frame)?;
        let mut state = self.state();
        // A call that was released may still have frames on the way.
        let call = state.calls.get_mut(&call_id);
        match message {
            Message::Reply(reply) => {
                let Some(call) = call else { return Ok(()) };
                let stays = call.is_instance && reply.is_ok();
                let reply = match reply {
                    Ok(json) => RResult::ROk(json.into()),
                    Err(fault) => RResult::RErr(fault),
                };
                let direct = match &mut call.delivery {
                    CallDelivery::Direct(replies) => replies.take().map(|replies| (replies, reply)),
                    CallDelivery::Queued(queue) => {
                        let _ = queue.send(CallItem::Reply(reply));
                        None
                    }
                };
                let over = if stays {
                    None
                } else {
                    state.calls.remove(&call_id)
                };
                // The context is the host's; it is not dropped under the lock.
                drop(state);
                drop(over);
                if let Some((replies, reply)) = direct {
                    let _ = replies.send(reply);
                }
            }
            Message::Emit { kind, bytes } => {
                let Some(call) = call else { return Ok(()) };
                let Some(left) = call.credit.checked_sub(1) else {
                    return Err(FrameError::Overrun { call_id });
                };
                call.credit = left;
                match (&call.delivery, &call.cx) {
                    (CallDelivery::Queued(queue), _) => {
                        let _ = queue.send(CallItem::Piece(kind, bytes));
                    }
                    (CallDelivery::Direct(_), cx) => {
                        let cx = cx.clone();
                        drop(state);
                        self.emit(call_id, cx, kind, bytes);
                    }
                }
            }
            Message::Log {
                level,
                target,
                message,
            } => {
                let cx = call.and_then(|call| call.cx.clone());
                drop(state);
                if let Some(cx) = cx {
                    cx.log(
                        level,
                        RSlice::from_slice(&target),
                        RSlice::from_slice(&message),
                    );
                }
            }
            Message::HostRequest { id, op, json } => {
                return self.host(call, call_id, id, op, json);
            }
            Message::Cancel(Cancel::HostRequest(id)) => {
                if let Some(task) = call.and_then(|call| call.host.remove(&id)) {
                    task.abort();
                }
            }
            Message::Cancel(_)
            | Message::Request { .. }
            | Message::Credit { .. }
            | Message::HostReply { .. } => {
                return Err(FrameError::Unexpected { kind });
            }
        }
        Ok(())
    }

    /// Gives a piece to whom it is for, who may have no room: from then on all that comes for the
    /// call goes through a task that waits for that.
    fn emit(self: &Arc<Self>, call_id: u64, cx: Option<CallContext>, kind: u32, bytes: Vec<u8>) {
        // What nobody takes gives no room for more.
        let Some(cx) = cx else { return };
        let status = cx.emit(kind, RSlice::from_slice(&bytes));
        let mut state = self.state();
        if EmitStatus::from_number(status) != EmitStatus::Full {
            state.credits_due.push(call_id);
            return;
        }
        if let Some(call) = state.calls.get_mut(&call_id)
            && let CallDelivery::Direct(replies) = &mut call.delivery
        {
            let queue = self.pump(call_id, cx, replies.take(), false);
            let _ = queue.send(CallItem::Piece(kind, bytes));
            call.delivery = CallDelivery::Queued(queue);
        }
    }

    /// Gives the credits that are due. Not before all is read that came at once: what a plugin sent
    /// without knowing of room is more than it had credits for.
    fn give_credits(&self) {
        let mut state = self.state();
        for call_id in std::mem::take(&mut state.credits_due) {
            if let Some(call) = state.calls.get_mut(&call_id) {
                call.credit += 1;
                let _ = self.outbox.send(call_id, Message::Credit { pieces: 1 });
            }
        }
    }

    /// Starts the task of a call. Where it `watches`, the plugin hears from it of the end of whom the
    /// call is for; else from whoever waits for the reply.
    fn pump(
        self: &Arc<Self>,
        call_id: u64,
        cx: CallContext,
        replies: Option<oneshot::Sender<Reply>>,
        watches: bool,
    ) -> mpsc::UnboundedSender<CallItem> {
        let (queue, items) = mpsc::unbounded_channel();
        let shared = Arc::clone(self);
        self.runtime
            .spawn(pump(shared, call_id, cx, items, replies, watches));
        queue
    }

    fn host(
        self: &Arc<Self>,
        call: Option<&mut ClientCall>,
        call_id: u64,
        id: u32,
        op: Vec<u8>,
        json: Vec<u8>,
    ) -> Result<(), FrameError> {
        let refused = match &call {
            None => Some(Fault::new(code::GONE, "the call is over")),
            Some(call) if call.host.contains_key(&id) => {
                return Err(FrameError::Malformed {
                    kind: Kind::HostRequest,
                    what: "its number is that of one that is under way",
                });
            }
            Some(_) if json.len() > MAX_HOST_REQUEST_BYTES => Some(Fault::new(
                code::INVALID,
                "the request has more than 1 MiB; hand over a file instead",
            )),
            Some(call) if call.host.len() >= MAX_HOST_REQUESTS => {
                Some(Fault::new(code::BUSY, "too many host requests at once"))
            }
            Some(_) => None,
        };
        let cx = call.as_ref().and_then(|call| call.cx.clone());
        let (Some(call), Some(cx), None) = (call, cx, &refused) else {
            let fault = refused.unwrap_or_else(|| Fault::new(code::GONE, "the call is over"));
            self.host_reply(call_id, id, Err(fault));
            return Ok(());
        };
        let shared = Arc::clone(self);
        let task = self.runtime.spawn(async move {
            // The host's own code is asked here and not under the lock.
            let pending = cx.host(RSlice::from_slice(&op), RSlice::from_slice(&json));
            // The answer may take as long as the call, and needs none of it.
            drop((cx, op, json));
            let reply = CatchPanic::new(Box::pin(async move { Ok(pending.await) })).await;
            if let Some(call) = shared.state().calls.get_mut(&call_id) {
                call.host.remove(&id);
            }
            let reply = match reply {
                Ok(RResult::ROk(json)) => Ok(json.into_vec()),
                Ok(RResult::RErr(fault)) => Err(fault),
                Err(panic) => Err(to_fault(panic)),
            };
            shared.host_reply(call_id, id, reply);
        });
        call.host.insert(id, task.abort_handle());
        Ok(())
    }

    fn host_reply(&self, call_id: u64, id: u32, reply: Result<Vec<u8>, Fault>) {
        let sent = self.outbox.send(call_id, Message::HostReply { id, reply });
        if let Err(error) = sent {
            let fault = Fault::new(code::FAILED, error.to_string());
            let _ = self.outbox.send(
                call_id,
                Message::HostReply {
                    id,
                    reply: Err(fault),
                },
            );
        }
    }

    /// A piece was delivered: there is room for another.
    pub(super) fn grant_credit(&self, call_id: u64) {
        if let Some(call) = self.state().calls.get_mut(&call_id) {
            call.credit += 1;
            let _ = self.outbox.send(call_id, Message::Credit { pieces: 1 });
        }
    }

    pub(super) fn release(&self, call_id: u64) {
        let call = self.state().calls.remove(&call_id);
        if call.is_some() {
            let _ = self.outbox.send(call_id, Message::Cancel(Cancel::Release));
        }
    }

    fn end(&self, ended: Result<(), FrameError>) {
        let is_violation = ended.as_ref().is_err_and(FrameError::is_violation);
        let reason = match ended {
            Ok(()) => "the plugin's end of the stream was closed".to_owned(),
            Err(error) => error.to_string(),
        };
        self.outbox.close();
        let calls = {
            let mut state = self.state();
            if state.ended.is_none() {
                state.violation = is_violation.then(|| reason.clone());
                state.ended = Some(reason);
            }
            std::mem::take(&mut state.calls)
        };
        for task in calls.values().flat_map(|call| call.host.values()) {
            task.abort();
        }
    }

    /// The fault of calls whose stream ended.
    pub(super) fn end_of(&self) -> Fault {
        plugin_gone(self.state().ended.as_deref().unwrap_or("the call is over"))
    }

    fn state(&self) -> MutexGuard<'_, ClientState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn plugin_gone(reason: &str) -> Fault {
    Fault::new(code::GONE, format!("the plugin is gone: {reason}"))
}
