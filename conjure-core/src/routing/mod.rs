//! From a tool's public name to whoever runs it, and whether it may run.
//!
//! Catalogs and a session's wishes go in, an immutable table comes out. Names are looked up in
//! the table only, never taken apart. Knows nothing about how a call is executed.

mod catalog;
mod clash;
mod command_pattern;
mod command_tools;
mod denying_weakness;
mod excluded_tools;
mod name;
mod naming;
mod paths;
mod pattern;
mod pattern_arguments;
mod policy;
mod resolve;
mod shell;
mod suggested_pattern;
mod table;
mod tool_policy;
mod versions;
mod warnings;

pub use catalog::{
    CallMode, Catalog, CatalogTool, EffectLevel, HeldReason, Origin, Prefix, ToolSource,
};
pub use clash::{Clash, RoutingError};
pub use command_tools::{CommandTool, SkillCallback, command_tools};
pub use excluded_tools::ExcludedTools;
pub(crate) use excluded_tools::describe_excluded;
pub use name::{MAX_TOOL_NAME, ToolName, ToolNameError};
pub use naming::{Alias, Naming};
pub use pattern::{Pattern, PatternError};
pub use policy::{Defaults, Policy, PolicyCall, PolicyDecision, PolicyVerdict, Rule};
pub use table::{
    QuarantinedTool, Route, RouteRef, RoutingTable, ShadowReason, Shadowed, TableDiff,
};
pub use tool_policy::ToolPolicy;
pub use warnings::PolicyWarning;

#[cfg(test)]
mod tests;
