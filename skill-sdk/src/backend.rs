//! Backends: sessions, catalogs that change, calls, and a share in a provider's request.
//!
//! What a backend can do beyond the basics is a trait of its own, registered on the builder, so
//! that the manifest declares exactly what the code has.

use std::future::Future;
use std::sync::Arc;

use conjure_abi::{CallContext, PluginObject};
use serde_json::Value;

use crate::cx::Cx;
use crate::dispatch::{answer, encode, refuse, unsupported};
use crate::error::{Error, Result};
use crate::export::{Exported, object};
use crate::manifest_base::{ManifestBase, ManifestKind, manifest_methods};
use crate::protocol::{
    BackendCall, CatalogReply, CatalogRequest, Complete, Completions, Contribute, Contribution,
    Empty, FileRef, FilesGet, FilesPut, Manifest, Observation, Observe, Open, PromptGet,
    PromptText, Prompts as PromptList, ResourceRead, ResourceWatch, Resources as ResourceList,
    State, StateScope, ToolResult, op,
};
use crate::runtime::{AsyncDispatch, OnRuntime, OperationFuture, RuntimeOptions, runtime_methods};
use crate::setup::Setup;

/// Offers tools to many sessions at once ([`Cx::session`] tells which).
pub trait Backend: Send + Sync + 'static {
    /// Opens a session.
    fn open(&self, cx: Cx, request: Open) -> impl Future<Output = Result<()>> + Send;

    /// What the session is offered now, in a stable order.
    fn catalog(&self, cx: Cx) -> impl Future<Output = Result<CatalogReply>> + Send;

    /// Lists the tools for the session's model; the default is [`Self::catalog`]. What the model's own
    /// provider does for the backend ([`Contributes`]) need not be offered as a tool.
    fn catalog_for(
        &self,
        cx: Cx,
        request: CatalogRequest,
    ) -> impl Future<Output = Result<CatalogReply>> + Send {
        let _ = request;
        self.catalog(cx)
    }

    /// Calls a tool. An `Err` becomes an error result with its message.
    fn call(&self, cx: Cx, request: BackendCall)
    -> impl Future<Output = Result<ToolResult>> + Send;

    /// Closes a session.
    fn close(&self, cx: Cx) -> impl Future<Output = Result<()>> + Send;

    /// Runs for as long as the instance lives. Its context carries events and host operations
    /// while no call runs. Returning early is fine.
    fn watch(&self, cx: Cx) -> impl Future<Output = Result<()>> + Send {
        async move {
            cx.until_cancelled().await;
            Ok(())
        }
    }
}

/// A backend with a share in a provider's request.
pub trait Contributes: Backend {
    /// Fragments of the next request; none when the provider is another one's.
    fn contribute(
        &self,
        cx: Cx,
        request: Contribute,
    ) -> impl Future<Output = Result<Contribution>> + Send;

    /// Takes files and state out of a response, or looks at why there is none.
    fn observe(&self, cx: Cx, request: Observe)
    -> impl Future<Output = Result<Observation>> + Send;
}

/// A backend that can give a session that is open other options.
pub trait Reopens: Backend {
    /// The session has these options from here on. Whatever they have in common with those before
    /// goes on as it is; with an error all does. Without this the host opens the session on an
    /// instance of its own for the new options, and closes it on the one before.
    fn reopen(&self, cx: Cx, request: Open) -> impl Future<Output = Result<()>> + Send;
}

/// Something whose files are elsewhere than on the host.
pub trait Files: Send + Sync + 'static {
    /// Brings a file there, and says what it is called there.
    fn put(&self, cx: Cx, request: FilesPut) -> impl Future<Output = Result<FileRef>> + Send;

    /// Fetches a file from there to `request.to`.
    fn get(&self, cx: Cx, request: FilesGet) -> impl Future<Output = Result<FileRef>> + Send;
}

/// A backend with resources.
pub trait Resources: Backend {
    /// Lists the resources.
    fn list(&self, cx: Cx) -> impl Future<Output = Result<ResourceList>> + Send;

    /// Reads a resource.
    fn read(
        &self,
        cx: Cx,
        request: ResourceRead,
    ) -> impl Future<Output = Result<ToolResult>> + Send;

    /// Completes an argument of a template.
    fn complete(
        &self,
        cx: Cx,
        request: Complete,
    ) -> impl Future<Output = Result<Completions>> + Send {
        let _ = (cx, request);
        async { Ok(Completions::default()) }
    }
}

/// A backend that must hear which of its resources somebody wants to know the changes of, such as
/// one that tells a remote peer. It tells them by `PluginEvent::ResourceUpdated`.
pub trait Subscriptions: Resources {
    /// Starts to tell the session of changes of the resource. A session may ask for one that it asked
    /// for before.
    fn subscribe(&self, cx: Cx, request: ResourceWatch) -> impl Future<Output = Result<()>> + Send;

    /// Stops telling the session of them, however often it asked.
    fn unsubscribe(
        &self,
        cx: Cx,
        request: ResourceWatch,
    ) -> impl Future<Output = Result<()>> + Send;
}

/// A backend with prompts.
pub trait Prompts: Backend {
    /// Lists the prompts.
    fn list(&self, cx: Cx) -> impl Future<Output = Result<PromptList>> + Send;

    /// Fills a prompt in.
    fn get(&self, cx: Cx, request: PromptGet) -> impl Future<Output = Result<PromptText>> + Send;
}

/// A backend whose sessions move to a new version.
pub trait Upgrade: Send + Sync + 'static {
    /// Hands out the state of the session.
    fn export(&self, cx: Cx) -> impl Future<Output = Result<Value>> + Send;

    /// Takes the state over that the version before has handed out.
    fn import(&self, cx: Cx, state: State) -> impl Future<Output = Result<()>> + Send;
}

type BackendHandler<B> =
    Box<dyn Fn(Arc<B>, &str, &[u8], CallContext) -> OperationFuture + Send + Sync>;

/// Serves `files.put` and `files.get`.
pub(crate) type FilesHandler<B> = BackendHandler<B>;

/// Builds a backend plugin.
pub struct BackendPlugin<B> {
    base: ManifestBase,
    runtime: RuntimeOptions,
    make: Box<dyn FnOnce(Setup) -> Result<B> + Send>,
    extras: Vec<(&'static [&'static str], BackendHandler<B>)>,
    takes_files: bool,
    has_independent_skills: bool,
}

impl<B: Backend> BackendPlugin<B> {
    /// A backend that `make` makes, once a backend instance, on the plugin's runtime.
    pub fn new(
        name: impl Into<String>,
        description: impl Into<String>,
        make: impl FnOnce(Setup) -> Result<B> + Send + 'static,
    ) -> Self {
        Self {
            base: ManifestBase::new(name.into(), description.into()),
            runtime: RuntimeOptions::default(),
            make: Box::new(make),
            extras: Vec::new(),
            takes_files: false,
            has_independent_skills: false,
        }
    }

    manifest_methods!("backend", "elicit/1");
    runtime_methods!("Calls");

    /// The backend has a share in a provider's request.
    #[must_use]
    pub fn with_contributions(mut self) -> Self
    where
        B: Contributes,
    {
        self.extras.push((
            &[op::BACKEND_CONTRIBUTE, op::BACKEND_OBSERVE],
            Box::new(|backend, name, json, raw| match name {
                op::BACKEND_CONTRIBUTE => {
                    answer!(name, json, raw, |cx, body| backend.contribute(cx, body))
                }
                _ => answer!(name, json, raw, |cx, body| backend.observe(cx, body)),
            }),
        ));
        self
    }

    /// Sessions of the backend take other options over while they are open.
    #[must_use]
    pub fn with_reopening(mut self) -> Self
    where
        B: Reopens,
    {
        self.extras.push((
            &[op::BACKEND_REOPEN],
            Box::new(|backend, name, json, raw| {
                answer!(name, json, raw, |cx, body| async {
                    backend.reopen(cx, body).await.map(|()| Empty {})
                })
            }),
        ));
        self
    }

    /// Files of the backend are elsewhere than on the host.
    #[must_use]
    pub fn with_files(mut self) -> Self
    where
        B: Files,
    {
        self.extras
            .push((&[op::FILES_PUT, op::FILES_GET], files_of::<B>()));
        self
    }

    /// The argument `files` of the backend's own tools names files of the session: the host
    /// fetches them and hands them over with the call. Not for a backend that offers other
    /// people's tools, for which `files` may mean something else.
    #[must_use]
    pub fn with_files_of_calls(mut self) -> Self
    where
        B: Files,
    {
        self.takes_files = true;
        self.with_files()
    }

    /// Stateful calls of one skill or server do not depend on those of another, so they need not
    /// wait for each other.
    #[must_use]
    pub fn with_independent_skills(mut self) -> Self {
        self.has_independent_skills = true;
        self
    }

    /// The backend has resources.
    #[must_use]
    pub fn with_resources(mut self) -> Self
    where
        B: Resources,
    {
        self.extras.push((
            &[op::RESOURCE_LIST, op::RESOURCE_READ, op::COMPLETE],
            Box::new(|backend, name, json, raw| match name {
                op::RESOURCE_LIST => {
                    answer!(name, json, raw, |cx, _body: Empty| Resources::list(
                        &*backend, cx
                    ))
                }
                op::RESOURCE_READ => answer!(name, json, raw, |cx, body| backend.read(cx, body)),
                _ => answer!(name, json, raw, |cx, body| backend.complete(cx, body)),
            }),
        ));
        self
    }

    /// The backend hears which resources are watched.
    #[must_use]
    pub fn with_subscriptions(mut self) -> Self
    where
        B: Subscriptions,
    {
        self.extras.push((
            &[op::RESOURCE_SUBSCRIBE, op::RESOURCE_UNSUBSCRIBE],
            Box::new(|backend, name, json, raw| match name {
                op::RESOURCE_SUBSCRIBE => answer!(name, json, raw, |cx, body| async {
                    backend.subscribe(cx, body).await.map(|()| Empty {})
                }),
                _ => answer!(name, json, raw, |cx, body| async {
                    backend.unsubscribe(cx, body).await.map(|()| Empty {})
                }),
            }),
        ));
        self
    }

    /// The backend has prompts.
    #[must_use]
    pub fn with_prompts(mut self) -> Self
    where
        B: Prompts,
    {
        self.extras.push((
            &[op::PROMPT_LIST, op::PROMPT_GET],
            Box::new(|backend, name, json, raw| match name {
                op::PROMPT_LIST => {
                    answer!(name, json, raw, |cx, _body: Empty| Prompts::list(
                        &*backend, cx
                    ))
                }
                _ => answer!(name, json, raw, |cx, body| Prompts::get(
                    &*backend, cx, body
                )),
            }),
        ));
        self
    }

    /// Sessions of the backend move to a new version.
    #[must_use]
    pub fn with_upgrade(mut self) -> Self
    where
        B: Upgrade,
    {
        self.extras.push((
            &[op::STATE_EXPORT, op::STATE_IMPORT],
            Box::new(|backend, name, json, raw| match name {
                op::STATE_EXPORT => answer!(name, json, raw, |cx, _body: Empty| async {
                    let state = backend.export(cx).await?;
                    Ok::<_, Error>(State {
                        version: String::new(),
                        state,
                    })
                }),
                _ => answer!(name, json, raw, |cx, body| async {
                    backend.import(cx, body).await.map(|()| Empty {})
                }),
            }),
        ));
        self
    }
}

/// Serves the two operations on files.
pub(crate) fn files_of<F: Files>() -> FilesHandler<F> {
    Box::new(|files, name, json, raw| match name {
        op::FILES_PUT => answer!(name, json, raw, |cx, body| files.put(cx, body)),
        op::FILES_GET => answer!(name, json, raw, |cx, body| Files::get(&*files, cx, body)),
        _ => refuse(unsupported(name)),
    })
}

pub(crate) fn same_name(builder: &str, exported: &str, macro_name: &str) -> Result<()> {
    if builder == exported {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "the builder says `{builder}` and the export macro `{exported}`: write \
         `{macro_name}!(…, name = \"{builder}\")`"
    )))
}

impl<B: Backend> Exported for BackendPlugin<B> {
    fn plugin_name(&self) -> String {
        self.base.name.clone()
    }

    fn plugin_manifest(&self, name: &str, version: &str) -> Result<Manifest> {
        same_name(&self.base.name, name, "export_backend")?;
        let basics = [
            op::BACKEND_OPEN,
            op::BACKEND_CATALOG,
            op::BACKEND_CALL,
            op::BACKEND_CLOSE,
            op::BACKEND_WATCH,
            op::PING,
            op::SHUTDOWN,
            "stream",
            "start",
        ];
        let extras = self
            .extras
            .iter()
            .flat_map(|(operations, _)| operations.iter().copied());
        let kind = ManifestKind {
            kind: "backend",
            capabilities: basics
                .into_iter()
                .chain(extras)
                .chain(self.takes_files.then_some("call.files"))
                .chain(self.has_independent_skills.then_some("skills.independent"))
                .map(|op| format!("{op}/1"))
                .collect(),
            state: StateScope::Shared,
            tools: Vec::new(),
        };
        Ok(self.base.manifest(name, version, kind))
    }

    fn into_plugin(self, setup: Setup) -> Result<PluginObject> {
        let Self { make, extras, .. } = self;
        let instance = OnRuntime::new(&self.base.name, self.runtime, move || {
            Ok(BackendDispatch {
                backend: Arc::new(make(setup)?),
                extras,
            })
        })?;
        Ok(object(instance))
    }
}

struct BackendDispatch<B> {
    backend: Arc<B>,
    extras: Vec<(&'static [&'static str], BackendHandler<B>)>,
}

impl<B: Backend> AsyncDispatch for BackendDispatch<B> {
    fn answer(self: Arc<Self>, name: &str, json: &[u8], raw: CallContext) -> OperationFuture {
        let backend = Arc::clone(&self.backend);
        match name {
            op::BACKEND_OPEN => answer!(name, json, raw, |cx, body| async {
                backend.open(cx, body).await.map(|()| Empty {})
            }),
            op::BACKEND_CATALOG => {
                answer!(name, json, raw, |cx, body| backend.catalog_for(cx, body))
            }
            op::BACKEND_CALL => call(backend, json, raw),
            op::BACKEND_CLOSE => answer!(name, json, raw, |cx, _body: Empty| async {
                backend.close(cx).await.map(|()| Empty {})
            }),
            op::BACKEND_WATCH => answer!(name, json, raw, |cx, _body: Empty| async {
                backend.watch(cx).await.map(|()| Empty {})
            }),
            op::PING | op::SHUTDOWN => Box::pin(async { encode(&Empty {}) }),
            _ => match self
                .extras
                .iter()
                .find(|(operations, _)| operations.contains(&name))
            {
                Some((_, handler)) => handler(backend, name, json, raw),
                None => refuse(unsupported(name)),
            },
        }
    }
}

fn call<B: Backend>(backend: Arc<B>, json: &[u8], raw: CallContext) -> OperationFuture {
    match crate::dispatch::decode::<BackendCall>(op::BACKEND_CALL, json) {
        Ok((body, envelope)) => Box::pin(async move {
            let cx = Cx::new(raw, envelope);
            let result = backend.call(cx.clone(), body).await?;
            Ok(crate::spill::encode(result, cx.exchange_dir())?)
        }),
        Err(error) => refuse(error),
    }
}
