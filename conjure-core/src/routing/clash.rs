//! What can be wrong with names, told so that a person can put it right.
//!
//! A clash names every origin and each way out that would help. Decides nothing: that is
//! `resolve`.

use std::fmt;

use super::{Alias, Source, ToolName};

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
        let sources: Vec<String> = self.sources.iter().map(ToString::to_string).collect();
        write!(
            out,
            "{} tools would have the public name `{}`: {}. {}",
            self.sources.len(),
            self.name,
            sources.join(" and "),
            self.remedy()
        )
    }
}

impl Clash {
    /// What a person can do about it.
    #[must_use]
    pub fn remedy(&self) -> String {
        let (Some(first), Some(last)) = (self.sources.first(), self.sources.last()) else {
            return String::new();
        };
        let same_backend = first.backend == last.backend;
        if same_backend && first.skill == last.skill && first.tool == last.tool {
            return format!(
                "The backend lists one tool twice: remove one of the plugins, or leave the name out with `except = [\"{}\"]`.",
                self.name
            );
        }
        let alias = if !same_backend && first.skill == last.skill && last.skill.is_some() {
            Alias {
                backend: Some(last.backend.clone()),
                skill: last.skill.clone(),
                tool: None,
                name: format!(
                    "{}-{}",
                    last.skill.as_deref().unwrap_or_default(),
                    last.backend
                ),
            }
        } else {
            Alias {
                backend: (!same_backend).then(|| last.backend.clone()),
                skill: last.skill.clone(),
                tool: Some(last.tool.clone()),
                name: "another_name".into(),
            }
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

/// At most this many clashes are told in full.
const TOLD: usize = 8;

fn listed(clashes: &[Clash]) -> String {
    let mut lines: Vec<String> = clashes.iter().take(TOLD).map(ToString::to_string).collect();
    if clashes.len() > TOLD {
        lines.push(format!("And {} more names clash.", clashes.len() - TOLD));
    }
    lines.join("\n")
}
