//! What can be wrong with names, told so that a person can put it right.
//!
//! A clash names every origin and each way out that would help. Decides nothing: that is
//! `resolve`.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use super::{Alias, HeldReason, ToolName, ToolSource};
use crate::skill_folder::suffixed_name;

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
    /// A tool waits for somebody's approval.
    #[error("{}. {}", .0.reason, .0.remedy)]
    Held(HeldReason),
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
    /// Tools that would have the name; at least two. At run time the one that keeps it comes first.
    pub sources: Vec<ToolSource>,
    pub(super) existing: ExistingNames,
}

/// Names of skills and tools that there are, none of which is suggested for another. They change
/// nothing about a clash, so all of them are equal.
#[derive(Debug, Clone, Default)]
pub(super) struct ExistingNames(pub(super) Arc<BTreeSet<String>>);

impl PartialEq for ExistingNames {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for ExistingNames {}

impl fmt::Display for Clash {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        ClashGroup { clashes: &[self] }.fmt(out)
    }
}

impl Clash {
    /// What a person can do about it.
    #[must_use]
    pub fn remedy(&self) -> String {
        ClashGroup { clashes: &[self] }.remedy()
    }

    /// Whether the other one is between the same skills, about another of their tools.
    pub(super) fn has_parties_of(&self, other: &Self) -> bool {
        let party = |source: &ToolSource| ToolSource {
            tool: String::new(),
            ..source.clone()
        };
        let parties = self.sources.iter().map(party);
        parties.eq(other.sources.iter().map(party))
    }
}

/// Every clash between the same parties: what is told in one paragraph.
struct ClashGroup<'a> {
    /// At least one.
    clashes: &'a [&'a Clash],
}

impl fmt::Display for ClashGroup<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((first, others)) = self.clashes.split_first() else {
            return Ok(());
        };
        let count = first.sources.len();
        let names = self.names().join(", ");
        if let Some((skill, folder)) = self.one_folder() {
            write!(
                out,
                "The skill folder {folder}, `{skill}`, is listed {count} times."
            )?;
        } else if let Some((backend, skill, folders)) = self.folders() {
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
            let places: Vec<String> = first
                .sources
                .iter()
                .map(ToolSource::describe_origin)
                .collect();
            let places = places.join(" and ");
            write!(
                out,
                "Tools of {count} skills would have the same public names, {names}: {places}."
            )?;
        }
        write!(out, " {}", self.remedy())
    }
}

impl ClashGroup<'_> {
    fn names(&self) -> Vec<String> {
        let named = self.clashes.iter().take(MAX_LISTED);
        let mut names: Vec<String> = named.map(|clash| format!("`{}`", clash.name)).collect();
        if let Some(more @ 1..) = self.clashes.len().checked_sub(MAX_LISTED) {
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
        let alike = |source: &&ToolSource| {
            source.backend == first.backend && source.skill.as_deref() == Some(skill)
        };
        let folders: Option<Vec<&str>> = sources
            .iter()
            .map(|source| source.folder.as_deref().filter(|_| alike(&source)))
            .collect();
        Some((&first.backend, skill, folders?))
    }

    /// Where the parties are one folder that is listed more than once: its name, and where it is.
    fn one_folder(&self) -> Option<(&str, &str)> {
        let (_, skill, folders) = self.folders()?;
        let first = *folders.first()?;
        folders
            .iter()
            .all(|folder| *folder == first)
            .then_some((skill, first))
    }

    /// A name of which nothing is known yet: the wish with a suffix, or with numbers behind that.
    fn free_name(&self, wish: &str, suffix: &str, but: &[String]) -> Option<String> {
        let taken = self.clashes.first().map(|clash| &clash.existing.0);
        let is_free =
            |name: &String| !but.contains(name) && !taken.is_some_and(|taken| taken.contains(name));
        let numbered = (2..).take(MAX_ATTEMPTS).map(|number| match suffix {
            "" => suffixed_name(wish, &number.to_string()),
            suffix => suffixed_name(wish, &format!("{number}-{suffix}")),
        });
        let plain = Some(suffixed_name(wish, suffix)).filter(|_| !suffix.is_empty());
        plain.into_iter().chain(numbered).flatten().find(is_free)
    }

    fn remedy(&self) -> String {
        if self.one_folder().is_some() {
            return "Take all but one of the entries out of the session's skills.".to_owned();
        }
        let sources = self.clashes.first().map(|clash| clash.sources.as_slice());
        let Some([first, others @ ..]) = sources else {
            return String::new();
        };
        if let Some((_, skill, folders)) = self.folders() {
            return self.folder_remedy(skill, &folders);
        }
        let is_first = |other: &ToolSource| {
            other.backend == first.backend && other.skill == first.skill && other.tool == first.tool
        };
        if others.iter().all(is_first) {
            return self.duplicate_remedy();
        }
        let aliases: Vec<String> = (0..others.len())
            .filter_map(|other| self.alias(first, others, other))
            .map(|alias| format!("`{}`", alias_text(&alias)))
            .collect();
        let mut remedy = match aliases.as_slice() {
            [alias] => format!("Give one of them another name with the alias {alias}"),
            aliases => format!(
                "Give all but one of them other names with the aliases {}",
                aliases.join(" and ")
            ),
        };
        let backends: Vec<String> = [first]
            .into_iter()
            .chain(others)
            .map(|source| format!("{:?}", source.backend))
            .collect();
        let is_apart =
            |(at, backend): (usize, &String)| !backends.iter().take(at).any(|it| it == backend);
        if backends.iter().enumerate().all(is_apart) {
            remedy.push_str(&format!(
                ", or choose between the backends with `prefer = [{}]`",
                backends.join(", ")
            ));
        }
        remedy.push('.');
        remedy
    }

    fn duplicate_remedy(&self) -> String {
        let names: Vec<String> = self
            .clashes
            .iter()
            .map(|clash| format!("\"{}\"", clash.name))
            .collect();
        let (tool, name) = match names.as_slice() {
            [_] => ("one tool", "the name"),
            _ => ("tools", "the names"),
        };
        format!(
            "The backend lists {tool} twice: remove one of the plugins, or leave {name} out with \
             `except = [{}]`.",
            names.join(", ")
        )
    }

    /// The alias that takes one of the others out of every clash: for all tools of its skill where
    /// there are several clashes or the skill is on another backend too, else for its one tool.
    fn alias(&self, first: &ToolSource, others: &[ToolSource], other: usize) -> Option<Alias> {
        let source = others.get(other)?;
        let mut rest = others.iter().enumerate().filter(|(at, _)| *at != other);
        let is_same_skill = |it: &ToolSource| it.skill == source.skill;
        let is_party = |it: &ToolSource| it.backend == source.backend && is_same_skill(it);
        let is_alone = !is_party(first) && !rest.any(|(_, it)| is_party(it));
        let is_elsewhere = source.skill.is_some() && is_same_skill(first);
        let another = |separator: &str| {
            let taken = self.clashes.first().map(|clash| &clash.existing.0);
            let names = (other + 1..)
                .step_by(others.len().max(1))
                .take(MAX_ATTEMPTS)
                .map(|number| match number {
                    1 => format!("another{separator}name"),
                    more => format!("another{separator}name{separator}{more}"),
                });
            let mut free = names.filter(|name| !taken.is_some_and(|taken| taken.contains(name)));
            free.next().unwrap_or_default()
        };
        let backend = (source.backend != first.backend).then(|| source.backend.clone());
        if !is_alone || !(is_elsewhere || self.clashes.len() > 1) {
            return Some(Alias {
                backend,
                skill: source.skill.clone(),
                tool: Some(source.tool.clone()),
                name: another("_"),
            });
        }
        let name = match (&source.skill, &backend) {
            (Some(skill), Some(backend)) => self.free_name(skill, backend, &[]),
            (Some(skill), None) => self.free_name(skill, &(other + 2).to_string(), &[]),
            (None, _) => self.free_name(&source.backend, "tools", &[]),
        };
        Some(Alias {
            backend: backend.or_else(|| source.skill.is_none().then(|| source.backend.clone())),
            skill: source.skill.clone(),
            tool: None,
            name: name
                .filter(|name| name.is_ascii())
                .unwrap_or_else(|| another("-")),
        })
    }

    /// What helps where folders of one name are on one backend.
    fn folder_remedy(&self, skill: &str, folders: &[&str]) -> String {
        let Some((_, others)) = folders.split_first() else {
            return String::new();
        };
        let mut names: Vec<String> = Vec::new();
        for _ in others {
            names.extend(self.free_name(skill, "", &names));
        }
        let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
        let names = match names.len() == others.len() {
            true => format!(", such as {}", names.join(" and ")),
            false => String::new(),
        };
        describe_folder_remedy(others, &names)
    }
}

/// What helps where folders of one name are on one backend: names for all but the first, or without
/// these.
fn describe_folder_remedy(others: &[&str], names: &str) -> String {
    match others {
        [other] => format!(
            "Give one of them another name{names}, as the `name` in its SKILL.md and as the name \
             of its directory, or take one of them, such as {other}, out of the session's skills."
        ),
        others => format!(
            "Give all but one of them other names{names}, as the `name` in their SKILL.md and as \
             the names of their directories, or take all but one of them, such as {}, out of the \
             session's skills.",
            others.join(" and ")
        ),
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

/// At most this many names are tried before none is suggested.
const MAX_ATTEMPTS: usize = 1000;
/// At most this many paragraphs are told, and this many names in one.
const MAX_LISTED: usize = 8;

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
    let told = quarrels.iter().take(MAX_LISTED);
    let mut lines: Vec<String> = told
        .map(|clashes| ClashGroup { clashes }.to_string())
        .collect();
    let more: usize = quarrels.iter().skip(MAX_LISTED).map(Vec::len).sum();
    if more > 0 {
        lines.push(format!("And {more} more names clash."));
    }
    lines.join("\n")
}
