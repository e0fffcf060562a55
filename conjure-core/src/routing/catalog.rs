//! What one backend offers a session: tools, their schemas, their modes.
//!
//! The host makes a catalog of a plugin's manifest, an executor or a server's list. Tools are
//! shared (`Arc`), because every new table holds them again.

use std::fmt;
use std::io;
use std::sync::Arc;

use semver::Version;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// What one backend instance offers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Catalog {
    /// The instance's name in the session, such as `native` or `docker-gpu`; unique there.
    pub backend: String,
    /// The instance's kind: `native`, `local`, `docker`, `anthropic`, `mcp`, or a third party's.
    pub kind: String,
    /// What stands before the tool in a public name.
    pub naming: Prefix,
    /// The tools, in any order.
    pub tools: Vec<Arc<CatalogTool>>,
}

/// What stands before a tool's own name in its public name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Prefix {
    /// `<skill>_<tool>`; the backend's name where a tool belongs to no skill. The default.
    #[default]
    Skill,
    /// `<backend>_<tool>`.
    Backend,
    /// `<tool>`; as [`Prefix::Skill`] for a name that something else has as well.
    None,
}

/// One tool of a catalog.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CatalogTool {
    /// The skill or MCP server that it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skill: Option<String>,
    /// Version of the skill.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skill_version: Option<Version>,
    /// The tool's own name as the backend knows it, such as `execute` or `bash_tool`; any text.
    pub tool: String,
    /// The operation that the backend runs for a call, such as `skill.execute`.
    pub op: String,
    /// A name for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// What the model is told about it.
    pub description: String,
    /// JSON Schema of the arguments; its type is `object`.
    pub input_schema: Value,
    /// JSON Schema of the structured result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Value>,
    /// Whether calls may run at the same time.
    #[serde(default)]
    pub mode: CallMode,
    /// Whether its calls wait for those of its own skill or server only. Else they wait for all of
    /// the backend.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_independent: bool,
    /// What a call may do to the world.
    pub effects: EffectLevel,
    /// Whether the tool wants to be called on the spot, without a thread.
    #[serde(default)]
    pub in_place: bool,
    /// Time limit of a call, in milliseconds; `None`: the session's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// Where the tool comes from.
    #[serde(default)]
    pub origin: Origin,
    /// The skill folder that it runs in, where it was made for one: its path, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folder: Option<String>,
    /// The backend's own data, kept as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Value>,
    /// Why the tool is not offered for now. Such a tool has no route.
    #[serde(skip)]
    pub held: Option<HeldReason>,
}

/// Why a tool waits for a person's approval.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldReason {
    /// What is the matter. The model reads this: nothing of a definition that nobody approved
    /// belongs here.
    pub reason: String,
    /// What a person can do about it. No model reads this.
    pub remedy: String,
}

impl CatalogTool {
    /// A tool with an empty description, arguments of any kind and every default.
    #[must_use]
    pub fn new(tool: impl Into<String>, op: impl Into<String>, effects: EffectLevel) -> Self {
        Self {
            skill: None,
            skill_version: None,
            tool: tool.into(),
            op: op.into(),
            title: None,
            description: String::new(),
            input_schema: json!({"type": "object"}),
            output_schema: None,
            mode: CallMode::default(),
            is_independent: false,
            effects,
            in_place: false,
            timeout_ms: None,
            origin: Origin::default(),
            folder: None,
            meta: None,
            held: None,
        }
    }

    /// Sets the skill that the tool belongs to, and its version.
    #[must_use]
    pub fn of_skill(self, skill: impl Into<String>, version: Option<Version>) -> Self {
        Self {
            skill: Some(skill.into()),
            skill_version: version,
            ..self
        }
    }

    /// Sets the path of the skill folder that the tool is made for.
    #[must_use]
    pub fn in_folder(self, path: impl Into<String>) -> Self {
        Self {
            folder: Some(path.into()),
            ..self
        }
    }

    /// About how many tokens the definition takes in a request under the public name `name`:
    /// the bytes of `{name, description, input_schema}` as JSON, divided by 4, rounded up.
    #[must_use]
    pub fn schema_tokens(&self, name: &str) -> usize {
        #[derive(Serialize)]
        struct Definition<'a> {
            name: &'a str,
            description: &'a str,
            input_schema: &'a Value,
        }
        let mut bytes = ByteCounter(0);
        // Neither the counter nor the types written can fail.
        let _ = serde_json::to_writer(
            &mut bytes,
            &Definition {
                name,
                description: &self.description,
                input_schema: &self.input_schema,
            },
        );
        bytes.0.div_ceil(4)
    }
}

struct ByteCounter(usize);

impl io::Write for ByteCounter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Whether calls of a tool may run at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CallMode {
    /// One after another. The default.
    #[default]
    Stateful,
    /// At the same time.
    Stateless,
}

/// What a call may do to the world, from least to most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EffectLevel {
    /// Changes nothing.
    Read,
    /// Adds or changes.
    Write,
    /// May destroy.
    Destructive,
}

impl fmt::Display for EffectLevel {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Destructive => "destructive",
        })
    }
}

/// Where a tool comes from, for people.
#[derive(Debug, Clone, PartialEq, Eq, Default, Hash, Serialize, Deserialize)]
pub struct Origin {
    /// The plugin's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plugin: Option<String>,
    /// The plugin's version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The plugin's file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// What tells one build from another of the same version, such as the file's hash.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build: Option<String>,
}

/// Source of a tool, as an error names it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ToolSource {
    /// The backend instance.
    pub backend: String,
    /// The skill or MCP server.
    pub skill: Option<String>,
    /// Version of the skill.
    pub version: Option<Version>,
    /// The tool's own name.
    pub tool: String,
    /// The plugin behind it.
    pub origin: Origin,
    /// The skill folder that it was made for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub folder: Option<String>,
}

impl ToolSource {
    /// The source of `tool` on `backend`.
    #[must_use]
    pub fn of(backend: &str, tool: &CatalogTool) -> Self {
        Self {
            backend: backend.into(),
            skill: tool.skill.clone(),
            version: tool.skill_version.clone(),
            tool: tool.tool.clone(),
            origin: tool.origin.clone(),
            folder: tool.folder.clone(),
        }
    }
}

impl ToolSource {
    /// Where the tool comes from, without which tool it is.
    pub(super) fn describe_origin(&self) -> String {
        let mut place = match &self.skill {
            Some(skill) => format!("`{skill}`"),
            None => "a tool".to_owned(),
        };
        if let Some(version) = &self.version {
            place.push_str(&format!(" {version}"));
        }
        place.push_str(&format!(" on backend `{}`", self.backend));
        place.push_str(&self.origin_suffix());
        place
    }

    /// The folder or the plugin behind it, in parentheses.
    fn origin_suffix(&self) -> String {
        let origin = &self.origin;
        let parts = match &self.folder {
            // The plugin only runs what stands in the folder.
            Some(folder) => [Some(folder), None, None],
            None => [
                origin.plugin.as_ref(),
                origin.version.as_ref(),
                origin.file.as_ref(),
            ],
        };
        let parts: Vec<&str> = parts.into_iter().flatten().map(String::as_str).collect();
        if parts.is_empty() {
            return String::new();
        }
        format!(" ({})", parts.join(" "))
    }
}

impl fmt::Display for ToolSource {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "`{}`", self.tool)?;
        if let Some(skill) = &self.skill {
            write!(out, " of `{skill}`")?;
        }
        if let Some(version) = &self.version {
            write!(out, " {version}")?;
        }
        write!(
            out,
            " on backend `{}`{}",
            self.backend,
            self.origin_suffix()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schema_tokens_are_a_quarter_of_the_definitions_bytes_rounded_up() {
        let tool = CatalogTool::new("execute", "skill.execute", EffectLevel::Write);
        let definition =
            r#"{"name":"a_execute","description":"","input_schema":{"type":"object"}}"#;
        assert_eq!(definition.len(), 70);
        assert_eq!(tool.schema_tokens("a_execute"), 18);
    }
}
