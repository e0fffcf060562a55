//! What was typed while something ran: it is said when that is over, and can be taken back until then.

use std::collections::VecDeque;

use crate::text::{Color, Line, Style};

/// The messages that wait to be said, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct MessageQueue {
    waiting: VecDeque<String>,
    /// The one that is being changed.
    taken: Option<TakenMessage>,
    /// Whether they wait for the person, since what they waited for was stopped or failed.
    is_held: bool,
}

/// A message that was taken back, and whose place in the queue is kept for it.
#[derive(Debug)]
struct TakenMessage {
    /// How many that wait come before it.
    before: usize,
    /// What it was.
    text: String,
}

impl MessageQueue {
    /// Has a message wait: in the place of the one that was taken back, else behind the others.
    pub(crate) fn push(&mut self, text: String) {
        let place = self.taken.take().map(|taken| taken.before);
        self.insert(place.unwrap_or(self.waiting.len()), text);
    }

    fn insert(&mut self, place: usize, text: String) {
        self.waiting.insert(place.min(self.waiting.len()), text);
    }

    /// Takes the oldest, to be said; nothing while that is being changed, as those behind it wait too.
    pub(crate) fn take_oldest(&mut self) -> Option<String> {
        if let Some(taken) = &mut self.taken {
            taken.before = taken.before.checked_sub(1)?;
        }
        self.waiting.pop_front()
    }

    /// Takes the newest back, to be changed; nothing while another one is.
    pub(crate) fn take_newest(&mut self) -> Option<String> {
        if self.has_taken() {
            return None;
        }
        self.take(self.waiting.len().checked_sub(1)?)
    }

    /// Puts the one that was taken back in its place as it was, and takes the one before it; nothing
    /// where there is none before it.
    pub(crate) fn take_earlier(&mut self) -> Option<String> {
        let earlier = self.taken.as_ref()?.before.checked_sub(1)?;
        self.put_back();
        self.take(earlier)
    }

    /// Like [`Self::take_earlier`], for the one behind it; where there is none, none is taken any more.
    pub(crate) fn take_later(&mut self) -> Option<String> {
        let later = self.taken.as_ref()?.before + 1;
        self.put_back();
        self.take(later)
    }

    fn take(&mut self, place: usize) -> Option<String> {
        let text = self.waiting.remove(place)?;
        self.taken = Some(TakenMessage {
            before: place,
            text: text.clone(),
        });
        Some(text)
    }

    /// Puts the one that was taken back in its place as it was.
    pub(crate) fn put_back(&mut self) {
        if let Some(taken) = self.taken.take() {
            self.insert(taken.before, taken.text);
        }
    }

    /// Whether one is being changed.
    pub(crate) fn has_taken(&self) -> bool {
        self.taken.is_some()
    }

    /// The one that is being changed, as it was.
    pub(crate) fn taken(&self) -> Option<&str> {
        self.taken.as_ref().map(|taken| taken.text.as_str())
    }

    /// Whether messages that wait come before the one that is being changed.
    pub(crate) fn has_before_taken(&self) -> bool {
        self.taken.as_ref().is_some_and(|taken| taken.before > 0)
    }

    /// The one that was taken back waits no longer.
    pub(crate) fn drop_taken(&mut self) {
        self.taken = None;
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
        let line = |mark: &str, text: &str, style: Style| {
            let first = text.lines().next().unwrap_or_default();
            Line::of(mark, style).with(first, style).cut(columns)
        };
        let waiting = self.waiting.iter();
        let mut lines: Vec<Line> = waiting.map(|text| line("⧗ ", text, Style::DIM)).collect();
        if let Some(taken) = &self.taken {
            let place = taken.before.min(lines.len());
            lines.insert(place, line("✎ ", &taken.text, Style::of(Color::Cyan)));
        }
        let hint = match (&self.taken, is_busy) {
            _ if lines.is_empty() => return lines,
            (Some(_), true) => "  Enter puts it back, Ctrl-C drops it, Up and Down take another",
            (Some(_), false) => "  Enter says it, Ctrl-C drops it, Up and Down take another",
            (None, true) => "  waits for the answer (Up takes it back)",
            (None, false) => "  waits for your next message (Up takes it back)",
        };
        lines.push(Line::of(hint, Style::DIM).cut(columns));
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
        assert!(!queue.has_taken());
        queue.push("d".to_owned());
        assert_eq!(queue.waiting, ["a", "B", "c", "d"]);
    }

    #[test]
    fn the_first_has_none_before_it_and_behind_the_last_is_none() {
        let mut queue = of(&["a", "b"]);
        queue.take_newest();
        assert_eq!(queue.take_earlier().as_deref(), Some("a"));
        assert_eq!(queue.take_earlier(), None);
        assert_eq!(queue.taken(), Some("a"));
        assert_eq!(queue.take_later().as_deref(), Some("b"));
        assert_eq!(queue.take_later(), None);
        assert!(!queue.has_taken());
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
        queue.drop_taken();
        assert_eq!(queue.take_oldest(), None);
        assert!(queue.is_empty());
    }

    #[test]
    fn no_other_is_taken_while_one_is_changed() {
        let mut queue = of(&["a", "b"]);
        assert_eq!(queue.take_newest().as_deref(), Some("b"));
        assert_eq!(queue.take_newest(), None);
        assert_eq!(queue.taken(), Some("b"));
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
