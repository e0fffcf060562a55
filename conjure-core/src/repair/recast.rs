//! Part by part: what the target cannot take is left out or told as text.
//!
//! Looks at one message at a time; what depends on other messages is paired elsewhere.

use serde_json::{Map, Value};

use super::RepairTarget;
use crate::chat::{Content, FunctionCall, FunctionCallOutput, Message, OutputPart, Part, Role};
use crate::context::notes;
use crate::wire_name::Wire;

/// The message with the parts that the target can take. Its results stay in it: pairing them with
/// their calls is another step.
pub(super) fn recast(message: Message, target: &RepairTarget, family: &str) -> Message {
    let from_host = message.role == Role::System;
    let role = if from_host { Role::User } else { message.role };
    let content = message
        .content
        .into_iter()
        .filter_map(|part| {
            let part = recast_part(part, role, target, family)?;
            match part.content {
                Content::Text { text } if from_host => Some(Part::text(notes::host_note(&text))),
                _ => Some(part),
            }
        })
        .collect();
    Message {
        role,
        content,
        meta: message.meta,
    }
}

/// The part as the target can take it for itself; none where it is left out.
pub(crate) fn recast_part(
    part: Part,
    role: Role,
    target: &RepairTarget,
    family: &str,
) -> Option<Part> {
    let by_model = role == Role::Assistant;
    let sidecar = part
        .sidecar
        .filter(|own| own.provider == target.provider && own.model_family == family);
    let content = match part.content {
        Content::Text { text } if text.trim().is_empty() => return None,
        // Thoughts go back to who can prove that they are its own. Told as text they would make
        // a model believe that it says them aloud.
        Content::Reasoning { .. } if sidecar.is_none() || !by_model => return None,
        Content::FunctionCall(_) if !by_model => return None,
        Content::FunctionCall(call) => Content::FunctionCall(with_object_arguments(call)),
        Content::FunctionCallOutput(output) => {
            Content::FunctionCallOutput(recast_output(output, target))
        }
        Content::Image { artifact } if !target.images => {
            return Some(Part::text(notes::unviewable_file(&artifact)));
        }
        // Every wire tells a text as text.
        Content::File { artifact } if !target.files && !artifact.is_text() => {
            return Some(Part::text(notes::unviewable_file(&artifact)));
        }
        Content::ServerItem { provider, item } => {
            let fits = by_model || (role == Role::User && !belongs_to_tool(&item));
            // Chat Completions has no items of its own.
            let takes = target.wire != Wire::OpenaiChat;
            if provider != target.provider || !fits || !takes || !item.is_object() {
                return Some(Part::text(notes::server_item(&provider, &item)));
            }
            Content::ServerItem { provider, item }
        }
        other => other,
    };
    Some(Part { content, sidecar })
}

fn with_object_arguments(call: FunctionCall) -> FunctionCall {
    if call.arguments.is_object() {
        return call;
    }
    let text = call.arguments_text.or_else(|| match &call.arguments {
        Value::Null => None,
        other => Some(other.to_string()),
    });
    FunctionCall {
        arguments: Value::Object(Map::new()),
        arguments_text: text,
        ..call
    }
}

fn recast_output(output: FunctionCallOutput, target: &RepairTarget) -> FunctionCallOutput {
    let parts = output.output.into_iter().filter_map(|part| match part {
        OutputPart::Text { text } if text.trim().is_empty() => None,
        OutputPart::Image { artifact } if !target.images => Some(OutputPart::Text {
            text: notes::unviewable_file(&artifact),
        }),
        OutputPart::File { artifact } if !target.files => Some(OutputPart::Text {
            text: notes::unviewable_file(&artifact),
        }),
        other => Some(other),
    });
    let mut parts: Vec<OutputPart> = parts.collect();
    if parts.is_empty() && output.is_error {
        // An empty result is fine, an empty failure is rejected.
        parts.push(OutputPart::Text {
            text: notes::FAILED_SILENTLY.to_owned(),
        });
    }
    FunctionCallOutput {
        output: parts,
        ..output
    }
}

/// Whether an item is a use of a provider's own tool or the result of one.
pub(super) fn belongs_to_tool(item: &Value) -> bool {
    let kind = item.get("type").and_then(Value::as_str).unwrap_or_default();
    kind.ends_with("tool_use") || item.get("tool_use_id").is_some()
}
