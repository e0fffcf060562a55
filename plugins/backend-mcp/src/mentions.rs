//! URIs of resources that servers named in their results, and which server named each.
//!
//! A server need not list what it links to, nor have a template for it: who follows the link has
//! nothing but the URI. Only so many are remembered; the oldest are forgotten.

use std::collections::{HashMap, VecDeque};

use serde_json::Value;

/// Maximum number of remembered URIs.
const MAX_MENTIONS: usize = 2_000;
/// The most bytes of a URI that is.
const MAX_URI_BYTES: usize = 4 * 1024;

/// The URIs of one session.
#[derive(Debug, Default)]
pub(crate) struct Mentions {
    servers: HashMap<String, String>,
    oldest: VecDeque<String>,
}

impl Mentions {
    /// Notes the resources that a result links to or holds: of a call, or of a prompt.
    pub(crate) fn record(&mut self, server: &str, result: &Value) {
        let list = |name: &str| result.get(name).and_then(Value::as_array);
        let blocks = list("content").into_iter().flatten();
        let messages = list("messages").into_iter().flatten();
        for block in blocks.chain(messages.filter_map(|message| message.get("content"))) {
            let holder = match block.get("type").and_then(Value::as_str) {
                Some("resource_link") => Some(block),
                Some("resource") => block.get("resource"),
                _ => None,
            };
            let uri = holder.and_then(|holder| holder.get("uri")?.as_str());
            if let Some(uri) = uri.filter(|uri| uri.len() <= MAX_URI_BYTES) {
                self.add(server, uri);
            }
        }
    }

    /// The server that named a URI last.
    pub(crate) fn server(&self, uri: &str) -> Option<&str> {
        self.servers.get(uri).map(String::as_str)
    }

    /// Notes the server of a URI in the place of the one before.
    pub(crate) fn add(&mut self, server: &str, uri: &str) {
        let before = self.servers.insert(uri.to_owned(), server.to_owned());
        if before.is_some() {
            return;
        }
        self.oldest.push_back(uri.to_owned());
        if self.oldest.len() > MAX_MENTIONS
            && let Some(oldest) = self.oldest.pop_front()
        {
            self.servers.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_newest_links_are_known() {
        let mut mentions = Mentions::default();
        let link = |uri: &str| json!({ "type": "resource_link", "uri": uri, "name": "n" });
        let held = json!({ "type": "resource", "resource": { "uri": "x://held", "text": "t" } });
        mentions.record("a", &json!({ "content": [link("x://1"), held, 5] }));
        mentions.record(
            "b",
            &json!({ "messages": [{ "role": "user", "content": link("x://1") }] }),
        );
        assert_eq!(mentions.server("x://1"), Some("b"));
        assert_eq!(mentions.server("x://held"), Some("a"));
        for number in 0..MAX_MENTIONS {
            mentions.record("c", &json!({ "content": [link(&format!("y://{number}"))] }));
        }
        assert_eq!(mentions.server("x://1"), None);
        assert_eq!(mentions.server("y://0"), Some("c"));
        assert_eq!(mentions.servers.len(), MAX_MENTIONS);
    }
}
