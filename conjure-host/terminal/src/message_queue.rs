//! What was typed while something ran: it is said when that is over, and can be taken back until then.

use std::collections::VecDeque;

use crate::text::{Line, Style};

/// The messages that wait to be said, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct MessageQueue {
    waiting: VecDeque<String>,
    /// Whether they wait for the person, since what they waited for was stopped or failed.
    is_held: bool,
}

impl MessageQueue {
    pub(crate) fn push(&mut self, text: String) {
        self.waiting.push_back(text);
    }

    /// Takes the oldest, to be said.
    pub(crate) fn take_oldest(&mut self) -> Option<String> {
        self.waiting.pop_front()
    }

    /// Takes the newest back, to be changed.
    pub(crate) fn take_back(&mut self) -> Option<String> {
        self.waiting.pop_back()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// What they waited for was stopped or failed: none is said by itself.
    pub(crate) fn hold(&mut self) {
        self.is_held = true;
    }

    /// Something else was begun that they wait for.
    pub(crate) fn release(&mut self) {
        self.is_held = false;
    }

    pub(crate) fn is_held(&self) -> bool {
        self.is_held
    }

    /// A line for each, and how to take one back.
    pub(crate) fn render(&self, columns: usize, is_busy: bool) -> Vec<Line> {
        let first = |text: &String| {
            let first = text.lines().next().unwrap_or_default();
            let line = Line::of("⧗ ", Style::DIM).with(first, Style::DIM);
            line.cut(columns)
        };
        let mut lines: Vec<Line> = self.waiting.iter().map(first).collect();
        if !lines.is_empty() {
            let hint = if is_busy {
                "  waits for the answer (Up takes it back)"
            } else {
                "  waits for your next message (Up takes it back)"
            };
            lines.push(Line::of(hint, Style::DIM).cut(columns));
        }
        lines
    }
}
