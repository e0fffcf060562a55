//! Public names: which tool gets which.
//!
//! One pass for a fresh table and for a running one; they differ only in that a running table
//! has incumbents, which keep their names. Looks at every tool a fixed number of times, because
//! tables of ten thousand tools are rebuilt while people wait.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::clash::ExistingNames;
use super::naming::{prefixed, public_name};
use super::table::{QuarantinedTool, Route, RoutingTable, ShadowReason, Shadowed};
use super::versions::{VersionChoice, VersionChoices};
use super::{
    Alias, Catalog, CatalogTool, Clash, HeldReason, Naming, RoutingError, ToolName, ToolSource,
};

pub(super) struct Resolved {
    pub(super) routes: Vec<Route>,
    pub(super) shadowed: Vec<Shadowed>,
    pub(super) quarantined: Vec<QuarantinedTool>,
    /// The clashes behind what is quarantined, each once.
    pub(super) clashes: Vec<Clash>,
    pub(super) idle_aliases: Vec<Alias>,
    /// A skill that is there, but on no backend in a wanted version.
    pub(super) missing_version: Option<RoutingError>,
}

pub(super) fn resolve(
    catalogs: &[Catalog],
    naming: &Naming,
    current: Option<&RoutingTable>,
) -> Resolved {
    let mut resolver = Resolver {
        naming,
        current,
        candidates: Vec::with_capacity(catalogs.iter().map(|catalog| catalog.tools.len()).sum()),
        shadowed: Vec::new(),
        quarantined: Vec::new(),
        clashes: Vec::new(),
        used_aliases: vec![false; naming.aliases.len()],
    };
    let picks = VersionChoices::of(catalogs, naming);
    resolver.collect(catalogs, &picks);
    resolver.prefix_contested_names();
    resolver
        .candidates
        .retain(|candidate| naming.offers(candidate.name.as_str()));
    let dropped = resolver.settle_clashes();
    let used = &resolver.used_aliases;
    let idle = naming.aliases.iter().zip(used).filter(|(_, used)| !**used);
    Resolved {
        idle_aliases: idle.map(|(alias, _)| alias.clone()).collect(),
        routes: routes(&resolver.candidates, &dropped),
        shadowed: resolver.shadowed,
        quarantined: resolver.quarantined,
        clashes: resolver.clashes,
        missing_version: picks.missing_version(naming),
    }
}

/// A tool on its way to a route.
struct RouteCandidate<'a> {
    catalog: &'a Catalog,
    tool: &'a Arc<CatalogTool>,
    name: ToolName,
    is_unprefixed: bool,
}

impl RouteCandidate<'_> {
    fn source(&self) -> ToolSource {
        ToolSource::of(&self.catalog.backend, self.tool)
    }
}

struct Resolver<'a> {
    naming: &'a Naming,
    current: Option<&'a RoutingTable>,
    candidates: Vec<RouteCandidate<'a>>,
    shadowed: Vec<Shadowed>,
    quarantined: Vec<QuarantinedTool>,
    clashes: Vec<Clash>,
    used_aliases: Vec<bool>,
}

impl<'a> Resolver<'a> {
    /// Names every tool of the routed versions, in the order of the table.
    fn collect(&mut self, catalogs: &'a [Catalog], picks: &VersionChoices<'_>) {
        for (index, catalog) in catalogs.iter().enumerate() {
            let earlier = catalogs.iter().take(index);
            let is_duplicate = earlier
                .into_iter()
                .any(|other| other.backend == catalog.backend);
            let mut tools: Vec<&Arc<CatalogTool>> = catalog.tools.iter().collect();
            tools.sort_by(|a, b| {
                let key = |tool: &'a CatalogTool| {
                    (
                        &tool.skill,
                        &tool.tool,
                        &tool.skill_version,
                        &tool.origin.file,
                    )
                };
                key(a).cmp(&key(b))
            });
            for tool in tools {
                let named = match public_name(self.naming, &catalog.backend, catalog.naming, tool) {
                    Ok(_) if is_duplicate => Err(RoutingError::DuplicateBackend {
                        backend: catalog.backend.clone(),
                    }),
                    other => other,
                };
                match named {
                    Ok(named) => {
                        let used = named
                            .alias
                            .and_then(|alias| self.used_aliases.get_mut(alias));
                        if let Some(used) = used {
                            *used = true;
                        }
                        let candidate = RouteCandidate {
                            catalog,
                            tool,
                            name: named.name,
                            is_unprefixed: named.is_unprefixed,
                        };
                        if let Some(reason) = &tool.held {
                            self.hold(candidate, reason);
                            continue;
                        }
                        match self.version_shadow(picks.for_tool(index, tool), tool) {
                            None => self.candidates.push(candidate),
                            Some(reason) => self.shadowed.push(Shadowed {
                                source: candidate.source(),
                                name: candidate.name,
                                reason,
                            }),
                        }
                    }
                    Err(error) => self.quarantined.push(QuarantinedTool {
                        name: prefixed(&catalog.backend, tool),
                        source: ToolSource::of(&catalog.backend, tool),
                        error,
                    }),
                }
            }
        }
    }

    /// Keeps a tool out that waits for approval, where the session would have it.
    fn hold(&mut self, candidate: RouteCandidate<'_>, reason: &HeldReason) {
        if self.naming.offers(candidate.name.as_str()) {
            self.quarantined.push(QuarantinedTool {
                source: candidate.source(),
                name: candidate.name,
                error: RoutingError::Held(reason.clone()),
            });
        }
    }

    fn version_shadow(&self, pick: VersionChoice<'_>, tool: &CatalogTool) -> Option<ShadowReason> {
        match pick {
            VersionChoice::Any => None,
            VersionChoice::Version(version) if version == tool.skill_version.as_ref() => None,
            VersionChoice::Version(version) => Some(ShadowReason::OtherVersion {
                routed: version.cloned(),
            }),
            VersionChoice::Nothing => {
                let skill = tool.skill.as_deref().unwrap_or_default();
                Some(ShadowReason::OutOfRange {
                    requested: self
                        .naming
                        .versions
                        .get(skill)
                        .map(ToString::to_string)
                        .unwrap_or_default(),
                })
            }
        }
    }

    /// `prefix = "none"`: a plain name that something else has as well becomes a prefixed one,
    /// unless it is the one that the running table has and no other backend is preferred for it.
    fn prefix_contested_names(&mut self) {
        if !self
            .candidates
            .iter()
            .any(|candidate| candidate.is_unprefixed)
        {
            return;
        }
        let mut count: HashMap<ToolName, usize> = HashMap::with_capacity(self.candidates.len());
        for candidate in &self.candidates {
            *count.entry(candidate.name.clone()).or_default() += 1;
        }
        for index in 0..self.candidates.len() {
            let is_contested = self.candidates.get(index).is_some_and(|candidate| {
                let same = count.get(&candidate.name);
                candidate.is_unprefixed && same.is_some_and(|count| *count > 1)
            });
            if !is_contested || (self.is_incumbent(index) && !self.is_outranked(index)) {
                continue;
            }
            if let Some(candidate) = self.candidates.get_mut(index) {
                candidate.name = prefixed(&candidate.catalog.backend, candidate.tool);
            }
        }
    }

    /// Whether `prefer` gives the candidate's plain name to another backend that has it for good.
    fn is_outranked(&self, index: usize) -> bool {
        let Some(candidate) = self.candidates.get(index) else {
            return false;
        };
        let own = &candidate.catalog.backend;
        let chosen = self.naming.prefer.iter().find(|wanted| {
            let mut others = self.candidates.iter();
            *wanted == own
                || others.any(|other| {
                    !other.is_unprefixed
                        && other.name == candidate.name
                        && other.catalog.backend == **wanted
                })
        });
        chosen.is_some_and(|chosen| chosen != own)
    }

    fn is_incumbent(&self, index: usize) -> bool {
        let Some((candidate, current)) = self.candidates.get(index).zip(self.current) else {
            return false;
        };
        current
            .route(candidate.name.as_str())
            .is_some_and(|route| route.is_of(&candidate.catalog.backend, candidate.tool))
    }

    /// Decides every name that more than one candidate has; returns who lost, by index.
    fn settle_clashes(&mut self) -> Vec<bool> {
        let mut dropped = vec![false; self.candidates.len()];
        let mut lost: Vec<(usize, usize)> = Vec::new();
        let groups = groups(&self.candidates);
        let taken = match groups.as_slice() {
            [] => ExistingNames::default(),
            _ => self.existing_names(),
        };
        for (name, group) in groups {
            let group = self.preferred(&name, group, &mut dropped);
            if group.len() < 2 {
                continue;
            }
            let winner = self.incumbent_of(&group);
            let mut parties = group.clone();
            // Stable: the incumbent first, the rest in the order of the table.
            parties.sort_by_key(|index| Some(*index) != winner);
            let sources = parties
                .iter()
                .filter_map(|index| self.candidates.get(*index))
                .map(RouteCandidate::source)
                .collect();
            lost.extend(
                group
                    .into_iter()
                    .filter(|index| Some(*index) != winner)
                    .map(|index| (index, self.clashes.len())),
            );
            self.clashes.push(Clash {
                name,
                sources,
                existing: taken.clone(),
            });
        }
        for (index, clash) in lost {
            self.quarantine(index, clash, &mut dropped);
        }
        dropped
    }

    /// Names of skills and tools that there are, or that aliases give.
    fn existing_names(&self) -> ExistingNames {
        let skills = self.candidates.iter();
        let skills = skills.filter_map(|candidate| candidate.tool.skill.as_deref());
        let tools = self
            .candidates
            .iter()
            .map(|candidate| candidate.name.as_str());
        let aliases = self.naming.aliases.iter().map(|alias| alias.name.as_str());
        let names = skills.chain(tools).chain(aliases).map(str::to_owned);
        ExistingNames(Arc::new(names.collect()))
    }

    /// Shadows what `prefer` decides against; returns who is left.
    fn preferred(
        &mut self,
        name: &ToolName,
        group: Vec<usize>,
        dropped: &mut [bool],
    ) -> Vec<usize> {
        let backend_of = |index: &usize| {
            self.candidates
                .get(*index)
                .map(|one| one.catalog.backend.as_str())
        };
        let chosen = self.naming.prefer.iter().find(|wanted| {
            group
                .iter()
                .any(|index| backend_of(index) == Some(wanted.as_str()))
        });
        let Some(chosen) = chosen else {
            return group;
        };
        let (kept, lost): (Vec<usize>, Vec<usize>) = group
            .into_iter()
            .partition(|index| backend_of(index) == Some(chosen.as_str()));
        for index in lost {
            drop_at(dropped, index);
            if let Some(candidate) = self.candidates.get(index) {
                self.shadowed.push(Shadowed {
                    name: name.clone(),
                    source: candidate.source(),
                    reason: ShadowReason::Preferred {
                        backend: chosen.clone(),
                    },
                });
            }
        }
        kept
    }

    /// The candidate that the running table routes; of several (one skill in two files) the
    /// one whose file is the same.
    fn incumbent_of(&self, group: &[usize]) -> Option<usize> {
        let incumbents: Vec<usize> = group
            .iter()
            .copied()
            .filter(|index| self.is_incumbent(*index))
            .collect();
        let same_file = incumbents.iter().copied().find(|index| {
            let route =
                self.candidates
                    .get(*index)
                    .zip(self.current)
                    .and_then(|(candidate, current)| {
                        Some((candidate, current.route(candidate.name.as_str())?))
                    });
            route.is_some_and(|(candidate, route)| route.definition.origin == candidate.tool.origin)
        });
        same_file.or_else(|| incumbents.first().copied())
    }

    /// Keeps a candidate out; its error tells every clash of the same parties, so that those of all
    /// their tools read alike and can be told once.
    fn quarantine(&mut self, index: usize, clash: usize, dropped: &mut [bool]) {
        drop_at(dropped, index);
        let Some(clash) = self.clashes.get(clash) else {
            return;
        };
        let of_parties = self.clashes.iter().filter(|one| one.has_parties_of(clash));
        let clashes: Vec<Clash> = of_parties.cloned().collect();
        if let Some(candidate) = self.candidates.get(index) {
            self.quarantined.push(QuarantinedTool {
                name: candidate.name.clone(),
                source: candidate.source(),
                error: RoutingError::Clash { clashes },
            });
        }
    }
}

fn drop_at(dropped: &mut [bool], index: usize) {
    if let Some(dropped) = dropped.get_mut(index) {
        *dropped = true;
    }
}

/// The candidates of every name that several have, by index, in the order of the table.
fn groups(candidates: &[RouteCandidate<'_>]) -> Vec<(ToolName, Vec<usize>)> {
    let mut first: HashMap<&str, usize> = HashMap::with_capacity(candidates.len());
    let mut groups: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (index, candidate) in candidates.iter().enumerate() {
        let holder = *first.entry(candidate.name.as_str()).or_insert(index);
        if holder != index {
            groups
                .entry(holder)
                .or_insert_with(|| vec![holder])
                .push(index);
        }
    }
    groups
        .into_iter()
        .filter_map(|(holder, group)| Some((candidates.get(holder)?.name.clone(), group)))
        .collect()
}

fn routes(candidates: &[RouteCandidate<'_>], dropped: &[bool]) -> Vec<Route> {
    let mut backend: Option<(&Catalog, Arc<str>, Arc<str>)> = None;
    let mut routes = Vec::with_capacity(candidates.len());
    for (candidate, dropped) in candidates.iter().zip(dropped) {
        if *dropped {
            continue;
        }
        let catalog = candidate.catalog;
        let (_, name, kind) = match &backend {
            Some(known) if std::ptr::eq(known.0, catalog) => known,
            _ => backend.insert((
                catalog,
                catalog.backend.as_str().into(),
                catalog.kind.as_str().into(),
            )),
        };
        routes.push(Route {
            name: candidate.name.clone(),
            backend: Arc::clone(name),
            kind: Arc::clone(kind),
            definition: Arc::clone(candidate.tool),
        });
    }
    routes
}
