//! Says what a source holds that holds no log entry, and what to do about it.
//!
//! Judges by the beginning. Reads no entries: whether there are any is the reader's answer.

use serde_json::{Map, Value};

/// Formats that are read, for an error about any other.
pub(crate) const FORMS: &str = "Logs are read as JSON lines or a JSON array of objects (also those \
    of `journalctl -o json`), logfmt, access logs of nginx and Apache (common or combined), \
    syslog, and text lines with a time, a level and a message; in UTF-8, not compressed";

/// A source that is no log: what it is, and what to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NoLog {
    what: &'static str,
    /// A sentence without its full stop.
    remedy: &'static str,
}

impl NoLog {
    /// The reason and the remedy; `shown` is some of what was found.
    pub(crate) fn explain(&self, shown: &str) -> String {
        format!(
            "it is no log but {}. {}.{shown}\n{FORMS}",
            self.what, self.remedy
        )
    }
}

/// Beginnings of files that are no text.
const MAGIC: [(&[u8], NoLog); 16] = [
    (
        b"\x1f\x8b",
        packed(
            "data compressed with gzip",
            "Decompress it first, as with `gunzip`",
        ),
    ),
    (
        b"\x28\xb5\x2f\xfd",
        packed(
            "data compressed with zstd",
            "Decompress it first, as with `unzstd`",
        ),
    ),
    (
        b"BZh",
        packed(
            "data compressed with bzip2",
            "Decompress it first, as with `bunzip2`",
        ),
    ),
    (
        b"\xfd7zXZ\0",
        packed(
            "data compressed with xz",
            "Decompress it first, as with `unxz`",
        ),
    ),
    (
        b"PK\x03\x04",
        packed(
            "a ZIP archive",
            "Unpack it first, and name one of its files",
        ),
    ),
    (
        b"\xff\xfe",
        packed(
            "text in UTF-16",
            "Convert it first, as with `iconv -f UTF-16 -t UTF-8`",
        ),
    ),
    (
        b"\xfe\xff",
        packed(
            "text in UTF-16",
            "Convert it first, as with `iconv -f UTF-16 -t UTF-8`",
        ),
    ),
    (
        b"LPKSHHRH",
        packed(
            "a file of the systemd journal",
            "Write it as text first: `journalctl --file NAME -o json`",
        ),
    ),
    (b"\x7fELF", packed("a program or library (ELF)", NAME_A_LOG)),
    (b"\x89PNG", packed("an image (PNG)", NAME_A_LOG)),
    (b"\xff\xd8\xff", packed("an image (JPEG)", NAME_A_LOG)),
    (b"GIF8", packed("an image (GIF)", NAME_A_LOG)),
    (b"%PDF-", packed("a PDF document", NAME_A_LOG)),
    (
        b"SQLite format 3\0",
        packed("a database (SQLite)", NAME_A_LOG),
    ),
    (
        b"\xcf\xfa\xed\xfe",
        packed("a program or library (Mach-O)", NAME_A_LOG),
    ),
    (b"\0asm", packed("a program (WebAssembly)", NAME_A_LOG)),
];

const NAME_A_LOG: &str = "Name a log";

const fn packed(what: &'static str, remedy: &'static str) -> NoLog {
    NoLog { what, remedy }
}

/// Recognises a source that is no text by its first bytes.
pub(crate) fn not_text(start: &[u8]) -> Option<NoLog> {
    let known = MAGIC.iter().find(|(magic, _)| start.starts_with(magic));
    if let Some((_, no_log)) = known {
        return Some(*no_log);
    }
    // A log may be coloured, and a JSON text sequence; it has no other control characters but a few by
    // accident.
    let usual = b"\t\n\r\x0c\x1b\x1e";
    let control = |byte: &&u8| byte.is_ascii_control() && !usual.contains(*byte);
    let controls = start.iter().filter(control).count();
    (start.contains(&0) || controls * 20 > start.len()).then_some(packed("binary data", NAME_A_LOG))
}

/// What a text is in which no entry was found. `seen`: whether it has lines or elements at all.
pub(crate) fn text(start: &[u8], array: bool, seen: bool) -> NoLog {
    const FIELDS: &str = "Each needs a `message`, or a `timestamp` and a `level`";
    let start = start.trim_ascii_start();
    let first_line = start
        .split(|byte| *byte == b'\n')
        .next()
        .unwrap_or_default();
    let begins = |with: &[u8]| {
        start
            .get(..with.len())
            .is_some_and(|beginning| beginning.eq_ignore_ascii_case(with))
    };
    let object = serde_json::from_slice::<Map<String, Value>>(first_line).is_ok();
    match () {
        () if array && !seen => packed("a JSON array without elements", "Name a log with entries"),
        () if !seen => packed("an empty file (0 bytes)", "Name a log with entries"),
        () if start.is_empty() => packed("blank lines only", "Name a log with entries"),
        () if array => packed("a JSON array without log entries", FIELDS),
        () if object => packed("JSON lines without log entries", FIELDS),
        () if begins(b"{") => packed(
            "a JSON document that is not one object a line",
            "Bring its entries into lines first, as with `jq -c`",
        ),
        () if begins(b"<!doctype html") || begins(b"<html") => {
            packed("an HTML page", "Name the log itself")
        }
        () if begins(b"<?xml") => packed("an XML document", "Bring its entries into lines first"),
        () => packed(
            "text in which no line has a time or a level",
            "If it is a log, bring it into one of the forms below first",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_text_is_named() {
        for (start, what) in [
            (&b"\x1f\x8b\x08"[..], "data compressed with gzip"),
            (b"PK\x03\x04", "a ZIP archive"),
            (b"\xff\xfea\0", "text in UTF-16"),
            (b"\x7fELF\x02", "a program or library (ELF)"),
            (b"LPKSHHRH\0", "a file of the systemd journal"),
            (b"a\0b", "binary data"),
            (b"\x01\x02 some text", "binary data"),
        ] {
            assert_eq!(not_text(start).map(|no_log| no_log.what), Some(what));
        }
        for start in ["", "plain\n", "\x1b[31mERROR\x1b[0m caf\u{e9}\r\n"] {
            assert_eq!(not_text(start.as_bytes()), None, "{start}");
        }
    }

    #[test]
    fn a_text_without_entries_is_named() {
        for (start, array, seen, what) in [
            ("", false, false, "an empty file (0 bytes)"),
            ("\n \n", false, true, "blank lines only"),
            ("[]", true, false, "a JSON array without elements"),
            ("[{}]", true, true, "a JSON array without log entries"),
            ("{}\n{}\n", false, true, "JSON lines without log entries"),
            (
                "{\n \"a\": 1}",
                false,
                true,
                "a JSON document that is not one object a line",
            ),
            ("\n<!DOCTYPE html>", false, true, "an HTML page"),
            ("<?xml version=\"1.0\"?>", false, true, "an XML document"),
            (
                "dear diary",
                false,
                true,
                "text in which no line has a time or a level",
            ),
        ] {
            assert_eq!(text(start.as_bytes(), array, seen).what, what, "{start}");
        }
    }
}
