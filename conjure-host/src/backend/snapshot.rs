//! A routing table with what stands behind each of its names.

use std::collections::HashMap;
use std::sync::Arc;

use conjure_core::routing::{Route, RoutingTable};

use super::lease::{BackendLease, SkillLease};
use crate::skill_folders::LoadedFolder;

/// A routing table and the instances that run its calls. Never changes; whoever holds it is served
/// by the versions that its table names.
pub struct Snapshot {
    table: Arc<RoutingTable>,
    pub(crate) targets: HashMap<Arc<str>, Target>,
    pub(crate) skills_prompt: String,
}

/// Who runs the calls of one public name.
#[derive(Clone)]
pub(crate) enum Target {
    /// A native skill.
    Skill(Arc<SkillLease>),
    /// An executor, with the skill folders that the tool is for.
    Executor(Arc<BackendLease>, Arc<[Arc<LoadedFolder>]>),
    /// A backend.
    Backend(Arc<BackendLease>),
}

impl Snapshot {
    pub(crate) fn new(
        table: Arc<RoutingTable>,
        targets: HashMap<Arc<str>, Target>,
        skills_prompt: String,
    ) -> Self {
        Self {
            table,
            targets,
            skills_prompt,
        }
    }

    /// The routing table.
    pub fn table(&self) -> &Arc<RoutingTable> {
        &self.table
    }

    /// What the model is told about the session's skill folders.
    pub fn skills_prompt(&self) -> &str {
        &self.skills_prompt
    }

    pub(crate) fn look_up(&self, name: &str) -> Option<(&Route, &Target)> {
        let route = self.table.route(name)?;
        Some((route, self.targets.get(route.name.as_str())?))
    }
}
