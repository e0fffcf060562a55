//! Attaching one backend to a session: its plugin, its skill folders, its opening, what it offers.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use conjure_core::context::notes;
use conjure_skill_sdk::protocol::{CatalogRequest, Empty, Open, SkillMount, op};
use serde_json::Value;

use super::attached_backend::BackendKind;
use super::backend_catalog::BackendCatalog;
use super::backend_changes::{BackendChange, BackendChanges};
use super::backend_lease::{BackendLease, OpenInstances};
use super::instances::Instances;
use super::lease::ask;
use super::request_context::RequestContext;
use super::toolbox_error::{ToolboxError, names};
use conjure_config::BackendSpec;
use conjure_config::skill_folders::{self, LoadedFolder};
use conjure_plugins::{InstanceGrant, LoadedPlugin, PackagedPlugins};

/// Time for a backend of a session that runs to be there: what waits for it goes on without it then.
const LIMIT: Duration = Duration::from_secs(60);

/// What attaching needs, so that it can go on beside the session.
#[derive(Clone)]
pub(super) struct BackendAttacher {
    pub(super) instances: Arc<Instances>,
    pub(super) request_context: RequestContext,
    pub(super) catalog_request: CatalogRequest,
    pub(super) changes: Arc<BackendChanges>,
    pub(super) open_instances: Arc<OpenInstances>,
}

impl BackendAttacher {
    /// The newest plugin of the kind that a backend asks for.
    pub(super) fn plugin(&self, spec: &BackendSpec) -> Result<Arc<LoadedPlugin>, ToolboxError> {
        let newest = self.instances.newest(&spec.kind, &["executor", "backend"]);
        newest.ok_or_else(|| {
            let mut loaded = self.instances.plugins("executor");
            loaded.extend(self.instances.plugins("backend"));
            ToolboxError::NoPlugin {
                backend: spec.instance().to_owned(),
                kind: spec.kind.clone(),
                loaded: names(&loaded),
            }
        })
    }

    /// Attaches a backend of this plugin, which goes on from `state`.
    pub(super) async fn attach(
        &self,
        spec: &BackendSpec,
        plugin: Arc<LoadedPlugin>,
        state: Option<Value>,
    ) -> Result<BackendKind, ToolboxError> {
        let not_ready = |reason: String| not_ready(spec, reason);
        let folders = self.folders(spec)?;
        let instance = self
            .instances
            .instance(
                &plugin,
                spec.instance(),
                spec.config.clone().unwrap_or(Value::Null),
                &self.open_instances,
                &self.grant(&plugin, &folders),
            )
            .await
            .map_err(not_ready)?;
        let mounts = mounts(&folders);
        if plugin.manifest().kind == "executor" {
            let lease = BackendLease::executor(
                plugin,
                instance,
                &self.request_context,
                &self.open_instances,
                mounts,
            );
            let lease = Arc::new(lease.await.map_err(not_ready)?);
            if lease.keeps_to_no_sandbox() {
                let backend = spec.instance();
                let text = notes::sandbox_unsupported(backend);
                tracing::warn!(backend, "{text}");
                self.changes.push(BackendChange::Notice { text });
            }
            return Ok(BackendKind::Executor { lease, folders });
        }
        let open = self.request(spec, mounts, state);
        let told = (spec.instance(), &self.changes);
        let lease = BackendLease::backend(
            plugin,
            instance,
            &self.request_context,
            &self.open_instances,
            open,
            told,
        );
        let lease = Arc::new(lease.await.map_err(not_ready)?);
        match self.catalog(&lease).await {
            Ok(catalog) => Ok(BackendKind::Backend { lease, catalog }),
            Err(reason) => {
                lease.end().await;
                Err(not_ready(reason))
            }
        }
    }

    /// Like [`Self::attach`], for a session that runs, which does not wait for ever.
    pub(super) async fn attach_with_timeout(
        &self,
        spec: &BackendSpec,
        plugin: Arc<LoadedPlugin>,
        state: Option<Value>,
    ) -> Result<BackendKind, ToolboxError> {
        let attached = tokio::time::timeout(LIMIT, self.attach(spec, plugin, state));
        attached
            .await
            .unwrap_or_else(|_| Err(attach_timed_out(spec)))
    }

    /// Tells a backend that can take them over other options for the session. Whatever the two have
    /// in common goes on there.
    pub(super) async fn reopen(
        &self,
        spec: &BackendSpec,
        lease: Arc<BackendLease>,
        known: BackendCatalog,
        state: Option<Value>,
    ) -> Result<BackendKind, ToolboxError> {
        let folders = self.folders(spec)?;
        let instance = lease.instance();
        if !folders
            .iter()
            .all(|folder| instance.reaches_folder(&folder.dir))
        {
            // No worker gets more than it began with.
            let plugin = Arc::clone(instance.plugin());
            return self.attach_with_timeout(spec, plugin, state).await;
        }
        let reopened = async {
            let open = self.request(spec, mounts(&folders), None);
            let done: Result<Empty, _> =
                ask(instance, &self.request_context, op::BACKEND_REOPEN, open).await;
            done.map_err(|error| not_ready(spec, error.to_string()))?;
            // From here on it has the options, whatever it says of its catalog.
            Ok::<_, ToolboxError>(match self.catalog(&lease).await {
                Ok(catalog) => catalog,
                Err(reason) => {
                    let backend = spec.instance().to_owned();
                    tracing::warn!(backend, "is asked for its catalog again: {reason}");
                    self.changes.push(BackendChange::Catalog { backend });
                    known
                }
            })
        };
        let catalog = match tokio::time::timeout(LIMIT, reopened).await {
            Ok(catalog) => catalog?,
            Err(_) => return Err(attach_timed_out(spec)),
        };
        Ok(BackendKind::Backend { lease, catalog })
    }

    /// What the session grants a backend, with the skill folders that are given to it.
    fn grant(&self, plugin: &LoadedPlugin, folders: &[Arc<LoadedFolder>]) -> InstanceGrant {
        let mut grant = self.request_context.grant(plugin.manifest());
        let folders = folders.iter().map(|folder| folder.dir.clone());
        grant.dirs.folders.extend(folders);
        grant
    }

    fn request(&self, spec: &BackendSpec, skills: Vec<SkillMount>, state: Option<Value>) -> Open {
        Open {
            options: match &spec.config {
                Some(config) => config.clone(),
                None => self.instances.plugin_config(&spec.kind),
            },
            skills,
            state,
        }
    }

    async fn catalog(&self, lease: &BackendLease) -> Result<BackendCatalog, String> {
        let whom = self.catalog_request.clone();
        let asked = ask(
            lease.instance(),
            &self.request_context,
            op::BACKEND_CATALOG,
            &whom,
        );
        let reply = asked.await.map_err(|error| error.to_string())?;
        Ok(BackendCatalog {
            request: whom,
            reply: Arc::new(reply),
        })
    }

    fn folders(&self, spec: &BackendSpec) -> Result<Vec<Arc<LoadedFolder>>, ToolboxError> {
        let unpack_to = self.request_context.exchange_dir.join("skills");
        let packaged = PackagedPlugins::of(&self.instances.data_dir);
        let mut folders = Vec::new();
        for path in spec.skills.iter().flatten() {
            let loaded = skill_folders::load(Path::new(path), &unpack_to);
            // One that came in a package is what that had, whoever names it.
            let loaded = loaded.and_then(|loaded| {
                packaged.judge_skill(&loaded.dir)?;
                Ok(loaded)
            });
            let loaded = loaded.map_err(|source| ToolboxError::Folder {
                backend: spec.instance().to_owned(),
                source,
            })?;
            for diagnostic in &loaded.diagnostics {
                tracing::warn!(skill = %loaded.folder.name.as_str(), "{}", diagnostic.message);
            }
            folders.push(Arc::new(loaded));
        }
        Ok(folders)
    }
}

fn mounts(folders: &[Arc<LoadedFolder>]) -> Vec<SkillMount> {
    let mounts = folders.iter().map(|loaded| SkillMount {
        name: loaded.folder.name.as_str().to_owned(),
        dir: loaded.dir.display().to_string(),
    });
    mounts.collect()
}

fn not_ready(spec: &BackendSpec, reason: String) -> ToolboxError {
    ToolboxError::NotReady {
        backend: spec.instance().to_owned(),
        reason,
    }
}

fn attach_timed_out(spec: &BackendSpec) -> ToolboxError {
    not_ready(
        spec,
        format!("it was not ready within {} s", LIMIT.as_secs()),
    )
}
