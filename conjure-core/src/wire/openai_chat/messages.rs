//! The `messages` array: canonical messages as a dialect wants them.
//!
//! Takes a repaired conversation, so pairs and order are right already. A result holds text only;
//! what it shows besides follows in a message of the user.

use std::borrow::Cow;

use serde_json::{Map, Value, json};

use super::reasoning::{echoed, text_of};
use super::{Dialect, ThinkingEcho, call_id};
use crate::chat::{ArtifactRef, Content, FunctionCallOutput, Message, OutputPart, Part, Role};
use crate::context::notes;
use crate::request::ProviderFragments;
use crate::wire::added::AddedParts;
use crate::wire::arguments::as_object;
use crate::wire::files::{FileEncoder, FileView, as_text, data_url, is_named};
use crate::wire::ids::legal_name;

/// The messages behind the system's, with what backends add to them.
pub(super) fn messages(
    messages: &[Message],
    contribution: &ProviderFragments,
    dialect: &Dialect,
    files: &mut FileEncoder<'_>,
) -> Vec<Value> {
    let added = AddedParts::for_messages(messages, contribution, |_| true);
    let mut writer = MessageEncoder { dialect, files };
    let mut out = Vec::new();
    for (at, message) in messages.iter().enumerate() {
        match message.role {
            Role::Assistant => out.push(writer.assistant(message)),
            Role::Tool => {
                writer.results(message, &mut out);
                out.extend(user_message(added.after_message(at).collect()));
            }
            Role::User | Role::System => {
                let mut content: Vec<Value> = message
                    .content
                    .iter()
                    .flat_map(|part| writer.user_part(part))
                    .collect();
                content.extend(added.after_message(at));
                out.extend(user_message(content));
            }
        }
    }
    out
}

/// A message of the person's; none without content.
fn user_message(content: Vec<Value>) -> Option<Value> {
    (!content.is_empty()).then(|| json!({"role": "user", "content": plain(content)}))
}

struct MessageEncoder<'a, 'b> {
    dialect: &'a Dialect,
    files: &'a mut FileEncoder<'b>,
}

impl MessageEncoder<'_, '_> {
    fn id<'c>(&self, id: &'c str) -> Cow<'c, str> {
        call_id(self.dialect, id)
    }

    fn assistant(&mut self, message: &Message) -> Value {
        let mut text = String::new();
        let mut refusal = String::new();
        let mut calls = Vec::new();
        for part in &message.content {
            match &part.content {
                Content::Text { text: said } => {
                    let refuses = part
                        .sidecar
                        .as_ref()
                        .is_some_and(|own| own.data.get("refusal").is_some());
                    if refuses {
                        refusal.push_str(said);
                    } else {
                        text.push_str(said);
                    }
                }
                Content::FunctionCall(call) => {
                    let arguments = as_object(&call.arguments, call.arguments_text.as_deref());
                    calls.push(json!({
                        "id": self.id(&call.call_id),
                        "type": "function",
                        "function": {
                            "name": legal_name(&call.name),
                            "arguments": arguments.to_string(),
                        },
                    }));
                }
                Content::Image { artifact } | Content::File { artifact } => {
                    text.push_str(
                        &self
                            .files
                            .note_unshown(artifact, "a file in a model's message"),
                    );
                }
                Content::ServerItem { provider, item } => {
                    text.push_str(&notes::server_item(provider, item));
                }
                Content::Reasoning { .. } | Content::FunctionCallOutput(_) => {}
            }
        }
        let mut fields = Map::new();
        fields.insert("role".to_owned(), "assistant".into());
        let content = self.content(&message.content, text, &refusal);
        fields.insert("content".to_owned(), content);
        match self.dialect.echo {
            ThinkingEcho::ReasoningContent if !calls.is_empty() => {
                let thoughts = text_of(&message.content, "reasoning_content");
                let thoughts = thoughts.unwrap_or_default();
                fields.insert("reasoning_content".to_owned(), thoughts.into());
            }
            ThinkingEcho::ReasoningDetails => fields.extend(echoed(&message.content)),
            ThinkingEcho::Never | ThinkingEcho::ReasoningContent | ThinkingEcho::ContentPieces => {}
        }
        if !calls.is_empty() {
            fields.insert("tool_calls".to_owned(), Value::Array(calls));
        }
        Value::Object(fields)
    }

    /// The content of a model's message; `null` only where nothing but calls was said.
    fn content(&self, parts: &[Part], text: String, refusal: &str) -> Value {
        let thoughts = text_of(parts, "content").filter(|thoughts| {
            self.dialect.echo == ThinkingEcho::ContentPieces && !thoughts.is_empty()
        });
        if thoughts.is_none() && refusal.is_empty() {
            return if text.is_empty() {
                Value::Null
            } else {
                text.into()
            };
        }
        let mut pieces = Vec::new();
        if let Some(thoughts) = thoughts {
            let inner = json!([{"type": "text", "text": thoughts}]);
            pieces.push(json!({"type": "thinking", "thinking": inner}));
        }
        if !text.is_empty() {
            pieces.push(json!({"type": "text", "text": text}));
        }
        if !refusal.is_empty() {
            pieces.push(json!({"type": "refusal", "refusal": refusal}));
        }
        Value::Array(pieces)
    }

    /// The results of a message's calls, each in a message of its own, and then what they show.
    fn results(&mut self, message: &Message, out: &mut Vec<Value>) {
        let mut shown = Vec::new();
        for part in &message.content {
            if let Content::FunctionCallOutput(output) = &part.content {
                let content = self.result(output, &mut shown);
                out.push(json!({
                    "role": "tool",
                    "tool_call_id": self.id(&output.call_id),
                    "content": content,
                }));
            }
        }
        if !shown.is_empty() {
            out.push(json!({"role": "user", "content": shown}));
        }
    }

    fn result(&mut self, output: &FunctionCallOutput, shown: &mut Vec<Value>) -> String {
        let mut texts: Vec<String> = Vec::new();
        if output.is_error {
            texts.push(notes::CALL_FAILED.to_owned());
        }
        for part in &output.output {
            match part {
                OutputPart::Text { text } if text.trim().is_empty() => {}
                OutputPart::Text { text } => texts.push(text.clone()),
                OutputPart::Image { artifact } | OutputPart::File { artifact } => {
                    let is_told = is_named(artifact, &output.output);
                    if is_told && !self.files.attachments.contains_key(&artifact.id) {
                        continue;
                    }
                    let seen = file(self.dialect, artifact, self.files);
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
        texts.join("\n")
    }

    fn user_part(&mut self, part: &Part) -> Vec<Value> {
        match &part.content {
            Content::Text { text: said } => vec![text(said)],
            Content::Image { artifact } | Content::File { artifact } => {
                let dialect = self.dialect;
                let shown = |artifact: &ArtifactRef, files: &mut FileEncoder<'_>| {
                    file(dialect, artifact, files)
                };
                self.files.attached_file(artifact, text, shown)
            }
            Content::ServerItem { provider, item } => {
                vec![text(&notes::server_item(provider, item))]
            }
            Content::Reasoning { .. }
            | Content::FunctionCall(_)
            | Content::FunctionCallOutput(_) => Vec::new(),
        }
    }
}

/// The file itself where its bytes are here and the server can look at it, else words about it.
fn file(dialect: &Dialect, artifact: &ArtifactRef, files: &mut FileEncoder<'_>) -> Value {
    match files.view(artifact) {
        FileView::Image(image) if dialect.images => {
            json!({"type": "image_url", "image_url": {"url": data_url(image)}})
        }
        FileView::Pdf(pdf) if dialect.files => json!({
            "type": "file",
            "file": {"filename": artifact.name, "file_data": data_url(pdf)},
        }),
        FileView::Text(said) => text(&as_text(artifact, &said)),
        FileView::Note(words) => text(&words),
        FileView::Image(_) | FileView::Pdf(_) | FileView::Other(_) => {
            text(&files.note_unshown(artifact, "a file that this server cannot look at"))
        }
    }
}

/// One text where there is nothing else: some servers take no list.
fn plain(content: Vec<Value>) -> Value {
    let texts: Option<Vec<&str>> = content
        .iter()
        .map(|piece| {
            let is_plain = piece.as_object().is_some_and(|fields| fields.len() == 2);
            piece.get("text")?.as_str().filter(|_| is_plain)
        })
        .collect();
    match texts {
        Some(texts) => texts.join("\n\n").into(),
        None => Value::Array(content),
    }
}

fn text(text: &str) -> Value {
    json!({"type": "text", "text": text})
}
