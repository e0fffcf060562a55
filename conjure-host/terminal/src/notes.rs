//! Notes about what happens: a label, and a text of one or several lines.

use crate::text::{Color, Line, Style};

/// A note as lines of at most `columns` columns, with its label in a colour.
pub(crate) fn lines(label: &str, color: Color, text: &str, columns: usize) -> Vec<Line> {
    let first = Line::of(label, Style::of(color));
    let indent = Line::of("  ", Style::PLAIN);
    let mut texts = text.lines();
    let line = Line::of(texts.next().unwrap_or_default(), Style::PLAIN);
    let mut lines = line.wrap(columns, &first, &indent);
    for text in texts {
        let line = Line::of(text, Style::PLAIN);
        lines.extend(line.wrap(columns, &indent, &indent));
    }
    lines
}
