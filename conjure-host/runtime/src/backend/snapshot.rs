//! A routing table with what stands behind each of its names.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use conjure_core::context::BackendInstructions;
use conjure_core::log::StateMove;
use conjure_core::routing::{Route, RouteRef, RoutingTable};
use conjure_skill_sdk::protocol::op;

use super::backend_lease::BackendLease;
use super::lease::SkillLease;
use super::readers::supports;
use super::resource_owners::SourceName;
use super::sources::CatalogSource;
use super::working_dirs::WorkingDirs;
use conjure_config::skill_folders::LoadedFolder;

/// A routing table and the instances that run its calls. Never changes; whoever holds it is served
/// by the versions that its table names.
pub struct ToolSnapshot {
    table: Arc<RoutingTable>,
    /// Targets that run the table's routes, in the order of the routes.
    targets: Vec<Option<CallTarget>>,
    sources: Vec<CatalogSource>,
    skills_prompt: String,
    working_dir: String,
}

/// The instance that runs the calls of one public name.
#[derive(Clone)]
pub(crate) enum CallTarget {
    /// A native skill.
    Skill(Arc<SkillLease>),
    /// An executor, with the skill folders that the tool is for.
    Executor(Arc<BackendLease>, Arc<[Arc<LoadedFolder>]>),
    /// A backend.
    Backend(Arc<BackendLease>),
}

impl CallTarget {
    /// What became of the state of the version before, where a call of this tool was the first that
    /// moved it. Told once.
    pub(crate) fn take_outcome(&self) -> Option<StateMove> {
        match self {
            Self::Skill(lease) => lease.take_outcome(),
            Self::Executor(lease, _) | Self::Backend(lease) => lease.take_outcome(),
        }
    }
}

impl ToolSnapshot {
    pub(crate) fn new(
        table: Arc<RoutingTable>,
        mut targets: HashMap<Arc<str>, CallTarget>,
        sources: Vec<CatalogSource>,
        mut skills_prompt: String,
        host_dir: &Path,
    ) -> Self {
        let WorkingDirs { main, others } = WorkingDirs::of(&table, &targets, host_dir);
        if !others.is_empty() && !skills_prompt.is_empty() {
            skills_prompt.push('\n');
        }
        skills_prompt.push_str(&others);
        let routes = table.routes().iter();
        let targets = routes
            .map(|route| targets.remove(route.name.as_str()))
            .collect();
        Self {
            table,
            targets,
            sources,
            skills_prompt,
            working_dir: main,
        }
    }

    /// The routing table.
    pub fn table(&self) -> &Arc<RoutingTable> {
        &self.table
    }

    /// The native skills behind the names, a skill as often as it has tools.
    pub(crate) fn skill_leases(&self) -> impl Iterator<Item = &Arc<SkillLease>> {
        self.targets.iter().filter_map(|target| match target {
            Some(CallTarget::Skill(lease)) => Some(lease),
            _ => None,
        })
    }

    /// The plugin that answers calls of a route in the place of the one that the table names, since
    /// that could not take over its state; nothing where the table's does.
    pub(crate) fn substitute_plugin(&self, route: RouteRef) -> Option<String> {
        let (_, target) = self.at(route)?;
        let (named, serving) = match target {
            CallTarget::Skill(lease) => (&lease.plugin, lease.serving_plugin()),
            CallTarget::Executor(lease, _) | CallTarget::Backend(lease) => {
                (&lease.plugin, lease.serving_plugin())
            }
        };
        (named.id() != serving.id()).then(|| serving.id().to_string())
    }

    /// Sources of resources, prompts and completions.
    pub(crate) fn sources(&self) -> &[CatalogSource] {
        &self.sources
    }

    /// Whether there is a backend, whose lists may grow while it runs.
    pub fn has_backends(&self) -> bool {
        let mut sources = self.sources.iter();
        sources.any(|source| matches!(source, CatalogSource::Backend { .. }))
    }

    /// What the model is told about the session's skill folders, and where tools work that work
    /// elsewhere than in [`ToolSnapshot::working_dir`].
    pub fn skills_prompt(&self) -> &str {
        &self.skills_prompt
    }

    /// What the backends say about their use, in their order.
    pub(crate) fn instructions(&self) -> impl Iterator<Item = BackendInstructions> {
        let backends = self.sources.iter().filter_map(|source| match source {
            CatalogSource::Backend { name, catalog, .. } => Some((name, catalog)),
            CatalogSource::Skill(_) => None,
        });
        backends.flat_map(|(name, catalog)| {
            let own = catalog.instructions.iter().map(|text| (None, text));
            let of_servers = catalog.server_instructions.iter();
            let of_servers = of_servers.map(|said| (Some(said.server.as_str()), &said.text));
            own.chain(of_servers)
                .filter_map(|(server, text)| BackendInstructions::new(name, server, text))
        })
    }

    /// Whether a backend, or a server behind it, has tools at all, whatever the session makes of
    /// them.
    pub(crate) fn offers_tools(&self, backend: &str, server: Option<&str>) -> bool {
        let mut sources = self.sources.iter();
        sources.any(|source| match source {
            CatalogSource::Backend { name, catalog, .. } if name == backend => {
                let mut tools = catalog.tools.iter();
                tools.any(|tool| server.is_none() || tool.skill.as_deref() == server)
            }
            _ => false,
        })
    }

    /// The working directory as the model is told: a container's own path when all commands run
    /// in containers.
    pub fn working_dir(&self) -> &str {
        &self.working_dir
    }

    /// The route of a public name and who runs it.
    pub(crate) fn look_up(&self, name: &str) -> Option<(&Route, &CallTarget)> {
        let (found, _) = self.table.find(name)?;
        self.at(found)
    }

    /// The source of resources that runs the calls of a public name.
    pub fn source_of(&self, name: &str) -> Option<SourceName> {
        let (route, target) = self.look_up(name)?;
        match target {
            CallTarget::Skill(lease) => {
                Some(SourceName::Skill(lease.plugin.manifest().name.clone()))
            }
            CallTarget::Backend(_) => Some(SourceName::Backend(route.backend.to_string())),
            CallTarget::Executor(..) => None,
        }
    }

    /// The source that fills in prompts under a name.
    pub(crate) fn find_prompt_source(&self, name: &str) -> Option<&CatalogSource> {
        let mut sources = self.sources.iter();
        sources.find(|source| source.name() == name && supports(source, op::PROMPT_GET))
    }

    /// The source, with its kind, that fills in prompts under a name.
    pub fn prompt_source(&self, name: &str) -> Option<SourceName> {
        Some(self.find_prompt_source(name)?.source_name())
    }

    /// A route that was found before and who runs it; nothing where the table is another one.
    pub(crate) fn at(&self, route: RouteRef) -> Option<(&Route, &CallTarget)> {
        let position = self.table.position(route)?;
        let target = self.targets.get(position)?.as_ref()?;
        Some((self.table.routes().get(position)?, target))
    }
}
