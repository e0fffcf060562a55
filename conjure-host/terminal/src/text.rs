//! Styled text in lines, how wide it is, and how it is broken.
//!
//! Every text that came from elsewhere is cleaned when a span is made, so nothing in a line can
//! steer the terminal. Only the sixteen colours of the terminal's own palette are used: whoever has
//! a light or a dark background has chosen them to be read there.

use std::fmt::Write as _;
use std::sync::Arc;

use conjure_core::foreign_text::clean;
use unicode_segmentation::UnicodeSegmentation as _;
use unicode_width::UnicodeWidthStr as _;

use crate::line_break;

/// A colour of the terminal's palette.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Color {
    /// What failed, and lines that are taken away.
    Red,
    /// What worked, and lines that are added.
    Green,
    /// What asks for attention.
    Yellow,
    /// Names.
    Blue,
    /// Words of a language.
    Magenta,
    /// Code, and what can be done.
    Cyan,
}

/// How a piece of text looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Style {
    /// Colour of the text; the terminal's own without one.
    pub(crate) color: Option<Color>,
    /// Bold.
    pub(crate) bold: bool,
    /// Less to be seen than the rest.
    pub(crate) dim: bool,
    /// Slanted.
    pub(crate) italic: bool,
    /// Underlined.
    pub(crate) underline: bool,
    /// Struck through.
    pub(crate) strike: bool,
    /// Foreground and background exchanged.
    pub(crate) reverse: bool,
}

impl Style {
    /// The terminal's own style.
    pub(crate) const PLAIN: Self = Self {
        color: None,
        bold: false,
        dim: false,
        italic: false,
        underline: false,
        strike: false,
        reverse: false,
    };
    /// Less to be seen.
    pub(crate) const DIM: Self = Self {
        dim: true,
        ..Self::PLAIN
    };
    /// Bold.
    pub(crate) const BOLD: Self = Self {
        bold: true,
        ..Self::PLAIN
    };

    /// A style with this colour.
    pub(crate) const fn of(color: Color) -> Self {
        Self {
            color: Some(color),
            ..Self::PLAIN
        }
    }

    /// Makes the style bold.
    #[must_use]
    pub(crate) const fn bold(mut self) -> Self {
        self.bold = true;
        self
    }

    fn write(self, out: &mut String, colors: bool) {
        out.push_str("\u{1b}[0");
        for (is_on, code) in [
            (self.bold, 1),
            (self.dim, 2),
            (self.italic, 3),
            (self.underline, 4),
            (self.reverse, 7),
            (self.strike, 9),
        ] {
            if is_on {
                let _ = write!(out, ";{code}");
            }
        }
        if colors && let Some(color) = self.color {
            let code = match color {
                Color::Red => 31,
                Color::Green => 32,
                Color::Yellow => 33,
                Color::Blue => 34,
                Color::Magenta => 35,
                Color::Cyan => 36,
            };
            let _ = write!(out, ";{code}");
        }
        out.push('m');
    }
}

/// A piece of text that looks one way. Has no line end and nothing that steers a terminal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Span {
    text: String,
    style: Style,
}

impl Span {
    /// A piece of text; tabs become spaces, line ends become one.
    pub(crate) fn new(text: impl AsRef<str>, style: Style) -> Self {
        let text = clean(text.as_ref());
        let text = if text.contains(['\n', '\t']) {
            text.replace('\t', "    ").replace('\n', " ")
        } else {
            text.into_owned()
        };
        Self { text, style }
    }

    /// Text of the span.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Style of the span.
    pub(crate) fn style(&self) -> Style {
        self.style
    }
}

/// A line of a screen, or a text that has yet to be broken into lines.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Line {
    spans: Vec<Span>,
    drawing: Option<Drawing>,
}

/// Image that a terminal draws in place of a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Drawing {
    /// Sequence that draws the image from the cursor on; the program's own, and no text.
    pub(crate) sequence: Arc<str>,
    /// Number of rows that the image takes.
    pub(crate) rows: usize,
}

impl Line {
    /// An empty line.
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// A line that is drawn.
    pub(crate) fn drawn(drawing: Drawing) -> Self {
        Self {
            spans: Vec::new(),
            drawing: Some(drawing),
        }
    }

    /// Image that is drawn in place of the line.
    pub(crate) fn drawing(&self) -> Option<&Drawing> {
        self.drawing.as_ref()
    }

    /// A line of one style.
    pub(crate) fn of(text: impl AsRef<str>, style: Style) -> Self {
        Self::new().with(text, style)
    }

    /// Adds a piece of text, and returns the line.
    #[must_use]
    pub(crate) fn with(mut self, text: impl AsRef<str>, style: Style) -> Self {
        self.push(text, style);
        self
    }

    /// Adds a piece of text.
    pub(crate) fn push(&mut self, text: impl AsRef<str>, style: Style) {
        self.push_clean(&Span::new(text, style).text, style);
    }

    /// Adds a piece of a text that a span has.
    fn push_clean(&mut self, text: &str, style: Style) {
        match self.spans.last_mut() {
            _ if text.is_empty() => {}
            Some(last) if last.style == style => last.text.push_str(text),
            _ => self.spans.push(Span {
                text: text.to_owned(),
                style,
            }),
        }
    }

    /// Adds what another line has.
    pub(crate) fn extend(&mut self, other: &Self) {
        for span in &other.spans {
            self.push_clean(&span.text, span.style);
        }
    }

    /// Reads a line that has the program's own styles in it, as its other output has.
    pub(crate) fn from_styled(text: &str) -> Self {
        let mut line = Self::new();
        let mut style = Style::PLAIN;
        let mut rest = text;
        while let Some(at) = rest.find("\u{1b}[") {
            let (before, from) = rest.split_at(at);
            line.push(before, style);
            let from = from.get(2..).unwrap_or_default();
            let Some((code, after)) = from.split_once('m') else {
                rest = from;
                continue;
            };
            match code {
                "0" => style = Style::PLAIN,
                "1" => style.bold = true,
                "2" => style.dim = true,
                "3" => style.italic = true,
                "31" => style.color = Some(Color::Red),
                "32" => style.color = Some(Color::Green),
                "33" => style.color = Some(Color::Yellow),
                "34" => style.color = Some(Color::Blue),
                "35" => style.color = Some(Color::Magenta),
                "36" => style.color = Some(Color::Cyan),
                // Somebody else's; it loses what makes it steer.
                _ => {
                    rest = from;
                    continue;
                }
            }
            rest = after;
        }
        line.push(rest, style);
        line
    }

    /// Spans of the line.
    pub(crate) fn spans(&self) -> &[Span] {
        &self.spans
    }

    /// Whether the line has neither text nor an image.
    pub(crate) fn is_empty(&self) -> bool {
        self.spans.is_empty() && self.drawing.is_none()
    }

    /// Number of columns that the line takes.
    pub(crate) fn width(&self) -> usize {
        self.spans.iter().map(|span| span.text.width()).sum()
    }

    /// Text of the line without styles.
    pub(crate) fn plain(&self) -> String {
        self.spans.iter().map(|span| span.text.as_str()).collect()
    }

    /// Encodes the line for a terminal.
    pub(crate) fn to_terminal(&self, colors: bool) -> String {
        let mut out = String::new();
        let mut is_styled = false;
        for span in &self.spans {
            if span.style != Style::PLAIN || is_styled {
                span.style.write(&mut out, colors);
                is_styled = span.style != Style::PLAIN;
            }
            out.push_str(&span.text);
        }
        if is_styled {
            out.push_str("\u{1b}[0m");
        }
        out
    }

    /// The rest of the line, without its first `characters` characters.
    #[must_use]
    pub(crate) fn skip_chars(&self, characters: usize) -> Self {
        let mut left = characters;
        let mut behind = Self::new();
        for span in &self.spans {
            let skipped = span.text.chars().take(left);
            let (count, bytes) = skipped.fold((0, 0), |(count, bytes), c| {
                (count + 1, bytes + c.len_utf8())
            });
            left -= count;
            behind.push_clean(span.text.split_at(bytes).1, span.style);
        }
        behind
    }

    /// Cuts the line to `columns` columns, with `…` at its end.
    #[must_use]
    pub(crate) fn truncate(&self, columns: usize) -> Self {
        if self.width() <= columns {
            return self.clone();
        }
        let mut left = columns.saturating_sub(1);
        let mut cut = Self::new();
        'spans: for span in &self.spans {
            for piece in span.text.graphemes(true) {
                let Some(rest) = left.checked_sub(piece.width()) else {
                    break 'spans;
                };
                left = rest;
                cut.push_clean(piece, span.style);
            }
        }
        cut.push("…", Style::DIM);
        cut
    }

    /// Breaks the text between words into lines of `columns` columns: the first begins with `first`, the
    /// others with `rest`. Chinese and Japanese are broken where their rules let a line end. A word that
    /// is wider than a line is broken where the line ends.
    pub(crate) fn wrap<'a>(&'a self, columns: usize, first: &Self, rest: &'a Self) -> Vec<Self> {
        let mut lines = Wrapping::new(columns, first, rest);
        for span in &self.spans {
            for word in span.text.split_word_bounds() {
                lines.word(word, span.style);
            }
        }
        lines.end()
    }

    /// Breaks the text where lines of `columns` columns end, as code is broken.
    pub(crate) fn chunks<'a>(&'a self, columns: usize, first: &Self, rest: &'a Self) -> Vec<Self> {
        let mut lines = Wrapping::new(columns, first, rest);
        for span in &self.spans {
            lines.pieces(&span.text, span.style);
        }
        lines.end()
    }
}

/// Breaks a text of spans.
struct Wrapping<'a> {
    columns: usize,
    rest: &'a Line,
    done: Vec<Line>,
    line: Line,
    width: usize,
    /// Where the text of the line begins.
    indent: usize,
    /// What goes together to the next line where it does not fit, and its width.
    word: Vec<(&'a str, Style)>,
    word_width: usize,
}

impl<'a> Wrapping<'a> {
    fn new(columns: usize, first: &Line, rest: &'a Line) -> Self {
        let width = first.width();
        Self {
            columns: columns.max(width.max(rest.width()) + 2),
            rest,
            done: Vec::new(),
            line: first.clone(),
            width,
            indent: width,
            word: Vec::new(),
            word_width: 0,
        }
    }

    fn word(&mut self, word: &'a str, style: Style) {
        let width = word.width();
        if word.chars().all(char::is_whitespace) {
            self.flush();
            // A space at the end of a line, or before its first word, shows nothing.
            let has_words = self.width > self.indent;
            let fits = self.width + width < self.columns;
            let leads = !has_words && self.done.is_empty();
            if leads || (has_words && fits) {
                self.line.push_clean(word, style);
                self.width += width;
            } else if has_words {
                self.next_line();
            }
            return;
        }
        let before = self.word.last();
        if before.is_some_and(|(before, _)| line_break::is_between(before, word)) {
            self.flush();
        }
        self.word_width += width;
        self.word.push((word, style));
    }

    fn flush(&mut self) {
        let word = std::mem::take(&mut self.word);
        let word_width = std::mem::take(&mut self.word_width);
        if word.is_empty() {
            return;
        }
        if self.width + word_width > self.columns && self.width > self.indent {
            self.next_line();
        }
        let is_ascii = word.iter().all(|(text, _)| text.is_ascii());
        if is_ascii && self.width + word_width <= self.columns {
            for (text, style) in word {
                self.line.push_clean(text, style);
            }
            self.width += word_width;
        } else {
            for (text, style) in word {
                self.pieces(text, style);
            }
        }
    }

    fn pieces(&mut self, text: &str, style: Style) {
        for piece in text.graphemes(true) {
            let width = piece.width();
            if self.width + width > self.columns {
                self.next_line();
            }
            self.line.push_clean(piece, style);
            self.width += width;
        }
    }

    fn next_line(&mut self) {
        let line = std::mem::replace(&mut self.line, self.rest.clone());
        self.done.push(line);
        self.width = self.rest.width();
        self.indent = self.width;
    }

    fn end(mut self) -> Vec<Line> {
        self.flush();
        self.done.push(self.line);
        self.done
    }
}

/// A text's lines as they are, each of one style.
pub(crate) fn lines_of(text: &str, style: Style) -> Vec<Line> {
    text.lines().map(|line| Line::of(line, style)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrapped(text: &str, columns: usize) -> Vec<String> {
        let line = Line::of(text, Style::PLAIN);
        let lines = line.wrap(columns, &Line::new(), &Line::new());
        lines.iter().map(Line::plain).collect()
    }

    #[test]
    fn a_text_is_broken_between_words_and_no_line_is_too_wide() {
        assert_eq!(wrapped("one two three", 8), ["one two", "three"]);
        assert_eq!(wrapped("abcdefghij", 4), ["abcd", "efgh", "ij"]);
        assert_eq!(wrapped("世界世界", 4), ["世界", "世界"]);
        assert_eq!(wrapped("", 4), [""]);
        let text = "Some words, a-long-one-with-hyphens, 世界 and an e\u{301}clair.";
        for columns in 4..40 {
            for line in wrapped(text, columns) {
                assert!(line.width() <= columns, "{line:?} in {columns}");
            }
        }
    }

    #[test]
    fn a_text_without_spaces_is_broken_where_its_rules_let_a_line_end() {
        assert_eq!(wrapped("see 世界世界世界", 8), ["see 世界", "世界世界"]);
        assert_eq!(wrapped("世界世界。世界", 8), ["世界世", "界。世界"]);
        assert_eq!(
            wrapped("世界は「世界」です", 8),
            ["世界は", "「世界」", "です"]
        );
        assert_eq!(wrapped("世界version2世界", 12), ["世界version2", "世界"]);
        // The style of a letter is no reason to part it from its sign.
        let line = Line::of("世界世界", Style::BOLD).with("、世界", Style::PLAIN);
        let lines = line.wrap(8, &Line::new(), &Line::new());
        let lines: Vec<String> = lines.iter().map(Line::plain).collect();
        assert_eq!(lines, ["世界世", "界、世界"]);
    }

    #[test]
    fn what_steers_a_terminal_does_not_reach_it() {
        let line = Line::of("a\u{1b}]0;title\u{7}b\u{9b}31mc\rd\ne", Style::PLAIN);
        assert_eq!(line.to_terminal(true), "a]0;titleb31mcd e");
    }

    #[test]
    fn styles_of_the_program_are_read_and_others_are_text() {
        let line = Line::from_styled("\u{1b}[31mred\u{1b}[0m \u{1b}[2Jnot");
        assert_eq!(line.plain(), "red 2Jnot");
        assert_eq!(line.to_terminal(true), "\u{1b}[0;31mred\u{1b}[0m 2Jnot");
        assert_eq!(line.to_terminal(false), "\u{1b}[0mred\u{1b}[0m 2Jnot");
    }

    #[test]
    fn a_cut_line_says_so_and_fits() {
        let line = Line::of("世界世界", Style::PLAIN);
        assert_eq!(line.truncate(8).plain(), "世界世界");
        assert_eq!(line.truncate(6).plain(), "世界…");
        assert_eq!(line.truncate(4).plain(), "世…");
    }
}
