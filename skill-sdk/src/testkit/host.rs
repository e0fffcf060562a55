//! A host for tests: what it serves is set up before, what it was told is read after.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use conjure_abi::{
    CallContext, CallCx, CallCx_TO, EmitStatus, FfiFuture, FutureExt, RArc, RResult, RSlice, Reply,
    TD_Opaque, code,
};
use serde_json::Value;
use tokio::runtime::{Builder, Handle, Runtime};

use super::channel::Channel;
use super::operations::{self, TestServices};
use super::plugin::Plugin;
use super::transcript::{Message, SharedTranscript};
use super::{Linked, Transport};
use crate::error::{Error, Result, to_fault};
use crate::export::Exported;
use crate::frames::{Client, PluginRoot, serve};
use crate::protocol::{
    Create, Elicit, Elicited, FileRef, HostInfo, HttpRequest, HttpResponse, Progress, Request,
    Root, Sample, Sampled, ServedClient,
};

/// A host operation of the test's own.
pub(super) type HostOperationFn =
    Box<dyn Fn(Value) -> Pin<Box<dyn Future<Output = Result<Value>> + Send>> + Send + Sync>;

/// A host for tests. Cloning it gives another handle to the same one.
#[derive(Clone)]
pub struct TestHost(pub(super) Arc<TestHostState>);

pub(super) struct TestHostState {
    pub(super) services: TestServices,
    pub(super) transcript: Arc<SharedTranscript>,
    pub(super) create: Create,
    pub(super) envelope: Request<()>,
    capacity: usize,
    transport: Transport,
    runtime: Mutex<Option<Runtime>>,
    handle: Handle,
}

impl fmt::Debug for TestHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestHost").finish_non_exhaustive()
    }
}

impl TestHost {
    /// A host that serves `kv.*`, `file`, `progress` and `roots`, and no more.
    ///
    /// # Errors
    /// When the system gives no threads.
    pub fn new() -> Result<Self> {
        Self::builder().build()
    }

    /// Sets a host up.
    pub fn builder() -> TestHostBuilder {
        TestHostBuilder::new()
    }

    /// An instance of a plugin that is linked into the test.
    ///
    /// # Errors
    /// What is wrong with the builder, or why the instance was refused.
    pub fn link<E: Exported + 'static>(
        &self,
        make: impl Fn() -> E + Send + Sync + 'static,
    ) -> Result<Plugin> {
        self.run(Linked(make))
    }

    /// An instance of a plugin that something else has loaded.
    ///
    /// # Errors
    /// As [`TestHost::link`].
    pub fn run(&self, root: impl PluginRoot) -> Result<Plugin> {
        match self.0.transport {
            Transport::Direct => Plugin::new(self.clone(), &root),
            Transport::Pipe => {
                let (here, there) = tokio::io::duplex(64 * 1024);
                let (reader, writer) = tokio::io::split(there);
                self.0.handle.spawn(serve(root, reader, writer));
                let (reader, writer) = tokio::io::split(here);
                let client = {
                    let _entered = self.0.handle.enter();
                    Client::connect(reader, writer)
                };
                let credit = u32::try_from(self.0.capacity).unwrap_or(u32::MAX);
                Plugin::new(self.clone(), &client.with_credit(credit))
            }
        }
    }

    /// What the plugins stored, by key.
    pub fn kv(&self) -> BTreeMap<String, Value> {
        lock(&self.0.services.kv).clone()
    }

    /// Files that were registered, in order. The handle of the n-th, from 1, is `artifact-n`.
    pub fn files(&self) -> Vec<FileRef> {
        lock(&self.0.services.files).clone()
    }

    /// What was reported through the operation `progress`, in order.
    pub fn progress(&self) -> Vec<Progress> {
        lock(&self.0.services.progress).clone()
    }

    /// Every message that crossed the boundary so far and was not a fault.
    pub fn transcript(&self) -> Vec<Message> {
        self.0.transcript.messages()
    }

    pub(super) fn channel(&self) -> Arc<Channel> {
        Channel::new(self.0.capacity, Arc::clone(&self.0.transcript))
    }

    pub(super) fn context(&self, channel: &Arc<Channel>) -> CallContext {
        let context = TestContext {
            host: self.clone(),
            channel: Arc::clone(channel),
        };
        CallCx_TO::from_ptr(RArc::new(context), TD_Opaque)
    }
}

impl Drop for TestHostState {
    fn drop(&mut self) {
        // A test does not wait for what its plugins left behind.
        if let Ok(runtime) = self.runtime.get_mut() {
            if let Some(runtime) = runtime.take() {
                runtime.shutdown_background();
            }
        }
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sets a [`TestHost`] up.
pub struct TestHostBuilder {
    services: TestServices,
    create: Create,
    envelope: Request<()>,
    capacity: usize,
    transport: Transport,
}

impl fmt::Debug for TestHostBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestHostBuilder").finish_non_exhaustive()
    }
}

impl TestHostBuilder {
    fn new() -> Self {
        Self {
            services: TestServices::default(),
            create: Create {
                host: HostInfo {
                    name: "testkit".to_owned(),
                    version: crate::SDK_VERSION.to_owned(),
                    operations: Vec::new(),
                },
                ..Create::default()
            },
            envelope: Request::new(()),
            capacity: 16,
            transport: Transport::Direct,
        }
    }

    /// How plugins are reached; directly unless set.
    #[must_use]
    pub fn transport(mut self, transport: Transport) -> Self {
        self.transport = transport;
        self
    }

    /// How many pieces of output a call's channel holds; 16 unless set. One more is `FULL`.
    #[must_use]
    pub fn capacity(mut self, pieces: usize) -> Self {
        self.capacity = pieces.max(1);
        self
    }

    /// The configuration that instances get.
    #[must_use]
    pub fn config(mut self, config: Value) -> Self {
        self.create.config = config;
        self
    }

    /// The session of instances and, unless a call says otherwise, of calls.
    #[must_use]
    pub fn session(mut self, session: &str) -> Self {
        self.create.session = Some(session.to_owned());
        self.envelope.session = Some(session.to_owned());
        self
    }

    /// The name of the backend instance.
    #[must_use]
    pub fn instance(mut self, instance: &str) -> Self {
        self.create.instance = Some(instance.to_owned());
        self
    }

    /// The plugin's own directory.
    #[must_use]
    pub fn data_dir(mut self, dir: &str) -> Self {
        self.create.data_dir = Some(dir.to_owned());
        self
    }

    /// The working directory of calls.
    #[must_use]
    pub fn working_dir(mut self, dir: &str) -> Self {
        self.envelope.working_dir = Some(dir.to_owned());
        self
    }

    /// The exchange directory of calls.
    #[must_use]
    pub fn exchange_dir(mut self, dir: &str) -> Self {
        self.envelope.exchange_dir = Some(dir.to_owned());
        self
    }

    /// A program is on the other side of the session.
    #[must_use]
    pub fn client(mut self, client: ServedClient) -> Self {
        self.envelope.client = Some(client);
        self
    }

    /// A secret that `secret.get` gives. Without any, the host does not serve the operation.
    #[must_use]
    pub fn secret(mut self, name: &str, value: &str) -> Self {
        self.services
            .secrets
            .insert(name.to_owned(), value.to_owned());
        self
    }

    /// A value that is stored before the plugin begins.
    #[must_use]
    pub fn stored(self, key: &str, value: Value) -> Self {
        lock(&self.services.kv).insert(key.to_owned(), value);
        self
    }

    /// A directory that the session works in.
    #[must_use]
    pub fn root(mut self, uri: &str) -> Self {
        self.services.roots.push(Root {
            uri: uri.to_owned(),
            name: None,
        });
        self
    }

    /// The answer to an HTTP request; any other one is denied.
    #[must_use]
    pub fn http(mut self, method: &str, url: &str, response: HttpResponse) -> Self {
        self.services
            .http
            .insert((method.to_owned(), url.to_owned()), response);
        self
    }

    /// Sets the function that answers every HTTP request that has no canned answer.
    #[must_use]
    pub fn http_with(
        mut self,
        answer: impl Fn(HttpRequest) -> Result<HttpResponse> + Send + Sync + 'static,
    ) -> Self {
        self.services.http_with = Some(Box::new(answer));
        self
    }

    /// Sets the function that answers for the person.
    #[must_use]
    pub fn elicit(mut self, answer: impl Fn(Elicit) -> Elicited + Send + Sync + 'static) -> Self {
        self.services.elicit = Some(Box::new(answer));
        self
    }

    /// Sets the function that answers for the model.
    #[must_use]
    pub fn sample(
        mut self,
        answer: impl Fn(Sample) -> Result<Sampled> + Send + Sync + 'static,
    ) -> Self {
        self.services.sample = Some(Box::new(answer));
        self
    }

    /// An operation of the test's own, or another answer to a known one. It runs on the host's
    /// runtime and may use its timers.
    #[must_use]
    pub fn operation<F>(
        mut self,
        name: &str,
        answer: impl Fn(Value) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Result<Value>> + Send + 'static,
    {
        let handler: HostOperationFn = Box::new(move |request| Box::pin(answer(request)));
        self.services.custom.insert(name.to_owned(), handler);
        self
    }

    /// The host.
    ///
    /// # Errors
    /// When the system gives no threads.
    pub fn build(mut self) -> Result<TestHost> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("testkit-host")
            .enable_all()
            .build()?;
        self.create.host.operations = operations::operation_names(&self.services);
        Ok(TestHost(Arc::new(TestHostState {
            services: self.services,
            transcript: Arc::default(),
            create: self.create,
            envelope: self.envelope,
            capacity: self.capacity,
            transport: self.transport,
            handle: runtime.handle().clone(),
            runtime: Mutex::new(Some(runtime)),
        })))
    }
}

/// The context of one call.
#[derive(Clone)]
struct TestContext {
    host: TestHost,
    channel: Arc<Channel>,
}

impl CallCx for TestContext {
    fn emit(&self, kind: u32, bytes: RSlice<'_, u8>) -> u32 {
        let status = self.channel.emit(kind, bytes.as_slice());
        if status == EmitStatus::Full {
            // The reader is slow but comes: after, not before, the plugin was told to wait.
            let channel = Arc::clone(&self.channel);
            self.host.0.handle.spawn(async move { channel.drain() });
        }
        status as u32
    }

    fn cancelled(&self) -> bool {
        self.channel.is_stopped()
    }

    fn host(&self, op: RSlice<'_, u8>, json: RSlice<'_, u8>) -> FfiFuture<Reply> {
        let host = self.host.clone();
        let channel = Arc::clone(&self.channel);
        let op = String::from_utf8_lossy(op.as_slice()).into_owned();
        let json = json.as_slice().to_vec();
        let task = self.host.0.handle.spawn(async move {
            match operations::serve(&host.0, &channel, &op, &json).await {
                Ok(reply) => RResult::ROk(reply.into()),
                Err(error) => RResult::RErr(to_fault(error)),
            }
        });
        let task = HostTask(task);
        async move { task.reply().await }.into_ffi()
    }

    fn log(&self, level: u32, _target: RSlice<'_, u8>, message: RSlice<'_, u8>) {
        self.channel.log(level, message.as_slice());
    }
}

/// A task of the host's; dropping this cancels it.
struct HostTask(tokio::task::JoinHandle<Reply>);

impl HostTask {
    async fn reply(mut self) -> Reply {
        (&mut self.0).await.unwrap_or_else(|error| {
            RResult::RErr(to_fault(Error::with_code(
                code::FAILED,
                format!("the test's answer did not end well: {error}"),
            )))
        })
    }
}

impl Drop for HostTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}
