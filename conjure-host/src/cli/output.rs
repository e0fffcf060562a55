//! Where words go: results to stdout, everything else to stderr, JSON when asked for.

use std::borrow::Cow;
use std::fmt::Display;
use std::io::Write as _;

use serde::Serialize;
use serde_json::json;

use super::exit::Failure;

/// Prints a line of the result.
pub(crate) fn line(text: impl Display) {
    let _ = writeln!(anstream::stdout(), "{text}");
}

/// Prints a piece of the result, at once.
pub(crate) fn piece(text: impl Display) {
    let mut stdout = anstream::stdout();
    let _ = write!(stdout, "{text}");
    let _ = stdout.flush();
}

/// A text of somebody else's, such as a model or a plugin, without what would steer a terminal:
/// control characters except line ends and tabs, and what turns the direction of writing.
pub(crate) fn clean(text: &str) -> Cow<'_, str> {
    let steers = |c: char| {
        (c.is_control() && c != '\n' && c != '\t')
            || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    if text.contains(steers) {
        Cow::Owned(text.replace(steers, ""))
    } else {
        Cow::Borrowed(text)
    }
}

/// Prints a line beside the result.
pub(crate) fn aside(text: impl Display) {
    let _ = writeln!(anstream::stderr(), "{text}");
}

/// Prints a value as JSON, for programs: one line in a stream of them, pretty when it is alone.
pub(crate) fn json(value: &impl Serialize) {
    if let Ok(text) = serde_json::to_string_pretty(value) {
        line(text);
    }
}

/// Prints one line of a stream of JSON lines.
pub(crate) fn json_line(value: &impl Serialize) {
    if let Ok(text) = serde_json::to_string(value) {
        line(text);
    }
}

/// Says why a verb could not do what it was asked to.
pub(crate) fn failure(failure: &Failure, as_json: bool) {
    if as_json {
        json_line(&json!({ "type": "error", "error": failure.message }));
    }
    aside(format_args!(
        "{RED}error:{RESET} {}",
        clean(&failure.message)
    ));
}

pub(crate) const RED: &str = "\u{1b}[31m";
pub(crate) const GREEN: &str = "\u{1b}[32m";
pub(crate) const YELLOW: &str = "\u{1b}[33m";
pub(crate) const CYAN: &str = "\u{1b}[36m";
pub(crate) const DIM: &str = "\u{1b}[2m";
pub(crate) const BOLD: &str = "\u{1b}[1m";
pub(crate) const RESET: &str = "\u{1b}[0m";

/// A table of columns that are as wide as they must be.
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with a head.
    pub(crate) fn new<const N: usize>(head: [&str; N]) -> Self {
        Self {
            rows: vec![head.iter().map(|name| (*name).to_owned()).collect()],
        }
    }

    /// Adds a row.
    pub(crate) fn row<const N: usize>(&mut self, cells: [String; N]) {
        let cells = cells.map(|cell| clean(&cell).into_owned());
        self.rows.push(cells.into());
    }

    /// Prints it.
    pub(crate) fn print(&self) {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            self.rows
                .iter()
                .filter_map(|row| row.get(column))
                .map(|c| c.chars().count())
                .max()
        };
        let widths: Vec<usize> = (0..columns)
            .map(|column| width(column).unwrap_or(0))
            .collect();
        for (number, row) in self.rows.iter().enumerate() {
            let mut text = String::new();
            for (cell, width) in row.iter().zip(&widths) {
                text.push_str(cell);
                text.extend(std::iter::repeat_n(' ', width - cell.chars().count() + 2));
            }
            let text = text.trim_end();
            if number == 0 {
                line(format_args!("{BOLD}{text}{RESET}"));
            } else {
                line(text);
            }
        }
    }
}

/// `1.2 s`, `35 ms`.
pub(crate) fn duration(milliseconds: u64) -> String {
    if milliseconds >= 1000 {
        format!("{:.1} s", milliseconds as f64 / 1000.0)
    } else {
        format!("{milliseconds} ms")
    }
}

/// `1.2 KB`, `7 bytes`.
pub(crate) fn size(bytes: u64) -> String {
    match bytes {
        0..1000 => format!("{bytes} bytes"),
        1000..1_000_000 => format!("{:.1} KB", bytes as f64 / 1e3),
        _ => format!("{:.1} MB", bytes as f64 / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_of_somebody_elses_cannot_steer_the_terminal() {
        for (given, shown) in [
            ("plain\ttext\n", "plain\ttext\n"),
            ("\u{1b}]0;title\u{7}\u{1b}[2Jx", "]0;title[2Jx"),
            ("rm -rf /\rls", "rm -rf /ls"),
            ("\u{9b}31mred", "31mred"),
            ("a\u{202e}b\u{2066}c", "abc"),
            ("Grüße, 世界", "Grüße, 世界"),
        ] {
            assert_eq!(clean(given), shown, "{given:?}");
        }
    }
}
