//! The runtime of an asynchronous plugin: it belongs to the instance and ends with it.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use conjure_abi::{CallContext, FfiFuture, FutureExt, RResult, Reply};
use tokio::runtime::{Builder, Handle};
use tokio::task::JoinHandle;

use crate::dispatch::{Dispatch, panic_error};
use crate::error::{Error, Result, to_fault};

/// The reply of an operation, as JSON.
pub(crate) type Answer = Pin<Box<dyn Future<Output = Result<Vec<u8>>> + Send>>;

/// Author code that is asynchronous.
pub(crate) trait AsyncDispatch: Send + Sync + 'static {
    /// The future of an operation; it runs on the instance's runtime.
    fn answer(self: Arc<Self>, op: &str, json: &[u8], cx: CallContext) -> Answer;
}

/// An asynchronous instance with its runtime.
pub(crate) struct OnRuntime<A> {
    inner: Arc<A>,
    runtime: Option<tokio::runtime::Runtime>,
    handle: Handle,
}

impl<A: AsyncDispatch> OnRuntime<A> {
    /// Starts a runtime and makes the instance on it, so that its constructor may spawn.
    pub(crate) fn new(name: &str, make: impl FnOnce() -> Result<A>) -> Result<Self> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name(format!("plugin-{name}"))
            .enable_all()
            .build()?;
        let inner = {
            let _entered = runtime.enter();
            Arc::new(make()?)
        };
        let handle = runtime.handle().clone();
        Ok(Self {
            inner,
            runtime: Some(runtime),
            handle,
        })
    }

    fn spawn(&self, op: &str, json: &[u8], cx: CallContext) -> JoinHandle<Result<Vec<u8>>> {
        let answer = {
            let _entered = self.handle.enter();
            Arc::clone(&self.inner).answer(op, json, cx)
        };
        self.handle.spawn(answer)
    }
}

impl<A: AsyncDispatch> Dispatch for OnRuntime<A> {
    fn call(&self, op: &str, json: &[u8], cx: CallContext) -> Result<Vec<u8>> {
        crate::block_on::block_on(Joined(self.spawn(op, json, cx)))
    }

    fn start(&self, op: &str, json: &[u8], cx: CallContext) -> FfiFuture<Reply> {
        let joined = Joined(self.spawn(op, json, cx));
        async move {
            match joined.await {
                Ok(bytes) => RResult::ROk(bytes.into()),
                Err(error) => RResult::RErr(to_fault(error)),
            }
        }
        .into_ffi()
    }
}

impl<A> Drop for OnRuntime<A> {
    fn drop(&mut self) {
        // The dropping thread is the host's: it neither waits nor runs author code.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// A task of the plugin's runtime; dropping it cancels the task there.
struct Joined(JoinHandle<Result<Vec<u8>>>);

impl Future for Joined {
    type Output = Result<Vec<u8>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(cx).map(|joined| match joined {
            Ok(result) => result,
            Err(error) => match error.try_into_panic() {
                Ok(payload) => Err(panic_error(&*payload)),
                Err(_) => Err(Error::cancelled()),
            },
        })
    }
}

impl Drop for Joined {
    fn drop(&mut self) {
        self.0.abort();
    }
}
