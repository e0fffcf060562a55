//! Files as providers take them: what the bytes of an artifact can be shown as.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use crate::chat::media_type::{is_image, is_pdf, is_text};
use crate::chat::{ArtifactRef, OutputPart};
use crate::context::file_line_start;
use crate::context::notes::{file as note, name_only_file};
use crate::request::Attachment;

/// What can be shown of an artifact.
pub(super) enum FileView<'a> {
    /// An image of a type that every provider takes.
    Image(&'a Attachment),
    /// A PDF.
    Pdf(&'a Attachment),
    /// Bytes of another type.
    Other(&'a Attachment),
    /// Text, out of the file's bytes.
    Text(String),
    /// Words about it: its bytes are not here.
    Note(String),
}

/// Looks at artifacts, and writes down what is told as text.
pub(super) struct FileEncoder<'a> {
    pub(super) attachments: &'a BTreeMap<String, Attachment>,
    pub(super) notes: &'a mut Vec<String>,
}

impl<'a> FileEncoder<'a> {
    /// What can be shown of an artifact.
    pub(super) fn view(&self, artifact: &ArtifactRef) -> FileView<'a> {
        let Some(attachment) = self.attachments.get(&artifact.id) else {
            return FileView::Note(note(artifact));
        };
        match attachment.media_type.as_str() {
            media_type if is_image(media_type) => FileView::Image(attachment),
            media_type if is_pdf(media_type) => FileView::Pdf(attachment),
            media_type if is_text(media_type) => {
                let bytes = STANDARD.decode(&attachment.data).unwrap_or_default();
                match String::from_utf8(bytes) {
                    Ok(text) if !text.trim().is_empty() => FileView::Text(text),
                    _ => FileView::Other(attachment),
                }
            }
            _ => FileView::Other(attachment),
        }
    }

    /// What a person's message shows of a file: its name and handle, by which tools open it, and
    /// behind that what `shown` makes of it. Where that is nothing, the model is told so: it would take the
    /// name for all that there is.
    pub(super) fn attached_file(
        &mut self,
        artifact: &ArtifactRef,
        text: impl FnOnce(&str) -> Value,
        shown: impl FnOnce(&ArtifactRef, &mut Self) -> Value,
    ) -> Vec<Value> {
        let shown = shown(artifact, self);
        // Where it is told as text, that begins with its name.
        let words = note(artifact);
        match shown.get("text").and_then(Value::as_str) {
            Some(told) if told == words => vec![text(&name_only_file(artifact))],
            Some(told) if told.starts_with(&words) => vec![shown],
            _ => vec![text(&words), shown],
        }
    }

    /// Words about an artifact that cannot be shown, with a note on why.
    pub(super) fn note_unshown(&mut self, artifact: &ArtifactRef, what: &str) -> String {
        self.notes
            .push(format!("{what} is told as text: {}", artifact.name));
        note(artifact)
    }
}

/// A text file's content as one text, with its name in front.
pub(super) fn as_text(artifact: &ArtifactRef, text: &str) -> String {
    format!("{}\n{text}", note(artifact))
}

/// Whether an output's texts name the artifact already: then it is not told again.
pub(super) fn is_named(artifact: &ArtifactRef, output: &[OutputPart]) -> bool {
    let start = file_line_start(&artifact.id);
    output
        .iter()
        .any(|part| matches!(part, OutputPart::Text { text } if text.starts_with(&start)))
}

/// A URL that holds the bytes.
pub(super) fn data_url(attachment: &Attachment) -> String {
    format!("data:{};base64,{}", attachment.media_type, attachment.data)
}
