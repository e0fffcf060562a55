//! The `input` array: canonical messages as items.
//!
//! Takes a repaired conversation, so pairs and order are right already. What has a sidecar becomes
//! the item that it was; anything else becomes the plainest item that says the same.

use std::collections::HashSet;

use serde_json::{Map, Value, json};

use super::MAX_ID_LENGTH;
use crate::chat::{
    ArtifactRef, Content, FunctionCall, FunctionCallOutput, Message, OutputPart, Part, Role,
};
use crate::context::notes;
use crate::request::ProviderFragments;
use crate::wire::added::AddedParts;
use crate::wire::arguments::as_object;
use crate::wire::files::{FileEncoder, FileView, as_text, data_url, is_named};
use crate::wire::ids::{legal_id, legal_name};

/// The items, with what backends add to messages.
pub(super) fn items(
    messages: &[Message],
    contribution: &ProviderFragments,
    files: &mut FileEncoder<'_>,
) -> Vec<Value> {
    let added = AddedParts::for_messages(messages, contribution, |_| true);
    let mut items = Vec::new();
    let mut custom = HashSet::new();
    for (at, message) in messages.iter().enumerate() {
        match message.role {
            Role::Assistant => assistant(message, &mut items, &mut custom, files),
            Role::Tool => {
                for part in &message.content {
                    if let Content::FunctionCallOutput(output) = &part.content {
                        items.push(result(output, &custom, files));
                    }
                }
                items.extend(user_message(&added.after_message(at).collect::<Vec<_>>()));
            }
            Role::User | Role::System => {
                let mut content: Vec<Value> = message
                    .content
                    .iter()
                    .flat_map(|part| user_part(part, files))
                    .collect();
                content.extend(added.after_message(at));
                items.extend(user_message(&content));
            }
        }
    }
    items
}

/// A message of the person's; none without content.
fn user_message(content: &[Value]) -> Option<Value> {
    (!content.is_empty()).then(|| json!({"type": "message", "role": "user", "content": content}))
}

fn assistant<'a>(
    message: &'a Message,
    items: &mut Vec<Value>,
    custom: &mut HashSet<&'a str>,
    files: &mut FileEncoder<'_>,
) {
    // The message item that texts are being added to.
    let mut open = false;
    for part in &message.content {
        let item = match &part.content {
            Content::Text { text } => {
                let fields = item_fields(part, items, &["annotations", "refusal"]);
                let same = open
                    && items
                        .last()
                        .is_some_and(|last| last.get("id") == fields.get("id"));
                let content = output_text(text, part);
                let last = items.last_mut().filter(|_| same);
                match last.and_then(|last| last.get_mut("content")?.as_array_mut()) {
                    Some(list) => list.push(content),
                    None => items.push(message_item(fields, content)),
                }
                open = true;
                continue;
            }
            Content::Image { artifact } | Content::File { artifact } => {
                let words = files.note_unshown(artifact, "a file in a model's message");
                let content = json!({"type": "output_text", "text": words});
                message_item(Map::new(), content)
            }
            Content::Reasoning { .. } => match &part.sidecar {
                Some(own) => own.data.clone(),
                None => continue,
            },
            Content::FunctionCall(call) => {
                let item = call_item(call, item_fields(part, items, &[]));
                if item
                    .get("type")
                    .is_some_and(|kind| kind == "custom_tool_call")
                {
                    custom.insert(call.call_id.as_str());
                }
                item
            }
            Content::ServerItem { item, .. } => item.clone(),
            Content::FunctionCallOutput(_) => continue,
        };
        open = false;
        items.push(item);
    }
}

/// What the item had beside its neutral content. Its id is left out when the thought that stood
/// in front of it is not sent: the API knows that they belong together.
fn item_fields(part: &Part, items: &[Value], not: &[&str]) -> Map<String, Value> {
    let Some(own) = part.sidecar.as_ref().and_then(|own| own.data.as_object()) else {
        return Map::new();
    };
    let mut fields: Map<String, Value> = own
        .iter()
        .filter(|(name, _)| *name != "after" && !not.contains(&name.as_str()))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    let last = items.last();
    let in_front = |after: &Value| {
        last.is_some_and(|last| {
            let continues = last.get("id").is_some() && last.get("id") == fields.get("id");
            continues
                || (last.get("type") == Some(&json!("reasoning")) && last.get("id") == Some(after))
        })
    };
    if own.get("after").is_some_and(|after| !in_front(after)) {
        fields.shift_remove("id");
    }
    fields
}

fn message_item(fields: Map<String, Value>, content: Value) -> Value {
    let mut item = Map::new();
    item.insert("type".to_owned(), "message".into());
    item.insert("role".to_owned(), "assistant".into());
    item.extend(fields);
    item.insert("content".to_owned(), Value::Array(vec![content]));
    Value::Object(item)
}

fn output_text(text: &str, part: &Part) -> Value {
    let own = |name: &str| part.sidecar.as_ref().and_then(|own| own.data.get(name));
    if own("refusal").is_some() {
        return json!({"type": "refusal", "refusal": text});
    }
    match own("annotations") {
        Some(annotations) => {
            json!({"type": "output_text", "text": text, "annotations": annotations})
        }
        None => json!({"type": "output_text", "text": text}),
    }
}

fn call_item(call: &FunctionCall, fields: Map<String, Value>) -> Value {
    let mut item = Map::new();
    let is_custom = fields
        .get("type")
        .is_some_and(|kind| kind == "custom_tool_call");
    item.insert("type".to_owned(), "function_call".into());
    item.insert(
        "call_id".to_owned(),
        legal_id(&call.call_id, MAX_ID_LENGTH).into(),
    );
    item.insert("name".to_owned(), legal_name(&call.name).into());
    if is_custom {
        let input = call.arguments.get("input").cloned();
        item.insert("input".to_owned(), input.unwrap_or_else(|| "".into()));
    } else {
        let arguments = as_object(&call.arguments, call.arguments_text.as_deref());
        item.insert("arguments".to_owned(), arguments.to_string().into());
    }
    item.extend(fields);
    Value::Object(item)
}

fn result(
    output: &FunctionCallOutput,
    custom: &HashSet<&str>,
    files: &mut FileEncoder<'_>,
) -> Value {
    let has_files = output
        .output
        .iter()
        .any(|part| !matches!(part, OutputPart::Text { .. }));
    let said = if has_files {
        let parts = output.output.iter().filter_map(|part| match part {
            OutputPart::Text { text } if text.trim().is_empty() => None,
            OutputPart::Text { text } => Some(input_text(text)),
            OutputPart::Image { artifact } | OutputPart::File { artifact } => {
                let is_told = is_named(artifact, &output.output);
                (!is_told || files.attachments.contains_key(&artifact.id))
                    .then(|| file(artifact, files))
            }
        });
        let mut parts: Vec<Value> = parts.collect();
        if output.is_error {
            parts.insert(0, input_text(notes::CALL_FAILED));
        }
        Value::Array(parts)
    } else {
        let text = output.joined_text();
        let text = if output.is_error {
            notes::failed_call(&text)
        } else {
            text
        };
        text.into()
    };
    let kind = if custom.contains(output.call_id.as_str()) {
        "custom_tool_call_output"
    } else {
        "function_call_output"
    };
    json!({"type": kind, "call_id": legal_id(&output.call_id, MAX_ID_LENGTH), "output": said})
}

fn user_part(part: &Part, files: &mut FileEncoder<'_>) -> Vec<Value> {
    match &part.content {
        Content::Text { text } => vec![input_text(text)],
        Content::Image { artifact } | Content::File { artifact } => {
            files.attached_file(artifact, input_text, file)
        }
        Content::ServerItem { item, .. } => vec![item.clone()],
        Content::Reasoning { .. } | Content::FunctionCall(_) | Content::FunctionCallOutput(_) => {
            Vec::new()
        }
    }
}

/// The file itself where its bytes are here and the API can look at it, else words about it.
fn file(artifact: &ArtifactRef, files: &mut FileEncoder<'_>) -> Value {
    match files.view(artifact) {
        FileView::Image(image) => {
            json!({"type": "input_image", "detail": "auto", "image_url": data_url(image)})
        }
        FileView::Pdf(pdf) => {
            json!({"type": "input_file", "filename": artifact.name, "file_data": data_url(pdf)})
        }
        FileView::Text(text) => input_text(&as_text(artifact, &text)),
        FileView::Other(_) => input_text(
            &files.note_unshown(artifact, "a file of a type that this API cannot look at"),
        ),
        FileView::Note(words) => input_text(&words),
    }
}

fn input_text(text: &str) -> Value {
    json!({"type": "input_text", "text": text})
}
