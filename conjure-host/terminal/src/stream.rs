//! Markdown that comes in pieces.
//!
//! What is finished is given out once and never changes, so that it can go to the terminal's own
//! scrollback; only the block that is being written is rendered again. A block that is taller than
//! what may be redrawn gives out its first lines as they leave the region.

use crate::flushed::{FlushedText, RenderedLine, TextPosition};
use crate::highlight::CodeLines;
use crate::markdown::{MarkdownBlock, blocks, with_line_feeds};
use crate::text::Line;

/// A text of Markdown, as far as it came.
#[derive(Debug, Default)]
pub(crate) struct MarkdownStream {
    /// The source of the blocks that may still change.
    open: String,
    /// Whether the last piece ended with a carriage return: a line feed that follows is of the same
    /// line end.
    ends_with_return: bool,
    /// What of those was given out.
    flushed: FlushedText,
    /// Whether there are blocks before those.
    has_begun: bool,
    code: CodeLines,
}

impl MarkdownStream {
    /// Adds a piece; its line ends become line feeds, by which lines are counted here.
    pub(crate) fn push(&mut self, delta: &str) {
        if delta.is_empty() {
            return;
        }
        let delta = match delta.strip_prefix('\n') {
            Some(rest) if self.ends_with_return => rest,
            _ => delta,
        };
        self.ends_with_return = delta.ends_with('\r');
        self.open.push_str(&with_line_feeds(delta));
    }

    /// Whether no text is left to be given out.
    pub(crate) fn is_empty(&self) -> bool {
        self.open.trim().is_empty()
    }

    /// Gives out what is finished, and shows what is not: at most `most` lines of it. Lines that
    /// do not fit are finished with.
    pub(crate) fn frame(&mut self, columns: usize, most: usize) -> (Vec<Line>, Vec<Line>) {
        let (blocks, layouts) = blocks(&self.open, columns, &mut self.code, &self.flushed);
        // A line that is not whole yet may turn out to belong to the block above it.
        let is_whole = self.open.ends_with('\n');
        let last_line = self.open.matches('\n').count();
        let certain = blocks
            .iter()
            .rposition(|block| is_whole || block.starts_at < last_line)
            .unwrap_or_default();
        let (mut lines, mut finished, mut open_from, mut doubtful) = (Vec::new(), 0, 0, None);
        for (at, block) in blocks.into_iter().enumerate() {
            if at == certain {
                (finished, open_from) = (lines.len(), block.starts_at);
            } else if at > certain {
                doubtful.get_or_insert(lines.len());
            }
            self.add(&mut lines, block, at);
        }
        let mut left = lines_to_flush(&lines, most);
        // What parts them does not leave alone: there may be no block below it.
        if doubtful.is_some_and(|separator| left == separator + 1) {
            left -= 1;
        }
        let open = lines.split_off(finished.max(left));
        if let Some(last) = lines.last() {
            self.flushed.flush(last.end, layouts);
        }
        if certain > 0 {
            self.open = from_line(&self.open, open_from).to_owned();
            self.flushed.drop_lines(open_from);
            self.has_begun = true;
        }
        let hidden = open.len().saturating_sub(most);
        let open = open.into_iter().skip(hidden);
        (plain_lines(lines), plain_lines(open))
    }

    /// Gives out the blocks that are finished, where there are any: something else may stand between
    /// them and the one that is open.
    pub(crate) fn finished_blocks(&mut self, columns: usize) -> Option<Vec<Line>> {
        let before = self.open.len();
        let (finished, _) = self.frame(columns, usize::MAX);
        (self.open.len() < before).then_some(finished)
    }

    /// Something else was put above the open block, which is to be apart from it. Whether an empty line
    /// has to do that, as some of the block was given out already.
    pub(crate) fn resume_below(&mut self) -> bool {
        self.has_begun = true;
        self.flushed.flushed_until().is_some()
    }

    /// Gives out the rest: the text is whole.
    pub(crate) fn finish(&mut self, columns: usize) -> Vec<Line> {
        let mut lines = Vec::new();
        let (blocks, _) = blocks(&self.open, columns, &mut self.code, &self.flushed);
        for (at, block) in blocks.into_iter().enumerate() {
            self.add(&mut lines, block, at);
        }
        *self = Self::default();
        plain_lines(lines)
    }

    /// Adds a block below those before it.
    fn add(&self, lines: &mut Vec<RenderedLine>, block: MarkdownBlock, at: usize) {
        let end = TextPosition::above(block.starts_at);
        if (self.has_begun || at > 0) && !self.flushed.has(end) {
            let line = Line::new();
            lines.push(RenderedLine { line, end });
        }
        lines.extend(block.lines);
    }
}

/// How many lines leave a region that has room for `most`. Those that belong together leave
/// together, the last ones of all not yet: more of them may come.
fn lines_to_flush(lines: &[RenderedLine], most: usize) -> usize {
    let over = lines.len().saturating_sub(most);
    let (left, rest) = lines.split_at(over);
    let Some(last) = left.last() else { return 0 };
    let belongs = |line: &&RenderedLine| line.end == last.end;
    let behind = rest.iter().take_while(belongs).count();
    if behind == rest.len() {
        over - left.iter().rev().take_while(belongs).count()
    } else {
        over + behind
    }
}

fn plain_lines(lines: impl IntoIterator<Item = RenderedLine>) -> Vec<Line> {
    lines.into_iter().map(|rendered| rendered.line).collect()
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
    fn carriage_returns_end_lines_and_nothing_is_lost() {
        for columns in [40, 100] {
            let whole = render(TEXT, columns);
            for end in ["\r", "\r\n"] {
                let text = TEXT.replace('\n', end);
                for piece in [1, 2, 3, 7, 50, 1000] {
                    let lines = streamed(&text, piece, columns, 100);
                    assert_eq!(lines, whole, "{end:?} {columns} {piece}");
                }
            }
        }
        // One alone in a text, as a program's progress has it.
        for piece in [1, 7, 1000] {
            let lines = streamed("10 %\r20 %\n\nDone.\n\nEnd.\n", piece, 40, 100);
            let lines: Vec<String> = lines.iter().map(Line::plain).collect();
            assert_eq!(lines, ["10 % 20 %", "", "Done.", "", "End."], "{piece}");
        }
    }

    #[test]
    fn a_block_that_is_taller_than_the_region_leaves_it_line_by_line() {
        let code: String = (0..200)
            .map(|n| format!("line {n} {}\n", "=".repeat(n)))
            .collect();
        let text = format!("Before.\n\n```\n{code}```\n\nAfter.");
        let whole = render(&text, 60);
        for most in [3, 10, 50] {
            assert_eq!(streamed(&text, 5, 60, most), whole, "{most}");
        }
    }

    /// The words of what was given out, without what a layout adds.
    fn words(lines: &[Line]) -> Vec<String> {
        let texts = lines.iter().map(Line::plain).collect::<Vec<_>>().join(" ");
        let words = texts.split(|c: char| c.is_whitespace() || "│─┼•".contains(c));
        let words = words.filter(|word| !word.is_empty());
        words.map(str::to_owned).collect()
    }

    #[test]
    fn a_tall_list_that_becomes_loose_is_neither_lost_nor_doubled() {
        let items: String = (0..30)
            .map(|n| format!("- item {n}\n  - inner {n}\n"))
            .collect();
        let text = format!("{items}\n- loose one\n\n- loose two\n\nAfter.");
        let whole = words(&render(&text, 60));
        for most in [1, 3, 10, 50] {
            for piece in [1, 7] {
                let lines = streamed(&text, piece, 60, most);
                assert_eq!(words(&lines), whole, "{most} {piece}");
            }
        }
        // Its layout stays.
        let lines = streamed(&text, 7, 60, 3);
        let empty = lines.iter().filter(|line| line.is_empty()).count();
        assert_eq!(empty, 1, "{lines:?}");
    }

    #[test]
    fn a_tall_table_keeps_its_widths() {
        let rows: String = (0..30).map(|n| format!("| a{n} | b{n} |\n")).collect();
        let wide = format!("| {} | some more words in a cell |\n", "wide ".repeat(6));
        let text = format!("| one | two |\n|---|---|\n{rows}{wide}{rows}\nAfter.");
        let whole = words(&render(&text, 80));
        for most in [1, 3, 10] {
            for piece in [1, 7] {
                let lines = streamed(&text, piece, 80, most);
                let mut given = words(&lines);
                let mut whole = whole.clone();
                // Words of a cell that is broken stand beside those of the next cell.
                given.sort();
                whole.sort();
                assert_eq!(given, whole, "{most} {piece}");
            }
        }
        // Nor is it told row by row once rows stand beside each other.
        let rows = "| a | b | c |\n".repeat(30);
        let cell = "x".repeat(90);
        let text =
            format!("| one | two | three |\n|---|---|---|\n{rows}| {cell} | {cell} | {cell} |\n");
        let lines = streamed(&text, 7, 20, 3);
        assert!(
            lines.iter().all(|line| !line.plain().contains("one:")),
            "{lines:?}"
        );
    }

    #[test]
    fn a_tall_block_is_whole_in_a_terminal_that_changes_its_size() {
        let words_of = |count: usize| {
            (0..count)
                .map(|n| format!("w{n}"))
                .collect::<Vec<_>>()
                .join(" ")
        };
        let code: String = (0..40)
            .map(|n| format!("c{n} {}\n", words_of(12)))
            .collect();
        let rows: String = (0..30)
            .map(|n| format!("| a{n} | {} |\n", words_of(4)))
            .collect();
        let items: String = (0..20)
            .map(|n| format!("- i{n} {}\n", words_of(20)))
            .collect();
        for text in [
            words_of(400),
            format!("```\n{code}```\n"),
            items,
            format!("| one | two |\n|---|---|\n{rows}"),
        ] {
            let mut stream = MarkdownStream::default();
            let mut done = Vec::new();
            let chars: Vec<char> = text.chars().collect();
            for (at, piece) in chars.chunks(11).enumerate() {
                stream.push(&piece.iter().collect::<String>());
                let columns = [80, 50, 64, 100].get(at / 20 % 4).copied().unwrap_or(80);
                done.extend(stream.frame(columns, 5).0);
            }
            done.extend(stream.finish(70));
            let mut given = letters(&done);
            let mut whole = letters(&render(&text, 70));
            if text.starts_with('|') {
                given.sort_unstable();
                whole.sort_unstable();
            }
            assert_eq!(given, whole);
        }
    }

    /// The letters of what was given out: code is broken anywhere.
    fn letters(lines: &[Line]) -> Vec<char> {
        let words = words(lines);
        words.iter().flat_map(|word| word.chars()).collect()
    }

    #[test]
    fn emphasis_that_ends_later_does_not_move_what_was_given_out() {
        let many: String = (0..200).map(|n| format!("w{n} ")).collect();
        let text = format!("Begin **{many}end** and `more`, and [a link](http://example.com/).\n");
        let whole = words(&render(&text, 40));
        let given = words(&streamed(&text, 3, 40, 4));
        let marked = given.iter().map(|word| word.replace('*', ""));
        assert_eq!(marked.collect::<Vec<_>>(), whole);
    }

    #[test]
    fn where_a_reference_leads_is_shown() {
        let text = "See [the page][1] and this[^2].\n\nMore.\n\n[1]: https://example.com/page\n\
                    [^2]: https://example.com/note\n\nEnd.\n\n[3]: https://example.com/last";
        for piece in [1, 7, 1000] {
            let lines = streamed(text, piece, 80, 20);
            let lines: Vec<String> = lines.iter().map(Line::plain).collect();
            for address in [
                "[1]: https://example.com/page",
                "[^2]: https://example.com/note",
            ] {
                assert!(lines.iter().any(|line| line == address), "{lines:?}");
            }
            let last = lines.last().map(String::as_str);
            assert_eq!(last, Some("[3]: https://example.com/last"), "{lines:?}");
        }
        let text = "[1]: https://example.com/page\nAnd text.\n\n[x]: no definition, but text.";
        let lines: Vec<String> = streamed(text, 3, 80, 20).iter().map(Line::plain).collect();
        let shown = [
            "[1]: https://example.com/page",
            "And text.",
            "",
            "[x]: no definition, but text.",
        ];
        assert_eq!(lines, shown);
        for (text, shown) in [
            ("[`foo`]: returns the thing", "[foo]: returns the thing"),
            ("[**Note**]: keep this in mind", "[Note]: keep this in mind"),
            (
                "[docs](https://x) and [y]: z",
                "docs (https://x) and [y]: z",
            ),
        ] {
            let lines = streamed(text, 1000, 80, 20);
            let lines: Vec<String> = lines.iter().map(Line::plain).collect();
            assert_eq!(lines, [shown], "shown once");
        }
    }
}
