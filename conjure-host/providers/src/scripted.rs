//! A script plays the model: for demonstrations and tests without a key.
//!
//! The step that answers a request is the number of assistant messages in it, so the same
//! conversation always gets the same answer. Nothing here pretends to be a model: the notice says
//! that a script speaks.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use conjure_core::chat::{
    Content, FunctionCall, FunctionCallOutput, Message, OutputPart, Part, Response, Role, Stop,
    StopReason, StreamEvent, Usage,
};
use conjure_core::request::ModelRequest;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use serde::Deserialize;
use serde_json::Value;

use super::{Provider, ProviderError, ReplySink};

/// The script: what is answered to the first request, the second, and so on.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Script {
    /// What the script is for.
    #[serde(default)]
    pub about: String,
    /// The answers, in order.
    pub steps: Vec<ScriptStep>,
}

/// One answer. Texts and arguments may hold `{{…}}`: `{{user}}` (the newest user text),
/// `{{vars.NAME}}`, `{{CALL.text}}`, `{{CALL.is_error}}`, `{{CALL.files.0.name}}`,
/// `{{CALL.json.FIELD.0}}` (the output read as JSON), where CALL is the `as` of an earlier call.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScriptStep {
    /// The public name of a tool; where the session does not offer it, the step is left out.
    #[serde(default)]
    pub needs: Option<String>,
    /// What the script says it thinks.
    #[serde(default)]
    pub thinking: String,
    /// What it says.
    #[serde(default)]
    pub text: String,
    /// What it calls.
    #[serde(default)]
    pub calls: Vec<ScriptedCall>,
    /// The stop reason, when it is not `tool_use` or `end_turn`.
    #[serde(default)]
    pub stop: Option<String>,
    /// How long it waits before it answers, in milliseconds.
    #[serde(default)]
    pub delay_ms: u64,
    /// Fails with this message instead of answering.
    #[serde(default)]
    pub fail: Option<String>,
}

/// One call of a step.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScriptedCall {
    /// What later steps call its result.
    #[serde(rename = "as", default)]
    pub name: String,
    /// The tool's public name.
    pub tool: String,
    /// Arguments of the call.
    #[serde(default)]
    pub arguments: Value,
}

/// Why there is no script.
#[derive(Debug, thiserror::Error)]
pub enum ScriptError {
    /// The file cannot be read.
    #[error("the script `{path}` cannot be read: {source}")]
    Read {
        /// The file.
        path: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// The file is not a script.
    #[error(
        "the script `{path}` is not what a script looks like: {source}; see conjure-host/docs/sessions.md"
    )]
    Parse {
        /// The file.
        path: String,
        /// What the parser said.
        source: serde_json::Error,
    },
}

impl Script {
    /// Reads a script file (JSON).
    ///
    /// # Errors
    /// [`ScriptError`] names the file.
    pub fn read(path: &Path) -> Result<Self, ScriptError> {
        let name = path.display().to_string();
        let bytes = conjure_config::fs::read(path).map_err(|source| ScriptError::Read {
            path: name.clone(),
            source,
        })?;
        serde_json::from_slice(&bytes).map_err(|source| ScriptError::Parse { path: name, source })
    }
}

/// The provider `scripted`.
#[derive(Debug, Clone)]
pub struct Scripted {
    script: Script,
    vars: BTreeMap<String, String>,
}

impl Scripted {
    /// A provider that answers from a script; `vars` are its `{{vars.…}}`.
    pub fn new(script: Script, vars: BTreeMap<String, String>) -> Self {
        Self { script, vars }
    }

    async fn answer(
        &self,
        request: &ModelRequest,
        sink: &ReplySink,
    ) -> Result<Response, ProviderError> {
        let messages = request.messages.messages();
        let index = messages
            .iter()
            .filter(|m| m.role == Role::Assistant)
            .count();
        let offered = |name: &str| request.tools.iter().any(|tool| tool.name.as_str() == name);
        let steps = || {
            let steps = self.script.steps.iter().enumerate();
            steps.filter(|(_, step)| step.needs.as_deref().is_none_or(offered))
        };
        let Some((place, step)) = steps().nth(index) else {
            return Err(script_error(format!(
                "the script has {} steps and this is request {}; add a step or end the \
                 conversation",
                steps().count(),
                index + 1
            )));
        };
        if step.delay_ms > 0 {
            tokio::time::sleep(Duration::from_millis(step.delay_ms)).await;
        }
        let values = Values {
            vars: &self.vars,
            messages,
            script: &self.script,
        };
        if let Some(failure) = &step.fail {
            return Err(script_error(failure.clone()));
        }
        let mut parts = Vec::new();
        if !step.thinking.is_empty() {
            let text = values.fill(&step.thinking)?;
            sink.push(StreamEvent::Thinking {
                delta: text.clone(),
            });
            parts.push(Content::Reasoning { text }.into());
        }
        if !step.text.is_empty() {
            let text = values.fill(&step.text)?;
            for delta in pieces(&text) {
                sink.push(StreamEvent::Content {
                    delta: delta.to_owned(),
                });
            }
            parts.push(Part::text(text));
        }
        for (position, call) in step.calls.iter().enumerate() {
            let call_id = call_id(place, position);
            sink.push(StreamEvent::CallStarted {
                call_id: call_id.clone(),
                name: call.tool.clone(),
            });
            let arguments = match values.fill_value(&call.arguments)? {
                Value::Null => Value::Object(serde_json::Map::new()),
                other => other,
            };
            sink.push(StreamEvent::Call {
                call_id: call_id.clone(),
            });
            parts.push(
                Content::FunctionCall(FunctionCall {
                    call_id,
                    name: call.tool.clone(),
                    arguments,
                    arguments_text: None,
                })
                .into(),
            );
        }
        Ok(Response {
            id: None,
            model: request.model.clone(),
            parts,
            stop: Some(stop(step)),
            usage: Usage::default(),
            fields: serde_json::Map::new(),
            complete: true,
        })
    }
}

impl Provider for Scripted {
    fn name(&self) -> &str {
        "scripted"
    }

    fn respond<'a>(
        &'a self,
        request: &'a ModelRequest,
        sink: &'a ReplySink,
    ) -> BoxFuture<'a, Result<Response, ProviderError>> {
        self.answer(request, sink).boxed()
    }

    fn notice(&self) -> Option<String> {
        Some("A script plays the model: no provider is asked and nothing is generated.".to_owned())
    }
}

fn stop(step: &ScriptStep) -> Stop {
    let raw = step.stop.clone().unwrap_or_else(|| {
        if step.calls.is_empty() {
            "end_turn".to_owned()
        } else {
            "tool_use".to_owned()
        }
    });
    let reason = match raw.as_str() {
        "end_turn" => StopReason::EndTurn,
        "tool_use" => StopReason::ToolUse,
        "max_tokens" => StopReason::MaxTokens,
        "pause_turn" => StopReason::Pause,
        "refusal" => StopReason::Refusal,
        "stop_sequence" => StopReason::StopSequence,
        _ => StopReason::Other,
    };
    Stop {
        reason,
        raw,
        sequence: None,
    }
}

fn call_id(step: usize, position: usize) -> String {
    format!("scripted_{}_{}", step + 1, position + 1)
}

fn script_error(message: impl Into<String>) -> ProviderError {
    ProviderError::new("scripted", "script", message)
}

/// Words, so that a person sees a stream.
fn pieces(text: &str) -> impl Iterator<Item = &str> {
    text.split_inclusive(char::is_whitespace)
}

/// Where `{{…}}` gets its values from.
struct Values<'a> {
    vars: &'a BTreeMap<String, String>,
    messages: &'a [Message],
    script: &'a Script,
}

impl Values<'_> {
    fn fill_value(&self, value: &Value) -> Result<Value, ProviderError> {
        Ok(match value {
            Value::String(text) => match whole_template(text) {
                Some(path) => self.look_up(path)?,
                None => Value::String(self.fill(text)?),
            },
            Value::Array(items) => Value::Array(
                items
                    .iter()
                    .map(|item| self.fill_value(item))
                    .collect::<Result<_, _>>()?,
            ),
            Value::Object(fields) => Value::Object(
                fields
                    .iter()
                    .map(|(name, field)| Ok((name.clone(), self.fill_value(field)?)))
                    .collect::<Result<_, ProviderError>>()?,
            ),
            other => other.clone(),
        })
    }

    fn fill(&self, text: &str) -> Result<String, ProviderError> {
        let mut filled = String::with_capacity(text.len());
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("{{") {
            let Some((path, behind)) = after.split_once("}}") else {
                return Err(script_error(format!("`{{{{{after}` has no `}}}}`")));
            };
            filled.push_str(before);
            match self.look_up(path.trim())? {
                Value::String(value) => filled.push_str(&value),
                value => filled.push_str(&value.to_string()),
            }
            rest = behind;
        }
        filled.push_str(rest);
        Ok(filled)
    }

    fn look_up(&self, path: &str) -> Result<Value, ProviderError> {
        let missing = |what: &str| script_error(format!("`{{{{{path}}}}}` has no value: {what}"));
        let (head, tail) = path.split_once('.').unwrap_or((path, ""));
        match head {
            "user" => {
                let newest = self.messages.iter().rev().find(|m| m.role == Role::User);
                Ok(Value::String(newest.map(Message::text).unwrap_or_default()))
            }
            "vars" => self
                .vars
                .get(tail)
                .map(|value| Value::String(value.clone()))
                .ok_or_else(|| missing("the variable is not set (use `--set NAME=VALUE`)")),
            call => {
                let output = self
                    .output_of(call)
                    .ok_or_else(|| missing("no call with that name has a result yet"))?;
                result_value(output, tail)
                    .ok_or_else(|| missing(&format!("the result is `{}`", output.joined_text())))
            }
        }
    }

    /// The newest result of the call with this name.
    fn output_of(&self, name: &str) -> Option<&FunctionCallOutput> {
        let ids = self
            .script
            .steps
            .iter()
            .enumerate()
            .rev()
            .flat_map(|(step, content)| {
                content
                    .calls
                    .iter()
                    .enumerate()
                    .filter(|(_, call)| call.name == name)
                    .map(move |(position, _)| call_id(step, position))
            });
        ids.into_iter().find_map(|id| {
            self.messages
                .iter()
                .flat_map(|m| &m.content)
                .find_map(|part| match &part.content {
                    Content::FunctionCallOutput(output) if output.call_id == id => Some(output),
                    _ => None,
                })
        })
    }
}

fn whole_template(text: &str) -> Option<&str> {
    let inner = text.strip_prefix("{{")?.strip_suffix("}}")?;
    (!inner.contains("{{") && !inner.contains("}}")).then(|| inner.trim())
}

fn result_value(output: &FunctionCallOutput, path: &str) -> Option<Value> {
    let (head, tail) = path.split_once('.').unwrap_or((path, ""));
    match head {
        "" | "text" => Some(Value::String(output.joined_text())),
        "is_error" => Some(Value::Bool(output.is_error)),
        "json" => {
            let value = serde_json::from_str(&output.joined_text()).ok()?;
            descend(value, tail)
        }
        "files" => {
            let files: Vec<Value> = output
                .output
                .iter()
                .filter_map(|part| match part {
                    OutputPart::File { artifact } | OutputPart::Image { artifact } => {
                        serde_json::to_value(artifact).ok()
                    }
                    OutputPart::Text { .. } => None,
                })
                .collect();
            descend(Value::Array(files), tail)
        }
        _ => None,
    }
}

fn descend(value: Value, path: &str) -> Option<Value> {
    path.split('.')
        .filter(|step| !step.is_empty())
        .try_fold(value, |value, step| match value {
            Value::Object(mut fields) => fields.remove(step),
            Value::Array(items) => items.into_iter().nth(step.parse().ok()?),
            _ => None,
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_in_a_script_points_to_where_scripts_are_described() {
        let source = serde_json::from_str::<Value>("{").unwrap_err();
        let error = ScriptError::Parse {
            path: "script.json".to_owned(),
            source,
        };
        let page = "conjure-host/docs/sessions.md";
        assert!(error.to_string().ends_with(page), "{error}");
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
        assert!(std::path::Path::new(root).join(page).is_file());
    }
}
