//! What the model is told about a session's skill folders.

use std::collections::HashMap;
use std::sync::Arc;

use conjure_core::context::{SkillEntry, skills_prompt};
use conjure_core::routing::{RoutingTable, ToolName};
use conjure_skill_sdk::protocol::op;

use super::snapshot::CallTarget;
use conjure_config::skill_folders::LoadedFolder;

/// What the model is told about the skill folders whose tools are in the table.
pub(super) fn prompt(table: &RoutingTable, targets: &HashMap<Arc<str>, CallTarget>) -> String {
    struct SkillSummary<'a> {
        folder: &'a LoadedFolder,
        path: String,
        read: Vec<ToolName>,
        run: Vec<ToolName>,
    }
    let mut told: Vec<((&str, &str), SkillSummary<'_>)> = Vec::new();
    for route in table.routes() {
        let Some(CallTarget::Executor(lease, folders)) = targets.get(route.name.as_str()) else {
            continue;
        };
        for folder in folders.iter() {
            let skill = folder.folder.name.as_str();
            let key = (&*route.backend, skill);
            let index = told
                .iter()
                .position(|(known, _)| *known == key)
                .unwrap_or_else(|| {
                    let dir = lease
                        .skill_dir(skill)
                        .map_or_else(|| folder.dir.display().to_string(), str::to_owned);
                    let place = format!("{dir}/SKILL.md");
                    told.push((
                        key,
                        SkillSummary {
                            folder,
                            path: place,
                            read: Vec::new(),
                            run: Vec::new(),
                        },
                    ));
                    told.len() - 1
                });
            let Some((_, entry)) = told.get_mut(index) else {
                continue;
            };
            match route.op() {
                op::EXECUTOR_VIEW => entry.read.push(route.name.clone()),
                op::EXECUTOR_BASH => entry.run.push(route.name.clone()),
                _ => {}
            }
        }
    }
    let entries: Vec<SkillEntry<'_>> = told
        .iter()
        .map(|(_, told)| SkillEntry {
            name: told.folder.folder.name.as_str(),
            description: &told.folder.folder.description,
            path: &told.path,
            read_with: &told.read,
            run_with: &told.run,
        })
        .collect();
    skills_prompt(&entries)
}
