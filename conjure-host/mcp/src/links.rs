//! URIs of resources that sources named in their results, and which source named each: a client that
//! follows a link has nothing but the URI.
//!
//! Only so many are remembered; the oldest are forgotten.

use std::collections::{HashMap, VecDeque};
use std::sync::Mutex;

use rmcp::model::{ContentBlock, ResourceContents};
use serde_json::Value;

use super::session::lock;
use super::verbatim::RawAnswer;

/// Maximum number of remembered URIs.
const MAX_LINKS: usize = 2_000;
/// The most bytes of a URI that is.
const MAX_URI_BYTES: usize = 4 * 1024;

/// The links that one client was given.
#[derive(Debug, Default)]
pub(super) struct ResourceLinks(Mutex<LinkIndex>);

#[derive(Debug, Default)]
struct LinkIndex {
    sources: HashMap<String, String>,
    oldest: VecDeque<String>,
}

impl ResourceLinks {
    /// The source that named a URI last.
    pub(super) fn source(&self, uri: &str) -> Option<String> {
        lock(&self.0).sources.get(uri).cloned()
    }

    /// Notes what a server behind the host links to, or holds, in an answer: to a call, or to a request
    /// for a prompt.
    pub(super) fn note_answer(&self, source: &str, answer: &RawAnswer) {
        let RawAnswer::Result(result) = answer else {
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
        source: &str,
        content: impl IntoIterator<Item = &'b ContentBlock>,
    ) {
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

    /// Notes the source of a URI in the place of the one before.
    fn note(&self, source: &str, uri: &str) {
        if uri.len() > MAX_URI_BYTES {
            return;
        }
        let mut links = lock(&self.0);
        let before = links.sources.insert(uri.to_owned(), source.to_owned());
        if before.is_some() {
            return;
        }
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

    #[test]
    fn the_newest_links_are_known() {
        let links = ResourceLinks::default();
        let link = |uri: &str| json!({ "type": "resource_link", "uri": uri, "name": "n" });
        let held = json!({ "type": "resource", "resource": { "uri": "x://held", "text": "t" } });
        let note = |source, result| links.note_answer(source, &RawAnswer::Result(result));
        note("a", json!({ "content": [link("x://1"), held.clone(), 5] }));
        note(
            "b",
            json!({ "messages": [{ "role": "user", "content": link("x://1") }] }),
        );
        assert_eq!(links.source("x://1").as_deref(), Some("b"));
        assert_eq!(links.source("x://held").as_deref(), Some("a"));
        let blocks: Vec<ContentBlock> =
            serde_json::from_value(json!([link("x://1"), held])).unwrap();
        links.note_content("skill", &blocks);
        assert_eq!(links.source("x://1").as_deref(), Some("skill"));
        assert_eq!(links.source("x://held").as_deref(), Some("skill"));
        for number in 0..MAX_LINKS {
            note("c", json!({ "content": [link(&format!("y://{number}"))] }));
        }
        assert_eq!(links.source("x://1"), None);
        assert_eq!(links.source("y://0").as_deref(), Some("c"));
        assert_eq!(lock(&links.0).sources.len(), MAX_LINKS);
    }
}
