//! Sources that offer more in a session than the tools of a manifest: its backends, and native skills
//! that say so in their manifest.

use std::collections::HashMap;
use std::sync::Arc;

use conjure_skill_sdk::protocol::{CatalogReply, Manifest};

use super::attached_backend::BackendKind;
use super::backend_lease::BackendLease;
use super::lease::SkillLease;
use super::resource_owners::SourceName;
use super::toolbox::Toolbox;
use conjure_plugins::{LoadedPlugin, PluginId};

/// A source of resources and prompts.
#[derive(Clone)]
pub(crate) enum CatalogSource {
    /// A native skill, which is asked for its lists.
    Skill(Arc<SkillLease>),
    /// A backend, with its lists.
    Backend {
        /// The instance's name.
        name: String,
        lease: Arc<BackendLease>,
        catalog: Arc<CatalogReply>,
    },
}

/// Operations of which one makes a skill a source.
const OPERATIONS: [&str; 6] = [
    "resource.list/1",
    "resource.read/1",
    "prompt.list/1",
    "prompt.get/1",
    "complete/1",
    "skill.tools/1",
];

impl CatalogSource {
    /// The name of the skill or the backend instance.
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Skill(lease) => &lease.plugin.manifest().name,
            Self::Backend { name, .. } => name,
        }
    }

    /// The name with its kind.
    pub(crate) fn source_name(&self) -> SourceName {
        match self {
            Self::Skill(_) => SourceName::Skill(self.name().to_owned()),
            Self::Backend { .. } => SourceName::Backend(self.name().to_owned()),
        }
    }

    pub(crate) fn manifest(&self) -> &Manifest {
        self.plugin().manifest()
    }

    pub(crate) fn plugin(&self) -> &LoadedPlugin {
        match self {
            Self::Skill(lease) => &lease.plugin,
            Self::Backend { lease, .. } => &lease.plugin,
        }
    }
}

impl Toolbox {
    /// What a backend offers, without the words of servers of which something is held.
    fn without_held(&self, backend: &str, catalog: &Arc<CatalogReply>) -> Arc<CatalogReply> {
        let Some(held) = self.holds.get(backend) else {
            return Arc::clone(catalog);
        };
        let mut catalog = CatalogReply::clone(catalog);
        let words = &mut catalog.server_instructions;
        words.retain(|said| !held.silences(Some(&said.server)));
        if held.silences(None) {
            catalog.instructions = None;
        }
        Arc::new(catalog)
    }

    /// The sources, in the order of the session's backends. `used` are the leases of skills whose
    /// tools are routed; a skill that has only lists gets one here.
    pub(super) fn sources(
        &self,
        used: &mut HashMap<PluginId, Arc<SkillLease>>,
    ) -> Vec<CatalogSource> {
        let mut sources = Vec::new();
        for attached in &self.attached {
            match &attached.kind {
                BackendKind::Native => {
                    let mut seen: Vec<String> = Vec::new();
                    for plugin in self.instances.plugins("skill") {
                        let manifest = plugin.manifest();
                        let is_source = OPERATIONS.iter().any(|op| manifest.has(op));
                        if !is_source || !attached.has_skill(&manifest.name) {
                            continue;
                        }
                        // The version whose tools are routed counts, else the highest one.
                        let routed = used.contains_key(plugin.id());
                        let another = used.keys().any(|id| *id.name == *manifest.name);
                        if seen.contains(&manifest.name) || (another && !routed) {
                            continue;
                        }
                        seen.push(manifest.name.clone());
                        let lease = used
                            .entry(plugin.id().clone())
                            .or_insert_with(|| self.lease(&plugin));
                        sources.push(CatalogSource::Skill(Arc::clone(lease)));
                    }
                }
                BackendKind::Backend { lease, catalog } => sources.push(CatalogSource::Backend {
                    name: attached.name.clone(),
                    lease: Arc::clone(lease),
                    catalog: self.without_held(&attached.name, &catalog.reply),
                }),
                BackendKind::Executor { .. } | BackendKind::Missing { .. } => {}
            }
        }
        sources
    }
}
