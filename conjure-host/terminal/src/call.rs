//! A call of a tool: a line while it runs, and all that it would do before it does.

use std::time::{Duration, Instant};

use conjure_core::chat::CallAnnounced;
use conjure_core::foreign_text::{escape_line, in_json};
use serde_json::Value;

use crate::diff;
use crate::highlight;
use crate::numerals;
use crate::text::{Color, Line, Style};

/// How many of the last lines of output are shown while it runs.
pub(crate) const TAIL: usize = 3;
/// The most bytes of live output that are held.
const MAX_LIVE_BYTES: usize = 16 * 1024;

/// A call that was announced and is not over.
#[derive(Debug)]
pub(crate) struct AnnouncedCall {
    pub(crate) id: String,
    name: String,
    pub(crate) arguments: Value,
    backend: Option<String>,
    started_at: Option<Instant>,
    output: String,
    /// What the file has that it would write, where that was told.
    pub(crate) overwritten: Option<String>,
}

impl AnnouncedCall {
    pub(crate) fn new(call: &CallAnnounced) -> Self {
        Self {
            id: call.id.clone(),
            name: call.name.clone(),
            arguments: call.arguments.clone(),
            backend: None,
            started_at: None,
            output: String::new(),
            overwritten: None,
        }
    }

    pub(crate) fn start(&mut self, backend: &str) {
        self.backend = Some(backend.to_owned());
        self.started_at = Some(Instant::now());
    }

    pub(crate) fn push_output(&mut self, chunk: &str) {
        self.output.push_str(chunk);
        if self.output.len() > MAX_LIVE_BYTES {
            let mut from = self.output.len() - MAX_LIVE_BYTES / 2;
            while !self.output.is_char_boundary(from) {
                from += 1;
            }
            self.output.drain(..from);
        }
    }

    /// Whether it runs already; before that it waits.
    pub(crate) fn is_running(&self) -> bool {
        self.started_at.is_some()
    }

    /// Lines of the call before its end, with the last `tail` lines of its output.
    pub(crate) fn live(&self, spinner: &str, columns: usize, tail: usize) -> Vec<Line> {
        // What waits does not turn.
        let mark = if self.started_at.is_some() {
            spinner
        } else {
            "·"
        };
        let mut line = Line::of(mark, Style::of(Color::Cyan))
            .with(" ", Style::PLAIN)
            .with(&self.name, Style::BOLD)
            .with(" ", Style::PLAIN);
        let end = match (&self.backend, self.started_at) {
            (Some(backend), Some(began)) => {
                // Whole seconds: tenths would be read as haste.
                let seconds = Duration::from_secs(began.elapsed().as_secs());
                match seconds.as_secs() {
                    0 => format!("  {backend}"),
                    _ => format!("  {backend}, {}", numerals::duration(seconds)),
                }
            }
            _ => "  waits".to_owned(),
        };
        let end = Line::of(end, Style::DIM);
        let room = columns.saturating_sub(line.width() + end.width());
        line.extend(&Line::of(summary(&self.arguments), Style::PLAIN).truncate(room));
        line.extend(&end);
        let mut lines = vec![line];
        let output: Vec<&str> = self.output.lines().collect();
        for text in output.iter().skip(output.len().saturating_sub(tail)) {
            let line = Line::of("  ┊ ", Style::DIM).with(final_text(text), Style::DIM);
            lines.push(line.truncate(columns));
        }
        lines
    }
}

/// The text that stood last in a line that a program wrote over itself.
pub(crate) fn final_text(line: &str) -> &str {
    line.trim_end().rsplit('\r').next().unwrap_or_default()
}

/// What a call does, on a line: its command, its file, or its arguments.
pub fn summary(arguments: &Value) -> String {
    let Some(fields) = arguments.as_object() else {
        return arguments.to_string();
    };
    let text = |name: &str| fields.get(name).and_then(Value::as_str);
    if let Some(command) = text("command") {
        let mut lines = command.trim().lines();
        let first = lines.next().unwrap_or_default().to_owned();
        return match lines.count() {
            0 => first,
            more => format!("{first} … ({} more)", numerals::lines(more)),
        };
    }
    if let Some(path) = text("path") {
        return path.to_owned();
    }
    let mut told: Vec<String> = Vec::new();
    for (name, value) in fields {
        let value = match value {
            Value::String(text) if !text.contains('\n') => text.clone(),
            value => value.to_string(),
        };
        told.push(match fields.len() {
            1 => value,
            _ => format!("{name}: {value}"),
        });
    }
    told.join(", ")
}

/// What a call changes in a file. `before` is what the file had that it wrote, where that is known.
pub(crate) fn change_lines(arguments: &Value, before: Option<&str>) -> Vec<Line> {
    let text = |name: &str| arguments.get(name).and_then(Value::as_str);
    match (text("old_str"), text("new_str"), text("file_text")) {
        (Some(old), Some(new), _) => diff::lines(old, new, diff::CONTEXT_LINES),
        (_, _, Some(whole)) if before == Some(whole) => Vec::new(),
        (_, _, Some(whole)) => diff::lines(before.unwrap_or_default(), whole, diff::CONTEXT_LINES),
        _ => Vec::new(),
    }
}

/// Everything that a call would do, as a person reads it before it runs: what steers a terminal or has
/// no width is shown as an escape. `before` is what the file has that it would write.
pub(crate) fn full_lines(arguments: &Value, before: Option<&str>) -> Vec<Line> {
    let Some(fields) = arguments.as_object() else {
        return highlight::lines("json", &in_json(&arguments.to_string()));
    };
    let (changed, told) = planned_changes(arguments, before);
    let mut lines = Vec::new();
    for (name, value) in fields {
        if told.contains(&name.as_str()) {
            continue;
        }
        let label = Line::of(format!("{}: ", escape_line(name)), Style::DIM);
        match value {
            Value::String(command) if name == "command" => {
                lines.extend(highlight::lines("bash", &visible(command)));
            }
            Value::String(text) => {
                let text = visible(text);
                let mut text = text.lines();
                lines.push(label.with(text.next().unwrap_or_default(), Style::PLAIN));
                for line in text {
                    lines.push(Line::of("  ", Style::DIM).with(line, Style::PLAIN));
                }
            }
            value => {
                let pretty = serde_json::to_string_pretty(value).unwrap_or_default();
                let mut values = highlight::lines("json", &in_json(&pretty)).into_iter();
                let mut label = label;
                label.extend(&values.next().unwrap_or_default());
                lines.push(label);
                lines.extend(values);
            }
        }
    }
    lines.extend(changed);
    lines
}

/// What a call would change in a file, all of it, and the arguments that say so; of a file that it
/// overwrites what becomes another.
fn planned_changes(
    arguments: &Value,
    before: Option<&str>,
) -> (Vec<Line>, &'static [&'static str]) {
    let text = |name: &str| arguments.get(name).and_then(Value::as_str).map(visible);
    if let (Some(old), Some(new)) = (text("old_str"), text("new_str")) {
        return (diff::lines(&old, &new, usize::MAX), &["old_str", "new_str"]);
    }
    let Some(whole) = text("file_text") else {
        return (Vec::new(), &[]);
    };
    let Some(before) = before else {
        return (diff::lines("", &whole, usize::MAX), &["file_text"]);
    };
    let said = if visible(before) == whole {
        "The file is there, and has this text already."
    } else {
        "It overwrites the file that is there:"
    };
    let mut lines = vec![Line::of(said, Style::of(Color::Yellow))];
    lines.extend(diff::lines(&visible(before), &whole, diff::CONTEXT_LINES));
    (lines, &["file_text"])
}

/// A text of several lines of which nothing can hide; tabs are what they are.
fn visible(text: &str) -> String {
    let line = |line: &str| {
        let parts: Vec<_> = line.split('\t').map(escape_line).collect();
        parts.join("\t")
    };
    text.split('\n').map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn plain(arguments: &Value, before: Option<&str>) -> Vec<String> {
        full_lines(arguments, before)
            .iter()
            .map(Line::plain)
            .collect()
    }

    #[test]
    fn nothing_hides_in_what_would_run() {
        let command = "ls\u{1b}[8m; rm -r x\u{1b}[0m\r: \u{200b}y\n\tcat z";
        let shown = plain(&json!({ "command": command }), None);
        assert_eq!(
            shown,
            [
                "ls\\u{1b}[8m; rm -r x\\u{1b}[0m\\r: \\u{200b}y",
                "    cat z"
            ]
        );
        let shown = plain(&json!({ "path": "a\u{202e}b", "list": ["\u{200b}"] }), None);
        assert!(shown.iter().any(|line| line == "path: a\\u{202e}b"));
        assert!(shown.concat().contains("\\u200b"), "{shown:?}");
    }

    #[test]
    fn a_file_that_is_overwritten_is_compared_with_what_it_has() {
        let call = json!({ "path": "a", "file_text": "one\nTWO\n" });
        let shown = plain(&call, Some("one\ntwo\n"));
        let said = "It overwrites the file that is there:";
        assert_eq!(shown, ["path: a", said, "  one", "- two", "+ TWO"]);
        let shown = plain(&call, None);
        assert_eq!(shown, ["path: a", "+ one", "+ TWO"]);
    }
}
