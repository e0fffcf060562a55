//! The routing table: from a tool's public name to whoever runs it.
//!
//! Built whole from every backend's catalog, never edited: a hot-added skill makes a new
//! table. Knows nothing about how a call is executed.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use semver::Version;

use super::resolve::{Resolved, resolve};
use super::{Alias, CallMode, Catalog, CatalogTool, Naming, RoutingError, ToolName, ToolSource};

/// An immutable map from public names to routes, with a version number.
///
/// For as long as the version is the same, so are the routes, their order and every tool's
/// definition.
#[derive(Debug, Clone, Default)]
pub struct RoutingTable {
    version: u64,
    routes: Vec<Route>,
    index: HashMap<ToolName, usize>,
    shadowed: Vec<Shadowed>,
    quarantined: Vec<QuarantinedTool>,
    idle_aliases: Vec<Alias>,
}

/// Where a public name leads.
#[derive(Debug, Clone)]
pub struct Route {
    /// The public name.
    pub name: ToolName,
    /// The backend instance that runs it.
    pub backend: Arc<str>,
    /// The instance's kind.
    pub kind: Arc<str>,
    /// Everything that the catalog says about the tool.
    pub definition: Arc<CatalogTool>,
}

/// A tool that is left out because of another one of the same name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shadowed {
    /// The name that it would have.
    pub name: ToolName,
    /// Backend, skill and own name of the tool.
    pub source: ToolSource,
    /// Why it is left out.
    pub reason: ShadowReason,
}

/// Why a tool is shadowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ShadowReason {
    /// Another version of the skill is routed.
    OtherVersion {
        /// The version that is.
        routed: Option<Version>,
    },
    /// No version of the skill on this backend fits the range that the session asks for.
    OutOfRange {
        /// The range.
        requested: String,
    },
    /// The session prefers another backend.
    Preferred {
        /// The backend whose tool is routed, or whose tools clash among each other.
        backend: String,
    },
}

impl fmt::Display for ShadowReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OtherVersion {
                routed: Some(version),
            } => write!(f, "version {version} of the skill is routed"),
            Self::OtherVersion { routed: None } => {
                f.write_str("another version of the skill is routed")
            }
            Self::OutOfRange { requested: wanted } => {
                write!(
                    f,
                    "the session asks for {wanted}, which this version does not fit"
                )
            }
            Self::Preferred { backend } => write!(f, "the session prefers the backend `{backend}`"),
        }
    }
}

/// A tool that was kept out of the table because the table would be wrong with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuarantinedTool {
    /// The name that it would have.
    pub name: ToolName,
    /// Backend, skill and own name of the tool.
    pub source: ToolSource,
    /// Why, and how to resolve it.
    pub error: RoutingError,
}

/// Where a route stands in the table of one version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RouteRef {
    version: u64,
    position: usize,
}

/// What changed between two tables, by public name, each list in the order of its table.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TableDiff {
    /// Names of the newer table only.
    pub added: Vec<ToolName>,
    /// Names of the older table only.
    pub removed: Vec<ToolName>,
    /// Names of both whose route or definition is another.
    pub changed: Vec<ToolName>,
}

impl RoutingTable {
    /// Builds the table for one session.
    ///
    /// Routes are ordered by backend (as in `catalogs`), then skill, then tool.
    ///
    /// # Errors
    /// [`RoutingError::Clash`] names every origin when tools would have one name; the other
    /// variants say what is wrong with `naming`, or that no wanted version of a skill is there.
    /// Tools that are held are kept out, which is no error.
    pub fn build(
        version: u64,
        catalogs: &[Catalog],
        naming: &Naming,
    ) -> Result<Self, RoutingError> {
        naming.check()?;
        let resolved = resolve(catalogs, naming, None);
        let other = resolved.quarantined.iter().find(|one| {
            !matches!(
                one.error,
                RoutingError::Clash { .. } | RoutingError::Held(_)
            )
        });
        if let Some(quarantined) = other {
            return Err(quarantined.error.clone());
        }
        if !resolved.clashes.is_empty() {
            return Err(RoutingError::Clash {
                clashes: resolved.clashes,
            });
        }
        if let Some(error) = resolved.missing_version {
            return Err(error);
        }
        Ok(Self::from_resolved(version, resolved))
    }

    /// A table of routes that were in one before. Of two with one name the last is found.
    pub(crate) fn of_routes(version: u64, routes: Vec<Route>) -> Self {
        let index = routes.iter().enumerate();
        Self {
            version,
            index: index.map(|(at, route)| (route.name.clone(), at)).collect(),
            routes,
            ..Self::default()
        }
    }

    /// Builds the table that follows this one when catalogs or wishes changed at run time.
    ///
    /// Nothing fails here: a tool whose name is taken, and one that is new together with
    /// another of the same name, is quarantined, and what is routed now keeps its name. The
    /// version grows by one only if a route or a definition differs. Second result: what is
    /// quarantined now and was not in this table; all of it is in
    /// [`quarantined`](Self::quarantined).
    #[must_use]
    pub fn update(&self, catalogs: &[Catalog], naming: &Naming) -> (Self, Vec<QuarantinedTool>) {
        let mut next = Self::from_resolved(self.version, resolve(catalogs, naming, Some(self)));
        if next.routes != self.routes {
            next.version += 1;
        }
        let fresh = next
            .quarantined
            .iter()
            .filter(|one| {
                !self
                    .quarantined
                    .iter()
                    .any(|known| known.name == one.name && known.source == one.source)
            })
            .cloned()
            .collect();
        (next, fresh)
    }

    /// The route of a public name. Allocates nothing.
    #[must_use]
    pub fn route(&self, name: &str) -> Option<&Route> {
        self.find(name).map(|(_, route)| route)
    }

    /// The route of a public name, with where it stands: whoever has that looks no name up again.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<(RouteRef, &Route)> {
        let position = *self.index.get(name)?;
        let found = RouteRef {
            version: self.version,
            position,
        };
        Some((found, self.routes.get(position)?))
    }

    /// Where in [`RoutingTable::routes`] the route stands; nothing where it was found in a table of
    /// another version.
    #[must_use]
    pub fn position(&self, route: RouteRef) -> Option<usize> {
        (route.version == self.version).then_some(route.position)
    }

    /// All routes in their stable order.
    #[must_use]
    pub fn routes(&self) -> &[Route] {
        &self.routes
    }

    /// The version; it grows when routes or definitions change.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Tools left out because another version or a preferred backend has the name.
    #[must_use]
    pub fn shadowed(&self) -> &[Shadowed] {
        &self.shadowed
    }

    /// Tools kept out because of an error. A table that was just built has none but those that
    /// wait for approval.
    #[must_use]
    pub fn quarantined(&self) -> &[QuarantinedTool] {
        &self.quarantined
    }

    /// The tool that was kept out and would have this name.
    #[must_use]
    pub fn find_quarantined(&self, name: &str) -> Option<&QuarantinedTool> {
        let mut kept_out = self.quarantined.iter();
        kept_out.find(|one| one.name.as_str() == name)
    }

    /// Aliases that no tool used: a skill that is not there yet, or a spelling mistake.
    #[must_use]
    pub fn idle_aliases(&self) -> &[Alias] {
        &self.idle_aliases
    }

    /// What is different in `newer`.
    #[must_use]
    pub fn diff(&self, newer: &Self) -> TableDiff {
        let mut diff = TableDiff::default();
        for route in &newer.routes {
            match self.route(route.name.as_str()) {
                None => diff.added.push(route.name.clone()),
                Some(old) if old != route => diff.changed.push(route.name.clone()),
                Some(_) => {}
            }
        }
        let gone = self
            .routes
            .iter()
            .filter(|route| newer.route(route.name.as_str()).is_none());
        diff.removed = gone.map(|route| route.name.clone()).collect();
        diff
    }

    fn from_resolved(version: u64, resolved: Resolved) -> Self {
        let index = resolved
            .routes
            .iter()
            .enumerate()
            .map(|(at, route)| (route.name.clone(), at))
            .collect();
        Self {
            version,
            routes: resolved.routes,
            index,
            shadowed: resolved.shadowed,
            quarantined: resolved.quarantined,
            idle_aliases: resolved.idle_aliases,
        }
    }
}

impl Route {
    /// The skill or MCP server, if the tool belongs to one.
    #[must_use]
    pub fn skill(&self) -> Option<&str> {
        self.definition.skill.as_deref()
    }

    /// The lane of its calls, which run one after the other: that of the backend, or of one skill or
    /// server where those are independent of each other, as native skills are. A stateless tool has
    /// none and waits for nobody.
    #[must_use]
    pub fn lane(&self) -> Option<String> {
        if self.definition.mode == CallMode::Stateless {
            return None;
        }
        let is_independent = self.definition.is_independent || &*self.kind == "native";
        match self.skill().filter(|_| is_independent) {
            // No backend's name has a line break in it, so lanes never meet by accident.
            Some(skill) => Some(format!("{}\n{skill}", self.backend)),
            None => Some(self.backend.to_string()),
        }
    }

    /// The tool's own name, as its backend knows it.
    #[must_use]
    pub fn tool(&self) -> &str {
        &self.definition.tool
    }

    /// The operation that the backend runs.
    #[must_use]
    pub fn op(&self) -> &str {
        &self.definition.op
    }

    /// About how many tokens the definition takes in a request.
    #[must_use]
    pub fn schema_tokens(&self) -> usize {
        self.definition.schema_tokens(self.name.as_str())
    }

    /// Source of the route's tool, for messages.
    #[must_use]
    pub fn source(&self) -> ToolSource {
        ToolSource::of(&self.backend, &self.definition)
    }

    /// Whether this is the tool of that backend, skill and own name.
    pub(super) fn is_of(&self, backend: &str, tool: &CatalogTool) -> bool {
        *self.backend == *backend
            && self.definition.skill == tool.skill
            && self.definition.tool == tool.tool
    }
}

impl PartialEq for Route {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
            && self.backend == other.backend
            && self.kind == other.kind
            // A catalog that did not change hands over the same definitions again.
            && (Arc::ptr_eq(&self.definition, &other.definition) || self.definition == other.definition)
    }
}

impl Eq for Route {}
