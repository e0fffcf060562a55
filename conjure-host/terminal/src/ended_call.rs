//! A call that is over, where no key shows more of it: its line, and below that what it changed in a
//! file, or else what it said last.

use conjure_core::chat::CallOutput;
use serde_json::Value;

use crate::call::{MOST_CHANGED, changed, ended, first, indented, left_out, shown};
use crate::text::{Line, Style};

/// How many of the last lines are shown of a call that worked, and of one that failed.
const LAST: (usize, usize) = (3, 12);

/// It in lines of so many columns.
pub(crate) fn lines(arguments: &Value, result: &CallOutput, columns: usize) -> Vec<Line> {
    let mut lines = vec![ended(arguments, result, columns)];
    let changed = changed(arguments);
    let below = if changed.is_empty() || result.is_error {
        last(result)
    } else {
        first(changed, MOST_CHANGED, "")
    };
    lines.extend(below.iter().map(|line| indented(line, columns)));
    lines
}

/// The last lines of the output, and how many are before them.
fn last(result: &CallOutput) -> Vec<Line> {
    let most = if result.is_error { LAST.1 } else { LAST.0 };
    let mut lines: Vec<Line> = result
        .output
        .lines()
        .map(shown)
        .filter(|line| !line.trim().is_empty())
        .map(|line| Line::of(line, Style::DIM))
        .collect();
    if let Some(more) = left_out(lines.len(), most) {
        let before = Line::of(format!("… {more} lines before"), Style::DIM);
        lines.drain(..more);
        lines.insert(0, before);
    }
    lines
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
        let lines = lines(arguments, &result, 40);
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
