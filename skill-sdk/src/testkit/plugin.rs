//! A plugin's instance, its calls, and calls that still run.

use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Instant;

use conjure_abi::{CallContext, FfiFuture, PluginObject, RResult, RSlice, Reply, code};
use serde::Serialize;
use serde_json::Value;

use super::DEADLINE;
use super::channel::{CapturedOutput, Channel};
use super::host::TestHost;
use super::outcome::Outcome;
use super::transcript::family;
use crate::error::{Error, Result, from_fault};
use crate::export::Exported;
use crate::frames::PluginRoot;
use crate::protocol::{Manifest, Request};

/// An instance of a plugin. Dropping it drops the plugin's own.
pub struct Plugin {
    object: Arc<PluginObject>,
    manifest: Manifest,
    host: TestHost,
    instance: Arc<Channel>,
}

impl fmt::Debug for Plugin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plugin")
            .field("manifest", &self.manifest)
            .finish_non_exhaustive()
    }
}

impl Plugin {
    /// An instance of a plugin that is linked into the test, on a host that serves the basics.
    ///
    /// # Errors
    /// As [`TestHost::link`].
    pub fn linked<E: Exported + 'static>(
        make: impl Fn() -> E + Send + Sync + 'static,
    ) -> Result<Self> {
        TestHost::new()?.link(make)
    }

    pub(super) fn new(host: TestHost, root: &impl PluginRoot) -> Result<Self> {
        let json = root.manifest().map_err(|fault| from_fault(&fault))?;
        let raw: Value = serde_json::from_slice(&json)?;
        if let Some(error) = raw.get("error").and_then(Value::as_str) {
            return Err(Error::invalid(error));
        }
        let manifest = serde_json::from_value(raw.clone())?;
        host.0.transcript.record("manifest", &raw);
        let create = serde_json::to_value(&host.0.create)?;
        host.0.transcript.record("create", &create);
        let instance = host.channel();
        let object = root
            .create(create.to_string().as_bytes(), host.context(&instance))
            .map_err(|fault| from_fault(&fault))?;
        Ok(Self {
            object: Arc::new(object),
            manifest,
            host,
            instance,
        })
    }

    /// What the plugin says about itself.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The host that it runs on.
    pub fn host(&self) -> &TestHost {
        &self.host
    }

    /// Calls with another envelope than the host's usual one.
    pub fn with(&self, change: impl FnOnce(&mut Request<()>)) -> Calls<'_> {
        let mut envelope = self.host.0.envelope.clone();
        change(&mut envelope);
        Calls {
            plugin: self,
            envelope,
        }
    }

    /// Calls in a session.
    pub fn session(&self, session: &str) -> Calls<'_> {
        self.with(|envelope| envelope.session = Some(session.to_owned()))
    }

    /// Runs an operation on this thread, through the ABI's `call`.
    pub fn call(&self, op: &str, body: impl Serialize) -> Outcome {
        self.with(|_| {}).call(op, body)
    }

    /// Starts an operation, through the ABI's `start`.
    pub fn start(&self, op: &str, body: impl Serialize) -> RunningCall {
        self.with(|_| {}).start(op, body)
    }

    /// Runs an operation on a thread of its own, through the ABI's `call`.
    pub fn background(&self, op: &str, body: impl Serialize) -> RunningCall {
        self.with(|_| {}).background(op, body)
    }

    /// Runs an operation with bytes of any kind for name and request.
    pub fn call_raw(&self, op: &[u8], json: &[u8]) -> Outcome {
        let channel = self.host.channel();
        let reply = raw(&self.object, op, json, self.host.context(&channel));
        Outcome::new(into_value(reply), channel.end())
    }

    /// What came through the instance's own context, outside any call.
    pub fn outside(&self) -> Outcome {
        Outcome::new(Ok(Value::Null), self.instance.output())
    }
}

impl Drop for Plugin {
    fn drop(&mut self) {
        self.instance.end();
    }
}

/// Calls with an envelope of their own.
#[derive(Debug, Clone)]
pub struct Calls<'a> {
    plugin: &'a Plugin,
    envelope: Request<()>,
}

impl Calls<'_> {
    /// As [`Plugin::call`].
    pub fn call(&self, op: &str, body: impl Serialize) -> Outcome {
        let PreparedCall { json, channel, cx } = match self.prepare(op, body) {
            Ok(prepared) => prepared,
            Err(error) => return Outcome::new(Err(error), CapturedOutput::default()),
        };
        let reply = into_value(raw(&self.plugin.object, op.as_bytes(), &json, cx));
        note_reply(&self.plugin.host, op, &reply);
        Outcome::new(reply, channel.end())
    }

    /// As [`Plugin::start`].
    pub fn start(&self, op: &str, body: impl Serialize) -> RunningCall {
        let PreparedCall { json, channel, cx } = match self.prepare(op, body) {
            Ok(prepared) => prepared,
            Err(error) => return self.failed(op, error),
        };
        let future = self.plugin.object.start(
            RSlice::from_slice(op.as_bytes()),
            RSlice::from_slice(&json),
            cx,
        );
        self.running(op, channel, RunningWork::Future(future))
    }

    /// As [`Plugin::background`].
    pub fn background(&self, op: &str, body: impl Serialize) -> RunningCall {
        let PreparedCall { json, channel, cx } = match self.prepare(op, body) {
            Ok(prepared) => prepared,
            Err(error) => return self.failed(op, error),
        };
        let (replies, reply) = tokio::sync::oneshot::channel();
        let object = Arc::clone(&self.plugin.object);
        let name = op.to_owned();
        thread::spawn(move || {
            let _ = replies.send(raw(&object, name.as_bytes(), &json, cx));
        });
        self.running(op, channel, RunningWork::Thread(reply))
    }

    fn prepare(&self, op: &str, body: impl Serialize) -> Result<PreparedCall> {
        let host = &self.plugin.host;
        let body = serde_json::to_value(body)?;
        let transcript = &host.0.transcript;
        transcript.record(format!("{}.request", family(op)), &body);
        let envelope = serde_json::to_value(self.envelope.clone().with_body(body))?;
        transcript.record("envelope", &envelope);
        let channel = host.channel();
        let cx = host.context(&channel);
        Ok(PreparedCall {
            json: serde_json::to_vec(&envelope)?,
            channel,
            cx,
        })
    }

    fn running(&self, op: &str, channel: Arc<Channel>, work: RunningWork) -> RunningCall {
        RunningCall {
            host: self.plugin.host.clone(),
            op: op.to_owned(),
            channel,
            work: Some(work),
        }
    }

    fn failed(&self, op: &str, error: Error) -> RunningCall {
        self.running(op, self.plugin.host.channel(), RunningWork::Failed(error))
    }
}

struct PreparedCall {
    json: Vec<u8>,
    channel: Arc<Channel>,
    cx: CallContext,
}

enum RunningWork {
    Future(FfiFuture<Reply>),
    Thread(tokio::sync::oneshot::Receiver<Reply>),
    Failed(Error),
}

/// A call that still runs. Dropping it is [`RunningCall::release`].
pub struct RunningCall {
    host: TestHost,
    op: String,
    channel: Arc<Channel>,
    work: Option<RunningWork>,
}

impl fmt::Debug for RunningCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunningCall")
            .field("op", &self.op)
            .finish_non_exhaustive()
    }
}

impl RunningCall {
    /// Tells the call that it is cancelled. It may clean up before it ends.
    pub fn cancel(&self) {
        self.channel.cancel();
    }

    /// Gives the call up: drops its future, on this thread, and ends its context. A call on a
    /// thread of its own goes on there, with nobody listening.
    pub fn release(mut self) -> Outcome {
        drop(self.work.take());
        let given_up = Error::with_code(code::CANCELLED, "the call was released");
        Outcome::new(Err(given_up), self.channel.end())
    }

    /// Waits until the call ends.
    pub fn wait(mut self) -> Outcome {
        let reply = match self.work.take() {
            Some(RunningWork::Future(future)) => block_with_deadline(future).map(into_value),
            Some(RunningWork::Thread(reply)) => {
                block_with_deadline(reply).map(|reply| match reply {
                    Ok(reply) => into_value(reply),
                    Err(_) => Err(Error::with_code(
                        code::PANIC,
                        "a panic came through the ABI, which a plugin must never let happen",
                    )),
                })
            }
            Some(RunningWork::Failed(error)) => Ok(Err(error)),
            None => Err(Error::with_code(code::GONE, "the call is over")),
        };
        let reply = reply.and_then(|reply| reply);
        note_reply(&self.host, &self.op, &reply);
        Outcome::new(reply, self.channel.end())
    }

    /// Waits until so much has come out of the call; `false` when it never did.
    pub fn until(&self, enough: impl Fn(&Outcome) -> bool) -> bool {
        self.channel
            .wait_for(|output| enough(&Outcome::new(Ok(Value::Null), output.clone())))
    }
}

impl Drop for RunningCall {
    fn drop(&mut self) {
        drop(self.work.take());
        self.channel.end();
    }
}

fn note_reply(host: &TestHost, op: &str, reply: &Result<Value>) {
    if let Ok(reply) = reply {
        host.0
            .transcript
            .record(format!("{}.reply", family(op)), reply);
    }
}

fn raw(object: &PluginObject, op: &[u8], json: &[u8], cx: CallContext) -> Reply {
    object.call(RSlice::from_slice(op), RSlice::from_slice(json), cx)
}

fn into_value(reply: Reply) -> Result<Value> {
    match reply {
        RResult::ROk(json) => serde_json::from_slice(&json)
            .map_err(|error| Error::invalid(format!("the reply is not JSON: {error}"))),
        RResult::RErr(fault) => Err(from_fault(&fault)),
    }
}

struct TestUnpark(Thread);

impl Wake for TestUnpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Waits for a future on this thread, at most as long as the kit waits for anything.
fn block_with_deadline<F: Future>(future: F) -> Result<F::Output> {
    let deadline = Instant::now() + DEADLINE;
    let waker = Waker::from(Arc::new(TestUnpark(thread::current())));
    let mut cx = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut cx) {
            return Ok(output);
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Error::with_code(
                code::TIMEOUT,
                format!("the call did not end within {} s", DEADLINE.as_secs()),
            ));
        }
        thread::park_timeout(left);
    }
}
