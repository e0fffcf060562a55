//! The keys of a question that waits: what is typed is its answer while it has the line.
//!
//! A question of the person's own turn has the line at once, and what was being typed lies aside. One of
//! a turn that somebody else began comes while the person writes something else: it takes the line with
//! a key that cannot have been meant for that.

use std::time::Instant;

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use crate::conversation::PersonRequest;
use crate::face::Face;
use crate::prompt_queue::InputMode;
use crate::prompts::PROMPT_KEY_DELAY;
use crate::question::FormProgress;

impl Face {
    /// Whether what is typed is the answer to a question.
    pub(crate) fn is_answering(&self) -> bool {
        let front = self.prompts.front();
        matches!(front, Some(InputMode::Form { has_line: true, .. }))
    }

    /// Whether what is typed is a message or a command: nothing waits, or a question that leaves the line
    /// to it.
    pub(crate) fn is_writing_message(&self) -> bool {
        let front = self.prompts.front();
        matches!(
            front,
            None | Some(InputMode::Form {
                has_line: false,
                ..
            })
        )
    }

    /// The question that has the line.
    pub(crate) fn answered_question(&self) -> Option<String> {
        match self.prompts.front() {
            Some(InputMode::Form {
                form,
                has_line: true,
                ..
            }) => Some(form.id.clone()),
            _ => None,
        }
    }

    /// Gives the line to the question in front, for what may be its answer, where nothing else is being
    /// typed or searched, nor was right before; whether it has the line now.
    pub(crate) fn claim_line(&mut self, may_answer: bool) -> bool {
        let is_typing = !self.editor.is_empty() || self.editor.is_searching();
        let Some(InputMode::Form {
            has_line, since, ..
        }) = self.prompts.front_mut()
        else {
            return false;
        };
        if !*has_line {
            if is_typing {
                *since = Instant::now();
            }
            *has_line = may_answer && !is_typing && since.elapsed() >= PROMPT_KEY_DELAY;
        }
        *has_line
    }

    /// Whether the question in front took the key.
    pub(crate) async fn form_key(&mut self, key: KeyEvent) -> bool {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        if control && key.code == KeyCode::Char('c') {
            return false;
        }
        if !self.is_answering() {
            if self.takes_line_by_tab(key) {
                return true;
            }
            if !self.claim_line(self.may_answer(key)) {
                return false;
            }
            // A key that is held was pressed for what came before.
            if key.kind == KeyEventKind::Repeat {
                return true;
            }
        }
        self.answer_key(key).await
    }

    /// Whether the key may be meant for a question that does not have the line: it begins an answer, or
    /// declines where it would stop nothing.
    fn may_answer(&self, key: KeyEvent) -> bool {
        let is_combined = key
            .modifiers
            .intersects(KeyModifiers::CONTROL | KeyModifiers::ALT);
        match key.code {
            KeyCode::Char(_) | KeyCode::Enter => !is_combined,
            KeyCode::Esc => !self.is_busy,
            _ => false,
        }
    }

    /// Whether the key sets aside what is being typed, so that the question has the line.
    fn takes_line_by_tab(&mut self, key: KeyEvent) -> bool {
        let is_typing = !self.editor.is_empty() && !self.editor.is_searching();
        if key.code != KeyCode::Tab || !is_typing || self.offers.is_open() {
            return false;
        }
        self.save_draft();
        if let Some(InputMode::Form { has_line, .. }) = self.prompts.front_mut() {
            *has_line = true;
        }
        true
    }

    /// A key at a question that has the line.
    async fn answer_key(&mut self, key: KeyEvent) -> bool {
        let Some(InputMode::Form { form, .. }) = self.prompts.front_mut() else {
            return false;
        };
        let id = form.id.clone();
        let filled = match key.code {
            KeyCode::Esc => FormProgress::Declined,
            KeyCode::Enter if key.modifiers.is_empty() => {
                let text = self.editor.full_text();
                let filled = form.answer(&text);
                self.replace_text("");
                filled
            }
            _ => return false,
        };
        let content = match filled {
            FormProgress::Incomplete => return true,
            FormProgress::Complete(content) => Some(content),
            FormProgress::Declined => None,
        };
        // What was typed when it was declined may have been meant for something else.
        self.save_draft();
        self.prompts.pop();
        self.show_front();
        self.send_request(PersonRequest::Answer { id, content })
            .await;
        true
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc;

    use super::*;
    use crate::conversation::Update;
    use crate::prompts::tests::{face, name_question, others_ask, press, wait};

    /// A question of the person's own turn, for a name.
    async fn turn_asks(face: &mut Face, id: &str) {
        let asked = name_question(id);
        face.update(Update::Question(asked)).await;
    }

    async fn types(face: &mut Face, text: &str) {
        for c in text.chars() {
            press(face, KeyCode::Char(c)).await;
        }
    }

    fn answered(asked: &mut mpsc::Receiver<PersonRequest>) -> Option<Option<String>> {
        match asked.try_recv() {
            Ok(PersonRequest::Answer { content, .. }) => Some(content.map(|content| {
                let name = content.get("name").and_then(|name| name.as_str());
                name.unwrap_or_default().to_owned()
            })),
            _ => None,
        }
    }

    fn said(text: &str) -> Option<PersonRequest> {
        Some(PersonRequest::Say(text.to_owned()))
    }

    /// A question of somebody else's turn, while one of the person's own runs and a message waits for it.
    async fn others_ask_behind_a_queue(face: &mut Face, asked: &mut mpsc::Receiver<PersonRequest>) {
        face.begin(PersonRequest::Say("first".to_owned())).await;
        assert_eq!(asked.try_recv().ok(), said("first"));
        face.queue.push("second".to_owned());
        others_ask(face).await;
        wait(face);
    }

    #[tokio::test]
    async fn keys_on_their_way_to_a_message_answer_no_question_of_others() {
        let (mut face, mut asked) = face();
        types(&mut face, "hell").await;
        others_ask(&mut face).await;
        wait(&mut face);
        types(&mut face, "o").await;
        press(&mut face, KeyCode::Esc).await;
        press(&mut face, KeyCode::Enter).await;
        assert_eq!(asked.try_recv().ok(), said("hello"));
        // What comes right behind it was not meant for the question.
        press(&mut face, KeyCode::Esc).await;
        press(&mut face, KeyCode::Enter).await;
        assert!(!matches!(
            asked.try_recv(),
            Ok(PersonRequest::Answer { .. })
        ));
        assert!(face.prompts.front().is_some());
    }

    #[tokio::test]
    async fn a_question_of_others_takes_the_line_when_nothing_else_is_typed() {
        let (mut face, mut asked) = face();
        others_ask(&mut face).await;
        wait(&mut face);
        types(&mut face, "Ada").await;
        press(&mut face, KeyCode::Enter).await;
        assert_eq!(answered(&mut asked), Some(Some("Ada".to_owned())));
        assert!(face.prompts.front().is_none());
        others_ask(&mut face).await;
        wait(&mut face);
        press(&mut face, KeyCode::Esc).await;
        assert_eq!(answered(&mut asked), Some(None));
    }

    #[tokio::test]
    async fn tab_sets_a_message_aside_for_a_question_of_others() {
        let (mut face, mut asked) = face();
        types(&mut face, "hello").await;
        others_ask(&mut face).await;
        assert_eq!(face.editor.full_text(), "hello");
        press(&mut face, KeyCode::Tab).await;
        assert_eq!(face.editor.full_text(), "");
        types(&mut face, "Ada").await;
        press(&mut face, KeyCode::Enter).await;
        assert_eq!(answered(&mut asked), Some(Some("Ada".to_owned())));
        assert_eq!(face.editor.full_text(), "hello");
    }

    #[tokio::test]
    async fn keys_that_mean_something_else_give_no_line_to_a_question_of_others() {
        let (mut face, mut asked) = face();
        others_ask_behind_a_queue(&mut face, &mut asked).await;
        let control = |c| KeyEvent::new(KeyCode::Char(c), KeyModifiers::CONTROL);
        face.key(control('o')).await;
        press(&mut face, KeyCode::Esc).await;
        assert_eq!(asked.try_recv().ok(), Some(PersonRequest::Stop));
        face.key(control('r')).await;
        types(&mut face, "A").await;
        press(&mut face, KeyCode::Esc).await;
        assert!(!face.is_answering() && !face.editor.is_searching());
        press(&mut face, KeyCode::Up).await;
        assert_eq!(face.editor.full_text(), "second");
        assert!(!face.is_answering());
    }

    #[tokio::test]
    async fn a_message_that_waits_is_not_taken_back_into_an_answer() {
        let (mut face, _asked) = face();
        face.begin(PersonRequest::Say("first".to_owned())).await;
        face.queue.push("second".to_owned());
        turn_asks(&mut face, "q1").await;
        press(&mut face, KeyCode::Up).await;
        assert_eq!(
            (face.editor.full_text().as_str(), face.queue.len()),
            ("", 1)
        );
    }

    #[tokio::test]
    async fn what_was_typed_at_one_question_is_no_answer_to_the_next() {
        let (mut face, mut asked) = face();
        types(&mut face, "hello").await;
        for id in ["q1", "q2", "q3"] {
            turn_asks(&mut face, id).await;
        }
        types(&mut face, "Ada").await;
        face.settle("q1");
        assert_eq!(face.editor.full_text(), "");
        types(&mut face, "Lin").await;
        // Of one that is not in front nothing was typed.
        face.settle("q3");
        assert_eq!(face.editor.full_text(), "Lin");
        turn_asks(&mut face, "q4").await;
        press(&mut face, KeyCode::Esc).await;
        assert_eq!(answered(&mut asked), Some(None));
        assert_eq!(face.editor.full_text(), "");
        face.settle("q4");
        assert_eq!(face.editor.full_text(), "hello\nAda\nLin");
    }

    #[tokio::test]
    async fn a_held_message_is_no_answer_to_a_question_of_others() {
        let (mut face, mut asked) = face();
        others_ask_behind_a_queue(&mut face, &mut asked).await;
        types(&mut face, "A").await;
        face.update(Update::Halted).await;
        face.update(Update::Ready).await;
        face.update(Update::Edit("third".to_owned())).await;
        assert_eq!(face.editor.full_text(), "A");
        types(&mut face, "da").await;
        press(&mut face, KeyCode::Enter).await;
        assert_eq!(answered(&mut asked), Some(Some("Ada".to_owned())));
        assert_eq!(face.editor.full_text(), "second");
        press(&mut face, KeyCode::Enter).await;
        assert_eq!(asked.try_recv().ok(), said("second"));
    }
}
