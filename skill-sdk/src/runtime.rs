//! The runtime of an asynchronous plugin: it belongs to the instance and ends with it.

use std::future::{Future, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use conjure_abi::{CallContext, FfiFuture, FutureExt, RResult, Reply, code};
use tokio::runtime::Builder;
use tokio::task::JoinHandle;

use crate::dispatch::Dispatch;
use crate::error::{Error, Result, to_fault};
use crate::guard::{CatchPanic, guard};
use crate::parked::{OperationStart, ParkedOperations};
use crate::protocol::op as names;

/// How the runtime of an instance is made, and where its calls begin.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RuntimeOptions {
    /// The number of its threads.
    pub(crate) threads: usize,
    /// Whether calls run on the thread that starts them until they first wait.
    pub(crate) starts_in_place: bool,
}

impl Default for RuntimeOptions {
    fn default() -> Self {
        Self {
            threads: 2,
            starts_in_place: false,
        }
    }
}

/// The methods with which builders of asynchronous plugins fill their [`RuntimeOptions`]: `$calls`
/// are what begins there, as a sentence begins with it.
macro_rules! runtime_methods {
    ($calls:literal) => {
        /// How many threads the instance's runtime has; 2 by default. One is quicker for code that
        /// only waits for others: a call then changes threads less often. Code that computes for
        /// longer belongs into `spawn_blocking` either way.
        #[must_use]
        pub fn threads(mut self, threads: usize) -> Self {
            self.runtime.threads = threads;
            self
        }

        #[doc = concat!($calls, " begin on the host's thread that asks for them, and go to the")]
        /// runtime where they first wait, so that a call changes threads less often. For code that
        /// gets to its first `await` in microseconds and never blocks before it; it is no task
        /// until then. The host uses a thread of its own for the next calls where that is not so.
        #[must_use]
        pub fn starts_in_place(mut self) -> Self {
            self.runtime.starts_in_place = true;
            self
        }
    };
}

pub(crate) use runtime_methods;

/// The reply of an operation, as JSON.
pub(crate) type OperationFuture = Pin<Box<dyn Future<Output = Result<Vec<u8>>> + Send>>;

/// Author code that is asynchronous.
pub(crate) trait AsyncDispatch: Send + Sync + 'static {
    /// The future of an operation; it runs on the instance's runtime.
    fn answer(self: Arc<Self>, op: &str, json: &[u8], cx: CallContext) -> OperationFuture;
}

/// An asynchronous instance with its runtime. Both are there until it is dropped.
pub(crate) struct OnRuntime<A: AsyncDispatch> {
    inner: Option<Arc<A>>,
    runtime: Option<tokio::runtime::Runtime>,
    /// The calls that began in place, where they do.
    parked: Option<Arc<ParkedOperations>>,
}

impl<A: AsyncDispatch> OnRuntime<A> {
    /// Starts a runtime and makes the instance on it, so that its constructor may spawn.
    pub(crate) fn new(
        name: &str,
        options: RuntimeOptions,
        make: impl FnOnce() -> Result<A>,
    ) -> Result<Self> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(options.threads.max(1))
            .thread_name(format!("plugin-{name}"))
            .enable_all()
            .build()?;
        let made = {
            let _entered = runtime.enter();
            guard(make)
        };
        match made {
            Ok(inner) => Ok(Self {
                inner: Some(Arc::new(inner)),
                parked: options
                    .starts_in_place
                    .then(|| ParkedOperations::new(runtime.handle())),
                runtime: Some(runtime),
            }),
            Err(error) => {
                // Dropping it would wait for whatever the constructor spawned.
                runtime.shutdown_background();
                Err(error)
            }
        }
    }

    fn answer(&self, op: &str, json: &[u8], cx: CallContext) -> Result<CatchPanic<Vec<u8>>> {
        let inner = self.inner.as_ref().ok_or_else(instance_gone)?;
        Ok(CatchPanic::new(Arc::clone(inner).answer(op, json, cx)))
    }

    fn spawn(&self, op: &str, json: &[u8], cx: CallContext) -> Result<PluginTask> {
        let answer = self.answer(op, json, cx)?;
        let runtime = self.runtime.as_ref().ok_or_else(instance_gone)?;
        Ok(PluginTask(runtime.spawn(answer)))
    }
}

impl<A: AsyncDispatch> Dispatch for OnRuntime<A> {
    fn call(&self, op: &str, json: &[u8], cx: CallContext) -> Result<Vec<u8>> {
        crate::block_on::block_on(self.spawn(op, json, cx)?)
    }

    fn start(&self, op: &str, json: &[u8], cx: CallContext) -> FfiFuture<Reply> {
        let is_call = matches!(op, names::BACKEND_CALL | names::EXECUTOR_BASH);
        let Some(parked) = self.parked.as_ref().filter(|_| is_call) else {
            let joined = self.spawn(op, json, cx);
            return async move {
                match joined {
                    Ok(joined) => reply(joined.await),
                    Err(error) => reply(Err(error)),
                }
            }
            .into_ffi();
        };
        match self.answer(op, json, cx).map(|answer| parked.begin(answer)) {
            Ok(OperationStart::Pending(rest)) => async move { reply(rest.await) }.into_ffi(),
            Ok(OperationStart::Done(done)) => ready(reply(done)).into_ffi(),
            Err(error) => ready(reply(Err(error))).into_ffi(),
        }
    }
}

fn instance_gone() -> Error {
    Error::with_code(code::GONE, "the instance is over")
}

fn reply(answer: Result<Vec<u8>>) -> Reply {
    match answer {
        Ok(bytes) => RResult::ROk(bytes.into()),
        Err(error) => RResult::RErr(to_fault(error)),
    }
}

impl<A: AsyncDispatch> Drop for OnRuntime<A> {
    fn drop(&mut self) {
        // The dropping thread is the host's: it neither waits nor runs author code, so the
        // author's destructor runs on a thread of the runtime's, as its tasks' do.
        if let (Some(runtime), Some(inner)) = (self.runtime.take(), self.inner.take()) {
            let parked = self.parked.take();
            let waiting = parked.map(|parked| parked.take());
            runtime.spawn_blocking(move || {
                guard(|| {
                    drop((waiting, inner));
                    Ok(())
                })
            });
            runtime.shutdown_background();
        }
    }
}

/// A task of the plugin's runtime; dropping it cancels the task there.
struct PluginTask(JoinHandle<Result<Vec<u8>>>);

impl Future for PluginTask {
    type Output = Result<Vec<u8>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // The task catches its own panics; what is left is that it was cancelled.
        Pin::new(&mut self.0)
            .poll(cx)
            .map(|joined| joined.unwrap_or_else(|_| Err(Error::cancelled())))
    }
}

impl Drop for PluginTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}
