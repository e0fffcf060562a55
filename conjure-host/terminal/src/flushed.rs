//! What of a text was flushed, given out for good, while more of it comes, and how it was laid out.
//!
//! A block is rendered anew with every piece that comes, and its lines may become others: a list
//! becomes loose, a table wider, the terminal narrower. So what was given out is remembered as a
//! place in the text, not as a number of lines.

use std::collections::BTreeMap;

use crate::table::TableLayout;
use crate::text::Line;

/// A place in a text: everything before it is counted in letters, which no layout changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TextPosition {
    /// The line of the source that the innermost block begins on, counted from 0.
    line: usize,
    /// How much of that block is before the place: 0 for what separates it from the block above it,
    /// 1 and the number of letters for what is in it.
    letters: usize,
    /// The signs behind the last of these letters. They may be marks of emphasis once the text goes
    /// on, which are shown no longer, so they are no letters.
    signs: usize,
}

impl TextPosition {
    /// Between a block and the one above it.
    pub(crate) const fn above(line: usize) -> Self {
        Self {
            line,
            letters: 0,
            signs: 0,
        }
    }

    /// Where a block begins.
    pub(crate) const fn begin(line: usize) -> Self {
        Self {
            line,
            letters: 1,
            signs: 0,
        }
    }

    /// Behind a block that is shown whole or not at all.
    pub(crate) const fn end(line: usize) -> Self {
        Self {
            line,
            letters: usize::MAX,
            signs: 0,
        }
    }

    /// The line of the source that its block begins on.
    pub(crate) fn line(self) -> usize {
        self.line
    }

    /// How many characters of a line of code are before it.
    pub(crate) fn characters(self) -> usize {
        self.letters.saturating_sub(1)
    }

    /// Goes on by so many characters of a line of code.
    pub(crate) fn skip(&mut self, characters: usize) {
        self.letters = self.letters.saturating_add(characters);
    }

    /// Goes on behind a piece of text.
    pub(crate) fn advance(&mut self, text: &str) {
        for c in text.chars().filter(|c| !c.is_whitespace()) {
            if c.is_ascii_punctuation() {
                self.signs += 1;
            } else {
                self.letters += 1;
                self.signs = 0;
            }
        }
    }

    /// Returns what is behind this place, of texts that follow each other from the block's begin on.
    pub(crate) fn rest_of(self, texts: Vec<Line>) -> Vec<Line> {
        let (mut letters, mut signs) = (self.characters(), self.signs);
        if letters == 0 && signs == 0 {
            return texts;
        }
        let mut rest = Vec::new();
        for text in texts {
            let mut behind = Line::new();
            for span in text.spans() {
                let passed = |c: &char| {
                    let before = match (c.is_whitespace(), c.is_ascii_punctuation()) {
                        (true, _) => return true,
                        (_, true) if letters > 0 => return true,
                        (_, true) => &mut signs,
                        _ => &mut letters,
                    };
                    let is_before = *before > 0;
                    *before = before.saturating_sub(1);
                    is_before
                };
                if !behind.is_empty() {
                    behind.push(span.text(), span.style());
                    continue;
                }
                let skipped: usize = span
                    .text()
                    .chars()
                    .take_while(passed)
                    .map(char::len_utf8)
                    .sum();
                let (_, shown) = span.text().split_at(skipped);
                behind.push(shown, span.style());
            }
            if !behind.is_empty() {
                // Whatever follows was not given out.
                (letters, signs) = (0, 0);
                rest.push(behind);
            }
        }
        rest
    }
}

/// A line, and the place in the text behind it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RenderedLine {
    pub(crate) line: Line,
    pub(crate) end: TextPosition,
}

/// How a block is laid out that lines were given out of: its other lines are laid out so too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum BlockLayout {
    List { is_tight: bool },
    Table(TableLayout),
}

/// Layouts by the line and the column of the source on which their blocks begin.
pub(crate) type BlockLayouts = BTreeMap<(usize, usize), BlockLayout>;

/// What of a text was flushed: given out for good.
#[derive(Debug, Default)]
pub(crate) struct FlushedText {
    flushed_until: Option<TextPosition>,
    layouts: BlockLayouts,
}

impl FlushedText {
    /// Up to where, where something was given out.
    pub(crate) fn flushed_until(&self) -> Option<TextPosition> {
        self.flushed_until
    }

    /// Whether the line before this place was given out.
    pub(crate) fn has(&self, place: TextPosition) -> bool {
        self.flushed_until.is_some_and(|until| place <= until)
    }

    pub(crate) fn layout(&self, begin: (usize, usize)) -> Option<&BlockLayout> {
        self.layouts.get(&begin)
    }

    /// Notes that lines up to this place are flushed, in these layouts.
    pub(crate) fn flush(&mut self, until: TextPosition, mut layouts: BlockLayouts) {
        layouts.retain(|(line, _), _| *line <= until.line);
        (self.flushed_until, self.layouts) = (Some(until), layouts);
    }

    /// Moves what is noted, as `lines` lines at the begin of the source are gone.
    pub(crate) fn drop_lines(&mut self, lines: usize) {
        self.flushed_until = self.flushed_until.and_then(|until| {
            let line = until.line.checked_sub(lines)?;
            Some(TextPosition { line, ..until })
        });
        let layouts = std::mem::take(&mut self.layouts);
        let moved = layouts.into_iter().filter_map(|((line, column), layout)| {
            Some(((line.checked_sub(lines)?, column), layout))
        });
        self.layouts = moved.collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::Style;

    #[test]
    fn marks_that_are_shown_no_longer_do_not_move_what_was_given_out() {
        let mut flushed = TextPosition::begin(0);
        flushed.advance("Some **bold words,");
        let whole = Line::of("Some ", Style::PLAIN)
            .with("bold words, and", Style::BOLD)
            .with(" more.", Style::PLAIN);
        let rest = flushed.rest_of(vec![whole, Line::of("Next.", Style::PLAIN)]);
        let rest: Vec<String> = rest.iter().map(Line::plain).collect();
        assert_eq!(rest, ["and more.", "Next."]);
    }
}
