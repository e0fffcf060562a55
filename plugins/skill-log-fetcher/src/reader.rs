//! Finds the entries in a source, one after the other.
//!
//! Tells a JSON array from lines by the first bytes. Holds one element or one line at a time, so
//! a source may be larger than memory. What cannot be read is counted and shown, and never ends
//! the reading of lines.

use std::fmt;
use std::io::{self, BufRead};

use conjure_skill_sdk::{Error, Result};
use serde::Deserializer as _;
use serde::de::{SeqAccess, Visitor};
use serde_json::Value;

use crate::content::{self, FORMS};
use crate::entry::LogEntry;
use crate::structured::from_json;
use crate::text::from_line;

/// A longer line is unreadable.
const MAX_LINE: usize = 1024 * 1024;
/// How long a message may grow by the lines that follow it, such as a stack trace.
const MAX_MESSAGE: usize = 16 * 1024;
/// Number of unreadable lines that are shown.
const MAX_SHOWN: usize = 3;
/// Number of bytes of a source that are kept to recognise it.
const HEAD_BYTES: usize = 4 * 1024;
/// Interval of checks for a cancel, in lines and elements.
const CANCEL_CHECK_INTERVAL: u64 = 256;

/// Reads a source and hands over its entries. `check` is asked now and then and ends the reading
/// with its error.
///
/// # Errors
/// When the source breaks off or holds no entry at all, and what `check` says.
pub(crate) fn read(
    mut source: impl BufRead,
    check: impl Fn() -> Result<()>,
    take: impl FnMut(LogEntry),
) -> Result<ReadReport> {
    let start = loop {
        match source.fill_buf() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => break other?,
        }
    };
    if let Some(no_log) = content::not_text(start) {
        return Err(Error::new(no_log.explain("")));
    }
    // Enough to tell what it is, should there be no entry.
    let beginning = start
        .get(..start.len().min(HEAD_BYTES))
        .unwrap_or_default()
        .to_vec();
    let byte_order_mark = start.starts_with(b"\xef\xbb\xbf");
    if byte_order_mark {
        source.consume(3);
    }
    let array = is_array(source.fill_buf()?);
    let mut reading = EntryReader {
        check,
        sink: take,
        report: ReadReport::default(),
        pending: None,
        seen: 0,
    };
    if array {
        reading.array(source)?;
    } else {
        reading.lines(source)?;
    }
    let (report, seen) = (reading.report, reading.seen);
    if report.entries == 0 {
        let no_log = content::text(&beginning, array, seen > 0);
        return Err(Error::new(no_log.explain(&report.unreadable())));
    }
    Ok(report)
}

/// Result of reading a source.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct ReadReport {
    /// Number of entries.
    pub(crate) entries: u64,
    /// Number of lines or elements that were no entries.
    pub(crate) skipped: u64,
    /// The first of them, each with its place and its reason or beginning.
    pub(crate) examples: Vec<String>,
}

impl ReadReport {
    /// What could not be read, with its number; empty if everything could.
    pub(crate) fn unreadable(&self) -> String {
        if self.skipped == 0 {
            return String::new();
        }
        let lines = self.examples.iter().map(|line| format!("\n  {line}"));
        let more = if self.skipped > self.examples.len() as u64 {
            "\n  …"
        } else {
            ""
        };
        format!(
            " Unreadable: {}.{}{more}",
            self.skipped,
            lines.collect::<String>()
        )
    }
}

struct EntryReader<C, T> {
    check: C,
    sink: T,
    report: ReadReport,
    /// The last entry of a text, which the next line may go on with.
    pending: Option<LogEntry>,
    seen: u64,
}

impl<C: Fn() -> Result<()>, T: FnMut(LogEntry)> EntryReader<C, T> {
    fn lines(&mut self, mut source: impl BufRead) -> Result<()> {
        let mut line = Vec::new();
        loop {
            line.clear();
            let whole = read_line(&mut source, &mut line)?;
            if line.is_empty() {
                break;
            }
            self.step()?;
            if whole {
                self.line(&String::from_utf8_lossy(&line));
            } else {
                self.skip("line", "longer than 1 MiB");
            }
        }
        self.push_entry();
        Ok(())
    }

    fn line(&mut self, line: &str) {
        let text = without_frame(line.trim_end());
        if text.trim_start().is_empty() {
            return;
        }
        if text.starts_with('{') {
            // One object a line; a comma after it does no harm.
            let object = serde_json::from_str(text.trim_end_matches(','));
            if let Ok(Value::Object(object)) = object {
                match from_json(&object) {
                    Some(entry) => self.entry(entry),
                    None => self.skip("line", text),
                }
                return;
            }
        }
        if text.starts_with([' ', '\t']) && self.continue_message(text) {
            return;
        }
        match from_line(text) {
            Some(entry) => {
                self.push_entry();
                self.pending = Some(entry);
            }
            None => self.skip("line", text),
        }
    }

    /// Adds an indented line to the message before it.
    fn continue_message(&mut self, text: &str) -> bool {
        let Some(message) = self.pending.as_mut().and_then(|e| e.message.as_mut()) else {
            return false;
        };
        if message.len() + text.len() < MAX_MESSAGE {
            message.push('\n');
            message.push_str(text);
        }
        true
    }

    fn array(&mut self, source: impl BufRead) -> Result<()> {
        let mut json = serde_json::Deserializer::from_reader(source);
        let mut stopped = None;
        let elements = Elements {
            reading: self,
            stopped: &mut stopped,
        };
        let result = json.deserialize_seq(elements);
        if let Some(error) = stopped {
            return Err(error);
        }
        if let Err(error) = result {
            if self.report.entries == 0 {
                return Err(Error::new(format!(
                    "it begins as a JSON array and is none: {error}. Mend it, or fetch it \
                     again\n{FORMS}"
                )));
            }
            self.skip("element", &format!("the array breaks off: {error}"));
        }
        Ok(())
    }

    fn step(&mut self) -> Result<()> {
        self.seen += 1;
        if self.seen.is_multiple_of(CANCEL_CHECK_INTERVAL) {
            (self.check)()?;
        }
        Ok(())
    }

    fn entry(&mut self, entry: LogEntry) {
        self.push_entry();
        self.report.entries += 1;
        (self.sink)(entry);
    }

    fn push_entry(&mut self) {
        if let Some(entry) = self.pending.take() {
            self.report.entries += 1;
            (self.sink)(entry);
        }
    }

    fn skip(&mut self, unit: &str, what: &str) {
        self.report.skipped += 1;
        if self.report.examples.len() < MAX_SHOWN {
            let beginning: String = what.chars().take(100).collect();
            let shown = format!("{unit} {}: {beginning}", self.seen);
            self.report.examples.push(shown);
        }
    }
}

struct Elements<'a, C, T> {
    reading: &'a mut EntryReader<C, T>,
    stopped: &'a mut Option<Error>,
}

impl<'de, C: Fn() -> Result<()>, T: FnMut(LogEntry)> Visitor<'de> for Elements<'_, C, T> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of log entries")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<(), A::Error> {
        while let Some(element) = elements.next_element::<Value>()? {
            if let Err(error) = self.reading.step() {
                *self.stopped = Some(error);
                return Err(serde::de::Error::custom("stopped"));
            }
            let entry = match &element {
                Value::Object(object) => from_json(object),
                Value::String(line) => from_line(line),
                _ => None,
            };
            match entry {
                Some(entry) => self.reading.entry(entry),
                None => self.reading.skip("element", &element.to_string()),
            }
        }
        Ok(())
    }
}

/// Reads a line with its end. Of one that is too long, only the beginning; then it says no.
fn read_line(source: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<bool> {
    let mut whole = true;
    loop {
        let buffer = match source.fill_buf() {
            Ok(buffer) => buffer,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        let end = buffer.iter().position(|byte| *byte == b'\n');
        let length = end.map_or(buffer.len(), |end| end + 1);
        if length == 0 {
            return Ok(whole);
        }
        if line.len() + length <= MAX_LINE {
            line.extend_from_slice(buffer.get(..length).unwrap_or_default());
        } else {
            whole = false;
            // It must not look like the end of the source.
            if line.is_empty() {
                line.push(b'\n');
            }
        }
        source.consume(length);
        if end.is_some() {
            return Ok(whole);
        }
    }
}

/// A line without what frames an object in it: the record separator of a JSON text sequence (RFC 7464)
/// or the field of a server-sent event, as `journalctl -o json-seq` and `-o json-sse` write them.
fn without_frame(line: &str) -> &str {
    let line = line.trim_start_matches('\u{1e}');
    let data = line.strip_prefix("data:").map(str::trim_start);
    data.filter(|data| data.starts_with('{')).unwrap_or(line)
}

/// Whether a source is a JSON array of objects: a line of text may begin with a bracket too.
fn is_array(start: &[u8]) -> bool {
    let mut bytes = start.iter().filter(|byte| !byte.is_ascii_whitespace());
    bytes.next() == Some(&b'[') && matches!(bytes.next(), Some(b'{' | b']' | b'"'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::LogSeverity;

    fn all(source: &str) -> (Vec<String>, ReadReport) {
        let mut entries = Vec::new();
        let report = read(
            // A small buffer, so that nothing depends on where a piece ends.
            io::BufReader::with_capacity(16, source.as_bytes()),
            || Ok(()),
            |entry| {
                let level = entry.level.map_or("-", LogSeverity::as_str);
                entries.push(format!("{level} {}", entry.message.unwrap_or_default()));
            },
        );
        (entries, report.unwrap())
    }

    fn report(entries: u64, shown: &[&str]) -> ReadReport {
        ReadReport {
            entries,
            skipped: shown.len() as u64,
            examples: shown.iter().map(|shown| (*shown).to_owned()).collect(),
        }
    }

    #[test]
    fn a_json_array_is_read_pretty_or_not() {
        let expected = (
            vec!["INFO a".to_owned(), "ERROR b".to_owned()],
            report(2, &[]),
        );
        assert_eq!(
            all(r#"[{"level":"info","msg":"a"},{"level":"fatal","msg":"b"}]"#),
            expected
        );
        assert_eq!(
            all(
                "\u{feff}\n [\n  {\n \"level\": \"info\",\n \"msg\": \"a\"\n },\n {\"level\":\"error\", \"msg\":\"b\"}\n]\n"
            ),
            expected
        );
    }

    #[test]
    fn an_array_that_breaks_off_gives_what_came_before() {
        let (entries, report) = all(r#"[{"msg":"a"}, 7, {"msg":"b"}, {"ms"#);
        assert_eq!(entries, ["- a", "- b"]);
        assert_eq!(report.skipped, 2);
        assert_eq!(report.examples[0], "element 2: 7");
        assert!(report.examples[1].starts_with("element 3: the array breaks off"));
    }

    #[test]
    fn json_lines_and_text_lines_may_be_mixed_with_rubbish() {
        let source = "{\"level\":\"info\",\"msg\":\"a\"}\r\n\n\
            not a log line\n\
            {\"level\":\"info\",\n\
            {\"nothing\":1}\n\
            [ERROR] b\n\
            10:30:00 WARN c";
        assert_eq!(
            all(source),
            (
                vec!["INFO a".into(), "ERROR b".into(), "WARN c".into()],
                report(
                    3,
                    &[
                        "line 3: not a log line",
                        "line 4: {\"level\":\"info\",",
                        "line 5: {\"nothing\":1}"
                    ]
                )
            )
        );
    }

    #[test]
    fn framed_json_lines_are_read() {
        let entry = r#"{"__REALTIME_TIMESTAMP":"1705314600123456","MESSAGE":"it broke"}"#;
        for source in [
            format!("\u{1e}{entry}\n\u{1e}{entry}\n"),
            format!("data: {entry}\n\ndata: {entry}\n\n"),
        ] {
            let (messages, report) = all(&source);
            assert_eq!(messages, ["- it broke", "- it broke"], "{source}");
            assert_eq!(report, self::report(2, &[]));
        }
    }

    #[test]
    fn indented_lines_belong_to_the_entry_before() {
        let source = "    nobody\n10:30:00 ERROR broke\n    at x\n\tat y\n10:30:01 INFO on\n";
        let (entries, report) = all(source);
        assert_eq!(entries, ["ERROR broke\n    at x\n\tat y", "INFO on"]);
        assert_eq!((report.entries, report.skipped), (2, 1));
    }

    #[test]
    fn a_line_without_end_is_not_kept_in_memory() {
        let source = format!("{}\nERROR: after\n", "x".repeat(3 * MAX_LINE));
        let (entries, report) = all(&source);
        assert_eq!(entries, ["ERROR after"]);
        assert_eq!(report.examples, ["line 1: longer than 1 MiB"]);
    }

    #[test]
    fn a_cancel_ends_the_reading() {
        let lines = "INFO: a\n".repeat(1_000);
        let array = format!("[{}1]", "{\"msg\":\"a\"},".repeat(1_000));
        for source in [lines, array] {
            let result = read(source.as_bytes(), || Err(Error::cancelled()), |_| {});
            assert_eq!(result, Err(Error::cancelled()));
        }
    }
}
