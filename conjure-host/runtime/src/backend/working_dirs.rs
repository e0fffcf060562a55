//! What the model is told about where its tools work.
//!
//! Commands in a container see other paths than the host. With one place there is one working
//! directory; with several the host's is told, and each other one with the tools that work there.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::sync::Arc;

use conjure_core::context::notes;
use conjure_core::routing::RoutingTable;
use conjure_skill_sdk::protocol::op;

use super::snapshot::CallTarget;

/// Where tools work.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct WorkingDirs {
    /// The directory where relative paths start.
    pub(crate) main: String,
    /// About every other one, and what commands are kept from; empty when there is nothing to say.
    pub(crate) others: String,
}

impl WorkingDirs {
    /// Working directories of a table's tools. `host` is the session's directory on this machine.
    pub(crate) fn of(
        table: &RoutingTable,
        targets: &HashMap<Arc<str>, CallTarget>,
        host: &Path,
    ) -> Self {
        let tools =
            table
                .routes()
                .iter()
                .filter_map(|route| match targets.get(route.name.as_str())? {
                    CallTarget::Executor(lease, _) => {
                        Some((lease.ready.working_dir.as_str(), route.name.as_str()))
                    }
                    CallTarget::Skill(_) | CallTarget::Backend(_) => None,
                });
        let mut told = Self::from_tools(tools, &host.display().to_string());
        for (sandboxed, names) in sandboxes(table, targets) {
            let names: Vec<&str> = names.into_iter().collect();
            told.others
                .push_str(&notes::sandboxed_tools(&names, &sandboxed));
        }
        told
    }

    /// `tools`: the working directory and the name of each tool of an executor, in order.
    fn from_tools<'t>(tools: impl Iterator<Item = (&'t str, &'t str)>, host: &str) -> Self {
        let mut places: Vec<(&str, Vec<&str>)> = Vec::new();
        for (dir, tool) in tools {
            // An executor that says nothing works where the host does.
            let dir = if dir.is_empty() { host } else { dir };
            match places.iter_mut().find(|(known, _)| *known == dir) {
                Some((_, names)) => names.push(tool),
                None => places.push((dir, vec![tool])),
            }
        }
        if let [(only, _)] = places.as_slice() {
            return Self {
                main: (*only).to_owned(),
                others: String::new(),
            };
        }
        let mut others = String::new();
        for (dir, names) in places.iter().filter(|(dir, _)| *dir != host) {
            let names: BTreeSet<&str> = names.iter().copied().collect();
            let names: Vec<&str> = names.into_iter().collect();
            others.push_str(&notes::other_working_dir(&names, dir));
        }
        Self {
            main: host.to_owned(),
            others,
        }
    }
}

/// The tools that run commands in a sandbox, by what is to be said of that.
fn sandboxes<'t>(
    table: &'t RoutingTable,
    targets: &HashMap<Arc<str>, CallTarget>,
) -> BTreeMap<String, BTreeSet<&'t str>> {
    let mut found: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    for route in table.routes() {
        if let Some(CallTarget::Executor(lease, _)) = targets.get(route.name.as_str())
            && route.op() == op::EXECUTOR_BASH
            && let Some(note) = lease.sandbox_note()
        {
            found.entry(note).or_default().insert(route.name.as_str());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(tools: &[(&str, &str)]) -> (String, String) {
        let told = WorkingDirs::from_tools(tools.iter().copied(), "/home/me");
        (told.main, told.others)
    }

    fn alone(dir: &str) -> (String, String) {
        (dir.to_owned(), String::new())
    }

    #[test]
    fn one_place_is_the_working_directory() {
        assert_eq!(told(&[]), alone("/home/me"));
        assert_eq!(told(&[("", "a"), ("/home/me", "b")]), alone("/home/me"));
        assert_eq!(
            told(&[("/workspace", "a"), ("/workspace", "b")]),
            alone("/workspace")
        );
    }

    #[test]
    fn b26_of_several_places_each_is_told_with_its_tools() {
        let tools = [
            ("/home/me", "local_view"),
            ("/workspace", "docker_view"),
            ("/workspace", "docker_bash_tool"),
            ("/far", "far_view"),
        ];
        let (main, others) = told(&tools);
        assert_eq!(main, "/home/me");
        assert_eq!(
            others,
            "For docker_bash_tool, docker_view the working directory is /workspace.\n\
             For far_view the working directory is /far.\n"
        );
    }
}
