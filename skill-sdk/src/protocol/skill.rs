//! The four callbacks of a native skill, and the tools that it has at run time only.

use serde::{Deserialize, Serialize};

use super::ToolDecl;

/// Arguments of `execute`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Execute {
    /// A command in the skill's own grammar.
    pub command: String,
}

/// Arguments of `read`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Read {
    /// What to read, in the skill's own terms.
    pub path: String,
    /// How many units to skip.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset: Option<u64>,
    /// How many units at the most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
}

/// Arguments of `write`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Write {
    /// Where to write, in the skill's own terms.
    pub path: String,
    /// What to write.
    pub content: String,
}

/// Arguments of `modify`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Modify {
    /// What to modify, in the skill's own terms.
    pub path: String,
    /// The passage to replace.
    pub old_content: String,
    /// What to put in its place.
    pub new_content: String,
}

/// The tools that an instance offers now beside those of its manifest: the reply of
/// `skill.tools`. A host asks again after the event `catalog_changed`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SkillTools {
    /// The tools, each run by its `op`, in a stable order.
    pub tools: Vec<ToolDecl>,
}
