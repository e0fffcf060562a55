//! The tools of a request: those of the routing table that a provider takes, and the choice.
//!
//! A tool whose name or schema cannot be sent is left out alone, with a reason; the others go.

use serde_json::Value;

use super::{OmittedTool, ids, schema};
use crate::request::{ModelRequest, ToolChoice, ToolDefinition};

/// What a request can say about tools, as it is collected.
#[derive(Debug, Default)]
pub(super) struct ToolNotes {
    /// What was recast or left out beside those tools.
    pub(super) notes: Vec<String>,
    /// The tools that were left out.
    pub(super) quarantined: Vec<OmittedTool>,
}

/// The routing table's tools in its order, each with its schema as `project` makes it.
///
/// `project` gets a schema that is JSON Schema, with an object at its top. Its error names what
/// the provider does not take.
pub(super) fn encode_tools<'a>(
    request: &'a ModelRequest,
    tool_notes: &mut ToolNotes,
    project: impl Fn(Value) -> Result<Value, String>,
) -> Vec<(&'a ToolDefinition, Value)> {
    let mut tools = Vec::new();
    for tool in &request.tools {
        let checked = if ids::is_legal_name(&tool.name) {
            schema::check(&tool.input_schema).map_err(|why| format!("its schema is wrong: {why}"))
        } else {
            Err("its name is not 1 to 64 letters, digits, `_` or `-`".to_owned())
        };
        let (top, note) = schema::object_at_top(&tool.input_schema);
        match checked.and_then(|()| project(top)) {
            Ok(schema) => {
                if let Some(note) = note {
                    tool_notes
                        .notes
                        .push(format!("tool `{}`: {note}", tool.name));
                }
                tools.push((tool, schema));
            }
            Err(reason) => {
                tool_notes.quarantined.push(OmittedTool {
                    tool: tool.name.clone(),
                    reason,
                });
            }
        }
    }
    tools
}

/// The choice of a tool that can be sent: the request's, unless there is no such tool.
pub(super) fn choice<'a>(
    request: &'a ModelRequest,
    no_tools: bool,
    told: &mut ToolNotes,
) -> Option<&'a ToolChoice> {
    match &request.tool_choice {
        ToolChoice::Auto => None,
        ToolChoice::None if no_tools => None,
        _ if no_tools => {
            told.notes
                .push("the choice of a tool is left out: there are no tools".to_owned());
            None
        }
        ToolChoice::Tool(name) if told.quarantined.iter().any(|out| out.tool == *name) => {
            told.notes.push(format!(
                "the choice of the tool `{name}` is left out with the tool"
            ));
            None
        }
        choice => Some(choice),
    }
}
