//! What can be wrong with names, told so that a person can put it right.
//!
//! A clash names every origin and each way out that would help. Decides nothing: that is
//! `resolve`.

use std::fmt;

use super::{Alias, Source, ToolName};
use crate::skill_folder::suggested_name;

/// Why a routing table could not be built, or a tool was kept out of it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RoutingError {
    /// Tools would have one public name.
    #[error("{}", listed(clashes))]
    Clash {
        /// Each clash; at least one.
        clashes: Vec<Clash>,
    },
    /// An alias cannot be used.
    #[error("the alias {} cannot be used: {reason}", alias_text(alias))]
    BadAlias {
        /// The alias.
        alias: Alias,
        /// What is wrong with it.
        reason: String,
    },
    /// An entry of `only` or `except` cannot be used.
    #[error(
        "{pattern:?} in `only` or `except` is neither a public name nor a beginning of one followed by `*`"
    )]
    BadFilter {
        /// The entry.
        pattern: String,
    },
    /// Two backends of a session have one name.
    #[error("two backends are called `{backend}`: give one of them another name")]
    DuplicateBackend {
        /// The name.
        backend: String,
    },
    /// A skill is there, but in no wanted version.
    #[error("no version of skill `{skill}` fits `{wanted}`, found: {}. Change the range or add such a version.", found.join(", "))]
    NoVersion {
        /// The skill.
        skill: String,
        /// The range asked for.
        wanted: String,
        /// What there is, each with its backend.
        found: Vec<String>,
    },
}

/// Tools that would have one public name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Clash {
    /// The name.
    pub name: ToolName,
    /// Who would have it; at least two. At run time the one that keeps it comes first.
    pub sources: Vec<Source>,
}

impl fmt::Display for Clash {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        Quarrel { clashes: &[self] }.fmt(out)
    }
}

impl Clash {
    /// What a person can do about it.
    #[must_use]
    pub fn remedy(&self) -> String {
        Quarrel { clashes: &[self] }.remedy()
    }

    /// Whether the other one is between the same skills, about another of their tools.
    pub(super) fn has_parties_of(&self, other: &Self) -> bool {
        let party = |source: &Source| Source {
            tool: String::new(),
            ..source.clone()
        };
        let parties = self.sources.iter().map(party);
        parties.eq(other.sources.iter().map(party))
    }
}

/// Every clash between the same parties: what is told in one paragraph.
struct Quarrel<'a> {
    /// At least one.
    clashes: &'a [&'a Clash],
}

impl fmt::Display for Quarrel<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((first, others)) = self.clashes.split_first() else {
            return Ok(());
        };
        let count = first.sources.len();
        let names = self.names().join(", ");
        if let Some((backend, skill, folders)) = self.folders() {
            write!(
                out,
                "{count} skill folders of the backend `{backend}` are called `{skill}`: {}. Their \
                 tools would have the same public names: {names}.",
                folders.join(" and "),
            )?;
        } else if others.is_empty() {
            let sources: Vec<String> = first.sources.iter().map(ToString::to_string).collect();
            let sources = sources.join(" and ");
            write!(
                out,
                "{count} tools would have the public name {names}: {sources}."
            )?;
        } else {
            let places: Vec<String> = first.sources.iter().map(Source::place).collect();
            let places = places.join(" and ");
            write!(
                out,
                "Tools of {count} skills would have the same public names, {names}: {places}."
            )?;
        }
        write!(out, " {}", self.remedy())
    }
}

impl Quarrel<'_> {
    fn names(&self) -> Vec<String> {
        let named = self.clashes.iter().take(TOLD);
        let mut names: Vec<String> = named.map(|clash| format!("`{}`", clash.name)).collect();
        if let Some(more @ 1..) = self.clashes.len().checked_sub(TOLD) {
            names.push(format!("and {more} more"));
        }
        names
    }

    /// Where the parties are folders of one name on one backend: its name, theirs, and where they
    /// are.
    fn folders(&self) -> Option<(&str, &str, Vec<&str>)> {
        let sources = &self.clashes.first()?.sources;
        let first = sources.first()?;
        let skill = first.skill.as_deref()?;
        let alike = |source: &&Source| {
            source.backend == first.backend && source.skill.as_deref() == Some(skill)
        };
        let folders: Option<Vec<&str>> = sources
            .iter()
            .map(|source| source.folder.as_deref().filter(|_| alike(&source)))
            .collect();
        Some((&first.backend, skill, folders?))
    }

    fn remedy(&self) -> String {
        let sources = self.clashes.first().map(|clash| clash.sources.as_slice());
        let Some([first, .., last]) = sources else {
            return String::new();
        };
        if let Some((_, skill, folders)) = self.folders() {
            let last = folders.last().copied().unwrap_or_default();
            let renamed = match suggested_name(&format!("{skill}-2")) {
                Some(name) => format!(", such as `{name}`"),
                None => String::new(),
            };
            return format!(
                "Give one of them another name{renamed}, as the `name` in its SKILL.md and as the \
                 name of its directory, or take one of them, such as {last}, out of the session's \
                 skills."
            );
        }
        let same_backend = first.backend == last.backend;
        if same_backend && first.skill == last.skill && first.tool == last.tool {
            let names: Vec<String> = self
                .clashes
                .iter()
                .map(|clash| format!("\"{}\"", clash.name))
                .collect();
            let (tool, name) = match names.as_slice() {
                [_] => ("one tool", "the name"),
                _ => ("tools", "the names"),
            };
            return format!(
                "The backend lists {tool} twice: remove one of the plugins, or leave {name} out \
                 with `except = [{}]`.",
                names.join(", ")
            );
        }
        let alias = match &last.skill {
            Some(skill) if !same_backend && first.skill == last.skill => Alias {
                backend: Some(last.backend.clone()),
                skill: last.skill.clone(),
                tool: None,
                name: suggested_name(&format!("{skill}-{}", last.backend))
                    .filter(|name| name.is_ascii())
                    .unwrap_or_else(|| "another-name".to_owned()),
            },
            _ => Alias {
                backend: (!same_backend).then(|| last.backend.clone()),
                skill: last.skill.clone(),
                tool: Some(last.tool.clone()),
                name: "another_name".into(),
            },
        };
        let mut remedy = format!(
            "Give one of them another name with the alias `{}`",
            alias_text(&alias)
        );
        if !same_backend {
            remedy.push_str(&format!(
                ", or choose between the backends with `prefer = [\"{}\", \"{}\"]`",
                first.backend, last.backend
            ));
        }
        remedy.push('.');
        remedy
    }
}

/// An alias as it is written in a session file.
fn alias_text(alias: &Alias) -> String {
    let selectors = [
        ("backend", &alias.backend),
        ("skill", &alias.skill),
        ("tool", &alias.tool),
    ];
    let mut parts: Vec<String> = selectors
        .into_iter()
        .filter_map(|(key, value)| value.as_ref().map(|value| format!("{key} = {value:?}")))
        .collect();
    parts.push(format!("name = {:?}", alias.name));
    format!("{{ {} }}", parts.join(", "))
}

/// At most this many paragraphs are told, and this many names in one.
const TOLD: usize = 8;

fn listed(clashes: &[Clash]) -> String {
    let mut quarrels: Vec<Vec<&Clash>> = Vec::new();
    for clash in clashes {
        let known = quarrels.iter_mut().find(|quarrel| {
            let first = quarrel.first();
            first.is_some_and(|first| first.has_parties_of(clash))
        });
        match known {
            Some(quarrel) => quarrel.push(clash),
            None => quarrels.push(vec![clash]),
        }
    }
    let told = quarrels.iter().take(TOLD);
    let mut lines: Vec<String> = told
        .map(|clashes| Quarrel { clashes }.to_string())
        .collect();
    let more: usize = quarrels.iter().skip(TOLD).map(Vec::len).sum();
    if more > 0 {
        lines.push(format!("And {more} more names clash."));
    }
    lines.join("\n")
}
