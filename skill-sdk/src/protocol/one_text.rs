//! Results as JSON, with a short way for the commonest one: a text that needs no escapes.
//!
//! The bytes are those that serde writes, so both sides may take the short way or not.

use serde::Serialize as _;

use super::{Part, ToolResult};

const HEAD: &str = r#"{"content":[{"type":"text","text":""#;
const TAIL: &str = r#""}],"is_error":false}"#;

/// Bytes that a result usually takes beside its texts.
const RESULT_OVERHEAD: usize = 128;

impl ToolResult {
    /// Writes the result as JSON.
    ///
    /// # Errors
    /// None that a result of this type could cause.
    pub fn to_json(&self) -> serde_json::Result<Vec<u8>> {
        if let Some(text) = self.one_text().filter(|text| is_plain(text)) {
            return Ok([HEAD, text, TAIL].concat().into_bytes());
        }
        let texts: usize = self.content.iter().map(length).sum();
        let mut json = Vec::with_capacity(texts + texts / 8 + RESULT_OVERHEAD);
        self.serialize(&mut serde_json::Serializer::new(&mut json))?;
        Ok(json)
    }

    /// Reads it from its JSON.
    ///
    /// # Errors
    /// When the JSON is none, or does not fit.
    pub fn from_json(json: &str) -> serde_json::Result<Self> {
        let text = json
            .strip_prefix(HEAD)
            .and_then(|rest| rest.strip_suffix(TAIL));
        match text.filter(|text| is_plain(text)) {
            Some(text) => Ok(Self::text(text)),
            None => serde_json::from_str(json),
        }
    }

    /// The text, when the result is nothing else.
    fn one_text(&self) -> Option<&str> {
        match self {
            Self {
                content,
                structured: None,
                is_error: false,
                files,
                meta: None,
                state: None,
                spent,
            } if files.is_empty() && spent.is_empty() => match content.as_slice() {
                [Part::Text { text }] => Some(text),
                _ => None,
            },
            _ => None,
        }
    }
}

fn length(part: &Part) -> usize {
    match part {
        Part::Text { text } => text.len(),
        _ => 0,
    }
}

/// Whether JSON has the text as it is. Looks at every byte: that is faster than to stop early.
fn is_plain(text: &str) -> bool {
    let escaped = |byte: u8| (byte < 0x20) | (byte == b'"') | (byte == b'\\');
    !text.bytes().fold(false, |any, byte| any | escaped(byte))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::protocol::FileRef;

    #[test]
    fn both_ways_are_the_same() {
        let texts = [
            "",
            "plain",
            "\u{e9}\u{7f}\u{2028}",
            "a\"b",
            "a\\b",
            "a\nb",
            "\u{1}",
        ];
        let mut results: Vec<ToolResult> = texts.map(ToolResult::text).into();
        results.extend([
            ToolResult::default(),
            ToolResult::error("failed"),
            ToolResult::json(json!({ "a": 1 })),
            ToolResult::text("a").with_file(FileRef::lazy("1", "n")),
            ToolResult {
                content: ["a", "b"]
                    .map(|text| Part::Text { text: text.into() })
                    .into(),
                ..ToolResult::default()
            },
        ]);
        for result in results {
            let json = String::from_utf8(result.to_json().unwrap()).unwrap();
            assert_eq!(json, serde_json::to_string(&result).unwrap());
            assert_eq!(ToolResult::from_json(&json).unwrap(), result);
        }
    }

    #[test]
    fn what_only_looks_like_it_is_read_as_json() {
        let more = r#"{"content":[{"type":"text","text":"a"},{"type":"text","text":"b"}],"is_error":false}"#;
        assert_eq!(ToolResult::from_json(more).unwrap().content.len(), 2);
        for broken in [r#"{"content":[{"type":"text","text":"a"#, "", "[]x"] {
            ToolResult::from_json(broken).unwrap_err();
        }
    }
}
