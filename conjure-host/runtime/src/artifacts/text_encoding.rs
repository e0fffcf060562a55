//! Texts in other encodings than UTF-8, as UTF-8: providers take nothing else.
//!
//! Reads UTF-16, and UTF-8 that is damaged. Which of the encodings of one byte a character a text has is
//! not guessed at: a wrong guess is a text with other words.

use std::borrow::Cow;

/// The text that bytes are; nothing where they are no text, or one whose encoding is not clear.
pub(crate) fn text_of(bytes: &[u8]) -> Option<Cow<'_, str>> {
    match bytes {
        [0xff, 0xfe, text @ ..] => return utf16(text, u16::from_le_bytes).map(Cow::Owned),
        [0xfe, 0xff, text @ ..] => return utf16(text, u16::from_be_bytes).map(Cow::Owned),
        _ => {}
    }
    if let Some(text) = utf16_without_mark(bytes) {
        return Some(Cow::Owned(text));
    }
    if let Ok(text) = std::str::from_utf8(bytes) {
        return Some(Cow::Borrowed(text));
    }
    damaged_utf8(bytes).map(Cow::Owned)
}

/// UTF-16 that does not say so: of most characters the one byte is zero, and it is always the same one.
fn utf16_without_mark(bytes: &[u8]) -> Option<String> {
    let zeros = |from: usize| {
        let every_second = bytes.iter().skip(from).step_by(2);
        every_second.filter(|byte| **byte == 0).count()
    };
    let most = bytes.len() / 4;
    match (zeros(0), zeros(1)) {
        (0, second) if second > most => utf16(bytes, u16::from_le_bytes),
        (first, 0) if first > most => utf16(bytes, u16::from_be_bytes),
        _ => None,
    }
}

fn utf16(bytes: &[u8], unit: fn([u8; 2]) -> u16) -> Option<String> {
    let pairs = bytes.chunks_exact(2);
    if !pairs.remainder().is_empty() {
        return None;
    }
    let units = pairs.filter_map(|pair| <[u8; 2]>::try_from(pair).ok());
    let text: Result<String, _> = char::decode_utf16(units.map(unit)).collect();
    let is_plain = |c: char| !c.is_control() || c.is_whitespace();
    text.ok().filter(|text| text.chars().all(is_plain))
}

/// UTF-8 of which a few bytes are broken, such as the end of a log that was cut. What cannot be read of it
/// is `U+FFFD`.
fn damaged_utf8(bytes: &[u8]) -> Option<String> {
    let (mut whole, mut broken) = (0_usize, 0_usize);
    for chunk in bytes.utf8_chunks() {
        whole += chunk.valid().chars().filter(|c| !c.is_ascii()).count();
        broken += usize::from(!chunk.invalid().is_empty());
    }
    let is_text = whole > 0 && whole >= broken && !bytes.contains(&0);
    is_text.then(|| String::from_utf8_lossy(bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_read_whatever_it_is_encoded_in() {
        let units = |text: &str, bytes: fn(u16) -> [u8; 2]| -> Vec<u8> {
            text.encode_utf16().flat_map(bytes).collect()
        };
        let marked = "\u{feff}Grüße, 世界 🌍\n".to_owned();
        for (bytes, text) in [
            ("Grüße\n".as_bytes().to_vec(), "Grüße\n"),
            (units(&marked, u16::to_le_bytes), "Grüße, 世界 🌍\n"),
            (units(&marked, u16::to_be_bytes), "Grüße, 世界 🌍\n"),
            (units("lamp,on\r\n", u16::to_le_bytes), "lamp,on\r\n"),
            (units("lamp,on\r\n", u16::to_be_bytes), "lamp,on\r\n"),
            (b"\xc3\xbc \xc3\xb6 cut \xc3".to_vec(), "ü ö cut \u{fffd}"),
            (b"\xc3\xbc cut \xc3".to_vec(), "ü cut \u{fffd}"),
        ] {
            assert_eq!(text_of(&bytes).as_deref(), Some(text), "{bytes:?}");
        }
    }

    #[test]
    fn what_is_no_text_or_may_be_of_any_encoding_is_not_guessed_at() {
        let russian_in_koi8 = b"\xf0\xd2\xc9\xd7\xc5\xd4 \xcd\xc9\xd2";
        let polish_in_windows_1250 = b"Prosz\xea zap\xb3aci\xe6 t\xea faktur\xea";
        for bytes in [
            &b"\xff\xfea"[..],
            b"\xff\xfe\0\xd8",
            b"\xff\xfea\0\0\0",
            b"ELF\x01\x02\xff text",
            b"undefined \x81 here",
            russian_in_koi8,
            polish_in_windows_1250,
            b"f\xfcr",
        ] {
            assert_eq!(text_of(bytes), None, "{bytes:?}");
        }
    }
}
