//! The choice of the version of a skill that is routed.
//!
//! Per backend: the highest that fits the session's range, and without a range the highest
//! release. Versions of one skill on one backend never clash, they shadow each other.

use std::collections::{BTreeMap, HashMap};

use semver::{Version, VersionReq};

use super::{Catalog, CatalogTool, Naming, RoutingError};

/// What is routed of one skill on one backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum VersionChoice<'a> {
    /// There is nothing to choose.
    Any,
    /// Only this version is routed.
    Version(Option<&'a Version>),
    /// No version fits the range.
    Nothing,
}

/// The choice for every skill, by backend (index) and name.
pub(super) struct VersionChoices<'a> {
    backends: Vec<HashMap<&'a str, VersionChoice<'a>>>,
    /// Every version of the skills that have a range, with its backend.
    ranged_versions: BTreeMap<&'a str, Vec<(&'a str, Option<&'a Version>)>>,
}

impl<'a> VersionChoices<'a> {
    pub(super) fn of(catalogs: &'a [Catalog], naming: &Naming) -> Self {
        let mut ranged: BTreeMap<&str, Vec<(&str, Option<&Version>)>> = BTreeMap::new();
        let mut backends = Vec::with_capacity(catalogs.len());
        for catalog in catalogs {
            let mut picks: HashMap<&str, VersionChoice<'_>> = HashMap::new();
            for tool in &catalog.tools {
                let Some(skill) = tool.skill.as_deref() else {
                    continue;
                };
                let version = tool.skill_version.as_ref();
                let range = naming.versions.get(skill);
                if range.is_some() {
                    let known = ranged.entry(skill).or_default();
                    if !known.contains(&(catalog.backend.as_str(), version)) {
                        known.push((&catalog.backend, version));
                    }
                }
                let pick = picks.entry(skill).or_insert(VersionChoice::Nothing);
                *pick = better_choice(*pick, version, range);
            }
            backends.push(picks);
        }
        Self {
            backends,
            ranged_versions: ranged,
        }
    }

    /// What is routed of a tool's skill on the backend with that index.
    pub(super) fn for_tool(&self, backend: usize, tool: &CatalogTool) -> VersionChoice<'a> {
        let Some(skill) = tool.skill.as_deref() else {
            return VersionChoice::Any;
        };
        let picks = self.backends.get(backend);
        picks
            .and_then(|picks| picks.get(skill))
            .copied()
            .unwrap_or(VersionChoice::Any)
    }

    /// The first skill that is there, but nowhere in a wanted version.
    pub(super) fn missing_version(&self, naming: &Naming) -> Option<RoutingError> {
        self.ranged_versions.iter().find_map(|(skill, versions)| {
            let range = naming.versions.get(*skill)?;
            let fits = versions
                .iter()
                .any(|(_, version)| fits(Some(range), *version));
            (!fits).then(|| RoutingError::NoVersion {
                skill: (*skill).to_owned(),
                wanted: range.to_string(),
                found: versions
                    .iter()
                    .map(|(backend, version)| match version {
                        Some(version) => format!("{version} on `{backend}`"),
                        None => format!("one without a version on `{backend}`"),
                    })
                    .collect(),
            })
        })
    }
}

fn better_choice<'a>(
    pick: VersionChoice<'a>,
    version: Option<&'a Version>,
    range: Option<&VersionReq>,
) -> VersionChoice<'a> {
    if !fits(range, version) {
        return pick;
    }
    match pick {
        VersionChoice::Version(known) if rank(known, range) >= rank(version, range) => pick,
        _ => VersionChoice::Version(version),
    }
}

fn fits(range: Option<&VersionReq>, version: Option<&Version>) -> bool {
    range.is_none_or(|range| version.is_some_and(|version| range.matches(version)))
}

/// Without a range nobody asked for a pre-release, so any release is better than one.
fn rank<'a>(
    version: Option<&'a Version>,
    range: Option<&VersionReq>,
) -> (bool, Option<&'a Version>) {
    let is_wanted = range.is_some() || version.is_some_and(|version| version.pre.is_empty());
    (is_wanted, version)
}
