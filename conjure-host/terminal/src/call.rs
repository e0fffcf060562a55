//! A call of a tool: a line while it runs, and a line with the beginning of its output when it is
//! over.

use std::time::{Duration, Instant};

use conjure_core::chat::{CallAnnounced, CallOutput};
use serde_json::Value;

use crate::diff;
use crate::highlight;
use crate::text::{Color, Line, Style};
use crate::words;

/// How many of the last lines of output are shown while it runs.
const TAIL: usize = 3;
/// How many lines of a difference or of a new file are shown.
const MOST_CHANGED: usize = 24;
/// The most bytes of live output that are held.
const MOST_LIVE: usize = 16 * 1024;

/// A call that was announced and is not over.
#[derive(Debug)]
pub(crate) struct AnnouncedCall {
    pub(crate) id: String,
    name: String,
    arguments: Value,
    backend: Option<String>,
    began: Option<Instant>,
    output: String,
}

impl AnnouncedCall {
    pub(crate) fn new(call: &CallAnnounced) -> Self {
        Self {
            id: call.id.clone(),
            name: call.name.clone(),
            arguments: call.arguments.clone(),
            backend: None,
            began: None,
            output: String::new(),
        }
    }

    pub(crate) fn begins(&mut self, backend: &str) {
        self.backend = Some(backend.to_owned());
        self.began = Some(Instant::now());
    }

    pub(crate) fn hears(&mut self, chunk: &str) {
        self.output.push_str(chunk);
        if self.output.len() > MOST_LIVE {
            let mut from = self.output.len() - MOST_LIVE / 2;
            while !self.output.is_char_boundary(from) {
                from += 1;
            }
            self.output.drain(..from);
        }
    }

    /// It while it runs.
    pub(crate) fn live(&self, spinner: &str, columns: usize) -> Vec<Line> {
        // What waits does not turn.
        let mark = if self.began.is_some() { spinner } else { "·" };
        let mut line = Line::of(mark, Style::of(Color::Cyan))
            .with(" ", Style::PLAIN)
            .with(&self.name, Style::BOLD)
            .with(" ", Style::PLAIN);
        let end = match (&self.backend, self.began) {
            (Some(backend), Some(began)) => {
                // Whole seconds: tenths would be read as haste.
                let seconds = Duration::from_secs(began.elapsed().as_secs());
                match seconds.as_secs() {
                    0 => format!("  {backend}"),
                    _ => format!("  {backend}, {}", words::duration(seconds)),
                }
            }
            _ => "  waits".to_owned(),
        };
        let end = Line::of(end, Style::DIM);
        let room = columns.saturating_sub(line.width() + end.width());
        line.extend(&Line::of(summary(&self.arguments), Style::PLAIN).cut(room));
        line.extend(&end);
        let mut lines = vec![line];
        let output: Vec<&str> = self.output.lines().collect();
        for text in output.iter().skip(output.len().saturating_sub(TAIL)) {
            let line = Line::of("  ┊ ", Style::DIM).with(shown(text), Style::DIM);
            lines.push(line.cut(columns));
        }
        lines
    }

    /// It when it is over.
    pub(crate) fn over(&self, result: &CallOutput, columns: usize) -> Vec<Line> {
        let (mark, color) = if result.is_error {
            ("✗ ", Color::Red)
        } else {
            ("✓ ", Color::Green)
        };
        let by = match &result.backend {
            Some(backend) => {
                let time = words::duration(Duration::from_millis(result.duration_ms));
                format!("  {backend}, {time}")
            }
            None => "  not run".to_owned(),
        };
        let by = Line::of(by, Style::DIM);
        let mut line = Line::of(mark, Style::of(color))
            .with(&result.name, Style::BOLD)
            .with(" ", Style::PLAIN);
        let room = columns.saturating_sub(line.width() + by.width());
        line.extend(&Line::of(summary(&self.arguments), Style::PLAIN).cut(room));
        line.extend(&by);
        let mut lines = vec![line];
        let indent = Line::of("  ", Style::PLAIN);
        let (changed, _) = changes(&self.arguments, diff::AROUND);
        if !result.is_error && !changed.is_empty() {
            lines.extend(first(&changed, MOST_CHANGED, &indent, columns));
            return lines;
        }
        let output: Vec<Line> = result
            .output
            .lines()
            .filter(|line| !line.trim().is_empty())
            .map(|line| Line::of(shown(line), Style::DIM))
            .collect();
        let most = if result.is_error { 12 } else { 3 };
        lines.extend(first(&output, most, &indent, columns));
        lines
    }
}

/// The first of some lines, each cut, and how many more there are.
fn first(lines: &[Line], most: usize, indent: &Line, columns: usize) -> Vec<Line> {
    let mut first = Vec::new();
    let indented = |line: &Line| {
        let mut whole = indent.clone();
        whole.extend(line);
        whole.cut(columns)
    };
    // One line more takes no more room than saying that there is one.
    let most = if lines.len() == most + 1 {
        most + 1
    } else {
        most
    };
    first.extend(lines.iter().take(most).map(indented));
    if let Some(more) = lines.len().checked_sub(most).filter(|more| *more > 0) {
        let more = format!("… {more} more lines (Ctrl-O shows them)");
        first.push(indented(&Line::of(more, Style::DIM)));
    }
    first
}

/// Of a line that a program wrote over itself, what stood there last.
fn shown(line: &str) -> &str {
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
            more => format!("{first} … ({} more)", words::lines(more)),
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

/// What a call changes in a file, with so many lines around it; and the arguments that say so.
fn changes(arguments: &Value, around: usize) -> (Vec<Line>, &'static [&'static str]) {
    let text = |name: &str| arguments.get(name).and_then(Value::as_str);
    if let (Some(before), Some(after)) = (text("old_str"), text("new_str")) {
        return (diff::lines(before, after, around), &["old_str", "new_str"]);
    }
    match text("file_text") {
        Some(whole) => (diff::lines("", whole, around), &["file_text"]),
        None => (Vec::new(), &[]),
    }
}

/// Everything that a call would do, as a person reads it before it runs.
pub(crate) fn whole(arguments: &Value) -> Vec<Line> {
    let Some(fields) = arguments.as_object() else {
        return highlight::lines("json", &arguments.to_string());
    };
    let (changed, told) = changes(arguments, usize::MAX);
    let mut lines = Vec::new();
    for (name, value) in fields {
        if told.contains(&name.as_str()) {
            continue;
        }
        match value {
            Value::String(command) if name == "command" => {
                lines.extend(highlight::lines("bash", command));
            }
            Value::String(text) => {
                let mut text = text.lines();
                let label = Line::of(format!("{name}: "), Style::DIM);
                lines.push(label.with(text.next().unwrap_or_default(), Style::PLAIN));
                for line in text {
                    lines.push(Line::of("  ", Style::DIM).with(line, Style::PLAIN));
                }
            }
            value => {
                let pretty = serde_json::to_string_pretty(value).unwrap_or_default();
                let mut values = highlight::lines("json", &pretty).into_iter();
                let mut label = Line::of(format!("{name}: "), Style::DIM);
                label.extend(&values.next().unwrap_or_default());
                lines.push(label);
                lines.extend(values);
            }
        }
    }
    lines.extend(changed);
    lines
}
