//! Media types of files.

use super::text_encoding::text_of;

/// The most pixels of an image in one direction; providers refuse more.
const MOST_PIXELS: usize = 8_000;

/// The media type that a name suggests.
pub fn media_type(name: &str) -> String {
    match name.rsplit('.').next() {
        Some("jsonl" | "ndjson") => "application/x-ndjson".to_owned(),
        Some("log") => "text/plain".to_owned(),
        _ => mime_guess::from_path(name)
            .first_or_octet_stream()
            .essence_str()
            .to_owned(),
    }
}

/// The media type that the beginning of a file says, of the types that models look at.
#[must_use]
pub(crate) fn sniff(bytes: &[u8]) -> Option<&'static str> {
    match bytes {
        [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => Some("image/png"),
        [0xff, 0xd8, 0xff, ..] => Some("image/jpeg"),
        [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Some("image/gif"),
        [
            b'R',
            b'I',
            b'F',
            b'F',
            _,
            _,
            _,
            _,
            b'W',
            b'E',
            b'B',
            b'P',
            ..,
        ] => Some("image/webp"),
        [b'%', b'P', b'D', b'F', b'-', ..] => Some("application/pdf"),
        _ => None,
    }
}

/// Whether bytes that begin as an image are one that a model can look at, as far as its header says.
#[must_use]
pub(crate) fn is_lookable(bytes: &[u8]) -> bool {
    imagesize::blob_size(bytes).is_ok_and(|size| {
        let sides = [size.width, size.height];
        sides.iter().all(|side| (1..=MOST_PIXELS).contains(side))
    })
}

/// Whether a word from elsewhere is the name of a media type, with parameters or without: it stands in
/// lists and in headers, so nothing else may be in it.
pub(crate) fn is_media_type(word: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_graphic() || c == ' ';
    (3..=255).contains(&word.len()) && word.contains('/') && word.chars().all(is_plain)
}

/// The media type of a file that somebody hands over: what its bytes say, else what is said of it,
/// else what its name says; text where it is nothing else and reads as such.
#[must_use]
pub fn media_type_of(name: &str, declared: Option<&str>, bytes: &[u8]) -> String {
    const UNKNOWN: &str = "application/octet-stream";
    if let Some(found) = sniff(bytes) {
        return found.to_owned();
    }
    let is_said = |said: &&str| is_media_type(said) && *said != UNKNOWN;
    let told = declared
        .filter(is_said)
        .map_or_else(|| media_type(name), str::to_owned);
    let is_wrong = conjure_core::chat::media_type::is_image(&told) || told == "application/pdf";
    let is_text = || text_of(bytes).is_some_and(|text| !text.contains('\0'));
    match told.as_str() {
        UNKNOWN if is_text() => "text/plain".to_owned(),
        // A provider takes the word for it, and refuses the conversation.
        _ if is_wrong => UNKNOWN.to_owned(),
        _ => told,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One pixel.
    const PNG: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01\x08\x06\0\0\0";

    #[test]
    fn bytes_are_believed_before_words() {
        for (name, said, bytes, expected) in [
            ("a.txt", None, PNG, "image/png"),
            ("a.jpg", Some("image/jpeg"), PNG, "image/png"),
            ("a.csv", None, &b"a,b\n"[..], "text/csv"),
            ("a", Some("text/x-log"), b"a", "text/x-log"),
            ("README", None, b"text", "text/plain"),
            ("README", None, b"f\xfcr alle", "application/octet-stream"),
            ("a.bin", None, b"\0\x01", "application/octet-stream"),
            ("a.png", None, b"no image", "application/octet-stream"),
            (
                "a.pdf",
                Some("application/pdf"),
                b"none",
                "application/octet-stream",
            ),
            ("a.rs", None, b"fn main() {}", "text/x-rust"),
            ("a.csv", Some("text/x\r\ny: z"), b"a", "text/csv"),
            (
                "a",
                Some("text/x; charset=utf-8"),
                b"a",
                "text/x; charset=utf-8",
            ),
        ] {
            assert_eq!(
                media_type_of(name, said, bytes),
                expected,
                "{name} {said:?}"
            );
        }
    }

    #[test]
    fn an_image_that_nobody_takes_is_not_looked_at() {
        assert!(is_lookable(PNG));
        let mut wide = PNG.to_vec();
        wide[18] = 0x40;
        assert!(!is_lookable(&wide));
        assert!(!is_lookable(&PNG[..12]));
    }
}
