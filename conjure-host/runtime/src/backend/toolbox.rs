//! A session's backends, and the snapshots that are made of them.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use conjure_core::log::{PluginChange, StateHandover};
use conjure_core::routing::{Catalog, Naming, QuarantinedTool, RoutingTable};
use conjure_skill_sdk::protocol::{CatalogRequest, StateScope, ToolDecl};
use serde_json::Value;

use super::approval_files::ApprovalFiles;
use super::attached_backend::{AttachedBackend, BackendKind, BackendStatus};
use super::backend_attacher::BackendAttacher;
use super::backend_changes::BackendChanges;
use super::backend_holds::BackendHolds;
use super::backend_lease::{BackendLease, OpenInstances};
use super::contributors::{Contributors, is_contributor};
use super::instances::Instances;
use super::lease::{SkillLease, create_request};
use super::offers::{OfferTarget, OfferedTool, backend_tools, executor_tools, native_tools};
use super::permission_check::PermissionCheck;
use super::removed_skills::RemovedSkills;
use super::request_context::RequestContext;
use super::results::fetch_with;
use super::services::{Services, SessionServices};
use super::skills_prompt::prompt;
use super::snapshot::{CallTarget, ToolSnapshot};
use super::toolbox_error::{ToolboxError, names};
use super::transitions::BackendTransitions;
use crate::artifacts::Fetch;
use conjure_config::BackendSpec;
use conjure_plugins::{HostServices, LoadedPlugin, PluginId};

/// Time for an instance to take note of its end.
const SHUTDOWN: Duration = Duration::from_secs(2);

/// The backends of one session.
pub struct Toolbox {
    pub(super) instances: Arc<Instances>,
    pub(super) request_context: RequestContext,
    /// Provider and model that the session talks to.
    pub(super) catalog_request: CatalogRequest,
    services: SessionServices,
    naming: Naming,
    /// What backends handed out in this thread.
    pub(super) states: BTreeMap<String, Value>,
    pub(super) changes: Arc<BackendChanges>,
    pub(super) attached: Vec<AttachedBackend>,
    pub(super) transitions: BackendTransitions,
    open_instances: Arc<OpenInstances>,
    /// The native skills that this session uses, by plugin.
    leases: HashMap<PluginId, Arc<SkillLease>>,
    /// Native skills that this session used and that are gone.
    removed_skills: RemovedSkills,
    /// Tools that skills have beside those of their manifests.
    run_time_tools: HashMap<PluginId, Vec<ToolDecl>>,
    /// Tells when what is held may have been approved.
    approval_files: ApprovalFiles,
    /// Whether the next review of the catalogs is only to see what was approved meanwhile: nothing was
    /// listed anew since the last one.
    is_for_approvals: bool,
    /// Backends of which something is held: what such a server says is not for the model.
    pub(super) holds: HashMap<String, BackendHolds>,
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
            catalog_request: whom,
            services,
            naming,
            states,
            changes: Arc::default(),
            attached: Vec::with_capacity(specs.len()),
            transitions: BackendTransitions::default(),
            open_instances: Arc::default(),
            leases: HashMap::new(),
            removed_skills: RemovedSkills::default(),
            run_time_tools: HashMap::new(),
            approval_files: ApprovalFiles::default(),
            is_for_approvals: false,
            holds: HashMap::new(),
        };
        for spec in specs {
            let kind = if spec.is_native() {
                toolbox.check_native(spec).map(|()| BackendKind::Native)
            } else {
                toolbox.attach_plugin(spec).await
            };
            match kind {
                Ok(kind) => toolbox.attached.push(AttachedBackend::new(spec, kind)),
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

    /// The plugins that are there in another version than in the snapshot before, which
    /// [`Toolbox::update`] was called with. Told once.
    pub(crate) fn changed_plugins(&mut self, before: &ToolSnapshot) -> Vec<PluginChange> {
        let mut changes = self.transitions.take_changes();
        let known: HashSet<_> = before.skill_leases().map(Arc::as_ptr).collect();
        for lease in self.leases.values() {
            let now = lease.plugin.id();
            if known.contains(&Arc::as_ptr(lease)) {
                continue;
            }
            // A version that is still there is none that was replaced.
            let is_replaced = |old: &&Arc<SkillLease>| {
                let old = old.plugin.id();
                old.name == now.name && (old == now || !self.leases.contains_key(old))
            };
            let change = match before.skill_leases().find(is_replaced) {
                Some(old) => Some((old.instance_plugin().id().clone(), lease.handover())),
                None => self.removed_skills.restore(lease),
            };
            // Of the very build it is told only where something is lost with it.
            let change =
                change.filter(|(from, state)| from != now || *state == StateHandover::Lost);
            changes.extend(change.map(|(from, state)| PluginChange {
                plugin: now.name.to_string(),
                from: from.version.to_string(),
                to: now.version.to_string(),
                state,
            }));
        }
        changes.sort_by(|one, other| one.plugin.cmp(&other.plugin));
        changes
    }

    /// What backends said outside any call.
    pub(crate) fn changes(&self) -> &Arc<BackendChanges> {
        &self.changes
    }

    /// From the next snapshot on a skill offers these tools beside those of its manifest.
    pub(crate) fn set_skill_tools(&mut self, skill: &PluginId, tools: Vec<ToolDecl>) {
        self.run_time_tools.insert(skill.clone(), tools);
    }

    /// How the backends are.
    pub fn status(&self) -> Vec<BackendStatus> {
        self.attached
            .iter()
            .map(|attached| {
                let (missing, since) = match &attached.kind {
                    BackendKind::Missing { reason, since } => (Some(reason.clone()), Some(since)),
                    _ => (None, None),
                };
                let lease = attached.kind.lease();
                BackendStatus {
                    name: attached.name.clone(),
                    kind: attached.spec.kind.clone(),
                    plugin: lease.map(|lease| lease.serving_plugin().id().to_string()),
                    missing,
                    is_starting: self.transitions.is_pending(&attached.name),
                    since_ms: since.and_then(|since| {
                        let since = since.duration_since(UNIX_EPOCH).ok()?;
                        u64::try_from(since.as_millis()).ok()
                    }),
                }
            })
            .collect()
    }

    /// A way to fetch the files of a backend, if it has one.
    pub(crate) fn fetch(&self, backend: &str) -> Option<Fetch> {
        let attached = self.attached.iter().find(|it| it.name == backend)?;
        fetch_with(attached.kind.lease()?, &self.request_context)
    }

    /// The backends with a share in a provider's request.
    pub(crate) fn contributors(&self) -> Contributors {
        let contributing = self
            .attached
            .iter()
            .filter_map(|attached| match &attached.kind {
                BackendKind::Backend { lease, .. } if is_contributor(&lease.plugin) => {
                    Some((attached.name.clone(), Arc::clone(lease)))
                }
                _ => None,
            });
        Contributors(contributing.collect())
    }

    /// Ends what the session started on its backends.
    pub(crate) async fn close(&mut self) {
        let (backends, leases) = (self.all_leases(), self.skill_leases());
        end(backends, leases).await;
    }

    /// What the session has of native skills, also of those that are gone. It has none of them from
    /// here on.
    fn skill_leases(&mut self) -> Vec<Arc<SkillLease>> {
        let mut all: Vec<_> = std::mem::take(&mut self.leases).into_values().collect();
        all.extend(self.removed_skills.take_leases());
        all
    }

    /// What the session has of executors and backends, also of those that others have replaced. It
    /// has none of them from here on.
    fn all_leases(&mut self) -> Vec<Arc<BackendLease>> {
        let attached = std::mem::take(&mut self.attached);
        let attached = attached.iter().filter_map(|attached| attached.kind.lease());
        let mut all: Vec<_> = attached.cloned().collect();
        all.extend(self.transitions.take_replaced());
        all
    }

    pub(super) fn check_native(&self, spec: &BackendSpec) -> Result<(), ToolboxError> {
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
        let attaching = self.attacher();
        let plugin = attaching.plugin(spec)?;
        let state = self.states.get(spec.instance()).cloned();
        attaching.attach(spec, plugin, state).await
    }

    /// What attaching a backend needs.
    pub(super) fn attacher(&self) -> BackendAttacher {
        BackendAttacher {
            instances: Arc::clone(&self.instances),
            request_context: self.request_context.clone(),
            catalog_request: self.catalog_request.clone(),
            changes: Arc::clone(&self.changes),
            open_instances: Arc::clone(&self.open_instances),
        }
    }

    fn catalogs(&mut self) -> (Vec<Catalog>, Vec<OfferedTool>) {
        let (mut held_files, mut silent) = (Vec::new(), HashMap::new());
        let mut catalogs = Vec::new();
        let mut offers = Vec::new();
        for attached in &self.attached {
            let mut tools = Vec::new();
            match &attached.kind {
                BackendKind::Native => {
                    let (spec, skills) = (&attached.spec, self.instances.plugins("skill"));
                    let (more, held) = (&self.run_time_tools, self.skill_holds(&skills));
                    let files = held.values().flat_map(|held| held.files.iter().cloned());
                    held_files.extend(files);
                    native_tools(spec, &skills, more, &held, &mut tools, &mut offers);
                }
                BackendKind::Executor { lease, folders } => {
                    executor_tools(&attached.spec, lease, folders, &mut tools, &mut offers);
                }
                BackendKind::Backend { lease, catalog } => {
                    let approved = &self.instances.approved_tools;
                    let (spec, plugin) = (&attached.spec, &lease.plugin);
                    let held = approved.review(spec, plugin, catalog, !self.is_for_approvals);
                    held_files.extend_from_slice(&held.files);
                    backend_tools(
                        &attached.spec,
                        lease,
                        &catalog.reply,
                        &held,
                        &mut tools,
                        &mut offers,
                    );
                    if !held.is_empty() {
                        silent.insert(attached.name.clone(), held);
                    }
                }
                BackendKind::Missing { .. } => {}
            }
            catalogs.push(Catalog {
                backend: attached.name.clone(),
                kind: attached.spec.kind.clone(),
                naming: attached.spec.prefix,
                tools,
            });
        }
        self.approval_files.follow(held_files);
        self.holds = silent;
        self.is_for_approvals = false;
        (catalogs, offers)
    }

    /// What is held of the tools that native skills have at run time, by plugin.
    fn skill_holds(&self, skills: &[Arc<LoadedPlugin>]) -> HashMap<PluginId, BackendHolds> {
        let approved = &self.instances.approved_tools;
        let held = skills.iter().filter_map(|plugin| {
            let tools = self.run_time_tools.get(plugin.id())?;
            let config = self.skill_config(&plugin.manifest().name);
            let held = approved.review_skill(plugin, &config, tools, !self.is_for_approvals);
            (!held.is_empty()).then(|| (plugin.id().clone(), held))
        });
        held.collect()
    }

    /// Waits until what is held may have been approved; for ever where nothing is held. Safe to
    /// drop and call again.
    pub(crate) async fn wait_for_approvals(&mut self) {
        self.approval_files.changed().await;
        self.is_for_approvals = true;
    }

    /// Puts instances behind the names of a table.
    fn finish(&mut self, table: RoutingTable, offers: &[OfferedTool]) -> ToolSnapshot {
        let mut by_tool: HashMap<_, &OfferedTool> = HashMap::with_capacity(offers.len());
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
                OfferTarget::Skill(plugin) => {
                    // All tools of a skill share its instance, and so its state.
                    let lease = used
                        .entry(plugin.id().clone())
                        .or_insert_with(|| self.lease(plugin));
                    CallTarget::Skill(Arc::clone(lease))
                }
                OfferTarget::Target(target) => target.clone(),
            };
            targets.insert(Arc::from(route.name.as_str()), target);
        }
        let sources = self.sources(&mut used);
        let before = std::mem::replace(&mut self.leases, used);
        for (id, lease) in &before {
            let is_there = self.leases.contains_key(id)
                || self.leases.keys().any(|there| there.name == id.name);
            // What a person has taken out of the session's settings is not to come back.
            if !is_there && self.wants_skill(&id.name) {
                self.removed_skills.add(lease);
            }
        }
        let prompt = prompt(&table, &targets);
        let host_dir = &self.request_context.working_dir;
        ToolSnapshot::new(Arc::new(table), targets, sources, prompt, host_dir)
    }

    /// Whether the session's settings have a native skill of this name.
    fn wants_skill(&self, skill: &str) -> bool {
        let mut native = self.attached.iter().filter(|it| it.spec.is_native());
        native.any(|attached| attached.has_skill(skill))
    }

    /// The session's lease on a native skill; the same one for as long as the plugin is the same.
    pub(super) fn lease(&self, plugin: &Arc<LoadedPlugin>) -> Arc<SkillLease> {
        let gone = self.removed_skills.lease(&plugin.id().name);
        let known = self.leases.get(plugin.id()).or(gone.as_ref());
        if let Some(lease) = known.filter(|known| Arc::ptr_eq(&known.plugin, plugin)) {
            return Arc::clone(lease);
        }
        if plugin.manifest().state == StateScope::Shared {
            return self
                .instances
                .shared_lease(plugin, self.request_context.grants());
        }
        let before = self
            .leases
            .iter()
            .find(|(id, _)| id.name == plugin.id().name)
            .map(|(_, lease)| Arc::clone(lease))
            .or(gone);
        let granted = self
            .request_context
            .grants()
            .granted_permissions(&plugin.manifest().name);
        let services: Arc<dyn HostServices> = Arc::new(Services {
            shared: Arc::clone(&self.instances.services),
            permissions: PermissionCheck::new(&plugin.manifest().permissions, granted),
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
        let (backends, leases) = (self.all_leases(), self.skill_leases());
        if backends.is_empty() && leases.is_empty() {
            return;
        }
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(end(backends, leases));
        }
    }
}

/// Closes a session's backends, and tells its own skills that they end.
async fn end(backends: Vec<Arc<BackendLease>>, leases: Vec<Arc<SkillLease>>) {
    for lease in backends {
        lease.end().await;
    }
    let own = leases
        .into_iter()
        .filter(|lease| lease.plugin.manifest().state == StateScope::Session);
    for lease in own {
        if let Some(instance) = lease.current_instance() {
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
