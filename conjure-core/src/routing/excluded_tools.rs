//! What a person is told of tools that are kept out of a table: each reason once, with all tools
//! that it keeps out.

use std::fmt::Display;

use super::{QuarantinedTool, RoutingError, ToolName};

/// Tools that are kept out of a table for one reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExcludedTools<'a> {
    /// The names that they would have, each once.
    pub names: Vec<&'a ToolName>,
    /// Why, and how to resolve it.
    pub error: &'a RoutingError,
}

impl<'a> ExcludedTools<'a> {
    /// Puts those together that have one reason, in the order of the first of each.
    #[must_use]
    pub fn of(quarantined: &'a [QuarantinedTool]) -> Vec<Self> {
        let mut all: Vec<Self> = Vec::new();
        for tool in quarantined {
            match all.iter_mut().find(|known| *known.error == tool.error) {
                Some(known) if known.names.contains(&&tool.name) => {}
                Some(known) => known.names.push(&tool.name),
                None => all.push(Self {
                    names: vec![&tool.name],
                    error: &tool.error,
                }),
            }
        }
        all
    }
}

impl Display for ExcludedTools<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(&describe_excluded(&self.names, self.error))
    }
}

/// What a person is told of tools with these names that are kept out for this reason.
pub(crate) fn describe_excluded<N: Display>(names: &[N], error: &dyn Display) -> String {
    let (tools, are) = match names {
        [_] => ("tool", "is"),
        _ => ("tools", "are"),
    };
    let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    let names = names.join(", ");
    format!("The {tools} {names} {are} not offered: {error}")
}
