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
    /// By public name: the place in the table's routes, and who runs it. One look-up for both.
    targets: HashMap<Arc<str>, (usize, Target)>,
    skills_prompt: String,
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
        mut targets: HashMap<Arc<str>, Target>,
        skills_prompt: String,
    ) -> Self {
        let placed = table.routes().iter().enumerate().filter_map(|(at, route)| {
            let (name, target) = targets.remove_entry(route.name.as_str())?;
            Some((name, (at, target)))
        });
        let targets = placed.collect();
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
        let (at, target) = self.targets.get(name)?;
        Some((self.table.routes().get(*at)?, target))
    }
}
