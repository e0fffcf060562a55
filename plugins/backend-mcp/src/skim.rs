//! The request that an unreadable message answers: by the message's own `id`, found on the way. It
//! cannot be read for its length or its form.
//!
//! Keeps a few bytes however long the message is. An `id` inside its result or its parameters is
//! another's.

use rmcp::model::RequestId;
use serde_json::Value;

use crate::wire;

/// The most bytes of a member's name or of an id that count.
const MAX_NAME_BYTES: usize = 256;

/// Looks at a JSON object piece by piece.
#[derive(Debug, Default)]
pub(crate) struct Skim {
    depth: usize,
    in_text: bool,
    escaped: bool,
    /// What the text or number at hand is, while it may matter.
    token: Vec<u8>,
    /// The name of the member whose value comes.
    member: Vec<u8>,
    next_part: MemberPart,
    id: Option<RequestId>,
    is_answer: bool,
    is_request: bool,
}

/// What comes next at the outermost level.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum MemberPart {
    #[default]
    Name,
    Value,
}

impl Skim {
    /// Goes on with the next bytes. What comes before the first brace is no part of it.
    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.byte(*byte);
        }
    }

    /// Goes on until the object is over. Gives back what follows it; nothing where its end is not
    /// among these bytes.
    pub(crate) fn feed_object<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        for (at, byte) in bytes.iter().enumerate() {
            let is_inside = self.depth > 0;
            self.byte(*byte);
            if is_inside && self.depth == 0 {
                return bytes.get(at + 1..).unwrap_or_default();
            }
        }
        &[]
    }

    /// The request that is answered, once it is known which one that is.
    pub(crate) fn answered_request(&self) -> Option<&RequestId> {
        self.id
            .as_ref()
            .filter(|_| self.is_answer && !self.is_request)
    }

    fn byte(&mut self, byte: u8) {
        if self.in_text {
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' => self.escaped = true,
                b'"' => {
                    self.in_text = false;
                    self.take(byte);
                    return;
                }
                _ => {}
            }
            self.take(byte);
            return;
        }
        match byte {
            b'"' if self.depth > 0 => {
                self.in_text = true;
                self.take(byte);
            }
            b'{' | b'[' => {
                self.begin_value();
                self.depth += 1;
            }
            b'}' | b']' => {
                self.value();
                self.depth = self.depth.saturating_sub(1);
            }
            b':' if self.depth == 1 && self.next_part == MemberPart::Name => {
                self.member = std::mem::take(&mut self.token);
                self.next_part = MemberPart::Value;
            }
            b',' if self.depth == 1 => self.value(),
            _ if byte.is_ascii_whitespace() => {}
            _ => self.take(byte),
        }
    }

    fn take(&mut self, byte: u8) {
        if self.depth == 1 && self.token.len() < MAX_NAME_BYTES {
            self.token.push(byte);
        }
    }

    /// The value of a member is an object or a list.
    fn begin_value(&mut self) {
        if self.depth == 1 && self.next_part == MemberPart::Value {
            self.classify_member();
        }
    }

    /// A member of the outermost level is over.
    fn value(&mut self) {
        if self.depth != 1 {
            return;
        }
        if self.next_part == MemberPart::Value {
            self.classify_member();
            if self.member == b"\"id\"" && self.token.len() < MAX_NAME_BYTES {
                let value = serde_json::from_slice::<Value>(&self.token).ok();
                self.id = value.as_ref().and_then(wire::parse_id);
            }
        }
        self.token.clear();
        self.member.clear();
        self.next_part = MemberPart::Name;
    }

    fn classify_member(&mut self) {
        match self.member.as_slice() {
            b"\"result\"" | b"\"error\"" => self.is_answer = true,
            b"\"method\"" => self.is_request = true,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The id that is found, whole and byte by byte.
    fn id(text: &str) -> Option<Value> {
        let found = |pieces: usize| {
            let mut skim = Skim::default();
            for piece in text.as_bytes().chunks(pieces) {
                skim.feed(piece);
            }
            Some(serde_json::to_value(skim.answered_request()?).unwrap())
        };
        assert_eq!(found(1), found(text.len()));
        found(1)
    }

    #[test]
    fn the_outermost_id_counts_wherever_it_is() {
        let inner = r#"{"id":99,"content":[{"id":"98","text":"\"id\":97,{"}]}"#;
        let first = format!(r#"{{"jsonrpc":"2.0","id": 12,"result":{inner}}}"#);
        assert_eq!(id(&first), Some(json!(12)));
        let last = format!(r#"{{"jsonrpc":"2.0","result":{inner},"id":"a\"b"}}"#);
        assert_eq!(id(&last), Some(json!("a\"b")));
        let between = format!(r#"{{"result":{inner} , "id" : 7 , "jsonrpc":"2.0"}}"#);
        assert_eq!(id(&between), Some(json!(7)));
    }

    #[test]
    fn an_answer_is_known_before_it_has_ended() {
        assert_eq!(
            id(r#"{"jsonrpc":"2.0","id":5,"result":{"content":["#),
            Some(json!(5))
        );
    }

    #[test]
    fn an_object_ends_where_it_ends() {
        let mut skim = Skim::default();
        let line = br#"{"id":1,"result":{"a":"}","n":NaN}} {"id":2,"result":{}}"#;
        let rest = skim.feed_object(line);
        assert_eq!(rest, br#" {"id":2,"result":{}}"#);
        assert_eq!(skim.answered_request(), Some(&RequestId::Number(1)));
        assert_eq!(Skim::default().feed_object(br#"{"id":1,"result":{}"#), b"");
    }

    #[test]
    fn what_is_no_answer_has_none() {
        let params = r#"{"id":3,"result":{}}"#;
        let request = format!(r#"{{"method":"x","params":{params},"id":1}}"#);
        assert_eq!(id(&request), None);
        assert_eq!(id(&format!(r#"{{"result":{params}}}"#)), None);
        assert_eq!(id("aaaaaaaaaa"), None);
        assert_eq!(id("\"id\":4"), None);
    }
}
