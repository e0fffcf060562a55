//! The `messages` array: canonical messages as this API wants them.
//!
//! Takes a repaired conversation, so pairs and order are right already. The results of calls and
//! what the person says next become one user message, results first.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::MAX_ID_LENGTH;
use super::block::assistant_block;
use super::thinking::is_thought;
use crate::chat::{ArtifactRef, Content, FunctionCallOutput, Message, OutputPart, Part, Role};
use crate::request::{Attachment, ProviderFragments};
use crate::wire::added::AddedParts;
use crate::wire::files::{FileEncoder, FileView, is_named};
use crate::wire::ids::legal_id;

/// The messages, with what backends add to them. Those from `thoughts_end` on are told without
/// thoughts.
pub(super) fn messages(
    messages: &[Message],
    thoughts_end: usize,
    attachments: &BTreeMap<String, Attachment>,
    contribution: &ProviderFragments,
    notes: &mut Vec<String>,
) -> Vec<Value> {
    let added = AddedParts::for_messages(messages, contribution, |at| !answers_mixed(messages, at));
    let mut files = FileEncoder { attachments, notes };
    let mut out: Vec<(&str, Vec<Value>)> = Vec::new();
    for (at, message) in messages.iter().enumerate() {
        let (role, mut blocks) = match message.role {
            Role::Assistant => (
                "assistant",
                assistant(message, at < thoughts_end, &mut files),
            ),
            Role::User | Role::Tool | Role::System => ("user", user(message, &mut files)),
        };
        blocks.extend(added.after_message(at));
        if blocks.is_empty() {
            continue;
        }
        match out.last_mut() {
            Some((last, content)) if *last == role => content.append(&mut blocks),
            _ => out.push((role, blocks)),
        }
    }
    out.into_iter()
        .map(|(role, content)| json!({"role": role, "content": content}))
        .collect()
}

/// Whether a message answers calls of a reply that also waits for a result of the provider's own:
/// the API takes nothing but results there.
fn answers_mixed(messages: &[Message], at: usize) -> bool {
    let before = messages.get(..at).unwrap_or_default();
    let asked = before.iter().rfind(|it| it.role == Role::Assistant);
    let items = || {
        let parts = asked.iter().flat_map(|message| &message.content);
        parts.filter_map(|part| match &part.content {
            Content::ServerItem { item, .. } => Some(item),
            _ => None,
        })
    };
    items()
        .filter(|item| {
            let kind = item.get("type").and_then(Value::as_str);
            kind.is_some_and(|kind| kind.ends_with("tool_use"))
        })
        .any(|used| {
            let id = used.get("id");
            id.is_some() && !items().any(|item| item.get("tool_use_id") == id)
        })
}

fn assistant(message: &Message, thoughts: bool, files: &mut FileEncoder<'_>) -> Vec<Value> {
    message
        .content
        .iter()
        .filter(|part| thoughts || !is_thought(part))
        .filter_map(|part| match &part.content {
            // A model's own files go back as words: this API takes them from a user only.
            Content::Image { artifact } | Content::File { artifact } => Some(text(
                &files.note_unshown(artifact, "a file in a model's message"),
            )),
            _ => assistant_block(part),
        })
        .collect()
}

fn user(message: &Message, files: &mut FileEncoder<'_>) -> Vec<Value> {
    message
        .content
        .iter()
        .flat_map(|part: &Part| match &part.content {
            Content::FunctionCallOutput(output) => vec![tool_result(output, files)],
            Content::Image { artifact } | Content::File { artifact } => {
                files.attached_file(artifact, text, file)
            }
            _ => assistant_block(part).into_iter().collect(),
        })
        .collect()
}

fn tool_result(output: &FunctionCallOutput, files: &mut FileEncoder<'_>) -> Value {
    let content: Vec<Value> = output
        .output
        .iter()
        .filter_map(|part| match part {
            OutputPart::File { artifact }
                if is_named(artifact, &output.output)
                    && !files.attachments.contains_key(&artifact.id) =>
            {
                None
            }
            OutputPart::Text { text } if text.trim().is_empty() => None,
            OutputPart::Text { text: said } => Some(text(said)),
            // The API takes only text in a result that is an error.
            OutputPart::Image { artifact } | OutputPart::File { artifact } if output.is_error => {
                Some(text(
                    &files.note_unshown(artifact, "a file in a failed call's result"),
                ))
            }
            OutputPart::Image { artifact } | OutputPart::File { artifact } => {
                Some(file(artifact, files))
            }
        })
        .collect();
    let mut block =
        json!({"type": "tool_result", "tool_use_id": legal_id(&output.call_id, MAX_ID_LENGTH)});
    if let Some(fields) = block.as_object_mut() {
        if !content.is_empty() {
            fields.insert("content".to_owned(), Value::Array(content));
        }
        if output.is_error {
            fields.insert("is_error".to_owned(), true.into());
        }
    }
    block
}

/// The file itself where its bytes are here and the API can look at it, else words about it.
fn file(artifact: &ArtifactRef, files: &mut FileEncoder<'_>) -> Value {
    match files.view(artifact) {
        FileView::Image(file) => json!({"type": "image", "source": base64(file)}),
        FileView::Pdf(file) => {
            json!({"type": "document", "source": base64(file), "title": artifact.name})
        }
        FileView::Text(data) => json!({
            "type": "document",
            "source": {"type": "text", "media_type": "text/plain", "data": data},
            "title": artifact.name,
        }),
        FileView::Other(_) => {
            text(&files.note_unshown(artifact, "a file of a type that this API cannot look at"))
        }
        FileView::Note(words) => text(&words),
    }
}

fn base64(file: &Attachment) -> Value {
    json!({"type": "base64", "media_type": file.media_type, "data": file.data})
}

fn text(text: &str) -> Value {
    json!({"type": "text", "text": text})
}
