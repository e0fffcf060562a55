//! Executors: the narrow kind of backend, which runs commands and keeps files.
//!
//! The host makes tools out of these operations, so no tool schema is frozen into a binary.

use std::future::Future;
use std::sync::Arc;

use conjure_abi::{CallContext, PluginObject};

use crate::Files;
use crate::backend::{FilesHandler, files_of};
use crate::cx::Cx;
use crate::dispatch::{answer, encode, refuse, unsupported};
use crate::error::{Error, Result};
use crate::export::{Exported, object};
use crate::guard::guard;
use crate::manifest_base::{ManifestBase, ManifestKind, manifest_methods};
use crate::protocol::{
    Bash, BashOutput, CreateFile, Empty, ExecutorInit, ExecutorReady, FileRef, FilesGet, FilesPut,
    Manifest, StateScope, StrReplace, View, Viewed, Written, op,
};
use crate::runtime::{AsyncDispatch, OnRuntime, OperationFuture, RuntimeOptions, runtime_methods};
use crate::setup::Setup;

/// Runs commands and keeps files, for many sessions at once ([`Cx::session`] tells which).
///
/// An `Err` is an answer for the model: it says what failed and how to go on.
pub trait Executor: Send + Sync + 'static {
    /// Prepares a session. Without it commands see the host's own paths.
    fn init(
        &self,
        cx: Cx,
        request: ExecutorInit,
    ) -> impl Future<Output = Result<ExecutorReady>> + Send {
        async move { Ok(host_paths(&cx, request)) }
    }

    /// Runs a command in a POSIX shell. A failing command is `Ok` with its exit code.
    fn bash(&self, cx: Cx, request: Bash) -> impl Future<Output = Result<BashOutput>> + Send;

    /// Shows a file, a range of its lines, or a directory two levels deep.
    fn view(&self, cx: Cx, request: View) -> impl Future<Output = Result<Viewed>> + Send;

    /// Writes a file and makes missing directories.
    fn create_file(
        &self,
        cx: Cx,
        request: CreateFile,
    ) -> impl Future<Output = Result<Written>> + Send;

    /// Replaces the only occurrence of a passage; none or several are an error.
    fn str_replace(
        &self,
        cx: Cx,
        request: StrReplace,
    ) -> impl Future<Output = Result<Written>> + Send;

    /// Ends what the session started.
    fn cleanup(&self, cx: Cx) -> impl Future<Output = Result<()>> + Send {
        let _ = cx;
        async { Ok(()) }
    }
}

/// [`Executor`] for code that blocks; wrap it in [`Blocking`].
pub trait BlockingExecutor: Send + Sync + 'static {
    /// As [`Executor::init`].
    ///
    /// # Errors
    /// As [`Executor::init`].
    fn init(&self, cx: &Cx, request: ExecutorInit) -> Result<ExecutorReady> {
        Ok(host_paths(cx, request))
    }

    /// As [`Executor::bash`].
    ///
    /// # Errors
    /// As [`Executor::bash`].
    fn bash(&self, cx: &Cx, request: Bash) -> Result<BashOutput>;

    /// As [`Executor::view`].
    ///
    /// # Errors
    /// As [`Executor::view`].
    fn view(&self, cx: &Cx, request: View) -> Result<Viewed>;

    /// As [`Executor::create_file`].
    ///
    /// # Errors
    /// As [`Executor::create_file`].
    fn create_file(&self, cx: &Cx, request: CreateFile) -> Result<Written>;

    /// As [`Executor::str_replace`].
    ///
    /// # Errors
    /// As [`Executor::str_replace`].
    fn str_replace(&self, cx: &Cx, request: StrReplace) -> Result<Written>;

    /// As [`Executor::cleanup`].
    ///
    /// # Errors
    /// As [`Executor::cleanup`].
    fn cleanup(&self, cx: &Cx) -> Result<()> {
        let _ = cx;
        Ok(())
    }
}

fn host_paths(cx: &Cx, request: ExecutorInit) -> ExecutorReady {
    ExecutorReady {
        working_dir: cx.envelope().working_dir.unwrap_or_default(),
        skills: request.skills,
    }
}

/// Makes an [`Executor`] out of a [`BlockingExecutor`]: each call runs on a blocking thread.
#[derive(Debug)]
pub struct Blocking<T>(Arc<T>);

impl<T> Blocking<T> {
    /// An executor whose calls block.
    pub fn new(executor: T) -> Self {
        Self(Arc::new(executor))
    }

    async fn run<R: Send + 'static>(
        &self,
        work: impl FnOnce(&T) -> Result<R> + Send + 'static,
    ) -> Result<R>
    where
        T: Send + Sync + 'static,
    {
        let executor = Arc::clone(&self.0);
        // Guarded here and not at the await: the panic's place is known on its own thread only.
        tokio::task::spawn_blocking(move || guard(|| work(&executor)))
            .await
            .unwrap_or_else(|_| Err(Error::cancelled()))
    }
}

impl<T: BlockingExecutor> Executor for Blocking<T> {
    async fn init(&self, cx: Cx, request: ExecutorInit) -> Result<ExecutorReady> {
        self.run(move |executor| executor.init(&cx, request)).await
    }

    async fn bash(&self, cx: Cx, request: Bash) -> Result<BashOutput> {
        self.run(move |executor| executor.bash(&cx, request)).await
    }

    async fn view(&self, cx: Cx, request: View) -> Result<Viewed> {
        self.run(move |executor| executor.view(&cx, request)).await
    }

    async fn create_file(&self, cx: Cx, request: CreateFile) -> Result<Written> {
        self.run(move |executor| executor.create_file(&cx, request))
            .await
    }

    async fn str_replace(&self, cx: Cx, request: StrReplace) -> Result<Written> {
        self.run(move |executor| executor.str_replace(&cx, request))
            .await
    }

    async fn cleanup(&self, cx: Cx) -> Result<()> {
        self.run(move |executor| executor.cleanup(&cx)).await
    }
}

/// [`Files`] for code that blocks, beside [`BlockingExecutor`].
pub trait BlockingFiles: Send + Sync + 'static {
    /// As [`Files::put`].
    ///
    /// # Errors
    /// As [`Files::put`].
    fn put(&self, cx: &Cx, request: FilesPut) -> Result<FileRef>;

    /// As [`Files::get`].
    ///
    /// # Errors
    /// As [`Files::get`].
    fn get(&self, cx: &Cx, request: FilesGet) -> Result<FileRef>;
}

impl<T: BlockingFiles> Files for Blocking<T> {
    async fn put(&self, cx: Cx, request: FilesPut) -> Result<FileRef> {
        self.run(move |files| files.put(&cx, request)).await
    }

    async fn get(&self, cx: Cx, request: FilesGet) -> Result<FileRef> {
        self.run(move |files| files.get(&cx, request)).await
    }
}

/// Builds an executor plugin.
pub struct ExecutorPlugin<E> {
    base: ManifestBase,
    runtime: RuntimeOptions,
    make: Box<dyn FnOnce(Setup) -> Result<E> + Send>,
    files: Option<FilesHandler<E>>,
    sandbox: bool,
}

impl<E: Executor> ExecutorPlugin<E> {
    /// An executor that `make` makes, once a backend instance, on the plugin's runtime.
    pub fn new(
        name: impl Into<String>,
        description: impl Into<String>,
        make: impl FnOnce(Setup) -> Result<E> + Send + 'static,
    ) -> Self {
        Self {
            base: ManifestBase::new(name.into(), description.into()),
            runtime: RuntimeOptions::default(),
            make: Box::new(make),
            files: None,
            sandbox: false,
        }
    }

    manifest_methods!("executor", "kv.get/1");
    runtime_methods!("Commands");

    /// Files of the executor are elsewhere than on the host, and go there and back.
    #[must_use]
    pub fn with_files(mut self) -> Self
    where
        E: Files,
    {
        self.files = Some(files_of::<E>());
        self
    }

    /// Commands run on the host's machine, and the executor keeps them to the sandbox that `init` is
    /// told. One that does not say so is told of none.
    #[must_use]
    pub fn with_sandbox(mut self) -> Self {
        self.sandbox = true;
        self
    }
}

impl<E: Executor> Exported for ExecutorPlugin<E> {
    fn plugin_name(&self) -> String {
        self.base.name.clone()
    }

    fn plugin_manifest(&self, name: &str, version: &str) -> Result<Manifest> {
        crate::backend::same_name(&self.base.name, name, "export_executor")?;
        let mut operations = vec![
            op::EXECUTOR_INIT,
            op::EXECUTOR_BASH,
            op::EXECUTOR_VIEW,
            op::EXECUTOR_CREATE_FILE,
            op::EXECUTOR_STR_REPLACE,
            op::EXECUTOR_CLEANUP,
            op::PING,
            op::SHUTDOWN,
            "stream",
            "start",
        ];
        if self.files.is_some() {
            operations.extend([op::FILES_PUT, op::FILES_GET]);
        }
        if self.sandbox {
            operations.push("executor.sandbox");
        }
        let kind = ManifestKind {
            kind: "executor",
            capabilities: operations.iter().map(|op| format!("{op}/1")).collect(),
            state: StateScope::Shared,
            tools: Vec::new(),
        };
        Ok(self.base.manifest(name, version, kind))
    }

    fn into_plugin(self, setup: Setup) -> Result<PluginObject> {
        let Self { make, files, .. } = self;
        let instance = OnRuntime::new(&self.base.name, self.runtime, move || {
            Ok(ExecutorDispatch {
                executor: Arc::new(make(setup)?),
                files,
            })
        })?;
        Ok(object(instance))
    }
}

struct ExecutorDispatch<E> {
    executor: Arc<E>,
    files: Option<FilesHandler<E>>,
}

impl<E: Executor> AsyncDispatch for ExecutorDispatch<E> {
    fn answer(self: Arc<Self>, name: &str, json: &[u8], raw: CallContext) -> OperationFuture {
        let executor = Arc::clone(&self.executor);
        match name {
            op::EXECUTOR_INIT => answer!(name, json, raw, |cx, body| executor.init(cx, body)),
            op::EXECUTOR_BASH => answer!(name, json, raw, |cx, body| executor.bash(cx, body)),
            op::EXECUTOR_VIEW => answer!(name, json, raw, |cx, body| executor.view(cx, body)),
            op::EXECUTOR_CREATE_FILE => {
                answer!(name, json, raw, |cx, body| executor.create_file(cx, body))
            }
            op::EXECUTOR_STR_REPLACE => {
                answer!(name, json, raw, |cx, body| executor.str_replace(cx, body))
            }
            op::EXECUTOR_CLEANUP => answer!(name, json, raw, |cx, _body: Empty| async {
                executor.cleanup(cx).await.map(|()| Empty {})
            }),
            op::PING | op::SHUTDOWN => Box::pin(async { encode(&Empty {}) }),
            _ => match &self.files {
                Some(files) => files(executor, name, json, raw),
                None => refuse(unsupported(name)),
            },
        }
    }
}
