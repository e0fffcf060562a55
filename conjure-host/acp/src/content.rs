//! A prompt's blocks as the message that the model reads.

use agent_client_protocol::Error;
use agent_client_protocol::v1::schema::{ContentBlock, EmbeddedResourceResource};
use conjure_core::chat::{Message, Part, Role};
use conjure_core::context::{reference, referred_text};

use super::error::invalid;

/// The message that the person's blocks make.
pub(crate) fn message(blocks: &[ContentBlock]) -> Result<Message, Error> {
    let text = text(blocks)?;
    if text.trim().is_empty() {
        return Err(invalid("the prompt is empty"));
    }
    Ok(Message::new(Role::User, vec![Part::text(text)]))
}

/// The text of blocks. What refers to something stays where it stands in the sentence; the texts
/// of embedded resources come behind the sentence.
fn text(blocks: &[ContentBlock]) -> Result<String, Error> {
    let mut said = String::new();
    let mut embedded = Vec::new();
    for block in blocks {
        match block {
            ContentBlock::Text(text) => said.push_str(&text.text),
            ContentBlock::ResourceLink(link) => {
                said.push_str(&reference(&link.name, &place(&link.uri)));
            }
            ContentBlock::Resource(resource) => match &resource.resource {
                EmbeddedResourceResource::TextResourceContents(contents) => {
                    let place = place(&contents.uri);
                    said.push_str(&reference("", &place));
                    embedded.push(referred_text(&place, &contents.text));
                }
                EmbeddedResourceResource::BlobResourceContents(blob) => {
                    return Err(invalid(format!(
                        "`{}` is embedded as bytes, which is not supported; link to it, or embed \
                         its text",
                        blob.uri
                    )));
                }
                _ => return Err(unknown()),
            },
            ContentBlock::Image(_) | ContentBlock::Audio(_) => {
                return Err(invalid(
                    "images and audio are not supported in a prompt, as `initialize` says; link \
                     to the file",
                ));
            }
            _ => return Err(unknown()),
        }
    }
    for text in embedded {
        said.push_str("\n\n");
        said.push_str(&text);
    }
    Ok(said)
}

fn unknown() -> Error {
    invalid("the prompt has a block that is not known; there are text, resource_link and resource")
}

/// An address as tools take it: the path of a file, and anything else as it is.
fn place(uri: &str) -> String {
    let file = url::Url::parse(uri).ok();
    let path = file.filter(|url| url.scheme() == "file");
    let path = path.and_then(|url| url.to_file_path().ok());
    match path {
        Some(path) => path.display().to_string(),
        None => uri.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use agent_client_protocol::v1::schema::{
        BlobResourceContents, EmbeddedResource, ImageContent, ResourceLink, TextContent,
        TextResourceContents,
    };

    use super::*;

    fn said(text: &str) -> ContentBlock {
        ContentBlock::Text(TextContent::new(text))
    }

    #[test]
    fn links_stay_in_the_sentence_and_embedded_texts_come_behind_it() {
        let contents = TextResourceContents::new("fn main() {}\n", "file:///w/a%20b.rs");
        let contents = EmbeddedResourceResource::TextResourceContents(contents);
        let blocks = [
            said("Compare "),
            ContentBlock::ResourceLink(ResourceLink::new("c.rs", "file:///w/c.rs")),
            said(" with "),
            ContentBlock::Resource(EmbeddedResource::new(contents)),
            said(" and "),
            ContentBlock::ResourceLink(ResourceLink::new("page", "https://x.example/a")),
        ];
        assert_eq!(
            text(&blocks).unwrap(),
            "Compare `c.rs` (at `/w/c.rs`) with `/w/a b.rs` and `page` (at `https://x.example/a`)\
             \n\nContents of `/w/a b.rs`:\n```\nfn main() {}\n```"
        );
    }

    #[test]
    fn what_cannot_be_taken_is_refused_in_words() {
        let blob = BlobResourceContents::new("AAAA", "file:///w/x.bin");
        let blob = EmbeddedResourceResource::BlobResourceContents(blob);
        for (block, words) in [
            (
                ContentBlock::Image(ImageContent::new("AAAA", "image/png")),
                "images and audio",
            ),
            (
                ContentBlock::Resource(EmbeddedResource::new(blob)),
                "embedded as bytes",
            ),
            (said("  \n"), "the prompt is empty"),
        ] {
            let error = message(&[block]).unwrap_err();
            assert!(error.message.contains(words), "{error:?}");
        }
    }
}
