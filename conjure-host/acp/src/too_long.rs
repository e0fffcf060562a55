//! A message that is too long to be read: who sent it is told so, as an answer to that request.

use agent_client_protocol::{JsonRpcRequest, JsonRpcResponse};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// What stands in place of such a request. A client that sends one itself gets the same answer.
#[derive(Debug, Clone, Serialize, Deserialize, JsonRpcRequest)]
#[request(method = "_conjure/too_long", response = TooLongAnswer)]
pub(crate) struct TooLongRequest {
    /// The most bytes of a message.
    pub(crate) most: usize,
}

/// Answer to [`TooLongRequest`], which is never sent: the request is answered with an error.
#[derive(Debug, Clone, Serialize, Deserialize, JsonRpcResponse)]
pub(crate) struct TooLongAnswer {}

/// The line in place of a message of which this is known; without an id it was no request, and has
/// no answer. An answer that is too long is an error to whoever waits for it.
pub(crate) fn replacement_line(found: &OversizedMessage, most: usize) -> Option<String> {
    let id = found
        .id
        .as_ref()
        .filter(|id| id.is_string() || id.is_number())?;
    let line = match found.has_method {
        true => json!({
            "jsonrpc": "2.0", "id": id, "method": "_conjure/too_long", "params": { "most": most },
        }),
        false => json!({
            "jsonrpc": "2.0", "id": id,
            "error": { "code": -32600, "message": format!("an answer of more than {most} bytes") },
        }),
    };
    Some(line.to_string())
}

/// What is known of a message that is too long.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct OversizedMessage {
    id: Option<Value>,
    /// A request, or a notification; not an answer.
    has_method: bool,
}

/// The longest id that is looked at.
const MAX_ID_BYTES: usize = 256;

/// Finds the `id` of a message, and whether it has a `method`, that is read piece by piece and never held whole.
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
    message: OversizedMessage,
}

impl IdFinder {
    /// Looks at the next piece.
    pub(crate) fn read(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.next(*byte);
        }
    }

    /// The message that was found, after all of it was read.
    pub(crate) fn finish(self) -> OversizedMessage {
        self.message
    }

    fn next(&mut self, byte: u8) {
        if self.in_string {
            let ends = byte == b'"' && !self.is_escaped;
            self.is_escaped = byte == b'\\' && !self.is_escaped;
            self.in_string = !ends;
            return self.push(byte);
        }
        match byte {
            b'"' => {
                self.in_string = true;
                self.push(byte);
            }
            b'{' | b'[' => {
                self.depth += 1;
                // What is deeper is neither a name nor an id.
                self.word = (self.depth == 1).then(Vec::new);
            }
            b'}' | b']' => {
                self.end_member();
                self.depth = self.depth.saturating_sub(1);
            }
            b',' => self.end_member(),
            b':' if self.depth == 1 => {
                let name = self.word.as_deref().map(<[u8]>::trim_ascii);
                self.is_id = name == Some(b"\"id\"");
                self.message.has_method |= name == Some(b"\"method\"");
                self.word = Some(Vec::new());
            }
            _ => self.push(byte),
        }
    }

    fn end_member(&mut self) {
        if self.depth != 1 {
            return;
        }
        let word = self.word.replace(Vec::new());
        if std::mem::take(&mut self.is_id)
            && let Some(value) = word.and_then(|word| serde_json::from_slice(&word).ok())
        {
            self.message.id = Some(value);
        }
    }

    fn push(&mut self, byte: u8) {
        if self.depth != 1 {
            return;
        }
        if let Some(word) = &mut self.word {
            word.push(byte);
            if word.len() > MAX_ID_BYTES {
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
        finder.finish().id
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
    fn a_request_is_answered_and_an_answer_is_an_error_to_who_waits_for_it() {
        let line = |text: &str| {
            let mut finder = IdFinder::default();
            finder.read(text.as_bytes());
            let line = replacement_line(&finder.finish(), 10)?;
            Some(serde_json::from_str::<Value>(&line).unwrap())
        };
        let asked = line(r#"{"id":"a","params":{"method":1},"method":"m"}"#).unwrap();
        assert_eq!(
            (&asked["id"], &asked["params"]["most"]),
            (&json!("a"), &json!(10))
        );
        let answered = line(r#"{"id":7,"result":{"method":"m","content":"long"}}"#).unwrap();
        assert_eq!(
            (&answered["id"], &answered["error"]["code"]),
            (&json!(7), &json!(-32600))
        );
        assert!(answered["method"].is_null() && answered["result"].is_null());
        for text in [r#"{"method":"m"}"#, r#"{"id":null,"method":"m"}"#] {
            assert_eq!(line(text), None, "{text}");
        }
    }
}
