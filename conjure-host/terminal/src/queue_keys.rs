//! Keys that take back what waits to be said: Up the newest, and from there one after the other; Ctrl-C
//! drops the one that was taken.

use crossterm::event::KeyCode;

use crate::face::Face;

impl Face {
    /// Whether a key took one that waits: Up with nothing typed, Up and Down while one that was taken
    /// is unchanged or the line is empty. What is put back so may be the next that is said.
    pub(crate) async fn queue_key(&mut self, code: KeyCode) -> bool {
        if self.is_answering() || self.editor.is_searching() || self.prompts.has_draft() {
            return false;
        }
        let may_leave = self.queue.edited_text().is_some_and(|taken| {
            self.editor.is_empty() || (self.editor.has(taken) && self.editor.is_at_end())
        });
        let text = match code {
            KeyCode::Up if may_leave => {
                let earlier = self.queue.take_earlier();
                earlier.or_else(|| self.queue.edited_text().map(str::to_owned))
            }
            KeyCode::Down if may_leave => Some(self.queue.take_later().unwrap_or_default()),
            KeyCode::Up if self.editor.is_empty() => self.queue.take_newest(),
            _ => None,
        };
        let Some(text) = text else { return false };
        self.replace_text(&text);
        if !self.queue.is_paused() {
            self.send_next_unless_busy().await;
        }
        true
    }

    /// Whether the line has a message that was taken: no question has the line, and the message does
    /// not lie aside.
    pub(crate) fn is_editing_queued(&self) -> bool {
        self.queue.is_editing() && !self.is_answering() && !self.prompts.has_draft()
    }

    /// Has a message that was taken wait no longer; those behind it waited for it.
    pub(crate) async fn drop_edited(&mut self) {
        self.queue.drop_edited();
        self.send_next_unless_busy().await;
    }

    /// Says what waits where nothing runs and nothing is to be picked.
    async fn send_next_unless_busy(&mut self) {
        if !self.is_busy && !self.prompts.has_picker() {
            self.send_next().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use crossterm::event::{KeyEvent, KeyModifiers};
    use tokio::sync::mpsc;

    use super::*;
    use crate::conversation::{PersonRequest, Update};
    use crate::prompts::tests::{face, press};

    async fn types(face: &mut Face, text: &str) {
        for c in text.chars() {
            press(face, KeyCode::Char(c)).await;
        }
    }

    /// A face with a turn that runs, and these messages behind it.
    async fn with_queue(texts: &[&str]) -> (Face, mpsc::Receiver<PersonRequest>) {
        let (mut face, mut asked) = face();
        face.begin(PersonRequest::Say("now".to_owned())).await;
        asked.try_recv().unwrap();
        for text in texts {
            types(&mut face, text).await;
            press(&mut face, KeyCode::Enter).await;
        }
        (face, asked)
    }

    /// What is said from now on, one turn after the other.
    async fn said(face: &mut Face, asked: &mut mpsc::Receiver<PersonRequest>) -> Vec<String> {
        let mut said = Vec::new();
        loop {
            face.update(Update::Ready).await;
            match asked.try_recv() {
                Ok(PersonRequest::Say(text)) => said.push(text),
                _ => return said,
            }
        }
    }

    #[tokio::test]
    async fn any_that_waits_is_changed_in_its_place() {
        let (mut face, mut asked) = with_queue(&["one", "two", "three"]).await;
        for text in ["three", "two", "one", "one"] {
            press(&mut face, KeyCode::Up).await;
            assert_eq!(face.editor.full_text(), text);
        }
        press(&mut face, KeyCode::Down).await;
        types(&mut face, "!").await;
        assert_eq!(face.editor.full_text(), "two!");
        press(&mut face, KeyCode::Enter).await;
        assert!(face.editor.is_empty());
        assert_eq!(said(&mut face, &mut asked).await, ["one", "two!", "three"]);
    }

    #[tokio::test]
    async fn one_that_is_dropped_is_not_said_and_the_others_are() {
        let (mut face, mut asked) = with_queue(&["one", "two", "three"]).await;
        for code in [KeyCode::Up, KeyCode::Up] {
            press(&mut face, code).await;
        }
        drops(&mut face).await;
        assert_eq!(said(&mut face, &mut asked).await, ["one", "three"]);
    }

    async fn drops(face: &mut Face) {
        face.key(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL))
            .await;
    }

    async fn clears(face: &mut Face) {
        while !face.editor.is_empty() {
            press(face, KeyCode::Backspace).await;
        }
    }

    fn next_said(asked: &mut mpsc::Receiver<PersonRequest>) -> Option<String> {
        match asked.try_recv() {
            Ok(PersonRequest::Say(text)) => Some(text),
            _ => None,
        }
    }

    #[tokio::test]
    async fn those_behind_one_that_is_changed_are_said_after_it() {
        for is_dropped in [false, true] {
            let (mut face, mut asked) = with_queue(&["one", "two"]).await;
            press(&mut face, KeyCode::Up).await;
            press(&mut face, KeyCode::Up).await;
            assert_eq!(said(&mut face, &mut asked).await, [""; 0]);
            assert_eq!(face.editor.full_text(), "one");
            let first = if is_dropped {
                drops(&mut face).await;
                "two"
            } else {
                types(&mut face, "!").await;
                press(&mut face, KeyCode::Enter).await;
                "one!"
            };
            assert_eq!(next_said(&mut asked).as_deref(), Some(first));
            let left = said(&mut face, &mut asked).await;
            assert_eq!(left.is_empty(), is_dropped, "{left:?}");
        }
    }

    #[tokio::test]
    async fn one_whose_line_is_emptied_keeps_its_place_until_it_is_dropped() {
        for is_dropped in [false, true] {
            let (mut face, mut asked) = with_queue(&["one", "two"]).await;
            press(&mut face, KeyCode::Up).await;
            press(&mut face, KeyCode::Up).await;
            clears(&mut face).await;
            assert_eq!(said(&mut face, &mut asked).await, [""; 0]);
            let first = if is_dropped {
                drops(&mut face).await;
                assert!(!face.is_exit_armed, "Ctrl-C dropped a message");
                "two"
            } else {
                types(&mut face, "other").await;
                assert_eq!(next_said(&mut asked), None);
                press(&mut face, KeyCode::Enter).await;
                "other"
            };
            assert_eq!(next_said(&mut asked).as_deref(), Some(first));
            let left = said(&mut face, &mut asked).await;
            assert_eq!(left.is_empty(), is_dropped, "{left:?}");
        }
    }

    #[tokio::test]
    async fn one_whose_line_is_emptied_is_put_back_as_it_was() {
        let (mut face, mut asked) = with_queue(&["one", "two"]).await;
        press(&mut face, KeyCode::Up).await;
        clears(&mut face).await;
        press(&mut face, KeyCode::Up).await;
        assert_eq!(face.editor.full_text(), "one");
        clears(&mut face).await;
        press(&mut face, KeyCode::Up).await;
        assert_eq!(face.editor.full_text(), "one", "there is none before it");
        clears(&mut face).await;
        press(&mut face, KeyCode::Down).await;
        assert_eq!(face.editor.full_text(), "two");
        press(&mut face, KeyCode::Down).await;
        assert!(face.editor.is_empty() && !face.queue.is_editing());
        assert_eq!(said(&mut face, &mut asked).await, ["one", "two"]);
    }

    #[tokio::test]
    async fn one_that_is_put_back_when_nothing_runs_is_said_at_once() {
        let (mut face, mut asked) = with_queue(&["one", "two"]).await;
        press(&mut face, KeyCode::Up).await;
        assert_eq!(said(&mut face, &mut asked).await, ["one"]);
        assert!(!face.is_busy);
        press(&mut face, KeyCode::Down).await;
        assert_eq!(next_said(&mut asked).as_deref(), Some("two"));
        types(&mut face, "x").await;
        press(&mut face, KeyCode::Enter).await;
        assert_eq!(said(&mut face, &mut asked).await, ["x"]);
    }

    #[tokio::test]
    async fn one_that_is_put_back_for_the_one_behind_it_is_said_before_it() {
        let (mut face, mut asked) = with_queue(&["one", "two"]).await;
        press(&mut face, KeyCode::Up).await;
        press(&mut face, KeyCode::Up).await;
        assert_eq!(said(&mut face, &mut asked).await, [""; 0]);
        press(&mut face, KeyCode::Down).await;
        assert_eq!(face.editor.full_text(), "two");
        assert_eq!(next_said(&mut asked).as_deref(), Some("one"));
        press(&mut face, KeyCode::Enter).await;
        assert_eq!(said(&mut face, &mut asked).await, ["two"]);
    }

    #[tokio::test]
    async fn those_before_the_one_that_is_said_after_a_stop_are_said_before_it() {
        let (mut face, mut asked) = with_queue(&["one", "two"]).await;
        press(&mut face, KeyCode::Up).await;
        press(&mut face, KeyCode::Esc).await;
        assert_eq!(asked.try_recv().ok(), Some(PersonRequest::Stop));
        assert_eq!(said(&mut face, &mut asked).await, [""; 0]);
        assert_eq!(face.editor.full_text(), "two");
        press(&mut face, KeyCode::Enter).await;
        assert_eq!(next_said(&mut asked).as_deref(), Some("one"));
        assert_eq!(said(&mut face, &mut asked).await, ["two"]);
    }

    #[tokio::test]
    async fn after_a_stop_none_takes_the_line_of_one_that_is_retyped() {
        let (mut face, mut asked) = with_queue(&["one", "two"]).await;
        press(&mut face, KeyCode::Up).await;
        clears(&mut face).await;
        press(&mut face, KeyCode::Esc).await;
        assert_eq!(asked.try_recv().ok(), Some(PersonRequest::Stop));
        assert_eq!(said(&mut face, &mut asked).await, [""; 0]);
        assert!(face.editor.is_empty());
        types(&mut face, "2").await;
        press(&mut face, KeyCode::Enter).await;
        assert_eq!(next_said(&mut asked).as_deref(), Some("one"));
        assert_eq!(said(&mut face, &mut asked).await, ["2"]);
    }
}
