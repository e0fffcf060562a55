//! The names under which tools are served.
//!
//! A client puts its own prefix before a name, and hosts of models take 64 characters in all; so a
//! served name is to have 40 at the most. A public name that is longer loses its prefix where
//! nobody else has the rest, which is left as its author wrote it; else it is cut, and ends in 8
//! hex digits of its hash.

use std::collections::{HashMap, HashSet};

use conjure_core::routing::{RoutingTable, ToolName};
use sha2::{Digest as _, Sha256};

/// The most characters of a served name.
const MAX_NAME_CHARS: usize = 40;

/// The served name of each route, in their order. `taken` are names of the server's own.
pub(super) fn served_names(table: &RoutingTable, taken: &[&str]) -> Vec<String> {
    let routes = table.routes();
    let mut used: HashSet<String> = taken.iter().map(|name| (*name).to_owned()).collect();
    used.extend(
        routes
            .iter()
            .map(|route| route.name.as_str())
            .filter(|name| name.len() <= MAX_NAME_CHARS && !taken.contains(name))
            .map(str::to_owned),
    );
    let legal = |raw: &str| -> Option<String> {
        let name = ToolName::derive(raw).as_str().to_owned();
        (name == raw).then_some(name)
    };
    let mut counts: HashMap<&str, usize> = HashMap::new();
    for route in routes {
        *counts.entry(route.tool()).or_default() += 1;
    }
    routes
        .iter()
        .map(|route| {
            let public = route.name.as_str();
            if public.len() <= MAX_NAME_CHARS && !taken.contains(&public) {
                return public.to_owned();
            }
            let own = legal(route.tool())
                .filter(|name| counts.get(name.as_str()) == Some(&1) && !used.contains(name));
            let name = own.unwrap_or_else(|| shorten(public));
            used.insert(name.clone());
            name
        })
        .collect()
}

fn shorten(public: &str) -> String {
    let hash = Sha256::digest(public.as_bytes());
    let hash: String = hash
        .iter()
        .take(4)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    // Public names are ASCII.
    let head: String = public
        .chars()
        .take(MAX_NAME_CHARS - 1 - hash.len())
        .collect();
    format!("{head}-{hash}")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use conjure_core::routing::{Catalog, CatalogTool, EffectLevel, Naming, Prefix};

    use super::*;

    fn table(skills: &[(&str, &str)]) -> RoutingTable {
        let tools = skills.iter().map(|(skill, tool)| {
            let tool = CatalogTool::new(*tool, "skill.execute", EffectLevel::Read);
            Arc::new(tool.of_skill(*skill, None))
        });
        let catalog = Catalog {
            backend: "native".to_owned(),
            kind: "native".to_owned(),
            naming: Prefix::Skill,
            tools: tools.collect(),
        };
        RoutingTable::build(1, &[catalog], &Naming::default()).unwrap()
    }

    #[test]
    fn a_short_public_name_stays_and_a_long_one_loses_its_prefix() {
        let long = "a-skill-whose-name-is-longer-than-it-should-be";
        let table = table(&[("cache", "execute"), (long, "unique"), (long, "execute")]);
        let names = served_names(&table, &[]);
        let has = |name: &str| names.iter().any(|known| known == name);
        assert!(has("cache_execute") && has("unique"), "{names:?}");
        let cut = names
            .iter()
            .find(|name| name.starts_with("a-skill-"))
            .unwrap();
        assert!(cut.starts_with("a-skill-whose-name-is-longer-th-"), "{cut}");
        assert!(names.iter().all(|name| name.len() <= 40));
    }

    #[test]
    fn a_tools_own_name_is_left_as_it_is() {
        let long = "a_tool_whose_own_name_is_longer_than_it_should_be";
        let names = served_names(&table(&[("skill", long)]), &[]);
        assert_eq!(names, [long]);
    }

    #[test]
    fn a_name_of_the_servers_own_is_never_a_tools() {
        let table = table(&[("call", "tool")]);
        let names = served_names(&table, &["call_tool"]);
        assert_eq!(names, ["tool"]);
    }

    #[test]
    fn names_that_begin_alike_stay_apart() {
        let long = "x".repeat(50);
        let (one, other) = (format!("{long}1"), format!("{long}2"));
        let table = table(&[(&one, "t"), (&other, "t")]);
        let names = served_names(&table, &[]);
        assert_ne!(names[0], names[1]);
        assert_eq!(names, served_names(&table, &[]));
    }
}
