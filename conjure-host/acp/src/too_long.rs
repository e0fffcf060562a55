//! A message that is too long to be read: who sent it is told so, as an answer to that request.

use agent_client_protocol::{JsonRpcRequest, JsonRpcResponse};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// What stands in place of such a request. A client that sends one itself gets the same answer.
#[derive(Debug, Clone, Serialize, Deserialize, JsonRpcRequest)]
#[request(method = "_conjure/too_long", response = TooLongAnswer)]
pub(crate) struct TooLong {
    /// The most bytes of a message.
    pub(crate) most: usize,
}

/// It has no answer but an error.
#[derive(Debug, Clone, Serialize, Deserialize, JsonRpcResponse)]
pub(crate) struct TooLongAnswer {}

/// The line in place of a message with this id; without one it was no request, and has no answer.
pub(crate) fn in_place(id: Option<&Value>, most: usize) -> Option<String> {
    let id = id.filter(|id| id.is_string() || id.is_number())?;
    let line = json!({
        "jsonrpc": "2.0", "id": id, "method": "_conjure/too_long", "params": { "most": most },
    });
    Some(line.to_string())
}

/// The longest id that is looked at.
const LONGEST_ID: usize = 256;

/// Finds the `id` of a message that is read piece by piece and never held whole.
#[derive(Debug, Default)]
pub(crate) struct IdFinder {
    depth: usize,
    in_string: bool,
    is_escaped: bool,
    /// What stands between the last comma or colon of the outermost object and here; nothing where
    /// it is too long to be a name or an id.
    word: Option<Vec<u8>>,
    /// Whether the member that is read is `id`.
    is_id: bool,
    found: Option<Value>,
}

impl IdFinder {
    /// Looks at the next piece.
    pub(crate) fn read(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.next(*byte);
        }
    }

    /// The id, when all was read.
    pub(crate) fn found(self) -> Option<Value> {
        self.found
    }

    fn next(&mut self, byte: u8) {
        if self.in_string {
            let ends = byte == b'"' && !self.is_escaped;
            self.is_escaped = byte == b'\\' && !self.is_escaped;
            self.in_string = !ends;
            return self.keep(byte);
        }
        match byte {
            b'"' => {
                self.in_string = true;
                self.keep(byte);
            }
            b'{' | b'[' => {
                self.depth += 1;
                // What is deeper is neither a name nor an id.
                self.word = (self.depth == 1).then(Vec::new);
            }
            b'}' | b']' => {
                self.ends_member();
                self.depth = self.depth.saturating_sub(1);
            }
            b',' => self.ends_member(),
            b':' if self.depth == 1 => {
                self.is_id = self.word.as_deref().map(<[u8]>::trim_ascii) == Some(b"\"id\"");
                self.word = Some(Vec::new());
            }
            _ => self.keep(byte),
        }
    }

    fn ends_member(&mut self) {
        if self.depth != 1 {
            return;
        }
        let word = self.word.replace(Vec::new());
        if std::mem::take(&mut self.is_id)
            && let Some(value) = word.and_then(|word| serde_json::from_slice(&word).ok())
        {
            self.found = Some(value);
        }
    }

    fn keep(&mut self, byte: u8) {
        if self.depth != 1 {
            return;
        }
        if let Some(word) = &mut self.word {
            word.push(byte);
            if word.len() > LONGEST_ID {
                self.word = None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> Option<Value> {
        let mut finder = IdFinder::default();
        // In pieces, wherever they end.
        for piece in text.as_bytes().chunks(3) {
            finder.read(piece);
        }
        finder.found()
    }

    #[test]
    fn the_id_of_a_message_is_found_wherever_it_stands() {
        let long = "x".repeat(1000);
        for (text, wanted) in [
            (
                r#"{"jsonrpc":"2.0","id":7,"method":"m","params":{"id":8}}"#.to_owned(),
                json!(7),
            ),
            (
                format!(r#"{{"params":{{"id":8,"t":["{long}"]}}, "id" : "a\"b" }}"#),
                json!("a\"b"),
            ),
            (format!(r#"{{"t":"{long} \"id\":9,{{","id":1}}"#), json!(1)),
            (r#"{"t":"\\","id":2}"#.to_owned(), json!(2)),
        ] {
            assert_eq!(id(&text), Some(wanted), "{text}");
        }
        for text in [
            r#"{"method":"m","params":{"id":8}}"#,
            "[{\"id\":1}]",
            "{\"id\":",
            "",
        ] {
            assert_eq!(id(text), None, "{text}");
        }
    }

    #[test]
    fn only_a_request_is_answered() {
        let line = in_place(Some(&json!("a")), 10).unwrap();
        let line: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(line["id"], "a");
        assert_eq!(line["params"]["most"], 10);
        assert_eq!(in_place(None, 10), None);
        assert_eq!(in_place(Some(&json!(null)), 10), None);
    }
}
