//! The `messages` array: canonical messages as this API wants them.
//!
//! Takes a repaired conversation, so pairs and order are right already. The results of calls and
//! what the person says next become one user message, results first.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::block::assistant_block;
use super::ids::legal_id;
use crate::chat::{ArtifactRef, Content, FunctionCallOutput, Message, OutputPart, Part, Role};
use crate::context::notes::file as artifact_note;
use crate::request::Attachment;

/// The messages, with what backends add to the person's newest one.
pub(super) fn messages(
    messages: &[Message],
    attachments: &BTreeMap<String, Attachment>,
    user_content: &[Value],
    notes: &mut Vec<String>,
) -> Vec<Value> {
    let newest_user = messages.iter().rposition(|m| m.role == Role::User);
    let mut files = Files { attachments, notes };
    let mut out: Vec<(&str, Vec<Value>)> = Vec::new();
    for (at, message) in messages.iter().enumerate() {
        let (role, mut blocks) = match message.role {
            Role::Assistant => ("assistant", assistant(message, &mut files)),
            Role::User | Role::Tool | Role::System => ("user", user(message, &mut files)),
        };
        if newest_user == Some(at) {
            blocks.extend(user_content.iter().cloned());
        }
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

fn assistant(message: &Message, files: &mut Files<'_>) -> Vec<Value> {
    message
        .content
        .iter()
        .filter_map(|part| match &part.content {
            // A model's own files go back as words: this API takes them from a user only.
            Content::Image { artifact } | Content::File { artifact } => {
                files.told(artifact, "a file in a model's message");
                Some(text(&artifact_note(artifact)))
            }
            _ => assistant_block(part),
        })
        .collect()
}

fn user(message: &Message, files: &mut Files<'_>) -> Vec<Value> {
    message
        .content
        .iter()
        .filter_map(|part: &Part| match &part.content {
            Content::FunctionCallOutput(output) => Some(tool_result(output, files)),
            Content::Image { artifact } | Content::File { artifact } => Some(files.block(artifact)),
            _ => assistant_block(part),
        })
        .collect()
}

fn tool_result(output: &FunctionCallOutput, files: &mut Files<'_>) -> Value {
    // What a text says about a file already is not said again.
    let told = |artifact: &ArtifactRef| {
        let words = format!("[file] {} ", artifact.id);
        output
            .output
            .iter()
            .any(|part| matches!(part, OutputPart::Text { text } if text.starts_with(&words)))
    };
    let content: Vec<Value> = output
        .output
        .iter()
        .filter_map(|part| match part {
            OutputPart::File { artifact }
                if told(artifact) && !files.attachments.contains_key(&artifact.id) =>
            {
                None
            }
            OutputPart::Text { text } if text.trim().is_empty() => None,
            OutputPart::Text { text: said } => Some(text(said)),
            // The API takes only text in a result that is an error.
            OutputPart::Image { artifact } | OutputPart::File { artifact } if output.is_error => {
                files.told(artifact, "a file in a failed call's result");
                Some(text(&artifact_note(artifact)))
            }
            OutputPart::Image { artifact } | OutputPart::File { artifact } => {
                Some(files.block(artifact))
            }
        })
        .collect();
    let mut block = json!({"type": "tool_result", "tool_use_id": legal_id(&output.call_id)});
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

struct Files<'a> {
    attachments: &'a BTreeMap<String, Attachment>,
    notes: &'a mut Vec<String>,
}

impl Files<'_> {
    /// The file itself where its bytes are here and the API can look at it, else words about it.
    fn block(&mut self, artifact: &ArtifactRef) -> Value {
        let Some(attachment) = self.attachments.get(&artifact.id) else {
            return text(&artifact_note(artifact));
        };
        let media_type = attachment.media_type.as_str();
        let base64 = json!({"type": "base64", "media_type": media_type, "data": attachment.data});
        match media_type {
            "image/jpeg" | "image/png" | "image/gif" | "image/webp" => {
                json!({"type": "image", "source": base64})
            }
            "application/pdf" => {
                json!({"type": "document", "source": base64, "title": artifact.name})
            }
            _ if is_text(media_type) => {
                let bytes = STANDARD.decode(&attachment.data).unwrap_or_default();
                match String::from_utf8(bytes) {
                    Ok(data) if !data.trim().is_empty() => json!({
                        "type": "document",
                        "source": {"type": "text", "media_type": "text/plain", "data": data},
                        "title": artifact.name,
                    }),
                    _ => {
                        self.told(artifact, "a text file that is empty or not UTF-8");
                        text(&artifact_note(artifact))
                    }
                }
            }
            _ => {
                self.told(artifact, "a file of a type that this API cannot look at");
                text(&artifact_note(artifact))
            }
        }
    }

    fn told(&mut self, artifact: &ArtifactRef, what: &str) {
        self.notes
            .push(format!("{what} is told as text: {}", artifact.name));
    }
}

fn is_text(media_type: &str) -> bool {
    media_type.starts_with("text/")
        || matches!(
            media_type,
            "application/json" | "application/xml" | "application/yaml" | "application/toml"
        )
}

fn text(text: &str) -> Value {
    json!({"type": "text", "text": text})
}
