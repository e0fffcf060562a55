//! A call that is over: its line, and below that what it changed in a file, or else some of what it
//! said.

use std::time::Duration;

use conjure_core::chat::CallOutput;
use serde_json::Value;

use crate::call::{change_lines, final_text, summary};
use crate::numerals;
use crate::text::{Color, Line, Style, lines_of};

/// How many lines of a difference or of a new file are shown.
const MAX_CHANGED_LINES: usize = 24;
/// How many lines are shown of the output of a call that worked, and of one that failed.
const MAX_OUTPUT_LINES: (usize, usize) = (3, 12);

/// Choice of the lines of a call that are shown where not all are.
#[derive(Debug, Clone, Copy)]
pub(crate) enum CallPreview {
    /// The first lines, with this text behind the number of further ones: it says how those are shown.
    First(&'static str),
    /// The last lines of the call's output: no key shows more.
    Last,
}

/// Renders a call in lines of at most `columns` columns. `before` is the text of the file before the
/// call wrote it, where that is known.
pub(crate) fn lines(
    arguments: &Value,
    before: Option<&str>,
    result: &CallOutput,
    columns: usize,
    preview: CallPreview,
) -> Vec<Line> {
    let mut lines = vec![head(arguments, result, columns)];
    let most = if result.is_error {
        MAX_OUTPUT_LINES.1
    } else {
        MAX_OUTPUT_LINES.0
    };
    let changed = change_lines(arguments, before);
    let is_change = !changed.is_empty() && !result.is_error;
    let below = match preview {
        CallPreview::First(how) if is_change => first_lines(changed, MAX_CHANGED_LINES, how),
        CallPreview::Last if is_change => first_lines(changed, MAX_CHANGED_LINES, ""),
        CallPreview::First(how) => first_lines(output_lines(result), most, how),
        CallPreview::Last => last_lines(output_lines(result), most),
    };
    lines.extend(below.iter().map(|line| indent_below(line, columns)));
    lines
}

/// All of it: its line, what it changed in a file where it worked, and its output.
pub(crate) fn full_lines(
    arguments: &Value,
    before: Option<&str>,
    result: &CallOutput,
    columns: usize,
) -> Vec<Line> {
    let mut lines = vec![head(arguments, result, columns)];
    if !result.is_error {
        let changed = change_lines(arguments, before);
        lines.extend(changed.iter().map(|line| indent_below(line, columns)));
    }
    let indent = Line::of("  ", Style::PLAIN);
    for line in lines_of(&result.output, Style::DIM) {
        lines.extend(line.chunks(columns, &indent, &indent));
    }
    lines
}

/// The lines of the output that say something.
fn output_lines(result: &CallOutput) -> Vec<Line> {
    let lines = result.output.lines().map(final_text);
    let lines = lines.filter(|line| !line.trim().is_empty());
    lines.map(|line| Line::of(line, Style::DIM)).collect()
}

/// How a call ended, the tool, the arguments that matter, the backend and the time.
pub(crate) fn head(arguments: &Value, result: &CallOutput, columns: usize) -> Line {
    let (mark, color) = match result.is_error {
        true => ("✗ ", Color::Red),
        false => ("✓ ", Color::Green),
    };
    let by = match &result.backend {
        Some(backend) => {
            let time = numerals::duration(Duration::from_millis(result.duration_ms));
            format!("  {backend}, {time}")
        }
        None => "  not run".to_owned(),
    };
    let by = Line::of(by, Style::DIM);
    let mut line = Line::of(mark, Style::of(color))
        .with(&result.name, Style::BOLD)
        .with(" ", Style::PLAIN);
    let room = columns.saturating_sub(line.width() + by.width());
    line.extend(&Line::of(summary(arguments), Style::PLAIN).truncate(room));
    line.extend(&by);
    line
}

/// A line below that of its call.
fn indent_below(line: &Line, columns: usize) -> Line {
    let mut whole = Line::of("  ", Style::PLAIN);
    whole.extend(line);
    whole.truncate(columns)
}

/// The first of these lines, and how many more there are, with what shows them.
fn first_lines(mut lines: Vec<Line>, most: usize, how: &str) -> Vec<Line> {
    if let Some(more) = hidden_count(lines.len(), most) {
        lines.truncate(most);
        lines.push(Line::of(format!("… {more} more lines{how}"), Style::DIM));
    }
    lines
}

/// The last of these lines, and how many are before them.
fn last_lines(mut lines: Vec<Line>, most: usize) -> Vec<Line> {
    if let Some(more) = hidden_count(lines.len(), most) {
        let before = Line::of(format!("… {more} lines before"), Style::DIM);
        lines.drain(..more);
        lines.insert(0, before);
    }
    lines
}

/// How many lines are left out where so many may be shown; one more takes no more room than saying
/// that there is one.
fn hidden_count(lines: usize, most: usize) -> Option<usize> {
    lines.checked_sub(most).filter(|more| *more > 1)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn plain(arguments: &Value, output: &str, is_error: bool) -> Vec<String> {
        let result = CallOutput {
            call_id: "c1".to_owned(),
            name: "sh".to_owned(),
            backend: Some("local".to_owned()),
            output: output.to_owned(),
            is_error,
            duration_ms: 7,
        };
        let lines = lines(arguments, None, &result, 40, CallPreview::Last);
        lines.iter().map(Line::plain).collect()
    }

    #[test]
    fn a_call_ends_with_its_last_lines() {
        let command = json!({ "command": "make" });
        let output: String = (1..=20).map(|n| format!("line {n}\n")).collect();
        assert_eq!(
            plain(&command, &output, false),
            [
                "✓ sh make  local, 7 ms",
                "  … 17 lines before",
                "  line 18",
                "  line 19",
                "  line 20"
            ]
        );
        assert_eq!(plain(&command, &output, true).len(), 14);
        let four = plain(&command, "1\n2\n\n3\n 10%\r100%\n", false);
        assert_eq!(four[1..], ["  1", "  2", "  3", "  100%"]);
    }

    #[test]
    fn a_change_of_a_file_is_shown_unless_it_failed() {
        let change = json!({ "path": "a.txt", "old_str": "one", "new_str": "two" });
        let shown = ["✓ sh a.txt  local, 7 ms", "  - one", "  + two"];
        assert_eq!(plain(&change, "edited", false), shown);
        let failed = ["✗ sh a.txt  local, 7 ms", "  it is not there"];
        assert_eq!(plain(&change, "it is not there", true), failed);
        let long = "x\n".repeat(30);
        let made = plain(&json!({ "file_text": long }), "made", false);
        assert_eq!(made.last().map(String::as_str), Some("  … 6 more lines"));
    }
}
