//! What a command says, as far as it is kept: of a long line, and of a long output, the beginning and
//! the end, with how much is missing between them. However much a command says, this stays small.

use std::collections::VecDeque;

use conjure_core::numerals::count;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, BufReader};
use tokio::sync::mpsc;

/// The most bytes that are kept of the beginning of a line, and of its end.
const LINE_HEAD: usize = 4_000;
const LINE_TAIL: usize = 1_000;
/// The most bytes of an output that the model reads: of its beginning, and of its end.
const HEAD: usize = 20_000;
const TAIL: usize = 10_000;

/// Reads lines until the end. Once nobody takes them any more, what comes is thrown away: what a
/// command left running must not fail because nobody reads what it says.
pub(super) async fn read(from: impl AsyncRead + Unpin, said: mpsc::Sender<String>) {
    let mut from = BufReader::new(from);
    let mut line = BoundedLine::default();
    loop {
        let piece = match from.fill_buf().await {
            Ok(piece) if !piece.is_empty() => piece,
            _ => break,
        };
        let end = piece.iter().position(|byte| *byte == b'\n');
        line.push(piece.get(..end.unwrap_or(piece.len())).unwrap_or_default());
        let taken = end.map_or(piece.len(), |end| end + 1);
        from.consume(taken);
        if end.is_some() && said.send(line.take()).await.is_err() {
            // An error is the end of it too.
            let _ = tokio::io::copy(&mut from, &mut tokio::io::sink()).await;
            return;
        }
    }
    if !line.is_empty() {
        // Nobody may take it any more.
        let _ = said.send(line.take()).await;
    }
}

/// A line of which the beginning and the end are kept.
#[derive(Debug, Default)]
struct BoundedLine {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    /// Bytes between the two.
    left_out: u64,
}

impl BoundedLine {
    fn push(&mut self, piece: &[u8]) {
        let room = LINE_HEAD.saturating_sub(self.head.len()).min(piece.len());
        let (head, tail) = piece.split_at(room);
        self.head.extend_from_slice(head);
        self.tail.extend(tail);
        let over = self.tail.len().saturating_sub(LINE_TAIL);
        self.tail.drain(..over);
        self.left_out += over as u64;
    }

    fn is_empty(&self) -> bool {
        self.head.is_empty()
    }

    /// The line as text; another one begins.
    fn take(&mut self) -> String {
        let Self {
            head,
            tail,
            left_out,
        } = std::mem::take(self);
        let mut bytes = head;
        if left_out == 0 {
            bytes.extend(tail);
            let text = String::from_utf8_lossy(&bytes);
            return text.trim_end_matches('\r').to_owned();
        }
        let tail = Vec::from(tail);
        let (head, tail) = (
            String::from_utf8_lossy(&bytes),
            String::from_utf8_lossy(&tail),
        );
        // A letter may have been cut in two.
        let head = head.trim_end_matches('\u{fffd}');
        let tail = tail.trim_start_matches('\u{fffd}').trim_end_matches('\r');
        format!("{head} … ({} left out) … {tail}", count(left_out, "byte"))
    }
}

/// Lines of which the first and the last are kept.
#[derive(Debug, Default)]
pub(super) struct BoundedOutput {
    head: String,
    /// Whether a line did not fit into the beginning.
    is_head_full: bool,
    tail: VecDeque<String>,
    /// Bytes of the end, with the ends of its lines.
    tail_size: usize,
    /// Lines between the two.
    left_out: u64,
}

impl BoundedOutput {
    pub(super) fn push(&mut self, line: &str) {
        if !self.is_head_full && self.head.len() + line.len() < HEAD {
            self.head.push_str(line);
            self.head.push('\n');
            return;
        }
        self.is_head_full = true;
        self.tail_size += line.len() + 1;
        self.tail.push_back(line.to_owned());
        while self.tail_size > TAIL
            && let Some(first) = self.tail.pop_front()
        {
            self.tail_size -= first.len() + 1;
            self.left_out += 1;
        }
    }

    /// All that is kept, as a block of code that nothing in it ends.
    pub(super) fn block(&self) -> String {
        let mut said = self.head.clone();
        if self.left_out > 0 {
            said += &format!("… ({} left out) …\n", count(self.left_out, "line"));
        }
        for line in &self.tail {
            said.push_str(line);
            said.push('\n');
        }
        let fence = ticks(&said, 3);
        format!("{fence}\n{said}{fence}")
    }
}

/// A text as code within a sentence, whatever backticks it has.
pub(super) fn inline_code(text: &str) -> String {
    let fence = ticks(text, 1);
    // A backtick at the edge would belong to the fence.
    let blank = if text.contains('`') { " " } else { "" };
    format!("{fence}{blank}{text}{blank}{fence}")
}

/// Backticks, at least so many, and more than stand together anywhere in a text.
fn ticks(text: &str, least: usize) -> String {
    let runs = text.split(|c: char| c != '`').map(str::len);
    let longest = runs.max().unwrap_or_default();
    "`".repeat(least.max(longest + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn lines(said: &[u8]) -> Vec<String> {
        let (sender, mut receiver) = mpsc::channel(100);
        read(said, sender).await;
        let mut lines = Vec::new();
        while let Some(line) = receiver.recv().await {
            lines.push(line);
        }
        lines
    }

    #[tokio::test]
    async fn of_a_long_line_the_beginning_and_the_end_are_kept() {
        assert_eq!(lines(b"one\r\n\ntwo").await, ["one", "", "two"]);
        assert_eq!(lines(b"").await, [""; 0]);
        // As much as is kept is kept whole.
        let fits = "é".repeat((LINE_HEAD + LINE_TAIL) / 2);
        let read = lines(fits.as_bytes()).await;
        assert_eq!(read, [fits]);
        let long = format!("begin{}end\nnext\n", "é".repeat(1_000_000));
        let read = lines(long.as_bytes()).await;
        assert_eq!(read.len(), 2);
        assert_eq!(read[1], "next");
        let line = &read[0];
        assert!(line.len() < LINE_HEAD + LINE_TAIL + 100, "{}", line.len());
        assert!(
            line.starts_with("beginéé") && line.ends_with("ééend"),
            "{line}"
        );
        assert!(line.contains("é … (1995008 bytes left out) … é"), "{line}");
        assert!(!line.contains('\u{fffd}'), "{line}");
    }

    #[test]
    fn of_a_long_output_the_first_and_the_last_lines_are_kept() {
        let mut output = BoundedOutput::default();
        for number in 1..=20_000 {
            output.push(&format!("line {number}"));
        }
        let block = output.block();
        assert!(block.len() < HEAD + TAIL + 100, "{}", block.len());
        assert!(block.starts_with("```\nline 1\nline 2\n"), "{block}");
        assert!(block.ends_with("\nline 19999\nline 20000\n```"), "{block}");
        let shown = block.lines().filter(|line| line.starts_with("line "));
        let left_out = 20_000 - shown.count();
        let told = format!("\n… ({left_out} lines left out) …\n");
        assert!(block.contains(&told), "{block}");
    }

    #[test]
    fn no_output_ends_the_block_that_it_is_in() {
        let mut output = BoundedOutput::default();
        assert_eq!(output.block(), "```\n```");
        for line in ["# Title", "```sh", "ls", "```", "a ````` b"] {
            output.push(line);
        }
        let block = output.block();
        assert!(block.starts_with("``````\n# Title\n"), "{block}");
        assert!(block.ends_with("\na ````` b\n``````"), "{block}");
        assert_eq!(inline_code("ls"), "`ls`");
        assert_eq!(inline_code("echo `date`"), "`` echo `date` ``");
    }
}
