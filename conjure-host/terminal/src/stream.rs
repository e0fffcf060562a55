//! Markdown that comes in pieces.
//!
//! What is finished is given out once and never changes, so that it can go to the terminal's own
//! scrollback; only the block that is being written is rendered again. A block that is taller than
//! what may be redrawn gives out its first lines as they leave the region.

use crate::highlight::CodeLines;
use crate::markdown::blocks;
use crate::text::Line;

/// A text of Markdown, as far as it came.
#[derive(Debug, Default)]
pub(crate) struct MarkdownStream {
    /// The source of the blocks that may still change.
    open: String,
    /// How many lines of those were given out.
    given: usize,
    /// Whether there are blocks before those.
    has_begun: bool,
    code: CodeLines,
}

impl MarkdownStream {
    /// Adds a piece.
    pub(crate) fn push(&mut self, delta: &str) {
        self.open.push_str(delta);
    }

    /// Whether nothing is left to be given out.
    pub(crate) fn is_empty(&self) -> bool {
        self.open.trim().is_empty()
    }

    /// Gives out what is finished, and shows what is not: at most `most` lines of it. Lines that
    /// do not fit are finished with.
    pub(crate) fn frame(&mut self, columns: usize, most: usize) -> (Vec<Line>, Vec<Line>) {
        let blocks = blocks(&self.open, columns, &mut self.code);
        // A line that is not whole yet may turn out to belong to the block above it.
        let is_whole = self.open.ends_with('\n');
        let last_line = self.open.matches('\n').count();
        let certain = blocks
            .iter()
            .rposition(|block| is_whole || block.starts_at < last_line)
            .unwrap_or_default();
        let (mut lines, mut finished, mut open_from) = (Vec::new(), 0, 0);
        for (at, block) in blocks.into_iter().enumerate() {
            if at == certain {
                (finished, open_from) = (lines.len(), block.starts_at);
            }
            if self.has_begun || at > 0 {
                lines.push(Line::new());
            }
            lines.extend(block.lines);
        }
        let leaving = lines.len().saturating_sub(most);
        let until = finished.max(leaving).max(self.given);
        let open = lines.split_off(until.min(lines.len()));
        let done = lines.split_off(self.given.min(lines.len()));
        if certain > 0 {
            self.open = from_line(&self.open, open_from).to_owned();
            self.has_begun = true;
        }
        self.given = until - finished;
        (done, open)
    }

    /// Gives out the rest: the text is whole.
    pub(crate) fn finish(&mut self, columns: usize) -> Vec<Line> {
        let mut lines = Vec::new();
        for block in blocks(&self.open, columns, &mut self.code) {
            if self.has_begun || !lines.is_empty() {
                lines.push(Line::new());
            }
            lines.extend(block.lines);
        }
        let rest = lines.split_off(self.given.min(lines.len()));
        *self = Self::default();
        rest
    }
}

/// A text from one of its lines on.
fn from_line(text: &str, line: usize) -> &str {
    let mut starts = std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1));
    starts
        .nth(line)
        .and_then(|at| text.get(at..))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::markdown::render;

    const TEXT: &str = "# Title\n\nA paragraph with **bold** words\nand a second line.\n\n\
        - one\n- two\n  - inner\n\n```rust\nfn main() {\n\n    println!(\"x\");\n}\n```\n\n\
        | a | b |\n|---|--:|\n| 1 | 2 |\n| three | 4 |\n\n> quoted\n> text\n\n1. first\n2. second\n\nThe end.";

    /// Feeds a text in pieces and collects what was given out.
    fn streamed(text: &str, piece: usize, columns: usize, most: usize) -> Vec<Line> {
        let mut stream = MarkdownStream::default();
        let mut done = Vec::new();
        let chars: Vec<char> = text.chars().collect();
        for piece in chars.chunks(piece) {
            stream.push(&piece.iter().collect::<String>());
            let (finished, open) = stream.frame(columns, most);
            assert!(open.len() <= most, "{open:?}");
            done.extend(finished);
        }
        done.extend(stream.finish(columns));
        done
    }

    #[test]
    fn a_text_in_pieces_is_the_text_at_once() {
        for columns in [40, 60, 100, 160] {
            let whole = render(TEXT, columns);
            for piece in [1, 2, 3, 7, 50, 1000] {
                assert_eq!(
                    streamed(TEXT, piece, columns, 100),
                    whole,
                    "{columns} {piece}"
                );
            }
        }
    }

    #[test]
    fn a_block_that_is_taller_than_the_region_leaves_it_line_by_line() {
        let code: String = (0..200).map(|n| format!("line {n}\n")).collect();
        let text = format!("Before.\n\n```\n{code}```\n\nAfter.");
        let whole = render(&text, 60);
        for most in [3, 10, 50] {
            assert_eq!(streamed(&text, 5, 60, most), whole, "{most}");
        }
    }
}
