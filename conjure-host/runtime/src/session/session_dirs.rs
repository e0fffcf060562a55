//! A session's directories, and what the host does for plugins there.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use conjure_core::log::{Entry, last_backend_states};

use super::derived::catalog_request;
use super::error::SessionError;
use super::exchange_dir::ExchangeDir;
use super::host_state::HostState;
use crate::artifacts::Artifacts;
use crate::backend::plugin_grants::PluginGrants;
use crate::backend::questions::SessionClient;
use crate::backend::request_context::RequestContext;
use crate::backend::sampling::{CurrentModel, SamplingModel};
use crate::backend::services::{Asker, SessionServices};
use crate::backend::{Toolbox, ToolboxError};
use conjure_config::SessionSpec;
use conjure_providers::Provider;
use conjure_store::ThreadId;

/// What the directory of a session's files is called.
const FILES: &str = "files";

/// A session's directories and services.
pub(crate) struct SessionDirs {
    pub(crate) request_context: RequestContext,
    pub(crate) services: SessionServices,
    pub(crate) exchange: Exchange,
    /// Model that answers plugins that ask one.
    pub(crate) current_model: CurrentModel,
}

/// The exchange directory, which ends with the session.
pub(crate) struct Exchange {
    dir: ExchangeDir,
    session_dir: PathBuf,
    shared: Arc<HostState>,
    session: String,
    artifacts: Arc<Artifacts>,
}

impl Exchange {
    /// Ends it before its last holder goes. Doing so again does no harm.
    pub(crate) fn end(&self) {
        self.artifacts.end();
        self.shared
            .instances
            .services
            .forget(&self.session, &self.artifacts);
        self.dir.remove();
        remove_empty_dirs(&self.session_dir);
    }
}

impl Drop for Exchange {
    /// Also when the session was given up half-way.
    fn drop(&mut self) {
        self.end();
    }
}

/// What a session kept nothing in is of no use.
pub(super) fn remove_empty_dirs(own: &Path) {
    for dir in [&own.join("work"), &own.join(FILES), own] {
        conjure_config::fs::remove_dir_if_empty(dir);
    }
}

impl SessionDirs {
    pub(crate) fn make(
        shared: &Arc<HostState>,
        spec: &SessionSpec,
        thread: &ThreadId,
        provider: Option<&Arc<dyn Provider>>,
        client: Option<Arc<dyn SessionClient>>,
    ) -> Result<Self, SessionError> {
        let own = session_dir(&shared.instances.data_dir, thread.as_str());
        let working_dir = match &spec.working_dir {
            Some(dir) => dir
                .canonicalize()
                .map_err(|error| SessionError::Directory {
                    path: dir.display().to_string(),
                    reason: format!("{error}; it must exist"),
                })?,
            None => create_dir(&own.join("work"))?,
        };
        let exchange = ExchangeDir::make(&own).map_err(directory_error(&own))?;
        let exchange_dir = exchange.path().to_owned();
        let artifacts = Artifacts::new(
            vec![working_dir.clone(), exchange_dir.clone()],
            own.join(FILES),
        );
        let artifacts = artifacts
            .with_host_dir(&shared.instances.data_dir)
            .with_session(&shared.write_tracker, thread.as_str())
            .with_exchange_dir(&exchange_dir);
        let artifacts = Arc::new(artifacts);
        let model = spec.model.clone().unwrap_or_default();
        let asked: CurrentModel = Arc::new(ArcSwapOption::from(provider.map(|provider| {
            Arc::new(SamplingModel {
                provider: Arc::clone(provider),
                model,
                session: None,
            })
        })));
        let declared = client.as_ref().map(|client| client.declares());
        let grants = PluginGrants::of(&spec.plugins);
        let services = SessionServices {
            artifacts: Arc::clone(&artifacts),
            working_dir: working_dir.clone(),
            exchange_dir: exchange_dir.clone(),
            grants: grants.clone(),
            asker: Arc::clone(&shared.asker),
            current_model: Arc::clone(&asked),
            client,
        };
        let session = thread.as_str().to_owned();
        shared
            .instances
            .services
            .remember(&session, services.clone());
        Ok(Self {
            request_context: RequestContext::new(&session, working_dir, exchange_dir)
                .with_client(declared)
                .with_sandbox(&spec.sandbox)
                .with_grants(grants),
            services,
            current_model: asked,
            exchange: Exchange {
                dir: exchange,
                session_dir: own,
                shared: Arc::clone(shared),
                session,
                artifacts,
            },
        })
    }

    /// Whether the session works where its specification says, without a link on the way. Of a saved session
    /// it was so a moment ago.
    pub(super) fn check_working_dir(&self, spec: &SessionSpec) -> Result<(), SessionError> {
        let named = spec.working_dir.as_deref();
        match named.filter(|named| *named != self.request_context.working_dir) {
            None => Ok(()),
            Some(named) => Err(SessionError::Directory {
                path: named.display().to_string(),
                reason:
                    "a link came there, or on the way to it, while the session was opened; put the \
                         directory back"
                        .to_owned(),
            }),
        }
    }

    /// Attaches the backends of a specification here, to go on from what a thread says of their
    /// state.
    pub(super) async fn attach(
        &self,
        spec: &SessionSpec,
        entries: &[Entry],
    ) -> Result<Toolbox, ToolboxError> {
        let states = last_backend_states(entries)
            .into_iter()
            .map(|(backend, state)| (backend.to_owned(), state.clone()))
            .collect();
        Toolbox::attach(
            Arc::clone(&self.exchange.shared.instances),
            self.request_context.clone(),
            catalog_request(spec),
            self.services.clone(),
            spec.routing.clone(),
            states,
            &spec.backends,
        )
        .await
    }

    /// From here on this one answers what plugins ask the person.
    pub(crate) fn set_asker(&mut self, asker: Arc<dyn Asker>) {
        self.services.asker = asker;
        let services = &self.exchange.shared.instances.services;
        services.remember(&self.exchange.session, self.services.clone());
    }
}

fn create_dir(dir: &Path) -> Result<PathBuf, SessionError> {
    conjure_config::fs::create_private_dir(dir).map_err(directory_error(dir))?;
    dir.canonicalize().map_err(directory_error(dir))
}

fn directory_error(dir: &Path) -> impl Fn(std::io::Error) -> SessionError {
    move |error| SessionError::Directory {
        path: dir.display().to_string(),
        reason: error.to_string(),
    }
}

/// Where a session's own files are.
fn session_dir(data_dir: &Path, session: &str) -> PathBuf {
    sessions_dir(data_dir).join(session)
}

/// Where the files of a thread are that nobody made in a working directory.
pub(super) fn files_dir(data_dir: &Path, thread: &ThreadId) -> PathBuf {
    session_dir(data_dir, thread.as_str()).join(FILES)
}

/// Where the own files of all sessions are.
pub(crate) fn sessions_dir(data_dir: &Path) -> PathBuf {
    data_dir.join("sessions")
}
