//! Server-sent events out of bytes that are cut anywhere.
//!
//! Only the framing, as the WHATWG standard has it (section 9.2.6): lines that end with LF, CR or
//! CRLF, comments, several `data` lines, a byte-order mark. Knows no provider and opens nothing.

/// One event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SseEvent {
    /// The `event` field; `message` when there is none.
    pub name: String,
    /// The `data` lines, joined by line breaks.
    pub data: String,
    /// The newest `id` field so far; empty when there was none.
    pub id: String,
}

/// Why a stream is not read further.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SseError {
    /// One event is larger than it may be.
    #[error(
        "one event of the stream is larger than {limit} bytes, so the stream was not read \
         further; the server may not speak server-sent events"
    )]
    TooLarge {
        /// The limit, in bytes.
        limit: usize,
    },
}

/// The most bytes of one event that a decoder made with [`SseDecoder::default`] takes: 8 MiB, twice
/// what a session takes of a whole reply, since text of most scripts has twice its bytes where each
/// character is escaped. An event is there several times while it is read.
pub const MAX_EVENT_BYTES: usize = 8 * 1024 * 1024;

/// Cuts a stream of bytes into events. Bytes that are not UTF-8 become U+FFFD, as the standard
/// wants.
#[derive(Debug, Clone)]
pub struct SseDecoder {
    limit: usize,
    /// The beginning of a line whose end has not come.
    line: Vec<u8>,
    name: String,
    data: String,
    id: String,
    has_data: bool,
    /// The last byte was CR: an LF right behind it belongs to it.
    after_cr: bool,
    first_line: bool,
    failed: Option<SseError>,
}

impl Default for SseDecoder {
    fn default() -> Self {
        Self::new(MAX_EVENT_BYTES)
    }
}

impl SseDecoder {
    /// A decoder that takes events of up to `limit` bytes.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            line: Vec::new(),
            name: String::new(),
            data: String::new(),
            id: String::new(),
            has_data: false,
            after_cr: false,
            first_line: true,
            failed: None,
        }
    }

    /// Takes bytes and appends the events that they complete.
    ///
    /// # Errors
    /// [`SseError::TooLarge`], now and at every later push: where the next event begins is not
    /// known any more.
    pub fn push(&mut self, bytes: &[u8], out: &mut Vec<SseEvent>) -> Result<(), SseError> {
        self.for_each_with_id(bytes, |name, data, id| {
            out.push(SseEvent {
                name: name.to_owned(),
                data: data.to_owned(),
                id: id.to_owned(),
            });
        })
    }

    /// Takes bytes and hands name and data of the events that they complete to `take`, in order.
    ///
    /// # Errors
    /// Those of [`push`](Self::push).
    pub fn for_each(
        &mut self,
        bytes: &[u8],
        mut take: impl FnMut(&str, &str),
    ) -> Result<(), SseError> {
        self.for_each_with_id(bytes, |name, data, _| take(name, data))
    }

    fn for_each_with_id(
        &mut self,
        bytes: &[u8],
        mut take: impl FnMut(&str, &str, &str),
    ) -> Result<(), SseError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        let mut rest = bytes;
        while !rest.is_empty() {
            if std::mem::take(&mut self.after_cr) && rest.first() == Some(&b'\n') {
                rest = rest.get(1..).unwrap_or_default();
                continue;
            }
            let end = line_end(rest);
            let (text, after) = rest.split_at(end.unwrap_or(rest.len()));
            if self.line.len() + text.len() + self.data.len() > self.limit {
                let room = self.limit.saturating_sub(self.line.len() + self.data.len());
                let kept = text.get(..room).unwrap_or(text);
                self.line.extend_from_slice(kept);
                let error = SseError::TooLarge { limit: self.limit };
                self.failed = Some(error);
                return Err(error);
            }
            let Some((ending, after)) = after.split_first() else {
                self.line.extend_from_slice(text);
                break;
            };
            let ending = *ending;
            if let Some((data, after)) = self.complete_event(text, ending, after) {
                // It begins with its field, so there is no mark in front of it.
                self.first_line = false;
                self.after_cr = ending == b'\r';
                take(self.name(), data, &self.id);
                self.name.clear();
                rest = after;
                continue;
            }
            self.after_cr = ending == b'\r';
            rest = after;
            if self.line.is_empty() {
                self.end_line(text, &mut take);
            } else {
                let mut line = std::mem::take(&mut self.line);
                line.extend_from_slice(text);
                self.end_line(&line, &mut take);
                line.clear();
                self.line = line;
            }
        }
        Ok(())
    }

    /// The data of an event whose only `data` line is this one and whose blank line is here too,
    /// with the bytes behind it: nearly all events are so, and need no copy.
    fn complete_event<'a>(
        &self,
        line: &'a [u8],
        ending: u8,
        after: &'a [u8],
    ) -> Option<(&'a str, &'a [u8])> {
        if self.has_data || !self.line.is_empty() {
            return None;
        }
        let value = line.strip_prefix(b"data:")?;
        let value = value.strip_prefix(b" ").unwrap_or(value);
        let after = match ending {
            b'\n' => after.strip_prefix(b"\n"),
            // The LF of the blank line may come later.
            _ => after.strip_prefix(b"\n\r"),
        }?;
        Some((std::str::from_utf8(value).ok()?, after))
    }

    /// The name of the event that comes in.
    fn name(&self) -> &str {
        if self.name.is_empty() {
            "message"
        } else {
            &self.name
        }
    }

    /// The end of the stream: the event that no blank line ended, if one was begun.
    ///
    /// The standard throws it away; servers that close right behind their last event exist, and
    /// whoever reads the data can tell whether it is whole.
    pub fn finish(&mut self) -> Option<SseEvent> {
        if self.failed.is_some() {
            return None;
        }
        self.take_pending()
    }

    /// Returns what was taken of the event that is too large, once.
    pub fn take_oversized(&mut self) -> Option<SseEvent> {
        self.failed?;
        self.take_pending()
    }

    fn take_pending(&mut self) -> Option<SseEvent> {
        let line = std::mem::take(&mut self.line);
        if !line.is_empty() {
            self.end_line(&line, &mut |_, _, _| {});
        }
        // Moved and not copied: it may be the largest that is taken at all.
        let event = std::mem::take(&mut self.has_data).then(|| SseEvent {
            name: self.name().to_owned(),
            data: std::mem::take(&mut self.data),
            id: self.id.clone(),
        });
        self.name.clear();
        self.data.clear();
        event
    }

    fn end_line(&mut self, line: &[u8], take: &mut impl FnMut(&str, &str, &str)) {
        let mut line = line;
        if std::mem::take(&mut self.first_line) {
            line = line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(line);
        }
        if line.is_empty() {
            self.dispatch(take);
            return;
        }
        let colon = line.iter().position(|byte| *byte == b':');
        let (field, value) = line.split_at(colon.unwrap_or(line.len()));
        let value = value.strip_prefix(b":").unwrap_or(value);
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match field {
            b"data" => {
                if std::mem::replace(&mut self.has_data, true) {
                    self.data.push('\n');
                }
                push_text(&mut self.data, value);
            }
            b"event" => {
                self.name.clear();
                push_text(&mut self.name, value);
            }
            b"id" => {
                self.id.clear();
                push_text(&mut self.id, value);
            }
            // A comment (an empty field), or a field that is of no use here.
            _ => {}
        }
    }

    fn dispatch(&mut self, take: &mut impl FnMut(&str, &str, &str)) {
        if std::mem::take(&mut self.has_data) {
            take(self.name(), &self.data, &self.id);
        }
        self.name.clear();
        self.data.clear();
    }
}

/// Where the first LF or CR is.
fn line_end(bytes: &[u8]) -> Option<usize> {
    memchr::memchr2(b'\n', b'\r', bytes)
}

/// Appends bytes as text; what is not UTF-8 is replaced.
fn push_text(text: &mut String, bytes: &[u8]) {
    // Much faster than the lossy way, and nearly always enough.
    match std::str::from_utf8(bytes) {
        Ok(whole) => text.push_str(whole),
        Err(_) => text.push_str(&String::from_utf8_lossy(bytes)),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_id_holds_until_there_is_another() {
        let mut decoder = SseDecoder::default();
        let mut out = Vec::new();
        let text = b"data: a\n\nid: 1.2\ndata: b\n\ndata: c\n\ndata: d\nid: 1.3\n\n";
        for byte in text {
            decoder.push(&[*byte], &mut out).unwrap();
        }
        let ids: Vec<&str> = out.iter().map(|event| event.id.as_str()).collect();
        assert_eq!(ids, ["", "1.2", "1.2", "1.3"]);
    }

    fn decode(pieces: &[&[u8]]) -> Vec<(String, String)> {
        let mut decoder = SseDecoder::default();
        let mut out = Vec::new();
        for piece in pieces {
            decoder.push(piece, &mut out).unwrap();
        }
        out.extend(decoder.finish());
        out.into_iter()
            .map(|event| (event.name, event.data))
            .collect()
    }

    fn pair(name: &str, data: &str) -> (String, String) {
        (name.to_owned(), data.to_owned())
    }

    #[test]
    fn w40_comments_names_and_several_data_lines() {
        let text =
            b": keep-alive\n\nevent: a\ndata: 1\ndata:2\ndata\n\nid: 7\nretry: 5\n\ndata: 3\n\n";
        assert_eq!(decode(&[text]), [pair("a", "1\n2\n"), pair("message", "3")]);
    }

    #[test]
    fn the_end_of_a_line_is_found_wherever_it_is() {
        for length in 0..40 {
            let mut bytes = vec![0x0b; length];
            assert_eq!(line_end(&bytes), None);
            for at in 0..length {
                for ending in [b'\n', b'\r'] {
                    bytes[at] = ending;
                    assert_eq!(line_end(&bytes), Some(at));
                    bytes[at] = 0xff;
                }
            }
        }
    }

    #[test]
    fn every_line_ending_ends_a_line() {
        for ending in ["\n", "\r", "\r\n"] {
            let text = "event: a\ndata: 1\n\ndata: 2\n\n".replace('\n', ending);
            assert_eq!(
                decode(&[text.as_bytes()]),
                [pair("a", "1"), pair("message", "2")],
                "{ending:?}"
            );
        }
    }

    #[test]
    fn a_byte_order_mark_is_dropped_at_the_start_only() {
        assert_eq!(
            decode(&["\u{feff}data: \u{feff}1\n\n".as_bytes()]),
            [pair("message", "\u{feff}1")]
        );
    }

    #[test]
    fn bytes_that_are_not_utf_8_are_replaced() {
        assert_eq!(
            decode(&[b"data: a\xFFb\n\n"]),
            [pair("message", "a\u{fffd}b")]
        );
    }

    #[test]
    fn an_event_without_its_blank_line_comes_out_at_the_end() {
        assert_eq!(decode(&[b"data: 1"]), [pair("message", "1")]);
        assert_eq!(decode(&[b"event: x\n"]), []);
    }

    #[test]
    fn an_event_beyond_the_limit_is_an_error_that_stays() {
        let mut decoder = SseDecoder::new(10);
        let mut out = Vec::new();
        decoder.push(b"data: 1\n\n", &mut out).unwrap();
        let error = SseError::TooLarge { limit: 10 };
        assert_eq!(decoder.push(b"data: 123456", &mut out), Err(error));
        assert_eq!(decoder.push(b"\n\ndata: 2\n\n", &mut out), Err(error));
        assert_eq!(decoder.finish(), None);
        assert_eq!(out.len(), 1);
        // Many short lines of one event count together.
        let mut decoder = SseDecoder::new(40);
        assert_eq!(
            decoder.push("data: 12345\n".repeat(20).as_bytes(), &mut out),
            Err(SseError::TooLarge { limit: 40 })
        );
    }

    proptest! {
        #[test]
        fn cutting_anywhere_changes_nothing(
            lines in prop::collection::vec(
                prop_oneof![
                    Just(String::new()),
                    Just(":c".to_owned()),
                    Just("event: e".to_owned()),
                    "data: ?[a-zé\u{feff}]{0,4}",
                ],
                0..12,
            ),
            endings in prop::collection::vec(prop_oneof![Just("\n"), Just("\r"), Just("\r\n")], 12),
            cuts in prop::collection::vec(0usize..100, 0..6),
        ) {
            let text: String = lines.iter().zip(&endings).flat_map(|(l, e)| [l.as_str(), e]).collect();
            let bytes = text.as_bytes();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let pieces: Vec<&[u8]> = cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
            prop_assert_eq!(decode(&pieces), decode(&[bytes]));
        }
    }
}
