//! A table of Markdown: columns as wide as what is in them, or as there is room for. A table that
//! is too wide for that is told row by row.

use comrak::nodes::TableAlignment;

use crate::text::{Line, Style};

/// The narrowest that a column is made to fit.
const LEAST_CELL: usize = 6;
/// What stands between two columns.
const BETWEEN: &str = " │ ";

/// Sets rows of cells, the head first, into so many columns of a terminal.
pub(crate) fn render(
    rows: &[Vec<Line>],
    alignments: &[TableAlignment],
    columns: usize,
) -> Vec<Line> {
    let Some((head, body)) = rows.split_first() else {
        return Vec::new();
    };
    let Some(widths) = widths(rows, head.len(), columns) else {
        return row_by_row(head, body, columns);
    };
    let mut lines = Vec::new();
    set_row(&mut lines, head, &widths, alignments, true);
    let mut rule = String::new();
    for (at, width) in widths.iter().enumerate() {
        if at > 0 {
            rule.push_str("─┼─");
        }
        rule.push_str(&"─".repeat(*width));
    }
    lines.push(Line::of(rule, Style::DIM));
    for row in body {
        set_row(&mut lines, row, &widths, alignments, false);
    }
    lines
}

/// How wide each column is; nothing where they do not fit beside each other.
fn widths(rows: &[Vec<Line>], count: usize, columns: usize) -> Option<Vec<usize>> {
    let mut wanted = vec![1; count];
    for row in rows {
        for (width, cell) in wanted.iter_mut().zip(row) {
            *width = (*width).max(cell.width());
        }
    }
    let between = 3 * count.saturating_sub(1);
    let room = columns.checked_sub(between)?;
    let mut sum: usize = wanted.iter().sum();
    // The widest give way first.
    while sum > room {
        let widest = wanted.iter_mut().max_by_key(|width| **width)?;
        if *widest <= LEAST_CELL {
            return None;
        }
        *widest -= 1;
        sum -= 1;
    }
    Some(wanted)
}

fn set_row(
    lines: &mut Vec<Line>,
    row: &[Line],
    widths: &[usize],
    alignments: &[TableAlignment],
    is_head: bool,
) {
    let empty = Line::new();
    let cells: Vec<Vec<Line>> = widths
        .iter()
        .enumerate()
        .map(|(at, width)| {
            let cell = row.get(at).unwrap_or(&empty);
            let wrapped = cell.wrap(*width, &empty, &empty);
            wrapped.iter().map(trimmed).collect()
        })
        .collect();
    let height = cells.iter().map(Vec::len).max().unwrap_or(1);
    for at in 0..height {
        let mut line = Line::new();
        for (column, (cell, width)) in cells.iter().zip(widths).enumerate() {
            if column > 0 {
                line.push(BETWEEN, Style::DIM);
            }
            let text = cell.get(at).unwrap_or(&empty);
            let room = width.saturating_sub(text.width());
            let left = match alignments.get(column) {
                Some(TableAlignment::Right) => room,
                Some(TableAlignment::Center) => room / 2,
                _ => 0,
            };
            line.push(" ".repeat(left), Style::PLAIN);
            for span in text.spans() {
                let mut style = span.style();
                style.bold |= is_head;
                line.push(span.text(), style);
            }
            // Nothing stands behind the last one.
            if column + 1 < widths.len() {
                line.push(" ".repeat(room - left), Style::PLAIN);
            }
        }
        lines.push(line);
    }
}

/// A line without the space at its end.
fn trimmed(line: &Line) -> Line {
    let mut kept = line.plain().trim_end().len();
    let mut trimmed = Line::new();
    for span in line.spans() {
        let text = span.text();
        let part = text.get(..kept.min(text.len())).unwrap_or_default();
        trimmed.push(part, span.style());
        kept = kept.saturating_sub(text.len());
    }
    trimmed
}

/// Each row as lines of `head: cell`.
fn row_by_row(head: &[Line], body: &[Vec<Line>], columns: usize) -> Vec<Line> {
    let indent = Line::of("  ", Style::PLAIN);
    let mut lines = Vec::new();
    for (number, row) in body.iter().enumerate() {
        if number > 0 {
            lines.push(Line::new());
        }
        for (name, cell) in head.iter().zip(row) {
            let mut text = Line::new();
            for span in name.spans() {
                text.push(span.text(), span.style().bold());
            }
            text.push(": ", Style::DIM);
            text.extend(cell);
            lines.extend(text.wrap(columns, &Line::new(), &indent));
        }
    }
    lines
}
