//! What a person may say about names: aliases, preferred backends, versions, filters.
//!
//! The shape is that of the session file. Turns a tool into its public name; which of two
//! tools keeps a name is decided in `resolve`.

use std::collections::BTreeMap;

use semver::VersionReq;
use serde::{Deserialize, Serialize};

use super::{CatalogTool, Prefix, RoutingError, ToolName};

/// A session's wishes about names.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Naming {
    /// Other names for tools, or for the prefix of a skill's tools.
    pub aliases: Vec<Alias>,
    /// Backend instances whose tool keeps a name that others have too; the first one wins.
    pub prefer: Vec<String>,
    /// Wanted versions of skills, by the skill's name; the highest that fits is routed.
    pub versions: BTreeMap<String, VersionReq>,
    /// The only public names that are offered: exact, or `prefix*`. Empty: all.
    pub only: Vec<String>,
    /// Public names that are not offered: exact, or `prefix*`. Wins over `only`.
    pub except: Vec<String>,
}

/// Another name for the tools that fit every selector given.
///
/// With `tool`, `name` is the whole public name. Without, it replaces the prefix: the skill's
/// when `skill` is given, else the backend's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Alias {
    /// The backend instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backend: Option<String>,
    /// The skill or MCP server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skill: Option<String>,
    /// The tool's own name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// The new name or prefix.
    pub name: String,
}

impl Naming {
    /// Finds what is wrong with the wishes themselves, whatever the catalogs are.
    pub(super) fn check(&self) -> Result<(), RoutingError> {
        for alias in &self.aliases {
            alias.check()?;
        }
        for pattern in self.only.iter().chain(&self.except) {
            if pattern.is_empty()
                || pattern.trim_end_matches('*').contains('*')
                || pattern.ends_with("**")
            {
                return Err(RoutingError::BadFilter {
                    pattern: pattern.clone(),
                });
            }
        }
        Ok(())
    }

    /// Whether the filters let a public name through.
    pub(super) fn offers(&self, name: &str) -> bool {
        passes(name, &self.only, &self.except)
    }

    /// The alias that says most about a tool, with its index.
    fn alias_for(
        &self,
        backend: &str,
        prefix_is_backend: bool,
        tool: &CatalogTool,
    ) -> Option<(usize, &Alias)> {
        let mut best: Option<(usize, &Alias)> = None;
        for (index, alias) in self.aliases.iter().enumerate() {
            let fits = alias.fits(backend, prefix_is_backend, tool);
            if fits && best.is_none_or(|(_, known)| alias.specificity() > known.specificity()) {
                best = Some((index, alias));
            }
        }
        best
    }
}

impl Alias {
    fn check(&self) -> Result<(), RoutingError> {
        let reason = if self.tool.is_some() {
            match ToolName::new(&self.name) {
                Ok(_) => return Ok(()),
                Err(error) => error.to_string(),
            }
        } else if self.name.is_empty() {
            "its name is empty".to_owned()
        } else if self.skill.is_none() && self.backend.is_none() {
            "it selects nothing; give it a `backend`, `skill` or `tool`".to_owned()
        } else {
            return Ok(());
        };
        Err(RoutingError::BadAlias {
            alias: self.clone(),
            reason,
        })
    }

    fn fits(&self, backend: &str, prefix_is_backend: bool, tool: &CatalogTool) -> bool {
        let selects_prefix = match (&self.tool, &self.skill, &self.backend) {
            (Some(_), _, _) | (None, Some(_), _) => true,
            (None, None, Some(_)) => prefix_is_backend,
            (None, None, None) => false,
        };
        selects_prefix
            && self
                .backend
                .as_deref()
                .is_none_or(|wanted| wanted == backend)
            && self
                .skill
                .as_deref()
                .is_none_or(|wanted| tool.skill.as_deref() == Some(wanted))
            && self
                .tool
                .as_deref()
                .is_none_or(|wanted| wanted == tool.tool)
    }

    fn specificity(&self) -> (bool, bool, bool) {
        (
            self.tool.is_some(),
            self.skill.is_some(),
            self.backend.is_some(),
        )
    }
}

/// A tool's public name before clashes are looked at.
pub(super) struct NamedTool {
    pub(super) name: ToolName,
    /// A name without prefix ([`Prefix::None`]), to be given up for the prefixed one.
    pub(super) is_unprefixed: bool,
    /// The alias that was used.
    pub(super) alias: Option<usize>,
}

/// The public name of `tool`, by alias or by the backend's prefix.
pub(super) fn public_name(
    naming: &Naming,
    backend: &str,
    prefix: Prefix,
    tool: &CatalogTool,
) -> Result<NamedTool, RoutingError> {
    let prefix_is_backend = prefix == Prefix::Backend || tool.skill.is_none();
    if let Some((index, alias)) = naming.alias_for(backend, prefix_is_backend, tool) {
        alias.check()?;
        let name = if alias.tool.is_some() {
            ToolName::new(&alias.name).map_err(|error| RoutingError::BadAlias {
                alias: alias.clone(),
                reason: error.to_string(),
            })?
        } else {
            joined(&alias.name, &tool.tool)
        };
        return Ok(NamedTool {
            name,
            is_unprefixed: false,
            alias: Some(index),
        });
    }
    Ok(NamedTool {
        name: match prefix {
            Prefix::Skill => prefixed(backend, tool),
            Prefix::Backend => joined(backend, &tool.tool),
            Prefix::None => ToolName::derive(&tool.tool),
        },
        is_unprefixed: prefix == Prefix::None,
        alias: None,
    })
}

/// `<skill>_<tool>`, or `<backend>_<tool>` for a tool of no skill.
pub(super) fn prefixed(backend: &str, tool: &CatalogTool) -> ToolName {
    joined(tool.skill.as_deref().unwrap_or(backend), &tool.tool)
}

fn joined(prefix: &str, tool: &str) -> ToolName {
    let mut raw = String::with_capacity(prefix.len() + 1 + tool.len());
    raw.push_str(prefix);
    raw.push('_');
    raw.push_str(tool);
    ToolName::derive(&raw)
}

/// The rule of `only` and `except`: exact names or `prefix*`; an empty `only` lets all through.
pub(super) fn passes(name: &str, only: &[String], except: &[String]) -> bool {
    let fits = |pattern: &String| match pattern.strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix),
        None => name == pattern,
    };
    (only.is_empty() || only.iter().any(fits)) && !except.iter().any(fits)
}
