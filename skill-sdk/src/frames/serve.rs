//! Runs a plugin behind a stream: the end of a worker process.

use std::collections::HashMap;
use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use conjure_abi::{Fault, PluginObject, RResult, RSlice, Reply, code};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::{AbortHandle, spawn_blocking};

use super::codec::{Frame, FrameError};
use super::line::CallLine;
use super::message::{Cancel, Message, Verb};
use super::stream::{self, Outbox};
use super::{MAX_CALLS, PluginRoot};
use crate::error::to_fault;
use crate::guard::{Caught, guard};

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
    let outbox = Outbox::new(writer);
    let server = Arc::new(FrameServer {
        root,
        outbox,
        state: Mutex::default(),
    });
    let ended = {
        let mut reading = pin!(stream::read(
            reader,
            |frame| FrameServer::take(&server, frame),
            || {}
        ));
        let mut writing = pin!(server.outbox.run());
        std::future::poll_fn(|cx| match reading.as_mut().poll(cx) {
            Poll::Ready(ended) => Poll::Ready(ended),
            Poll::Pending => writing.as_mut().poll(cx),
        })
        .await
    };
    server.end();
    ended
}

struct FrameServer<P> {
    root: P,
    outbox: Outbox,
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
    fn take(self: &Arc<Self>, frame: Frame) -> Result<(), FrameError> {
        let (kind, call_id) = (frame.kind, frame.call_id);
        match Message::from_frame(frame)? {
            Message::Request {
                verb,
                instance,
                credit,
                op,
                json,
            } => self.request(
                call_id,
                credit,
                CallRequest {
                    verb,
                    instance,
                    op,
                    json,
                },
            )?,
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
            Message::Cancel(Cancel::Release) => self.release(call_id),
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
        Ok(())
    }

    fn request(
        self: &Arc<Self>,
        call_id: u64,
        credit: u32,
        asked: CallRequest,
    ) -> Result<(), FrameError> {
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
                return Ok(());
            }
            let running = ServedCall {
                line: Arc::clone(&line),
                task: None,
            };
            state.lines.insert(call_id, running);
            state.instances.get(&asked.instance).cloned()
        };
        let server = Arc::clone(self);
        match asked.verb {
            Verb::Manifest => {
                spawn_blocking(move || {
                    let manifest = contained(|| server.root.manifest());
                    server.finish(call_id, manifest);
                });
            }
            Verb::Create => {
                spawn_blocking(move || server.create(call_id, &line, &asked.json));
            }
            Verb::Call | Verb::Start => match object {
                None => self.finish(
                    call_id,
                    Err(Fault::new(code::GONE, "there is no such instance")),
                ),
                Some(object) if asked.verb == Verb::Call => {
                    spawn_blocking(move || {
                        let cx = line.context();
                        let reply = contained(|| {
                            plain(object.call(
                                RSlice::from_slice(&asked.op),
                                RSlice::from_slice(&asked.json),
                                cx,
                            ))
                        });
                        server.finish(call_id, reply);
                    });
                }
                Some(object) => {
                    let task = tokio::spawn(async move {
                        let reply = started(object, asked, line).await;
                        server.finish(call_id, reply);
                    });
                    if let Some(running) = self.state().lines.get_mut(&call_id) {
                        running.task = Some(task.abort_handle());
                    }
                }
            },
        }
        Ok(())
    }

    fn create(&self, call_id: u64, line: &Arc<CallLine>, json: &[u8]) {
        let made = contained(|| self.root.create(json, line.context()));
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

    fn finish(&self, call_id: u64, reply: Result<Vec<u8>, Fault>) {
        let running = self.state().lines.remove(&call_id);
        if let Some(running) = running {
            running.line.finish(reply);
        }
    }

    fn release(&self, call_id: u64) {
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
        if let Some(instance) = instance {
            spawn_blocking(move || drop(instance));
        }
    }

    fn end(&self) {
        self.outbox.close();
        let ServerState { lines, instances } = std::mem::take(&mut *self.state());
        for running in lines.into_values() {
            running.end();
        }
        if !instances.is_empty() {
            spawn_blocking(move || drop(instances));
        }
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

/// A request without its call.
struct CallRequest {
    verb: Verb,
    instance: u64,
    op: Vec<u8>,
    json: Vec<u8>,
}

/// Starts an operation away from the reading task, which a bad plugin must not hold up, and
/// waits for it. Dropping this drops the plugin's future.
async fn started(
    object: Arc<PluginObject>,
    asked: CallRequest,
    line: Arc<CallLine>,
) -> Result<Vec<u8>, Fault> {
    let future = spawn_blocking(move || {
        object.start(
            RSlice::from_slice(&asked.op),
            RSlice::from_slice(&asked.json),
            line.context(),
        )
    })
    .await
    .map_err(|_| Fault::new(code::PANIC, "the plugin panicked while it started the call"))?;
    Caught::new(Box::pin(async move { Ok(future.await) }))
        .await
        .map_err(to_fault)
        .and_then(plain)
}

/// A plugin catches its own panics; one that does not must not take its worker's thread.
fn contained<T>(code: impl FnOnce() -> Result<T, Fault>) -> Result<T, Fault> {
    guard(|| Ok(code()))
        .map_err(to_fault)
        .and_then(|result| result)
}

fn plain(reply: Reply) -> Result<Vec<u8>, Fault> {
    match reply {
        RResult::ROk(json) => Ok(json.into_vec()),
        RResult::RErr(fault) => Err(fault),
    }
}
