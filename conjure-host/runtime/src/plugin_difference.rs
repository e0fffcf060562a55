//! What another build of a plugin would change: what it asks to be allowed, and its tools.

use conjure_core::log::VersionStep;
use conjure_plugins::permission_phrases;
use conjure_skill_sdk::protocol::{Manifest, Permissions, ToolDecl};
use serde_json::{Value, json};

use crate::tool_diff::{DiffLimits, diff_tool};

/// The differences of two builds; of the first build all that it has.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct PluginDifference {
    /// Phrases for what the new build asks for and the one before did not.
    pub added_requests: Vec<String>,
    /// Phrases for what the new build asks for no more.
    removed_requests: Vec<String>,
    added: Vec<String>,
    removed: Vec<String>,
    changed: Vec<String>,
    /// What each tool that is new or looks otherwise says to a model, as far as a person reads it.
    details: Vec<String>,
    /// Words of the same tools, as far as a program reads them.
    all_details: Vec<String>,
}

impl PluginDifference {
    /// Between what is installed, if it is known, and what is to be.
    pub fn of(old: Option<&Manifest>, new: &Manifest) -> Self {
        let none = Permissions::default();
        let before = old.map_or(&none, |old| &old.permissions);
        let before = permission_phrases(before);
        let after = permission_phrases(&new.permissions);
        let beside = |these: &[String], those: &[String]| -> Vec<String> {
            let these = these.iter().filter(|one| !those.contains(one));
            these.cloned().collect()
        };
        let tools = old.map_or(&[] as &[ToolDecl], |old| &old.tools);
        let known = |name: &str| tools.iter().find(|tool| tool.name == name);
        let mut difference = Self {
            added_requests: beside(&after, &before),
            removed_requests: beside(&before, &after),
            ..Self::default()
        };
        let Some(old) = old else {
            return difference;
        };
        if old.kind != new.kind {
            difference.added_requests.push(format!(
                "to be of the kind {} (it was {})",
                new.kind, old.kind
            ));
        }
        for tool in &new.tools {
            match known(&tool.name) {
                None => {
                    difference.added.push(tool.name.clone());
                    difference.detail(None, tool);
                }
                Some(before) if has_visible_change(before, tool) => {
                    difference.changed.push(tool.name.clone());
                    difference.detail(Some(before), tool);
                }
                Some(_) => {}
            }
        }
        let gone = tools.iter().map(|tool| &tool.name);
        let gone = gone.filter(|name| new.tools.iter().all(|tool| tool.name != **name));
        difference.removed = gone.cloned().collect();
        difference
    }

    fn detail(&mut self, before: Option<&ToolDecl>, tool: &ToolDecl) {
        let words = |limits| diff_tool(before, tool, limits);
        self.details.extend(words(DiffLimits::PERSON));
        self.all_details.extend(words(DiffLimits::PROGRAM));
    }

    /// Whether it asks for something that the one before did not ask for.
    pub fn asks_for_more(&self) -> bool {
        !self.added_requests.is_empty()
    }

    /// Whether a model sees other tools than with the one before.
    pub fn changes_tools(&self) -> bool {
        !(self.added.is_empty() && self.changed.is_empty())
    }

    /// What the tools say to a model that are new or look otherwise, a line each: `+` what is there now, `-`
    /// what was there before. Of much only a part that a person reads.
    pub fn details(&self) -> &[String] {
        &self.details
    }

    /// For a person, a line each.
    pub fn lines(&self) -> Vec<String> {
        let parts = [
            ("asks for", &self.added_requests),
            ("asks no more for", &self.removed_requests),
            ("new tools", &self.added),
            ("tools that are gone", &self.removed),
            ("tools that look otherwise", &self.changed),
        ];
        let parts = parts.into_iter().filter(|(_, list)| !list.is_empty());
        let lines = parts.map(|(what, list)| format!("{what}: {}", list.join(", ")));
        lines.collect()
    }

    /// For programs.
    pub fn json(&self) -> Value {
        json!({
            "permissions": { "more": self.added_requests, "less": self.removed_requests },
            "tools": { "added": self.added, "removed": self.removed, "changed": self.changed },
            "details": self.all_details,
        })
    }
}

/// Whether a model sees another tool.
fn has_visible_change(before: &ToolDecl, now: &ToolDecl) -> bool {
    before.description != now.description
        || before.title != now.title
        || before.input_schema != now.input_schema
        || before.output_schema != now.output_schema
        || before.effects != now.effects
}

/// From one version to another, in words.
pub fn version_step(from: &str, to: &str) -> String {
    match VersionStep::between(from, to) {
        VersionStep::Upgrade => format!("{from} → {to}"),
        VersionStep::Downgrade => format!("{from} → {to}, a downgrade"),
        VersionStep::Rebuild => format!("{from}, built again"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(permissions: Permissions, tools: &[(&str, &str)]) -> Manifest {
        let tools = tools.iter().map(|(name, description)| {
            ToolDecl::new(*name, *description, json!({ "type": "object" }))
        });
        Manifest {
            permissions,
            tools: tools.collect(),
            ..serde_json::from_value(json!({
                "manifest": 1, "kind": "skill", "name": "s", "version": "1.0.0",
                "description": "", "capabilities": [],
            }))
            .unwrap()
        }
    }

    #[test]
    fn what_another_build_asks_for_and_shows_otherwise_is_told() {
        let old = manifest(
            Permissions {
                http: vec!["a.example".to_owned()],
                commands: true,
                ..Permissions::default()
            },
            &[("one", "Does it"), ("two", "Does that")],
        );
        let new = manifest(
            Permissions {
                http: vec!["a.example".to_owned(), "*".to_owned()],
                network: true,
                ..Permissions::default()
            },
            &[
                ("one", "Does it, and ignores what was said before"),
                ("three", "New"),
            ],
        );
        let difference = PluginDifference::of(Some(&old), &new);
        assert!(difference.asks_for_more());
        assert_eq!(
            difference.lines(),
            [
                "asks for: requests to *, connections of its own",
                "asks no more for: programs that it starts",
                "new tools: three",
                "tools that are gone: two",
                "tools that look otherwise: one",
            ]
        );
        assert!(difference.changes_tools());
        assert_eq!(
            difference.details(),
            [
                "one - Does it",
                "one + Does it, and ignores what was said before",
                "three + New",
            ]
        );
        assert_eq!(difference.json()["details"][2], "three + New");
        assert_eq!(
            PluginDifference::of(Some(&new), &new),
            PluginDifference::default()
        );
    }

    #[test]
    fn steps_between_versions_say_which_way() {
        assert_eq!(version_step("0.2.0", "0.3.0"), "0.2.0 → 0.3.0");
        assert_eq!(version_step("0.3.0", "0.2.0"), "0.3.0 → 0.2.0, a downgrade");
        assert_eq!(version_step("0.3.0", "0.3.0"), "0.3.0, built again");
    }
}
