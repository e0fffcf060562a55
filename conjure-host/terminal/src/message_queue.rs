//! What was typed while something ran: it is said when that is over, and can be taken back until then.

use std::collections::VecDeque;

use crate::text::{Color, Line, Style};

/// The messages that wait to be said, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct MessageQueue {
    waiting: VecDeque<String>,
    /// The one that is being changed.
    edited: Option<EditedMessage>,
    /// Whether they wait for the person, since what they waited for was stopped or failed.
    is_paused: bool,
}

/// A message that was taken back, and whose place in the queue is kept for it.
#[derive(Debug)]
struct EditedMessage {
    /// How many that wait come before it.
    position: usize,
    /// What it was.
    text: String,
}

impl MessageQueue {
    /// Has a message wait: in the place of the one that was taken back, else behind the others.
    pub(crate) fn push(&mut self, text: String) {
        let place = self.edited.take().map(|taken| taken.position);
        self.insert(place.unwrap_or(self.waiting.len()), text);
    }

    fn insert(&mut self, place: usize, text: String) {
        self.waiting.insert(place.min(self.waiting.len()), text);
    }

    /// Takes the oldest, to be said; nothing while that is being changed, as those behind it wait too.
    pub(crate) fn take_oldest(&mut self) -> Option<String> {
        if let Some(taken) = &mut self.edited {
            taken.position = taken.position.checked_sub(1)?;
        }
        self.waiting.pop_front()
    }

    /// Takes the newest back, to be changed; nothing while another one is.
    pub(crate) fn take_newest(&mut self) -> Option<String> {
        if self.is_editing() {
            return None;
        }
        self.take(self.waiting.len().checked_sub(1)?)
    }

    /// Puts the one that was taken back in its place as it was, and takes the one before it; nothing
    /// where there is none before it.
    pub(crate) fn take_earlier(&mut self) -> Option<String> {
        let earlier = self.edited.as_ref()?.position.checked_sub(1)?;
        self.restore_edited();
        self.take(earlier)
    }

    /// Like [`Self::take_earlier`], for the one behind it; where there is none, none is taken any more.
    pub(crate) fn take_later(&mut self) -> Option<String> {
        let later = self.edited.as_ref()?.position + 1;
        self.restore_edited();
        self.take(later)
    }

    fn take(&mut self, place: usize) -> Option<String> {
        let text = self.waiting.remove(place)?;
        self.edited = Some(EditedMessage {
            position: place,
            text: text.clone(),
        });
        Some(text)
    }

    /// Puts the one that was taken back in its place as it was.
    pub(crate) fn restore_edited(&mut self) {
        if let Some(taken) = self.edited.take() {
            self.insert(taken.position, taken.text);
        }
    }

    /// Whether one is being changed.
    pub(crate) fn is_editing(&self) -> bool {
        self.edited.is_some()
    }

    /// The one that is being changed, as it was.
    pub(crate) fn edited_text(&self) -> Option<&str> {
        self.edited.as_ref().map(|taken| taken.text.as_str())
    }

    /// Whether messages that wait come before the one that is being changed.
    pub(crate) fn has_before_edited(&self) -> bool {
        self.edited.as_ref().is_some_and(|taken| taken.position > 0)
    }

    /// The one that was taken back waits no longer.
    pub(crate) fn drop_edited(&mut self) {
        self.edited = None;
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// What they waited for was stopped or failed: none is said by itself.
    pub(crate) fn pause(&mut self) {
        self.is_paused = true;
    }

    /// Something else was begun that they wait for.
    pub(crate) fn resume(&mut self) {
        self.is_paused = false;
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.is_paused
    }

    /// A line for each, and how to take one back.
    pub(crate) fn render(&self, columns: usize, is_busy: bool) -> Vec<Line> {
        let line = |mark: &str, text: &str, style: Style| {
            let first = text.lines().next().unwrap_or_default();
            Line::of(mark, style).with(first, style).truncate(columns)
        };
        let waiting = self.waiting.iter();
        let mut lines: Vec<Line> = waiting.map(|text| line("⧗ ", text, Style::DIM)).collect();
        if let Some(taken) = &self.edited {
            let place = taken.position.min(lines.len());
            lines.insert(place, line("✎ ", &taken.text, Style::of(Color::Cyan)));
        }
        let hint = match (&self.edited, is_busy) {
            _ if lines.is_empty() => return lines,
            (Some(_), true) => "  Enter puts it back, Ctrl-C drops it, Up and Down take another",
            (Some(_), false) => "  Enter says it, Ctrl-C drops it, Up and Down take another",
            (None, true) => "  waits for the answer (Up takes it back)",
            (None, false) => "  waits for your next message (Up takes it back)",
        };
        lines.push(Line::of(hint, Style::DIM).truncate(columns));
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(texts: &[&str]) -> MessageQueue {
        let mut queue = MessageQueue::default();
        for text in texts {
            queue.push((*text).to_owned());
        }
        queue
    }

    #[test]
    fn a_message_goes_back_to_where_it_was_taken() {
        let mut queue = of(&["a", "b", "c"]);
        assert_eq!(queue.take_newest().as_deref(), Some("c"));
        assert_eq!(queue.take_earlier().as_deref(), Some("b"));
        assert_eq!(queue.waiting, ["a", "c"]);
        queue.push("B".to_owned());
        assert_eq!(queue.waiting, ["a", "B", "c"]);
        assert!(!queue.is_editing());
        queue.push("d".to_owned());
        assert_eq!(queue.waiting, ["a", "B", "c", "d"]);
    }

    #[test]
    fn the_first_has_none_before_it_and_behind_the_last_is_none() {
        let mut queue = of(&["a", "b"]);
        queue.take_newest();
        assert_eq!(queue.take_earlier().as_deref(), Some("a"));
        assert_eq!(queue.take_earlier(), None);
        assert_eq!(queue.edited_text(), Some("a"));
        assert_eq!(queue.take_later().as_deref(), Some("b"));
        assert_eq!(queue.take_later(), None);
        assert!(!queue.is_editing());
        assert_eq!(queue.waiting, ["a", "b"]);
    }

    #[test]
    fn what_stands_behind_one_that_is_changed_waits_for_it() {
        let mut queue = of(&["a", "b", "c"]);
        queue.take_newest();
        queue.take_earlier();
        assert_eq!(queue.take_oldest().as_deref(), Some("a"));
        assert_eq!(queue.take_oldest(), None);
        queue.push("B".to_owned());
        assert_eq!(queue.take_oldest().as_deref(), Some("B"));
        queue.take_newest();
        queue.drop_edited();
        assert_eq!(queue.take_oldest(), None);
        assert!(queue.is_empty());
    }

    #[test]
    fn no_other_is_taken_while_one_is_changed() {
        let mut queue = of(&["a", "b"]);
        assert_eq!(queue.take_newest().as_deref(), Some("b"));
        assert_eq!(queue.take_newest(), None);
        assert_eq!(queue.edited_text(), Some("b"));
        assert_eq!(queue.waiting, ["a"]);
    }

    #[test]
    fn the_one_that_is_changed_is_shown_in_its_place() {
        let mut queue = of(&["a", "b", "c"]);
        queue.take_newest();
        queue.take_earlier();
        let lines = queue.render(80, true);
        let lines: Vec<String> = lines.iter().map(Line::plain).collect();
        assert_eq!(
            lines,
            [
                "⧗ a",
                "✎ b",
                "⧗ c",
                "  Enter puts it back, Ctrl-C drops it, Up and Down take another"
            ]
        );
        assert!(of(&[]).render(80, true).is_empty());
    }
}
