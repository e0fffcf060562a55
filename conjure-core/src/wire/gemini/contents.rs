//! The `contents` array: canonical messages as this API wants them.
//!
//! Takes a repaired conversation, so pairs and order are right already. The results of a message's
//! calls are one content, as many and in the same order; what they show besides follows in another.

use std::collections::HashMap;

use serde_json::{Map, Value, json};

use crate::chat::{
    ArtifactRef, Content, FunctionCall, FunctionCallOutput, Message, OutputPart, Part, Role,
};
use crate::context::notes;
use crate::request::ProviderFragments;
use crate::wire::added::AddedParts;
use crate::wire::arguments::as_object;
use crate::wire::files::{FileEncoder, FileView, as_text, is_named};
use crate::wire::ids::legal_name;

/// Stands for the signature of a call that another model made. The API knows it, and asks for no
/// proof then.
const UNSIGNED: &str = "skip_thought_signature_validator";

/// The contents, with what backends add to messages. `signs`: whether the model
/// wants a signature on the first call of each step.
pub(super) fn contents(
    messages: &[Message],
    contribution: &ProviderFragments,
    signs: bool,
    files: &mut FileEncoder<'_>,
) -> Vec<Value> {
    let added = AddedParts::for_messages(messages, contribution, |_| true);
    let mut out = Vec::new();
    // The calls of the message before, by id.
    let mut calls: HashMap<&str, (&str, Option<&Value>)> = HashMap::new();
    for (at, message) in messages.iter().enumerate() {
        let mut parts = Vec::new();
        let mut shown = Vec::new();
        match message.role {
            Role::Assistant => {
                calls.clear();
                for part in &message.content {
                    if let Content::FunctionCall(call) = &part.content {
                        calls.insert(&call.call_id, (&call.name, sidecar_field(part, "id")));
                    }
                }
                parts = model_parts(message, signs, files);
            }
            Role::Tool => {
                for part in &message.content {
                    if let Content::FunctionCallOutput(output) = &part.content {
                        let call = calls.get(output.call_id.as_str());
                        parts.push(response(output, call, &mut shown, files));
                    }
                }
                shown.extend(added.after_message(at));
            }
            Role::User | Role::System => {
                parts.extend(
                    message
                        .content
                        .iter()
                        .flat_map(|part| user_part(part, files)),
                );
                parts.extend(added.after_message(at));
            }
        }
        let role = if message.role == Role::Assistant {
            "model"
        } else {
            "user"
        };
        for parts in [parts, shown] {
            if !parts.is_empty() {
                out.push(json!({"role": role, "parts": parts}));
            }
        }
    }
    out
}

/// What a part's own sidecar has under a name.
fn sidecar_field<'a>(part: &'a Part, name: &str) -> Option<&'a Value> {
    part.sidecar.as_ref()?.data.get(name)
}

fn model_parts(message: &Message, signs: bool, files: &mut FileEncoder<'_>) -> Vec<Value> {
    let mut first_call = true;
    let parts = message.content.iter().filter_map(|part| {
        let mut fields = Map::new();
        match &part.content {
            Content::Text { text } => {
                fields.insert("text".to_owned(), text.as_str().into());
            }
            Content::Reasoning { text } => {
                part.sidecar.as_ref()?;
                let said = sidecar_field(part, "text").cloned();
                fields.insert(
                    "text".to_owned(),
                    said.unwrap_or_else(|| text.as_str().into()),
                );
                if let Some(thought) = sidecar_field(part, "thought") {
                    fields.insert("thought".to_owned(), thought.clone());
                }
            }
            Content::FunctionCall(call) => {
                fields.insert(
                    "functionCall".to_owned(),
                    function_call(call, sidecar_field(part, "id")),
                );
                let is_first = std::mem::take(&mut first_call);
                if is_first && signs && sidecar_field(part, "thoughtSignature").is_none() {
                    fields.insert("thoughtSignature".to_owned(), UNSIGNED.into());
                }
            }
            Content::ServerItem { item, .. } => return Some(item.clone()),
            Content::Image { artifact } | Content::File { artifact } => {
                return Some(text(
                    &files.note_unshown(artifact, "a file in a model's message"),
                ));
            }
            Content::FunctionCallOutput(_) => return None,
        }
        if let Some(signature) = sidecar_field(part, "thoughtSignature") {
            fields.insert("thoughtSignature".to_owned(), signature.clone());
        }
        Some(Value::Object(fields))
    });
    parts.collect()
}

fn function_call(call: &FunctionCall, id: Option<&Value>) -> Value {
    let arguments = as_object(&call.arguments, call.arguments_text.as_deref());
    let mut fields = Map::new();
    fields.extend(id.map(|id| ("id".to_owned(), id.clone())));
    fields.insert("name".to_owned(), legal_name(&call.name).into());
    fields.insert("args".to_owned(), arguments);
    Value::Object(fields)
}

/// A result. It names its call, and has an id only where the provider gave one.
fn response(
    output: &FunctionCallOutput,
    call: Option<&(&str, Option<&Value>)>,
    shown: &mut Vec<Value>,
    files: &mut FileEncoder<'_>,
) -> Value {
    let mut texts: Vec<String> = Vec::new();
    for part in &output.output {
        match part {
            OutputPart::Text { text } if text.trim().is_empty() => {}
            OutputPart::Text { text } => texts.push(text.clone()),
            OutputPart::Image { artifact } | OutputPart::File { artifact } => {
                let is_told = is_named(artifact, &output.output);
                if is_told && !files.attachments.contains_key(&artifact.id) {
                    continue;
                }
                let seen = file(artifact, files);
                match seen.get("text").and_then(Value::as_str) {
                    Some(words) => texts.push(words.to_owned()),
                    None => {
                        let words = notes::file(artifact);
                        shown.push(text(&words));
                        shown.push(seen);
                        texts.push(words);
                    }
                }
            }
        }
    }
    let field = if output.is_error { "error" } else { "result" };
    let (name, id) = call.copied().unwrap_or(("tool", None));
    let mut fields = Map::new();
    fields.extend(id.map(|id| ("id".to_owned(), id.clone())));
    fields.insert("name".to_owned(), legal_name(name).into());
    fields.insert("response".to_owned(), json!({ field: texts.join("\n") }));
    json!({ "functionResponse": fields })
}

fn user_part(part: &Part, files: &mut FileEncoder<'_>) -> Vec<Value> {
    match &part.content {
        Content::Text { text: said } => vec![text(said)],
        Content::Image { artifact } | Content::File { artifact } => {
            files.attached_file(artifact, text, file)
        }
        Content::ServerItem { item, .. } => vec![item.clone()],
        Content::Reasoning { .. } | Content::FunctionCall(_) | Content::FunctionCallOutput(_) => {
            Vec::new()
        }
    }
}

/// The file itself where its bytes are here and the API can look at it, else words about it.
fn file(artifact: &ArtifactRef, files: &mut FileEncoder<'_>) -> Value {
    let inline = |file: &crate::request::Attachment| json!({"inlineData": {"mimeType": file.media_type, "data": file.data}});
    match files.view(artifact) {
        FileView::Image(image) if image.media_type != "image/gif" => inline(image),
        FileView::Pdf(pdf) => inline(pdf),
        FileView::Other(file)
            if file.media_type.starts_with("audio/") || file.media_type.starts_with("video/") =>
        {
            inline(file)
        }
        FileView::Text(said) => text(&as_text(artifact, &said)),
        FileView::Note(words) => text(&words),
        FileView::Image(_) | FileView::Other(_) => {
            text(&files.note_unshown(artifact, "a file of a type that this API cannot look at"))
        }
    }
}

fn text(text: &str) -> Value {
    json!({ "text": text })
}
