//! Runs a plugin behind a stream: the end of a worker process.

use std::collections::HashMap;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use conjure_abi::{Fault, PluginObject, RResult, RSlice, Reply, code};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::runtime::Handle;
use tokio::task::AbortHandle;

use super::codec::{Frame, FrameError};
use super::line::CallLine;
use super::message::{Cancel, Message, Verb};
use super::stream::{self, Outbox};
use super::{MAX_CALLS, PluginRoot};
use crate::error::to_fault;
use crate::guard::{CatchPanic, guard};

/// Runs a plugin for the host at the other end of the stream, until the stream ends. Then every
/// call is cancelled and every instance is dropped; calls that block and do not look are left
/// to the end of the process. Needs a tokio runtime.
///
/// # Errors
/// What the other side sent, or why the stream failed.
pub async fn serve<P, R, W>(root: P, reader: R, writer: W) -> Result<(), FrameError>
where
    P: PluginRoot,
    R: AsyncRead + Unpin,
    W: AsyncWrite + Send + 'static,
{
    let server = FrameServer::new(root, writer);
    let take = |frame| {
        if let Some(request) = server.take(frame)? {
            server.runtime.spawn_blocking(|| request.run());
        }
        Ok(())
    };
    let ended = {
        let mut reading = pin!(stream::read(reader, take, || {}));
        let mut writing = pin!(server.write());
        std::future::poll_fn(|cx| match reading.as_mut().poll(cx) {
            Poll::Ready(ended) => Poll::Ready(ended),
            Poll::Pending => writing.as_mut().poll(cx),
        })
        .await
    };
    server.end();
    ended
}

/// The plugin's end of a stream that its owner reads: [`serve`] without the reading.
///
/// ```text
/// bytes ─▶ Decoder ─▶ take ─▶ FrameRequest::run ─▶ the reply, on the stream
/// ```
pub struct FrameServer<P> {
    root: P,
    outbox: Outbox,
    runtime: Handle,
    state: Mutex<ServerState>,
}

#[derive(Default)]
struct ServerState {
    lines: HashMap<u64, ServedCall>,
    instances: HashMap<u64, Arc<PluginObject>>,
}

struct ServedCall {
    line: Arc<CallLine>,
    task: Option<AbortHandle>,
}

impl<P: PluginRoot> FrameServer<P> {
    /// A server that answers to `writer`. To be called on a tokio runtime, on which asynchronous
    /// operations are waited for.
    pub fn new(root: P, writer: impl AsyncWrite + Send + 'static) -> Arc<Self> {
        Arc::new(Self {
            root,
            outbox: Outbox::new(writer),
            runtime: Handle::current(),
            state: Mutex::default(),
        })
    }

    /// Takes the next frame of the stream. A request is to be run by the caller, on a thread that
    /// may block: it is the plugin's own code, and the frames behind it have to be taken meanwhile.
    ///
    /// # Errors
    /// What is wrong with the frame; the stream cannot be read on.
    pub fn take(self: &Arc<Self>, frame: Frame) -> Result<Option<FrameRequest<P>>, FrameError> {
        let (kind, call_id) = (frame.kind, frame.call_id);
        match Message::from_frame(frame)? {
            Message::Request {
                verb,
                instance,
                credit,
                op,
                json,
            } => return self.request(call_id, credit, instance, OperationBody { verb, op, json }),
            Message::Credit { pieces } => {
                if let Some(line) = self.line(call_id) {
                    line.add_credit(pieces);
                }
            }
            Message::Cancel(Cancel::Call) => {
                if let Some(line) = self.line(call_id) {
                    line.cancel();
                }
            }
            Message::Cancel(Cancel::Release) => {
                let instance = self.release(call_id);
                return Ok(instance.map(|it| FrameRequest(FrameTask::Drop(it))));
            }
            Message::HostReply { id, reply } => {
                if let Some(line) = self.line(call_id) {
                    line.host_reply(id, reply);
                }
            }
            Message::Cancel(Cancel::HostRequest(_))
            | Message::Reply(_)
            | Message::Emit { .. }
            | Message::Log { .. }
            | Message::HostRequest { .. } => return Err(FrameError::Unexpected { kind }),
        }
        Ok(None)
    }

    /// Writes what could not be written by whoever had it to say, until the stream fails.
    ///
    /// # Errors
    /// Why the stream failed.
    pub async fn write(&self) -> Result<(), FrameError> {
        self.outbox.run().await
    }

    /// Ends the stream: nothing more is written, every call is cancelled, every instance is dropped.
    pub fn end(&self) {
        self.outbox.close();
        let ServerState { lines, instances } = std::mem::take(&mut *self.state());
        for running in lines.into_values() {
            running.end();
        }
        if !instances.is_empty() {
            self.runtime.spawn_blocking(move || drop(instances));
        }
    }

    fn request(
        self: &Arc<Self>,
        call_id: u64,
        credit: u32,
        instance: u64,
        body: OperationBody,
    ) -> Result<Option<FrameRequest<P>>, FrameError> {
        let line = CallLine::new(call_id, credit, self.outbox.clone());
        let object = {
            let mut state = self.state();
            if state.lines.contains_key(&call_id) {
                return Err(FrameError::Twice { call_id });
            }
            if state.lines.len() >= MAX_CALLS {
                drop(state);
                line.finish(Err(Fault::new(
                    code::BUSY,
                    format!("{MAX_CALLS} calls are under way already"),
                )));
                return Ok(None);
            }
            let running = ServedCall {
                line: Arc::clone(&line),
                task: None,
            };
            state.lines.insert(call_id, running);
            state.instances.get(&instance).cloned()
        };
        Ok(Some(FrameRequest(FrameTask::Call(AcceptedCall {
            server: Arc::clone(self),
            call_id,
            line,
            object,
            body,
        }))))
    }

    fn create(&self, call_id: u64, line: &Arc<CallLine>, json: &[u8]) {
        let made = catch_panic(|| self.root.create(json, line.context()));
        match made {
            Ok(object) => {
                let mut state = self.state();
                // The stream may have ended while the plugin was busy.
                if state.lines.contains_key(&call_id) {
                    state.instances.insert(call_id, Arc::new(object));
                    line.answer(Ok(Vec::new()));
                }
            }
            Err(fault) => self.finish(call_id, Err(fault)),
        }
    }

    /// Starts an operation and waits for it on the runtime. Whoever releases the call drops the
    /// plugin's future.
    fn start(
        self: &Arc<Self>,
        call_id: u64,
        line: &Arc<CallLine>,
        object: &PluginObject,
        body: &OperationBody,
    ) {
        let started = catch_panic(|| {
            let (op, json) = body.slices();
            Ok(object.start(op, json, line.context()))
        });
        let future = match started {
            Ok(future) => future,
            Err(fault) => return self.finish(call_id, Err(fault)),
        };
        let mut answer = CatchPanic::new(Box::pin(async move { Ok(future.await) }));
        let reply = |answer| Result::map_err(answer, to_fault).and_then(into_result);
        // It may have come to its end already, or stays where it is until it is woken.
        let mut nobody = Context::from_waker(Waker::noop());
        if let Poll::Ready(answer) = Pin::new(&mut answer).poll(&mut nobody) {
            return self.finish(call_id, reply(answer));
        }
        let server = Arc::clone(self);
        let task = self.runtime.spawn(async move {
            let answer = answer.await;
            server.finish(call_id, reply(answer));
        });
        match self.state().lines.get_mut(&call_id) {
            Some(running) => running.task = Some(task.abort_handle()),
            // It was released meanwhile, or is over.
            None => task.abort(),
        }
    }

    fn finish(&self, call_id: u64, reply: Result<Vec<u8>, Fault>) {
        let running = self.state().lines.remove(&call_id);
        if let Some(running) = running {
            running.line.finish(reply);
        }
    }

    /// Ends a call or an instance. What is then to be dropped is the plugin's.
    fn release(&self, call_id: u64) -> Option<Arc<PluginObject>> {
        let (running, instance) = {
            let mut state = self.state();
            (
                state.lines.remove(&call_id),
                state.instances.remove(&call_id),
            )
        };
        if let Some(running) = running {
            running.end();
        }
        instance
    }

    fn line(&self, call_id: u64) -> Option<Arc<CallLine>> {
        let state = self.state();
        state
            .lines
            .get(&call_id)
            .map(|running| Arc::clone(&running.line))
    }

    fn state(&self) -> MutexGuard<'_, ServerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ServedCall {
    fn end(self) {
        self.line.release();
        if let Some(task) = self.task {
            task.abort();
        }
    }
}

/// What a host asks for, beside where it is to be carried out.
struct OperationBody {
    verb: Verb,
    op: Vec<u8>,
    json: Vec<u8>,
}

/// What a host asks for that is to be run, and in which the plugin may block.
#[must_use = "the host waits for what comes of it"]
pub struct FrameRequest<P>(FrameTask<P>);

enum FrameTask<P> {
    Call(AcceptedCall<P>),
    /// The end of an instance.
    Drop(Arc<PluginObject>),
}

/// A call that runs, or is about to.
struct AcceptedCall<P> {
    server: Arc<FrameServer<P>>,
    call_id: u64,
    line: Arc<CallLine>,
    object: Option<Arc<PluginObject>>,
    body: OperationBody,
}

impl<P: PluginRoot> FrameRequest<P> {
    /// Runs it on the calling thread, and replies. Of an asynchronous operation, only the start.
    pub fn run(self) {
        match self.0 {
            FrameTask::Call(call) => call.run(),
            FrameTask::Drop(instance) => drop(instance),
        }
    }

    /// Replies to it without running it. An instance ends all the same.
    pub fn refuse(self, fault: Fault) {
        match self.0 {
            FrameTask::Call(call) => call.server.finish(call.call_id, Err(fault)),
            FrameTask::Drop(instance) => drop(instance),
        }
    }
}

impl<P: PluginRoot> AcceptedCall<P> {
    fn run(self) {
        let Self {
            server,
            call_id,
            line,
            object,
            body,
        } = self;
        // Released before it was its turn.
        if line.is_closed() {
            return;
        }
        match (body.verb, object) {
            (Verb::Manifest, _) => {
                let manifest = catch_panic(|| server.root.manifest());
                server.finish(call_id, manifest);
            }
            (Verb::Create, _) => server.create(call_id, &line, &body.json),
            (Verb::Call | Verb::Start, None) => {
                let fault = Fault::new(code::GONE, "there is no such instance");
                server.finish(call_id, Err(fault));
            }
            (Verb::Call, Some(object)) => {
                let reply = catch_panic(|| {
                    let (op, json) = body.slices();
                    into_result(object.call(op, json, line.context()))
                });
                server.finish(call_id, reply);
            }
            (Verb::Start, Some(object)) => server.start(call_id, &line, &object, &body),
        }
    }
}

impl OperationBody {
    fn slices(&self) -> (RSlice<'_, u8>, RSlice<'_, u8>) {
        (RSlice::from_slice(&self.op), RSlice::from_slice(&self.json))
    }
}

/// A plugin catches its own panics; one that does not must not take its worker's thread.
fn catch_panic<T>(code: impl FnOnce() -> Result<T, Fault>) -> Result<T, Fault> {
    guard(|| Ok(code()))
        .map_err(to_fault)
        .and_then(|result| result)
}

fn into_result(reply: Reply) -> Result<Vec<u8>, Fault> {
    match reply {
        RResult::ROk(json) => Ok(json.into_vec()),
        RResult::RErr(fault) => Err(fault),
    }
}
