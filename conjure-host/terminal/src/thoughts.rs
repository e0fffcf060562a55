//! Reasoning of a model: a line of it while it comes and when it is over, or all of it.

use std::collections::VecDeque;
use std::time::Instant;

use crate::numerals;
use crate::text::{Line, Style};

/// The most bytes of reasoning that are held to be shown whole.
const MAX_BYTES: usize = 1024 * 1024;

/// Reasoning that comes.
#[derive(Debug)]
pub(crate) struct Thoughts {
    pub(crate) text: String,
    started_at: Instant,
}

impl Thoughts {
    /// Reasoning that begins now.
    pub(crate) fn begin() -> Self {
        Self {
            text: String::new(),
            started_at: Instant::now(),
        }
    }

    /// Line with the end of the reasoning: what is being thought now.
    pub(crate) fn live(&self, mark: &str, columns: usize) -> Line {
        let text = self.text.split_whitespace().collect::<Vec<_>>().join(" ");
        let head = format!("{mark} Thinking: ");
        let room = columns.saturating_sub(head.chars().count() + 1);
        let skipped = text.chars().count().saturating_sub(room);
        let end: String = text.chars().skip(skipped).collect();
        Line::of(head, Style::DIM)
            .with(end.trim_start(), Style::DIM)
            .truncate(columns)
    }

    /// Line with the beginning of reasoning that is over, and with how all of it is shown.
    pub(crate) fn summary_line(&self, how: &str, columns: usize) -> Line {
        let time = numerals::time_since(self.started_at, " for ");
        let line =
            Line::of(format!("∴ Thought{time}: "), Style::DIM).with(self.text.trim(), Style::DIM);
        let mut line = line.truncate(columns.saturating_sub(how.len()));
        line.push(how, Style::DIM);
        line
    }
}

/// The reasoning of the last turn that had some, as far as it is held, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct PastThoughts {
    texts: VecDeque<String>,
    /// Whether that turn has ended.
    is_over: bool,
}

impl PastThoughts {
    /// More of it begins to come; what another turn had is gone then.
    pub(crate) fn begin(&mut self) {
        if std::mem::take(&mut self.is_over) {
            self.texts.clear();
        }
    }

    /// Holds what was thought.
    pub(crate) fn add(&mut self, text: String) {
        self.texts.push_back(text);
        while self.texts.len() > 1 && self.bytes() > MAX_BYTES {
            self.texts.pop_front();
        }
    }

    fn bytes(&self) -> usize {
        self.texts.iter().map(String::len).sum()
    }

    /// The turn has ended.
    pub(crate) fn end_turn(&mut self) {
        self.is_over = true;
    }

    /// All that is held, with empty lines between; nothing where nothing is.
    pub(crate) fn lines(&self, columns: usize) -> Vec<Line> {
        let mut lines = Vec::new();
        for text in &self.texts {
            if !lines.is_empty() {
                lines.push(Line::new());
            }
            lines.extend(text_lines(text, columns));
        }
        lines
    }
}

/// All of it.
pub(crate) fn text_lines(text: &str, columns: usize) -> Vec<Line> {
    let bar = Line::of("∴ ", Style::DIM);
    let style = Style {
        italic: true,
        ..Style::DIM
    };
    let mut lines = Vec::new();
    for line in text.trim().lines() {
        lines.extend(Line::of(line, style).wrap(columns, &bar, &bar));
    }
    lines
}
