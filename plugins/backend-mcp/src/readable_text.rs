//! Texts of JSON that its readers refuse, though only characters in them are broken.
//!
//! Programs cut their output in the middle of a character: what is left may be bytes that are no
//! UTF-8, or an escaped half of a surrogate pair. U+FFFD stands for these.

/// How many bytes `\uXXXX` has.
const UNIT_BYTES: usize = 6;

/// JSON without broken characters.
pub(crate) fn readable_text(json: &[u8]) -> String {
    let text = String::from_utf8_lossy(json);
    let mut readable = String::with_capacity(text.len());
    let mut rest = &*text;
    while let Some((before, escape)) = rest.find('\\').and_then(|at| rest.split_at_checked(at)) {
        readable.push_str(before);
        let (taken, behind) = first_escape(escape);
        readable.push_str(taken);
        rest = behind;
    }
    readable.push_str(rest);
    readable
}

/// The escape that a text begins with, as it can be read, and what follows it.
fn first_escape(text: &str) -> (&str, &str) {
    let behind = text.get(UNIT_BYTES..).unwrap_or_default();
    let length = match (code_unit(text), code_unit(behind)) {
        (Some(0xD800..=0xDBFF), Some(0xDC00..=0xDFFF)) => 2 * UNIT_BYTES,
        (Some(0xD800..=0xDFFF), _) => return (r"\ufffd", behind),
        (Some(_), _) => UNIT_BYTES,
        // The escaped character may be a backslash, which begins no other escape.
        (None, _) => text.chars().take(2).map(char::len_utf8).sum(),
    };
    text.split_at_checked(length).unwrap_or((text, ""))
}

/// The unit of UTF-16 that a text begins with as an escape.
fn code_unit(text: &str) -> Option<u16> {
    let digits = text.strip_prefix(r"\u")?.get(..4)?;
    // A sign would be read too.
    let is_hex = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    u16::from_str_radix(digits, 16).ok().filter(|_| is_hex)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_broken_characters_are_others() {
        for (json, readable) in [
            (r#""a\n\\\"é\u00e9""#, r#""a\n\\\"é\u00e9""#),
            (r#""\ud83d\ude00""#, r#""\ud83d\ude00""#),
            (r#""\ud83d\ud83d\ude00""#, r#""\ufffd\ud83d\ude00""#),
            (r#""\ude00\ud83d""#, r#""\ufffd\ufffd""#),
            (r#""\\ud83d \u+12f""#, r#""\\ud83d \u+12f""#),
            (r"\é\", r"\é\"),
        ] {
            assert_eq!(readable_text(json.as_bytes()), readable);
        }
        assert_eq!(readable_text(b"\"a\xf0\x9f\""), "\"a\u{fffd}\"");
    }
}
