//! A session's backends, and the snapshots that are made of them.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use conjure_core::log::PluginChange;
use conjure_core::routing::{Catalog, Naming, QuarantinedTool, RoutingTable};
use conjure_skill_sdk::protocol::{
    CatalogReply, CatalogRequest, Empty, Open, SkillMount, StateScope, ToolDecl, op,
};
use serde::Serialize;
use serde_json::{Value, json};

use super::contributors::Contributors;
use super::instances::Instances;
use super::lease::{BackendLease, SkillLease, ask, create_request};
use super::offers::{Offer, Offered, backend_tools, executor_tools, native_tools};
use super::request_context::RequestContext;
use super::results::fetch_with;
use super::services::{Services, SessionServices};
use super::skills_prompt::prompt;
use super::snapshot::{CallTarget, ToolSnapshot};
use super::toolbox_error::{ToolboxError, names};
use super::watching::{BackendChanges, watch};
use crate::artifacts::Fetch;
use conjure_config::BackendSpec;
use conjure_config::skill_folders::{self, LoadedFolder};
use conjure_plugins::{HostServices, LoadedPlugin, PluginCallFailure, PluginId};

/// Time for an instance to take note of its end.
const SHUTDOWN: Duration = Duration::from_secs(2);

/// The backends of one session.
pub struct Toolbox {
    pub(super) instances: Arc<Instances>,
    pub(super) request_context: RequestContext,
    /// Whom the session talks to.
    pub(super) whom: CatalogRequest,
    services: SessionServices,
    naming: Naming,
    /// What backends handed out earlier in this thread.
    states: BTreeMap<String, Value>,
    pub(super) changes: Arc<BackendChanges>,
    pub(super) attached: Vec<Attached>,
    /// The native skills that this session uses, by plugin.
    leases: HashMap<PluginId, Arc<SkillLease>>,
    /// Tools that skills have beside those of their manifests.
    at_run_time: HashMap<PluginId, Vec<ToolDecl>>,
}

/// A backend that was attached to the session.
pub(super) struct Attached {
    pub(super) name: String,
    spec: BackendSpec,
    pub(super) kind: BackendKind,
}

pub(super) enum BackendKind {
    /// Native skills: those named, or all.
    Native,
    /// An executor with its skill folders.
    Executor {
        lease: Arc<BackendLease>,
        folders: Vec<Arc<LoadedFolder>>,
    },
    /// A backend with what it offers now.
    Backend {
        lease: Arc<BackendLease>,
        catalog: Arc<CatalogReply>,
    },
}

impl Attached {
    /// Whether it stands for this native skill.
    pub(super) fn has_skill(&self, skill: &str) -> bool {
        let named = self.spec.skills.as_ref();
        named.is_none_or(|names| names.iter().any(|name| name == skill))
    }
}

/// How a backend of a session is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BackendStatus {
    /// The instance's name.
    pub name: String,
    /// Its kind.
    pub kind: String,
    /// The plugin and its version, when one plugin is behind it.
    pub plugin: Option<String>,
}

impl Toolbox {
    /// Attaches a session's backends, in their order.
    ///
    /// # Errors
    /// [`ToolboxError`], the first that is met. Nothing stays open then.
    pub(crate) async fn attach(
        instances: Arc<Instances>,
        request_context: RequestContext,
        whom: CatalogRequest,
        services: SessionServices,
        naming: Naming,
        states: BTreeMap<String, Value>,
        specs: &[BackendSpec],
    ) -> Result<Self, ToolboxError> {
        let mut toolbox = Self {
            instances,
            request_context,
            whom,
            services,
            naming,
            states,
            changes: Arc::default(),
            attached: Vec::with_capacity(specs.len()),
            leases: HashMap::new(),
            at_run_time: HashMap::new(),
        };
        for spec in specs {
            let kind = if spec.is_native() {
                toolbox.check_native(spec).map(|()| BackendKind::Native)
            } else {
                toolbox.attach_plugin(spec).await
            };
            match kind {
                Ok(kind) => {
                    let name = spec.instance().to_owned();
                    toolbox.attached.push(Attached {
                        name,
                        spec: spec.clone(),
                        kind,
                    });
                }
                Err(error) => {
                    toolbox.close().await;
                    return Err(error);
                }
            }
        }
        Ok(toolbox)
    }

    /// The first snapshot.
    ///
    /// # Errors
    /// [`ToolboxError::Routing`] when names clash.
    pub fn snapshot(&mut self) -> Result<ToolSnapshot, ToolboxError> {
        let (catalogs, offers) = self.catalogs();
        let table = RoutingTable::build(1, &catalogs, &self.naming)?;
        Ok(self.finish(table, &offers))
    }

    /// The snapshot after something changed; what clashes is quarantined and the rest stays.
    pub fn update(&mut self, current: &ToolSnapshot) -> (ToolSnapshot, Vec<QuarantinedTool>) {
        let (catalogs, offers) = self.catalogs();
        let (table, quarantined) = current.table().update(&catalogs, &self.naming);
        (self.finish(table, &offers), quarantined)
    }

    /// The native skills that are there in another version than in the snapshot before, which
    /// [`Toolbox::update`] was called with.
    pub(crate) fn changed_plugins(&self, before: &ToolSnapshot) -> Vec<PluginChange> {
        let mut changes = Vec::new();
        for lease in self.leases.values() {
            let now = lease.plugin.id();
            let is_there = |id: &PluginId| self.leases.contains_key(id);
            let old = before.skill_leases();
            let old = old.map(|lease| lease.plugin.id());
            let mut old = old.filter(|id| id.name == now.name);
            // A version that is still there is none that was replaced.
            let Some(old) = old.find(|id| *id != now && !is_there(id)) else {
                continue;
            };
            changes.push(PluginChange {
                plugin: now.name.to_string(),
                from: old.version.to_string(),
                to: now.version.to_string(),
                state: lease.handover(),
            });
        }
        changes.sort_by(|one, other| one.plugin.cmp(&other.plugin));
        changes
    }

    /// What backends said outside any call.
    pub(crate) fn changes(&self) -> &Arc<BackendChanges> {
        &self.changes
    }

    /// Asks a backend what it offers now.
    pub(crate) fn ask_catalog(
        &self,
        backend: &str,
    ) -> Option<impl Future<Output = Result<CatalogReply, PluginCallFailure>> + Send + use<>> {
        let attached = self
            .attached
            .iter()
            .find(|attached| attached.name == backend)?;
        let BackendKind::Backend { lease, .. } = &attached.kind else {
            return None;
        };
        let (lease, request_context) = (Arc::clone(lease), self.request_context.clone());
        let whom = self.whom.clone();
        Some(async move { ask(&lease.instance, &request_context, op::BACKEND_CATALOG, whom).await })
    }

    /// From the next snapshot on the backend offers this.
    pub(crate) fn set_catalog(&mut self, backend: &str, now: CatalogReply) {
        let attached = self
            .attached
            .iter_mut()
            .find(|attached| attached.name == backend);
        if let Some(Attached {
            kind: BackendKind::Backend { catalog, .. },
            ..
        }) = attached
        {
            *catalog = Arc::new(now);
        }
    }

    /// From the next snapshot on a skill offers these tools beside those of its manifest.
    pub(crate) fn set_skill_tools(&mut self, skill: &PluginId, tools: Vec<ToolDecl>) {
        self.at_run_time.insert(skill.clone(), tools);
    }

    /// How the backends are.
    pub fn status(&self) -> Vec<BackendStatus> {
        self.attached
            .iter()
            .map(|attached| BackendStatus {
                name: attached.name.clone(),
                kind: attached.spec.kind.clone(),
                plugin: match &attached.kind {
                    BackendKind::Executor { lease, .. } | BackendKind::Backend { lease, .. } => {
                        Some(lease.plugin.id().to_string())
                    }
                    BackendKind::Native => None,
                },
            })
            .collect()
    }

    /// A way to fetch the files of a backend, if it has one.
    pub(crate) fn fetch(&self, backend: &str) -> Option<Fetch> {
        let attached = self.attached.iter().find(|it| it.name == backend)?;
        match &attached.kind {
            BackendKind::Executor { lease, .. } | BackendKind::Backend { lease, .. } => {
                fetch_with(lease, &self.request_context)
            }
            BackendKind::Native => None,
        }
    }

    /// The backends with a share in a provider's request.
    pub(crate) fn contributors(&self) -> Contributors {
        let contributing = self
            .attached
            .iter()
            .filter_map(|attached| match &attached.kind {
                BackendKind::Backend { lease, .. }
                    if lease.plugin.manifest().has("backend.contribute/1") =>
                {
                    Some((attached.name.clone(), Arc::clone(lease)))
                }
                _ => None,
            });
        Contributors(contributing.collect())
    }

    /// Ends what the session started on its backends.
    pub(crate) async fn close(&mut self) {
        let attached = std::mem::take(&mut self.attached);
        let leases = std::mem::take(&mut self.leases);
        end(attached, leases, self.request_context.clone()).await;
    }

    fn check_native(&self, spec: &BackendSpec) -> Result<(), ToolboxError> {
        for skill in spec.skills.iter().flatten() {
            let loaded = self.instances.plugins("skill");
            if !loaded.iter().any(|plugin| plugin.manifest().name == *skill) {
                return Err(ToolboxError::NoSkill {
                    backend: spec.instance().to_owned(),
                    skill: skill.clone(),
                    loaded: names(&loaded),
                });
            }
        }
        Ok(())
    }

    async fn attach_plugin(&self, spec: &BackendSpec) -> Result<BackendKind, ToolboxError> {
        let backend = spec.instance().to_owned();
        let not_ready = |reason: String| ToolboxError::NotReady {
            backend: backend.clone(),
            reason,
        };
        let Some(plugin) = self.instances.newest(&spec.kind, &["executor", "backend"]) else {
            let mut loaded = self.instances.plugins("executor");
            loaded.extend(self.instances.plugins("backend"));
            return Err(ToolboxError::NoPlugin {
                backend,
                kind: spec.kind.clone(),
                loaded: names(&loaded),
            });
        };
        let folders = self.folders(spec)?;
        let mounts: Vec<SkillMount> = folders
            .iter()
            .map(|loaded| SkillMount {
                name: loaded.folder.name.as_str().to_owned(),
                dir: loaded.dir.display().to_string(),
            })
            .collect();
        let instance = self
            .instances
            .instance(
                &plugin,
                spec.instance(),
                spec.config.clone().unwrap_or(Value::Null),
            )
            .await
            .map_err(not_ready)?;
        if plugin.manifest().kind == "executor" {
            let lease = BackendLease::executor(plugin, instance, &self.request_context, mounts)
                .await
                .map_err(not_ready)?;
            return Ok(BackendKind::Executor {
                lease: Arc::new(lease),
                folders,
            });
        }
        let open = Open {
            options: spec.config.clone().unwrap_or_else(|| json!({})),
            skills: mounts,
            state: self.states.get(spec.instance()).cloned(),
        };
        let _: Empty = ask(&instance, &self.request_context, op::BACKEND_OPEN, open)
            .await
            .map_err(|error| not_ready(error.to_string()))?;
        let whom = self.whom.clone();
        let catalog = ask(&instance, &self.request_context, op::BACKEND_CATALOG, whom).await;
        let catalog: CatalogReply = match catalog {
            Ok(catalog) => catalog,
            Err(error) => {
                let closed = ask(
                    &instance,
                    &self.request_context,
                    op::BACKEND_CLOSE,
                    Empty {},
                )
                .await;
                let _: Result<Empty, _> = closed;
                return Err(not_ready(error.to_string()));
            }
        };
        let watched = plugin.manifest().has("backend.watch/1").then(|| {
            watch(
                spec.instance(),
                &instance,
                &self.request_context,
                &self.changes,
            )
        });
        let lease = BackendLease {
            plugin,
            instance,
            ready: Default::default(),
            _watched: watched,
        };
        Ok(BackendKind::Backend {
            lease: Arc::new(lease),
            catalog: Arc::new(catalog),
        })
    }

    fn folders(&self, spec: &BackendSpec) -> Result<Vec<Arc<LoadedFolder>>, ToolboxError> {
        let unpack_to = self.request_context.exchange_dir.join("skills");
        let mut folders = Vec::new();
        for path in spec.skills.iter().flatten() {
            let loaded = skill_folders::load(Path::new(path), &unpack_to).map_err(|source| {
                ToolboxError::Folder {
                    backend: spec.instance().to_owned(),
                    source,
                }
            })?;
            for diagnostic in &loaded.diagnostics {
                tracing::warn!(skill = %loaded.folder.name.as_str(), "{}", diagnostic.message);
            }
            folders.push(Arc::new(loaded));
        }
        Ok(folders)
    }

    fn catalogs(&mut self) -> (Vec<Catalog>, Vec<Offer>) {
        let mut catalogs = Vec::new();
        let mut offers = Vec::new();
        for attached in &self.attached {
            let mut tools = Vec::new();
            match &attached.kind {
                BackendKind::Native => {
                    let skills = self.instances.plugins("skill");
                    let more = &self.at_run_time;
                    native_tools(&attached.spec, &skills, more, &mut tools, &mut offers);
                }
                BackendKind::Executor { lease, folders } => {
                    executor_tools(&attached.spec, lease, folders, &mut tools, &mut offers);
                }
                BackendKind::Backend { lease, catalog } => {
                    backend_tools(&attached.spec, lease, catalog, &mut tools, &mut offers);
                }
            }
            catalogs.push(Catalog {
                backend: attached.name.clone(),
                kind: attached.spec.kind.clone(),
                naming: attached.spec.prefix,
                tools,
            });
        }
        (catalogs, offers)
    }

    /// Puts instances behind the names of a table.
    fn finish(&mut self, table: RoutingTable, offers: &[Offer]) -> ToolSnapshot {
        let mut by_tool: HashMap<_, &Offer> = HashMap::with_capacity(offers.len());
        for offer in offers {
            by_tool.insert(offer.key(), offer);
        }
        let mut targets = HashMap::with_capacity(table.routes().len());
        let mut used = HashMap::new();
        for route in table.routes() {
            let definition = &route.definition;
            let key = (
                &*route.backend,
                definition.skill.as_deref(),
                definition.skill_version.as_ref(),
                definition.tool.as_str(),
            );
            let Some(offer) = by_tool.get(&key) else {
                continue;
            };
            let target = match &offer.target {
                Offered::Skill(plugin) => {
                    // All tools of a skill share its instance, and so its state.
                    let lease = used
                        .entry(plugin.id().clone())
                        .or_insert_with(|| self.lease(plugin));
                    CallTarget::Skill(Arc::clone(lease))
                }
                Offered::Target(target) => target.clone(),
            };
            targets.insert(Arc::from(route.name.as_str()), target);
        }
        let sources = self.sources(&mut used);
        self.leases = used;
        let prompt = prompt(&table, &targets);
        let host_dir = &self.request_context.working_dir;
        ToolSnapshot::new(Arc::new(table), targets, sources, prompt, host_dir)
    }

    /// The session's lease on a native skill; the same one for as long as the plugin is the same.
    pub(super) fn lease(&self, plugin: &Arc<LoadedPlugin>) -> Arc<SkillLease> {
        if let Some(lease) = self.leases.get(plugin.id())
            && Arc::ptr_eq(&lease.plugin, plugin)
        {
            return Arc::clone(lease);
        }
        if plugin.manifest().state == StateScope::Shared {
            return self.instances.shared_lease(plugin);
        }
        let before = self
            .leases
            .iter()
            .find(|(id, _)| id.name == plugin.id().name)
            .map(|(_, lease)| Arc::clone(lease));
        let services: Arc<dyn HostServices> = Arc::new(Services {
            shared: Arc::clone(&self.instances.services),
            permissions: plugin.manifest().permissions.clone(),
            session: Some(self.services.clone()),
        });
        let create = create_request(
            Some(self.request_context.session.as_ref().to_owned()),
            None,
            self.skill_config(&plugin.manifest().name),
            Some(self.instances.plugin_dir(&plugin.manifest().name)),
        );
        SkillLease::new(Arc::clone(plugin), services, create, before)
    }
}

impl Drop for Toolbox {
    /// A session that was given up half-way leaves nothing behind either.
    fn drop(&mut self) {
        if self.attached.is_empty() {
            return;
        }
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let attached = std::mem::take(&mut self.attached);
            let leases = std::mem::take(&mut self.leases);
            runtime.spawn(end(attached, leases, self.request_context.clone()));
        }
    }
}

/// Closes a session's backends, and tells its own skills that they end.
async fn end(
    attached: Vec<Attached>,
    leases: HashMap<PluginId, Arc<SkillLease>>,
    request_context: RequestContext,
) {
    for attached in attached {
        let (lease, operation) = match &attached.kind {
            BackendKind::Executor { lease, .. } => (lease, op::EXECUTOR_CLEANUP),
            BackendKind::Backend { lease, .. } => (lease, op::BACKEND_CLOSE),
            BackendKind::Native => continue,
        };
        let ended: Result<Empty, _> =
            ask(&lease.instance, &request_context, operation, Empty {}).await;
        if let Err(error) = ended {
            tracing::warn!(backend = attached.name, "could not clean up: {error}");
        }
    }
    let own = leases
        .into_values()
        .filter(|lease| lease.plugin.manifest().state == StateScope::Session);
    for lease in own {
        if let Some(instance) = lease.made() {
            instance.close(SHUTDOWN).await;
        }
    }
}

impl Toolbox {
    /// What the session file says for a native skill (`[backend.config.NAME]`), else the host.
    fn skill_config(&self, skill: &str) -> Value {
        let native = self
            .attached
            .iter()
            .filter(|attached| attached.spec.is_native());
        native
            .filter_map(|attached| attached.spec.config.as_ref()?.get(skill))
            .next()
            .cloned()
            .unwrap_or_else(|| self.instances.plugin_config(skill))
    }
}
