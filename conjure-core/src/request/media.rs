//! The files of a conversation whose bytes a request carries, so that the model sees them: images
//! that a person or a tool showed, and PDFs and texts that a person attached.

use std::collections::BTreeSet;

use super::ModelRequest;
use crate::chat::{ArtifactRef, Content, OutputPart, Part, Role};

/// The most bytes of an image or a PDF: in base64 they are 5 MB, the most that all providers take.
pub const MAX_MEDIA_BYTES: u64 = 3_750_000;
/// The most bytes of a text. A longer one is named, and read with tools.
pub const MAX_TEXT_BYTES: u64 = 256 * 1024;
/// The most bytes of all files of a request. Of more the oldest are named only.
pub const MAX_TOTAL_BYTES: u64 = 15_000_000;

/// The files of a request that are to be shown to the model, each once, the newest first.
#[must_use]
pub fn media(request: &ModelRequest) -> Vec<&ArtifactRef> {
    let messages = request.messages.messages().iter().rev();
    let shown_to_it = messages.filter(|message| message.role != Role::Assistant);
    let parts = shown_to_it.flat_map(|message| message.content.iter().rev());
    let mut known = BTreeSet::new();
    parts
        .flat_map(shown_files)
        .filter(|artifact| known.insert(artifact.id.as_str()))
        .collect()
}

/// What a part shows.
fn shown_files(part: &Part) -> Vec<&ArtifactRef> {
    match &part.content {
        Content::Image { artifact } if artifact.is_image() => vec![artifact],
        Content::File { artifact }
            if artifact.is_image() || artifact.is_pdf() || artifact.is_text() =>
        {
            vec![artifact]
        }
        // Wires tell a failed call's images in words.
        Content::FunctionCallOutput(output) if !output.is_error => {
            let images = output.output.iter().rev().filter_map(|part| match part {
                OutputPart::Image { artifact } if artifact.is_image() => Some(artifact),
                _ => None,
            });
            images.collect()
        }
        _ => Vec::new(),
    }
}

impl ArtifactRef {
    /// The most bytes with which a request carries it.
    #[must_use]
    pub fn max_bytes(&self) -> u64 {
        if self.is_text() {
            MAX_TEXT_BYTES
        } else {
            MAX_MEDIA_BYTES
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chat::{FunctionCallOutput, Message};
    use crate::repair::{RepairTarget, repair};

    fn artifact(id: &str, media_type: &str) -> ArtifactRef {
        ArtifactRef {
            id: id.to_owned(),
            name: id.to_owned(),
            media_type: media_type.to_owned(),
            size: Some(4_000),
        }
    }

    fn request(messages: Vec<Message>, target: &RepairTarget) -> ModelRequest {
        ModelRequest {
            messages: repair(messages, target),
            ..ModelRequest::empty(target)
        }
    }

    fn conversation() -> Vec<Message> {
        let file = |id, media_type| {
            Part::from(Content::File {
                artifact: artifact(id, media_type),
            })
        };
        let image = |id| {
            Part::from(Content::Image {
                artifact: artifact(id, "image/png"),
            })
        };
        let call = crate::chat::FunctionCall {
            call_id: "1".to_owned(),
            name: "draw".to_owned(),
            arguments: serde_json::json!({}),
            arguments_text: None,
        };
        let result = |is_error| {
            Content::FunctionCallOutput(FunctionCallOutput {
                call_id: "1".to_owned(),
                output: vec![
                    OutputPart::Text {
                        text: "drawn".to_owned(),
                    },
                    OutputPart::Image {
                        artifact: artifact("file-5", "image/png"),
                    },
                    OutputPart::File {
                        artifact: artifact("file-6", "image/png"),
                    },
                ],
                is_error,
            })
            .into()
        };
        vec![
            Message::new(
                Role::User,
                vec![
                    Part::text("look"),
                    image("file-1"),
                    file("file-2", "application/pdf"),
                    file("file-3", "text/csv"),
                    file("file-4", "application/zip"),
                ],
            ),
            Message::new(Role::Assistant, vec![Content::FunctionCall(call).into()]),
            Message::new(Role::User, vec![result(false)]),
            Message::new(Role::User, vec![image("file-1")]),
        ]
    }

    #[test]
    fn what_a_person_attached_and_what_a_tool_showed_newest_first() {
        let target = RepairTarget::new("anthropic", "m");
        let request = request(conversation(), &target);
        let ids: Vec<_> = media(&request)
            .into_iter()
            .map(|it| it.id.as_str())
            .collect();
        assert_eq!(ids, ["file-1", "file-5", "file-3", "file-2"]);
    }

    #[test]
    fn what_a_model_cannot_look_at_is_not_carried_and_a_text_always_is() {
        let mut target = RepairTarget::new("openai", "m");
        target.images = false;
        target.files = false;
        let request = request(conversation(), &target);
        let ids: Vec<_> = media(&request)
            .into_iter()
            .map(|it| it.id.as_str())
            .collect();
        assert_eq!(ids, ["file-3"]);
    }
}
