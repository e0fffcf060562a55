//! A prompt's blocks as the message that the model reads.

use std::collections::BTreeMap;
use std::path::PathBuf;

use agent_client_protocol::Error;
use agent_client_protocol::v1::schema::{ContentBlock, EmbeddedResourceResource};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use conjure_core::chat::Message;
use conjure_core::context::{embedded_text, reference};
use conjure_runtime::{Host, uploads};

use super::error::invalid;
use super::unsaved;

/// The blocks that a prompt may have, for people.
const SUPPORTED_BLOCKS: &str = "A prompt may have text, image, resource_link and resource";

/// The message that the person's blocks make. Files are handed to the host, which shows them to a
/// model as far as that can look at them.
///
/// The model reads the text in `unsaved` in place of what such a file has on disk.
pub(crate) fn message(
    host: &Host,
    blocks: &[ContentBlock],
    unsaved: &BTreeMap<PathBuf, String>,
) -> Result<Message, Error> {
    let said = PromptContent::read(blocks, unsaved)?;
    let text = said.text.trim();
    if text.is_empty() && said.files.is_empty() {
        return Err(invalid("the prompt is empty"));
    }
    let mut attached = Vec::new();
    for file in said.files {
        let kept = host.upload(&file.name, Some(&file.media_type), &file.bytes);
        attached.push(kept.map_err(|error| invalid(error.to_string()))?);
    }
    let text = Some(said.text.as_str()).filter(|_| !text.is_empty());
    Ok(uploads::message(text, &attached))
}

/// What a prompt says, with the files in it.
#[derive(Debug, Default)]
struct PromptContent {
    text: String,
    files: Vec<AttachedFile>,
}

/// A file that comes with a prompt.
#[derive(Debug)]
struct AttachedFile {
    name: String,
    media_type: String,
    bytes: Vec<u8>,
}

impl PromptContent {
    /// What refers to something stays where it stands in the sentence; the texts of embedded
    /// resources come behind the sentence.
    fn read(blocks: &[ContentBlock], unsaved: &BTreeMap<PathBuf, String>) -> Result<Self, Error> {
        let mut content = Self::default();
        let mut embedded = Vec::new();
        for block in blocks {
            match block {
                ContentBlock::Text(text) => content.text.push_str(&text.text),
                ContentBlock::ResourceLink(link) => {
                    let place = tool_path(&link.uri);
                    content.text.push_str(&reference(&link.name, &place));
                    let text = unsaved::file_path(&link.uri).and_then(|path| unsaved.get(&path));
                    embedded.extend(text.map(|text| {
                        let contents = embedded_text(&place, text);
                        format!(
                            "`{place}` is not saved in the editor, where it is this. {contents}"
                        )
                    }));
                }
                ContentBlock::Resource(resource) => match &resource.resource {
                    EmbeddedResourceResource::TextResourceContents(contents) => {
                        let place = tool_path(&contents.uri);
                        content.text.push_str(&reference("", &place));
                        embedded.push(embedded_text(&place, &contents.text));
                    }
                    EmbeddedResourceResource::BlobResourceContents(blob) => {
                        let place = tool_path(&blob.uri);
                        content.text.push_str(&reference("", &place));
                        let kind = blob.mime_type.as_deref();
                        content.attach(
                            &place,
                            kind.unwrap_or("application/octet-stream"),
                            &blob.blob,
                        )?;
                    }
                    _ => return Err(unknown_block()),
                },
                ContentBlock::Image(image) => {
                    let place = image.uri.as_deref().map(tool_path);
                    content.attach(
                        place.as_deref().unwrap_or("image"),
                        &image.mime_type,
                        &image.data,
                    )?;
                }
                ContentBlock::Audio(_) => {
                    return Err(invalid(format!(
                        "audio is not taken in a prompt, as `initialize` says: no model listens here. \
                         {SUPPORTED_BLOCKS}; a recording can be linked to, for tools to open"
                    )));
                }
                _ => return Err(unknown_block()),
            }
        }
        for text in embedded {
            content.text.push_str("\n\n");
            content.text.push_str(&text);
        }
        Ok(content)
    }

    fn attach(&mut self, place: &str, media_type: &str, data: &str) -> Result<(), Error> {
        let name = place.rsplit('/').next().unwrap_or(place);
        let bytes = STANDARD.decode(data);
        let bytes = bytes.map_err(|error| invalid(format!("`{name}` is no base64: {error}")))?;
        self.files.push(AttachedFile {
            name: name.to_owned(),
            media_type: media_type.to_owned(),
            bytes,
        });
        Ok(())
    }
}

fn unknown_block() -> Error {
    invalid(format!(
        "the prompt has a block that is not known. {SUPPORTED_BLOCKS}"
    ))
}

/// An address as tools take it: the path of a file, and anything else as it is.
fn tool_path(uri: &str) -> String {
    match unsaved::file_path(uri) {
        Some(path) => path.display().to_string(),
        None => uri.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use agent_client_protocol::v1::schema::{
        AudioContent, BlobResourceContents, EmbeddedResource, ImageContent, ResourceLink,
        TextContent, TextResourceContents,
    };

    use super::*;

    fn text_block(text: &str) -> ContentBlock {
        ContentBlock::Text(TextContent::new(text))
    }

    #[test]
    fn links_stay_in_the_sentence_and_embedded_texts_come_behind_it() {
        let contents = TextResourceContents::new("fn main() {}\n", "file:///w/a%20b.rs");
        let contents = EmbeddedResourceResource::TextResourceContents(contents);
        let blocks = [
            text_block("Compare "),
            ContentBlock::ResourceLink(ResourceLink::new("c.rs", "file:///w/c.rs")),
            text_block(" with "),
            ContentBlock::Resource(EmbeddedResource::new(contents)),
            text_block(" and "),
            ContentBlock::ResourceLink(ResourceLink::new("page", "https://x.example/a")),
        ];
        assert_eq!(
            PromptContent::read(&blocks, &BTreeMap::new()).unwrap().text,
            "Compare `c.rs` (at `/w/c.rs`) with `/w/a b.rs` and `page` (at `https://x.example/a`)\
             \n\nContents of `/w/a b.rs`:\n```\nfn main() {}\n```"
        );
    }

    #[test]
    fn the_model_reads_a_file_that_is_not_saved_as_the_editor_shows_it() {
        let link = || ContentBlock::ResourceLink(ResourceLink::new("c.rs", "file:///w/c.rs"));
        let blocks = [text_block("Look at "), link(), text_block(".")];
        let unsaved = BTreeMap::from([(PathBuf::from("/w/c.rs"), "new\n".to_owned())]);
        assert_eq!(
            PromptContent::read(&blocks, &unsaved).unwrap().text,
            "Look at `c.rs` (at `/w/c.rs`).\n\n`/w/c.rs` is not saved in the editor, where it is \
             this. Contents of `/w/c.rs`:\n```\nnew\n```"
        );
    }

    #[test]
    fn files_come_with_the_name_that_they_have_in_the_editor() {
        let blob = BlobResourceContents::new("AAEC", "file:///w/x.bin");
        let blob = EmbeddedResourceResource::BlobResourceContents(blob);
        let image = ImageContent::new("AAEC", "image/png").uri("file:///w/plan.png".to_owned());
        let blocks = [
            text_block("Look: "),
            ContentBlock::Image(image),
            ContentBlock::Resource(EmbeddedResource::new(blob)),
        ];
        let read = PromptContent::read(&blocks, &BTreeMap::new()).unwrap();
        assert_eq!(read.text, "Look: `/w/x.bin`");
        let files = read.files.iter();
        let files = files.map(|file| (&*file.name, &*file.media_type, file.bytes.len()));
        assert_eq!(
            files.collect::<Vec<_>>(),
            [
                ("plan.png", "image/png", 3),
                ("x.bin", "application/octet-stream", 3)
            ]
        );
    }

    #[test]
    fn audio_is_refused_with_what_can_be_taken() {
        let audio = ContentBlock::Audio(AudioContent::new("AAEC", "audio/wav"));
        let error = PromptContent::read(&[text_block("Listen."), audio], &BTreeMap::new());
        assert_eq!(
            error.unwrap_err().message,
            "audio is not taken in a prompt, as `initialize` says: no model listens here. A prompt may \
             have text, image, resource_link and resource; a recording can be linked to, for tools to \
             open"
        );
    }

    #[test]
    fn what_is_no_file_is_refused_in_words() {
        let image = ContentBlock::Image(ImageContent::new("not base64!", "image/png"));
        let error = PromptContent::read(&[image], &BTreeMap::new()).unwrap_err();
        assert!(error.message.contains("`image` is no base64"), "{error:?}");
    }
}
