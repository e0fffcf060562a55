//! URIs of resources that sources named in their results, and which sources named each: a client that
//! follows a link has nothing but the URI.
//!
//! Only so many are remembered, and so many sources of each; the oldest are forgotten.

use std::collections::{HashMap, VecDeque};
use std::sync::Mutex;

use rmcp::model::{ContentBlock, ResourceContents};
use serde_json::Value;

use super::session::lock;
use super::verbatim::RawAnswer;
use conjure_runtime::backend::SourceName;

/// Maximum number of remembered URIs.
const MAX_LINKS: usize = 2_000;
/// Maximum number of remembered sources of one URI.
const MAX_SOURCES: usize = 16;
/// The most bytes of a URI that is.
const MAX_URI_BYTES: usize = 4 * 1024;

/// The links that one client was given.
#[derive(Debug, Default)]
pub(super) struct ResourceLinks(Mutex<LinkIndex>);

#[derive(Debug, Default)]
struct LinkIndex {
    /// Sources of each URI, the newest last.
    sources: HashMap<String, Vec<SourceName>>,
    oldest: VecDeque<String>,
}

impl ResourceLinks {
    /// The sources that named a URI.
    pub(super) fn sources(&self, uri: &str) -> Vec<SourceName> {
        let links = lock(&self.0);
        links.sources.get(uri).cloned().unwrap_or_default()
    }

    /// Notes what a server behind the host links to, or holds, in an answer: to a call, or to a request
    /// for a prompt.
    pub(super) fn note_answer(&self, source: Option<&SourceName>, answer: &RawAnswer) {
        let (Some(source), RawAnswer::Result(result)) = (source, answer) else {
            return;
        };
        let list = |name: &str| result.get(name).and_then(Value::as_array);
        let blocks = list("content").into_iter().flatten();
        let messages = list("messages").into_iter().flatten();
        for block in blocks.chain(messages.filter_map(|message| message.get("content"))) {
            let holder = match block.get("type").and_then(Value::as_str) {
                Some("resource_link") => Some(block),
                Some("resource") => block.get("resource"),
                _ => None,
            };
            if let Some(uri) = holder.and_then(|holder| holder.get("uri")?.as_str()) {
                self.note(source, uri);
            }
        }
    }

    /// Notes what a result links to, or holds.
    pub(super) fn note_content<'b>(
        &self,
        source: Option<&SourceName>,
        content: impl IntoIterator<Item = &'b ContentBlock>,
    ) {
        let Some(source) = source else {
            return;
        };
        for block in content {
            match block {
                ContentBlock::ResourceLink(link) => self.note(source, &link.uri),
                ContentBlock::Resource(held) => match &held.resource {
                    ResourceContents::TextResourceContents { uri, .. }
                    | ResourceContents::BlobResourceContents { uri, .. } => self.note(source, uri),
                    _ => {}
                },
                _ => {}
            }
        }
    }

    /// Adds a source to those of a URI.
    fn note(&self, source: &SourceName, uri: &str) {
        if uri.len() > MAX_URI_BYTES {
            return;
        }
        let mut links = lock(&self.0);
        if let Some(known) = links.sources.get_mut(uri) {
            known.retain(|known| known != source);
            known.push(source.clone());
            if known.len() > MAX_SOURCES {
                known.remove(0);
            }
            return;
        }
        links.sources.insert(uri.to_owned(), vec![source.clone()]);
        links.oldest.push_back(uri.to_owned());
        if links.oldest.len() > MAX_LINKS
            && let Some(oldest) = links.oldest.pop_front()
        {
            links.sources.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn backend(name: &str) -> SourceName {
        SourceName::Backend(name.to_owned())
    }

    #[test]
    fn the_newest_links_are_known_with_all_that_gave_them() {
        let links = ResourceLinks::default();
        let link = |uri: &str| json!({ "type": "resource_link", "uri": uri, "name": "n" });
        let embedded = json!({ "type": "resource", "resource": { "uri": "x://2", "text": "t" } });
        let note = |source: &str, result| {
            links.note_answer(Some(&backend(source)), &RawAnswer::Result(result));
        };
        for source in ["a", "b", "a"] {
            note(
                source,
                json!({ "messages": [{ "role": "user", "content": link("x://1") }] }),
            );
        }
        note("a", json!({ "content": [embedded.clone(), 5] }));
        assert_eq!(links.sources("x://1"), [backend("b"), backend("a")]);
        assert_eq!(links.sources("x://2"), [backend("a")]);
        let blocks: Vec<ContentBlock> =
            serde_json::from_value(json!([link("x://1"), embedded])).unwrap();
        let skill = SourceName::Skill("a".to_owned());
        links.note_content(Some(&skill), &blocks);
        links.note_content(None, &blocks);
        assert_eq!(
            links.sources("x://1"),
            [backend("b"), backend("a"), skill.clone()]
        );
        assert_eq!(links.sources("x://2"), [backend("a"), skill]);
        for number in 0..MAX_LINKS {
            note("c", json!({ "content": [link(&format!("y://{number}"))] }));
        }
        assert!(links.sources("x://1").is_empty());
        assert_eq!(links.sources("y://0"), [backend("c")]);
        assert_eq!(lock(&links.0).sources.len(), MAX_LINKS);
        for number in 0..=MAX_SOURCES {
            note(&number.to_string(), json!({ "content": [link("y://0")] }));
        }
        let sources = links.sources("y://0");
        assert_eq!(sources.len(), MAX_SOURCES);
        assert_eq!(sources.first(), Some(&backend("1")), "the oldest are gone");
    }
}
