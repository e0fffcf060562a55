//! The tools that the host makes out of an executor and out of a native skill's callbacks.
//!
//! Defined here and not in plugins, so that no tool schema is frozen into a binary. Runs
//! nothing: a definition's `op` names what the backend is asked to do.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::naming::passes;
use super::{CatalogTool, EffectLevel};

/// One of the four tools of a backend that runs commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CommandTool {
    /// Looks at a file or directory.
    View,
    /// Runs a command.
    BashTool,
    /// Writes a new file.
    CreateFile,
    /// Replaces a text in a file.
    StrReplace,
}

impl CommandTool {
    /// All four, in the order in which they are listed.
    pub const ALL: [Self; 4] = [
        Self::View,
        Self::BashTool,
        Self::CreateFile,
        Self::StrReplace,
    ];

    /// The tool's own name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::View => "view",
            Self::BashTool => "bash_tool",
            Self::CreateFile => "create_file",
            Self::StrReplace => "str_replace",
        }
    }

    /// The operation of the executor.
    #[must_use]
    pub const fn op(self) -> &'static str {
        match self {
            Self::View => "executor.view",
            Self::BashTool => "executor.bash",
            Self::CreateFile => "executor.create_file",
            Self::StrReplace => "executor.str_replace",
        }
    }

    /// The whole definition, belonging to no skill.
    #[must_use]
    pub fn definition(self) -> CatalogTool {
        let (effects, description, input_schema) = match self {
            Self::View => (EffectLevel::Read, VIEW, view_schema()),
            Self::BashTool => (EffectLevel::Destructive, BASH_TOOL, bash_tool_schema()),
            Self::CreateFile => (EffectLevel::Write, CREATE_FILE, create_file_schema()),
            Self::StrReplace => (EffectLevel::Write, STR_REPLACE, str_replace_schema()),
        };
        defined(self.name(), self.op(), effects, description, input_schema)
    }
}

/// The command tools that the filters let through; entries are exact names or `prefix*`, an
/// empty `only` lets all through, `except` wins.
#[must_use]
pub fn command_tools(only: &[String], except: &[String]) -> Vec<CatalogTool> {
    CommandTool::ALL
        .into_iter()
        .filter(|tool| passes(tool.name(), only, except))
        .map(CommandTool::definition)
        .collect()
}

/// One of the four optional callbacks of a native skill.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SkillCallback {
    /// Runs a command of the skill's own language; in purpose a `bash_tool`.
    Execute,
    /// Reads one of its resources; in purpose a `view`.
    Read,
    /// Writes one; in purpose a `create_file`.
    Write,
    /// Changes a part of one; in purpose a `str_replace`.
    Modify,
}

impl SkillCallback {
    /// All four, in the order in which they are listed.
    pub const ALL: [Self; 4] = [Self::Execute, Self::Read, Self::Write, Self::Modify];

    /// The tool's own name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Execute => "execute",
            Self::Read => "read",
            Self::Write => "write",
            Self::Modify => "modify",
        }
    }

    /// The operation of the plugin.
    #[must_use]
    pub const fn op(self) -> &'static str {
        match self {
            Self::Execute => "skill.execute",
            Self::Read => "skill.read",
            Self::Write => "skill.write",
            Self::Modify => "skill.modify",
        }
    }

    /// The definition where a plugin's manifest says no more than that the callback exists.
    #[must_use]
    pub fn definition(self) -> CatalogTool {
        let (effects, description, input_schema) = match self {
            Self::Execute => (EffectLevel::Write, EXECUTE, execute_schema()),
            Self::Read => (EffectLevel::Read, READ, read_schema()),
            Self::Write => (EffectLevel::Write, WRITE, write_schema()),
            Self::Modify => (EffectLevel::Write, MODIFY, modify_schema()),
        };
        defined(self.name(), self.op(), effects, description, input_schema)
    }
}

const VIEW: &str = "\
Shows a text file with its line numbers, or lists a directory two levels deep. \
Use view_range for a part of a long file.";

const BASH_TOOL: &str = "\
Runs a command in a shell and returns its output and exit code. \
The working directory and files stay from call to call, variables and background processes do not. \
No input can be given while it runs, so pass every answer as an argument.";

const CREATE_FILE: &str = "\
Writes a file with the text given, and the directories above it. A file that is there already is replaced.";

const STR_REPLACE: &str = "\
Replaces a text in a file. The text must be in the file exactly once, white space included; \
give enough of the lines around it to make it so.";

const EXECUTE: &str = "Runs one command of this skill and returns its result.";
const READ: &str = "Reads one of this skill's resources.";
const WRITE: &str = "Writes one of this skill's resources; what it held is replaced.";
const MODIFY: &str =
    "Replaces a part of one of this skill's resources. The old content must be in it exactly once.";

fn defined(
    name: &str,
    op: &str,
    effects: EffectLevel,
    description: &str,
    input_schema: Value,
) -> CatalogTool {
    CatalogTool {
        description: description.into(),
        input_schema,
        ..CatalogTool::new(name, op, effects)
    }
}

fn view_schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "path": text("File or directory to look at"),
            "view_range": {
                "type": "array",
                "items": {"type": "integer"},
                "minItems": 2,
                "maxItems": 2,
                "description": "First and last line to show, counted from 1; -1 as the last means the end of the file"
            }
        },
        "required": ["path"],
        "additionalProperties": false
    })
}

fn bash_tool_schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "command": text("Command for the shell"),
            "description": text("What the command does and why, in a few words")
        },
        "required": ["command", "description"],
        "additionalProperties": false
    })
}

fn create_file_schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "path": text("File to write"),
            "file_text": text("The whole text of the file"),
            "description": text("What the file is for, in a few words")
        },
        "required": ["path", "file_text", "description"],
        "additionalProperties": false
    })
}

fn str_replace_schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "path": text("File to change"),
            "old_str": text("Text to replace; it must be in the file exactly once"),
            "new_str": text("Text to put in its place; without it the old text is removed"),
            "description": text("What the change is for, in a few words")
        },
        "required": ["path", "old_str", "description"],
        "additionalProperties": false
    })
}

fn execute_schema() -> Value {
    json!({
        "type": "object",
        "properties": {"command": text("Command of this skill, with its arguments")},
        "required": ["command"],
        "additionalProperties": false
    })
}

fn read_schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "path": text("Resource to read"),
            "offset": {"type": "integer", "minimum": 0, "description": "Where to begin; 0 when left out"},
            "limit": {"type": "integer", "minimum": 0, "description": "How much to read; all when left out"}
        },
        "required": ["path"],
        "additionalProperties": false
    })
}

fn write_schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "path": text("Resource to write"),
            "content": text("Its whole new content")
        },
        "required": ["path", "content"],
        "additionalProperties": false
    })
}

fn modify_schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "path": text("Resource to change"),
            "old_content": text("Content to replace; it must be there exactly once"),
            "new_content": text("Content to put in its place")
        },
        "required": ["path", "old_content", "new_content"],
        "additionalProperties": false
    })
}

fn text(description: &str) -> Value {
    json!({"type": "string", "description": description})
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `name {field, field?: optional}` as the cases write it.
    fn shape(tool: &CatalogTool) -> String {
        let required = tool.input_schema["required"].as_array().unwrap();
        let fields: Vec<String> = tool.input_schema["properties"]
            .as_object()
            .unwrap()
            .keys()
            .map(|field| {
                let optional = !required.contains(&field.as_str().into());
                format!("{field}{}", if optional { "?" } else { "" })
            })
            .collect();
        format!("{} = {} {{{}}}", tool.op, tool.tool, fields.join(", "))
    }

    #[test]
    fn p3_command_tools_have_the_arguments_that_models_know() {
        let shapes: Vec<String> = command_tools(&[], &[]).iter().map(shape).collect();
        assert_eq!(
            shapes,
            [
                "executor.view = view {path, view_range?}",
                "executor.bash = bash_tool {command, description}",
                "executor.create_file = create_file {path, file_text, description}",
                "executor.str_replace = str_replace {path, old_str, new_str?, description}",
            ]
        );
    }

    #[test]
    fn p3_native_callbacks_have_default_schemas() {
        let shapes: Vec<String> = SkillCallback::ALL
            .map(|callback| shape(&callback.definition()))
            .into();
        assert_eq!(
            shapes,
            [
                "skill.execute = execute {command}",
                "skill.read = read {path, offset?, limit?}",
                "skill.write = write {path, content}",
                "skill.modify = modify {path, old_content, new_content}",
            ]
        );
    }

    #[test]
    fn p3_filters_choose_command_tools() {
        let names = |only: &[&str], except: &[&str]| -> Vec<String> {
            let owned = |list: &[&str]| list.iter().map(ToString::to_string).collect::<Vec<_>>();
            command_tools(&owned(only), &owned(except))
                .into_iter()
                .map(|tool| tool.tool)
                .collect()
        };
        assert_eq!(names(&["view", "bash*"], &[]), ["view", "bash_tool"]);
        assert_eq!(
            names(&[], &["bash_tool"]),
            ["view", "create_file", "str_replace"]
        );
        assert_eq!(names(&["view"], &["v*"]), [] as [&str; 0]);
    }

    #[test]
    fn every_definition_is_described_and_closed() {
        let native = SkillCallback::ALL.map(SkillCallback::definition);
        for tool in command_tools(&[], &[]).iter().chain(&native) {
            assert!(!tool.description.is_empty(), "{}", tool.tool);
            assert_eq!(
                tool.input_schema["additionalProperties"], false,
                "{}",
                tool.tool
            );
            for (field, schema) in tool.input_schema["properties"].as_object().unwrap() {
                assert!(schema["description"].is_string(), "{} {field}", tool.tool);
            }
        }
    }
}
