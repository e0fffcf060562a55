//! One backend on its own: what it says of itself and what is done to it, outside any session
//! with a model.
//!
//! For whoever looks after a backend. It has the directories and the services of a session, its
//! calls are not routed, and no policy is asked.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_recursion::async_recursion as boxed;
use conjure_skill_sdk::protocol::{
    BackendCall, CatalogReply, CatalogRequest, Empty, Open, ToolResult, op,
};
use serde_json::{Value, json};

use crate::Host;
use crate::backend::backend_lease::OpenInstances;
use crate::backend::lease::ask;
use crate::backend::{Asker, ToolboxError, names};
use crate::session::{SessionDirs, SessionError};
use conjure_config::{BackendSpec, SessionSpec};
use conjure_plugins::{Instance, LoadedPlugin, PluginCallFailure};
use conjure_store::ThreadId;

/// Time for it to end what it started.
const CLOSING: Duration = Duration::from_secs(15);

/// A backend that is open without a session.
pub struct StandaloneBackend {
    dirs: SessionDirs,
    instance: Arc<Instance>,
}

impl Host {
    /// Opens a backend on its own; `working_dir` is where it works.
    ///
    /// # Errors
    /// [`SessionError`] when no backend plugin has the kind, or it cannot be opened.
    #[boxed]
    pub async fn open_backend(
        &self,
        backend: &BackendSpec,
        working_dir: Option<PathBuf>,
    ) -> Result<StandaloneBackend, SessionError> {
        let asker = Arc::clone(&self.shared.asker);
        self.open_backend_with_asker(backend, working_dir, asker)
            .await
    }

    /// Like [`Host::open_backend`], but `asker` answers what the backend asks the person.
    ///
    /// # Errors
    /// As [`Host::open_backend`].
    #[boxed]
    pub async fn open_backend_with_asker(
        &self,
        backend: &BackendSpec,
        working_dir: Option<PathBuf>,
        asker: Arc<dyn Asker>,
    ) -> Result<StandaloneBackend, SessionError> {
        let shared = &self.shared;
        let not_ready = |reason: String| ToolboxError::NotReady {
            backend: backend.instance().to_owned(),
            reason,
        };
        let Some(plugin) = shared.instances.newest(&backend.kind, &["backend"]) else {
            return Err(ToolboxError::NoPlugin {
                backend: backend.instance().to_owned(),
                kind: backend.kind.clone(),
                loaded: names(&shared.instances.plugins("backend")),
            }
            .into());
        };
        let spec = SessionSpec {
            working_dir,
            ..SessionSpec::default()
        };
        let mut dirs = SessionDirs::make(shared, &spec, &ThreadId::fresh(), None, None)?;
        dirs.set_asker(asker);
        let config = backend.config.clone().unwrap_or(Value::Null);
        let nowhere = OpenInstances::default();
        let reach = dirs.request_context.grant(plugin.manifest());
        let instance =
            shared
                .instances
                .instance(&plugin, backend.instance(), config, &nowhere, &reach);
        let instance = instance.await.map_err(not_ready)?;
        let open = Open {
            options: backend.config.clone().unwrap_or_else(|| json!({})),
            ..Open::default()
        };
        let opened = ask(&instance, &dirs.request_context, op::BACKEND_OPEN, open).await;
        let _: Empty = opened.map_err(|error| not_ready(error.to_string()))?;
        Ok(StandaloneBackend { dirs, instance })
    }
}

impl StandaloneBackend {
    /// The plugin that it is made of.
    pub(crate) fn plugin(&self) -> &LoadedPlugin {
        self.instance.plugin()
    }

    /// What it offers, and in `meta` what it says of itself.
    ///
    /// # Errors
    /// [`PluginCallFailure`].
    #[boxed]
    pub async fn catalog(&self) -> Result<CatalogReply, PluginCallFailure> {
        let request = CatalogRequest::default();
        ask(
            &self.instance,
            &self.dirs.request_context,
            op::BACKEND_CATALOG,
            request,
        )
        .await
    }

    /// One call, as the backend knows its name. Without a skill it is a call of the backend's
    /// own, if it has such.
    ///
    /// # Errors
    /// [`PluginCallFailure`]. A call that fails may also be a result that says so.
    #[boxed]
    pub async fn call(&self, call: BackendCall) -> Result<ToolResult, PluginCallFailure> {
        ask(
            &self.instance,
            &self.dirs.request_context,
            op::BACKEND_CALL,
            call,
        )
        .await
    }

    /// Ends what it started.
    pub async fn close(self) {
        let closing = ask(
            &self.instance,
            &self.dirs.request_context,
            op::BACKEND_CLOSE,
            Empty {},
        );
        let closed = tokio::time::timeout(CLOSING, closing).await;
        let _: Result<Result<Empty, PluginCallFailure>, _> = closed;
    }
}

impl fmt::Debug for StandaloneBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StandaloneBackend")
            .field("plugin", self.instance.plugin().id())
            .finish_non_exhaustive()
    }
}
