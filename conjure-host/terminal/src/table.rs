//! A table of Markdown: columns as wide as what is in them, or as there is room for. A table that
//! is too wide for that is told row by row.

use comrak::nodes::TableAlignment;

use crate::text::{Line, Style};

/// The narrowest that a column is made to fit.
const MIN_CELL: usize = 6;
/// What stands between two columns.
const SEPARATOR: &str = " │ ";
/// How wide that is.
const SEPARATOR_COLUMNS: usize = 3;

/// How a table is laid out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TableLayout {
    /// Columns of these widths.
    Columns(Vec<usize>),
    /// Each row as lines of `head: cell`.
    Rows,
}

impl TableLayout {
    /// The one that fits rows of cells, the head first, into so many columns of a terminal.
    pub(crate) fn of(rows: &[Vec<Line>], columns: usize) -> Self {
        let count = rows.first().map_or(0, Vec::len);
        widths(rows, count, columns).map_or(Self::Rows, Self::Columns)
    }

    /// How a table goes on that began in this layout, where another fits all of it: rows that stand
    /// beside each other do so to the end, in columns that may become wider.
    pub(crate) fn or_wider(&self, fitting: Self, columns: usize) -> Self {
        match (self, fitting) {
            (Self::Columns(widths), Self::Rows) if is_too_wide(widths, columns) => Self::Rows,
            (Self::Columns(_), fitting @ Self::Columns(_)) => fitting,
            _ => self.clone(),
        }
    }
}

fn is_too_wide(widths: &[usize], columns: usize) -> bool {
    let between = SEPARATOR_COLUMNS * widths.len().saturating_sub(1);
    widths.iter().sum::<usize>() + between > columns
}

/// Sets rows of cells, the head first, into so many columns of a terminal: the lines of each row.
pub(crate) fn render(
    rows: &[Vec<Line>],
    alignments: &[TableAlignment],
    columns: usize,
    layout: &TableLayout,
) -> Vec<Vec<Line>> {
    let Some((head, body)) = rows.split_first() else {
        return Vec::new();
    };
    let widths = match layout {
        TableLayout::Columns(widths) => widths,
        TableLayout::Rows => return stacked_rows(head, body, columns),
    };
    let mut first = layout_row(head, widths, alignments, true);
    let mut rule = String::new();
    for (at, width) in widths.iter().enumerate() {
        if at > 0 {
            rule.push_str("─┼─");
        }
        rule.push_str(&"─".repeat(*width));
    }
    first.push(Line::of(rule, Style::DIM));
    let body = body
        .iter()
        .map(|row| layout_row(row, widths, alignments, false));
    std::iter::once(first).chain(body).collect()
}

/// How wide each column is; nothing where they do not fit beside each other.
fn widths(rows: &[Vec<Line>], count: usize, columns: usize) -> Option<Vec<usize>> {
    let mut wanted = vec![1; count];
    for row in rows {
        for (width, cell) in wanted.iter_mut().zip(row) {
            *width = (*width).max(cell.width());
        }
    }
    let between = SEPARATOR_COLUMNS * count.saturating_sub(1);
    let room = columns.checked_sub(between)?;
    let mut sum: usize = wanted.iter().sum();
    // The widest give way first.
    while sum > room {
        let widest = wanted.iter_mut().max_by_key(|width| **width)?;
        if *widest <= MIN_CELL {
            return None;
        }
        *widest -= 1;
        sum -= 1;
    }
    Some(wanted)
}

fn layout_row(
    row: &[Line],
    widths: &[usize],
    alignments: &[TableAlignment],
    is_head: bool,
) -> Vec<Line> {
    let empty = Line::new();
    let cells: Vec<Vec<Line>> = widths
        .iter()
        .enumerate()
        .map(|(at, width)| {
            let cell = row.get(at).unwrap_or(&empty);
            let wrapped = cell.wrap(*width, &empty, &empty);
            wrapped.iter().map(trim_end).collect()
        })
        .collect();
    let height = cells.iter().map(Vec::len).max().unwrap_or(1);
    let mut lines = Vec::new();
    for at in 0..height {
        let mut line = Line::new();
        for (column, (cell, width)) in cells.iter().zip(widths).enumerate() {
            if column > 0 {
                line.push(SEPARATOR, Style::DIM);
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
    lines
}

/// A line without the space at its end.
fn trim_end(line: &Line) -> Line {
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

/// Each row as lines of `head: cell`. The head has none of its own.
fn stacked_rows(head: &[Line], body: &[Vec<Line>], columns: usize) -> Vec<Vec<Line>> {
    let indent = Line::of("  ", Style::PLAIN);
    let mut told = vec![Vec::new()];
    for (number, row) in body.iter().enumerate() {
        let mut lines = Vec::new();
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
        told.push(lines);
    }
    told
}
