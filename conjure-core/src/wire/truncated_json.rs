//! The beginning of a JSON text as a JSON text of its own: what came of a reply that was too long.
//!
//! Ends the text behind the last place where a value can end, inside of a string too, and closes
//! what is open there. Whether that is a reply, its wire tells.

/// Makes a whole JSON text of the beginning of one. What is no JSON stays none.
pub(super) fn close(text: &mut Vec<u8>) {
    let mut scan = TruncationScan::default();
    for (at, byte) in text.iter().enumerate() {
        scan.take(text, at, *byte);
    }
    if let ScanState::Value { escape } = scan.state {
        // A string that goes on, without the escape or the character that is cut.
        let end = escape.unwrap_or(text.len());
        text.truncate(match scan.surrogate_start {
            Some(half) if half + ESCAPE == end => half,
            _ => characters_end(text, end),
        });
        text.push(b'"');
    } else {
        text.truncate(scan.end);
    }
    text.extend(scan.open.iter().rev());
}

/// Where the scan stands.
#[derive(Debug, Clone, Copy, Default)]
enum ScanState {
    /// Between tokens, or in a number or word.
    #[default]
    Outside,
    /// In a string that is a value. `escape`: where an escape began that is not whole.
    Value { escape: Option<usize> },
    /// In a string that names a member. `escaped`: behind a backslash.
    Name { escaped: bool },
}

#[derive(Debug, Default)]
struct TruncationScan {
    state: ScanState,
    /// What closes each object and list that is open.
    open: Vec<u8>,
    /// Whether a string would name a member.
    expects_name: bool,
    /// Whether a number or word has begun.
    in_word: bool,
    /// Behind the last place where the text can be closed.
    end: usize,
    /// Where the last escape such as `\ud83d` began, which is a character only with the one behind
    /// it.
    surrogate_start: Option<usize>,
}

/// The bytes of an escape such as `\u00fc`.
const ESCAPE: usize = 6;

impl TruncationScan {
    fn take(&mut self, text: &[u8], at: usize, byte: u8) {
        match self.state {
            ScanState::Outside => self.outside(at, byte),
            ScanState::Name { escaped } => {
                self.state = match byte {
                    b'"' if !escaped => ScanState::Outside,
                    _ => ScanState::Name {
                        escaped: !escaped && byte == b'\\',
                    },
                };
            }
            ScanState::Value { escape: None } => match byte {
                b'\\' => self.state = ScanState::Value { escape: Some(at) },
                b'"' => {
                    self.state = ScanState::Outside;
                    self.end = at + 1;
                }
                _ => {}
            },
            ScanState::Value { escape: Some(from) } => {
                // `\uXXXX` has four digits behind its letter, any other escape is one character.
                let length = at - from;
                if length == ESCAPE - 1 || (length == 1 && byte != b'u') {
                    self.state = ScanState::Value { escape: None };
                    if text.get(from..=at).is_some_and(is_first_of_pair) {
                        self.surrogate_start = Some(from);
                    }
                }
            }
        }
    }

    fn outside(&mut self, at: usize, byte: u8) {
        let is_word = byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'+' | b'.');
        if self.in_word && !is_word {
            self.end = at;
        }
        self.in_word = is_word;
        match byte {
            b'"' if self.expects_name => self.state = ScanState::Name { escaped: false },
            b'"' => self.state = ScanState::Value { escape: None },
            b'{' | b'[' => {
                self.open.push(if byte == b'{' { b'}' } else { b']' });
                self.expects_name = byte == b'{';
                self.end = at + 1;
            }
            b'}' | b']' => {
                self.open.pop();
                self.expects_name = false;
                self.end = at + 1;
            }
            b',' => self.expects_name = self.open.last() == Some(&b'}'),
            b':' => self.expects_name = false,
            _ => {}
        }
    }
}

/// The end of the last whole character before `end`.
fn characters_end(text: &[u8], end: usize) -> usize {
    let text = text.get(..end).unwrap_or_default();
    // A character has up to four bytes, of which all but the first begin with the bits 10.
    let first = text
        .iter()
        .rposition(|byte| byte & 0b1100_0000 != 0b1000_0000);
    let last = first
        .and_then(|first| text.get(first..))
        .unwrap_or_default();
    match std::str::from_utf8(last) {
        Err(error) if error.error_len().is_none() => end - last.len(),
        _ => end,
    }
}

/// Whether it is an escape such as `\ud83d`, which is a character only with the one behind it.
fn is_first_of_pair(escape: &[u8]) -> bool {
    let digits = escape.strip_prefix(b"\\u");
    let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
    let unit = digits.and_then(|digits| u32::from_str_radix(digits, 16).ok());
    unit.is_some_and(|unit| (0xD800..0xDC00).contains(&unit))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn closed(text: &[u8]) -> String {
        let mut text = text.to_vec();
        close(&mut text);
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn what_came_of_a_text_is_kept() {
        for (text, expected) in [
            (r#"{"a":"xy"#, r#"{"a":"xy"}"#),
            (r#"{"a":[{"b":"x\"y"#, r#"{"a":[{"b":"x\"y"}]}"#),
            (r#"{"a":"x\"#, r#"{"a":"x"}"#),
            (r#"{"a":"x\u00"#, r#"{"a":"x"}"#),
            (r#"{"a":"x\ud83d"#, r#"{"a":"x"}"#),
            (r#"{"a":"x\ud83d\ude"#, r#"{"a":"x"}"#),
            (r#"{"a":"x\ud83d\ude00"#, r#"{"a":"x\ud83d\ude00"}"#),
            (r#"{"a":"x\\ud83d"#, r#"{"a":"x\\ud83d"}"#),
            (r#"{"a":"x","b"#, r#"{"a":"x"}"#),
            (r#"{"a":"x","b":"#, r#"{"a":"x"}"#),
            (r#"{"a":1,"b":12"#, r#"{"a":1}"#),
            (r#"{"a":1,"b":tr"#, r#"{"a":1}"#),
            (r#"[{"a":1},{"#, r#"[{"a":1},{}]"#),
            (r#"[1,2"#, r#"[1]"#),
            (r#"{"a":{}"#, r#"{"a":{}}"#),
            (r#"{"a":1}"#, r#"{"a":1}"#),
        ] {
            assert_eq!(closed(text.as_bytes()), expected, "{text}");
        }
        assert_eq!(closed(b"{\"a\":\"\xc3\xbc\xc3"), "{\"a\":\"ü\"}");
    }

    #[test]
    fn wherever_a_text_is_cut_its_beginning_is_json() {
        let whole = json!({
            "id": "a", "n": [1, -2.5e3, true, null, [], {}, {"k\"ey": "ü\u{1f600}\n\"\\"}, "\\ud83d"],
            "text": "say \u{7} it", "last": {"deep": [[["x"]]]},
        });
        let mut texts = vec![whole.to_string()];
        texts.push(
            texts[0]
                .replace('ü', "\\u00fc")
                .replace('\u{1f600}', "\\ud83d\\ude00"),
        );
        for text in texts {
            for end in 1..=text.len() {
                let beginning = closed(&text.as_bytes()[..end]);
                let read = serde_json::from_str::<Value>(&beginning);
                assert!(read.is_ok(), "{end}: {beginning}");
            }
        }
    }
}
