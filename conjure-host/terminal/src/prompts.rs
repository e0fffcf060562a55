//! What waits for the person: calls to decide about, questions and lists, one after the other.
//!
//! Only the first has the keys, and what it is about is shown when it becomes the first: what was
//! read last is what a key decides.

use std::time::{Duration, Instant};

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use crate::approval;
use crate::conversation::{Decision, OthersPrompt, PersonRequest};
use crate::face::Face;
use crate::picker::{PickResult, PickerItem};
use crate::prompt_queue::InputMode;
use crate::question;
use crate::text::{Line, Style};

/// How long keys still go to the text when a call is shown, or after something was typed: they were
/// meant for it.
pub(crate) const PROMPT_KEY_DELAY: Duration = Duration::from_millis(300);

impl Face {
    /// Something waits for the person, behind what waits already.
    pub(crate) fn enqueue(&mut self, mode: InputMode) {
        self.prompts.push(mode);
        self.show_front();
    }

    /// What happens in a turn that somebody else began. What waits in it is told again at times.
    pub(crate) fn handle_others_prompt(&mut self, prompt: OthersPrompt) {
        let mode = match prompt {
            OthersPrompt::Settled { id } => return self.settle(&id),
            OthersPrompt::Approval { call, .. } if self.prompts.has(&call.id) => return,
            OthersPrompt::Question(asked) if self.prompts.has(&asked.id) => return,
            OthersPrompt::Approval {
                call,
                reason,
                overwritten,
            } => InputMode::approval(call, reason, overwritten),
            OthersPrompt::Question(asked) => InputMode::form(&asked),
        };
        self.enqueue(mode.of_others());
    }

    /// Something waits for the person no longer.
    pub(crate) fn settle(&mut self, id: &str) {
        let answered = self.answered_question();
        self.prompts.settle(id);
        self.save_unsent_answer(answered.as_deref());
        self.show_front();
    }

    /// What ran is over: what it waited for is needed no longer. Whoever asked is told that there will
    /// be no answer.
    pub(crate) async fn cancel_prompts(&mut self) {
        let answered = self.answered_question();
        let asked = self.prompts.cancel_own();
        self.save_unsent_answer(answered.as_deref());
        self.show_front();
        for id in asked {
            self.send_request(PersonRequest::Answer { id, content: None })
                .await;
        }
    }

    /// Shows what has become the first that waits and gives it the line; where nothing waits, what
    /// was being typed has it again.
    pub(crate) fn show_front(&mut self) {
        let columns = self.screen.columns();
        let (told, is_of_others) = match self.prompts.front_mut() {
            Some(InputMode::Approval {
                unread,
                since,
                prompt,
            }) => {
                let Some(unread) = unread.take() else { return };
                *since = Instant::now();
                let before = unread.current_text.as_deref();
                let told = approval::call_lines(&unread.call, &unread.reason, before, columns);
                (told, prompt.is_of_others)
            }
            Some(InputMode::Form {
                unread,
                is_of_others,
                since,
                ..
            }) => {
                let Some(asked) = unread.take() else { return };
                *since = Instant::now();
                let is_of_others = *is_of_others;
                if !is_of_others {
                    self.save_draft();
                }
                (question::question_lines(&asked, columns), is_of_others)
            }
            Some(InputMode::Picker(_)) => return,
            None => return self.restore_draft(),
        };
        let mut lines = Vec::new();
        if is_of_others {
            let words = "In a turn that somebody else began:";
            lines.push(Line::of(words, Style::DIM).truncate(columns));
        }
        lines.extend(told);
        self.transcript.push_spaced(lines);
    }

    /// Puts aside what was typed at a question that waits no longer: it is no answer to the next.
    fn save_unsent_answer(&mut self, question: Option<&str>) {
        if question.is_some() && question != self.answered_question().as_deref() {
            self.save_draft();
        }
    }

    /// Puts what is being typed aside.
    pub(crate) fn save_draft(&mut self) {
        if self.editor.is_empty() {
            return;
        }
        self.prompts.save_draft(self.editor.full_text());
        self.replace_text("");
    }

    fn restore_draft(&mut self) {
        if self.prompts.has_draft() {
            self.save_draft();
        }
        if let Some(draft) = self.prompts.take_draft() {
            self.replace_text(&draft);
        }
    }

    /// Whether what waits for the person took a text that was pasted.
    pub(crate) fn mode_paste(&mut self, text: &str) -> bool {
        match self.prompts.front_mut() {
            Some(InputMode::Approval { prompt, since, .. })
                if self.editor.is_empty() && since.elapsed() >= PROMPT_KEY_DELAY =>
            {
                prompt.paste(text);
                true
            }
            Some(InputMode::Form { .. }) => {
                self.claim_line(true);
                false
            }
            _ => false,
        }
    }

    /// Whether what waits for the person took the key.
    pub(crate) async fn mode_key(&mut self, key: KeyEvent) -> bool {
        match self.prompts.front_mut() {
            Some(InputMode::Picker(picker)) => {
                let id = match picker.key(key) {
                    PickResult::Pending => {
                        self.search().await;
                        return true;
                    }
                    PickResult::Item(id) => Some(id),
                    PickResult::None => None,
                };
                let list = std::mem::take(&mut picker.list);
                self.prompts.pop();
                self.show_front();
                self.begin(PersonRequest::Pick { list, id }).await;
                true
            }
            Some(InputMode::Approval { .. }) => self.approval_key(key).await,
            Some(InputMode::Form { .. }) => self.form_key(key).await,
            None => false,
        }
    }

    /// Gives a list what was found for it, and searches on where more was typed meanwhile.
    pub(crate) async fn show_search_results(
        &mut self,
        list: &str,
        words: &str,
        choices: Vec<PickerItem>,
    ) {
        if let Some(picker) = self.prompts.picker_mut(list) {
            picker.set_results(words, choices);
        }
        self.search().await;
    }

    /// Searches for what is typed at the list that has the keys.
    async fn search(&mut self) {
        let Some(InputMode::Picker(picker)) = self.prompts.front_mut() else {
            return;
        };
        if let Some(words) = picker.next_search() {
            let list = picker.list.clone();
            self.send_request(PersonRequest::Search { list, words })
                .await;
        }
    }

    async fn approval_key(&mut self, key: KeyEvent) -> bool {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        let is_interrupt = control && key.code == KeyCode::Char('c');
        let is_typing = !self.editor.is_empty();
        let is_offered = self.offers.is_open();
        let Some(InputMode::Approval { prompt, since, .. }) = self.prompts.front_mut() else {
            return false;
        };
        // Keys that were on their way to a text decide nothing.
        if is_typing {
            *since = Instant::now();
            if key.code == KeyCode::Tab && !is_offered {
                *since = since.checked_sub(PROMPT_KEY_DELAY).unwrap_or(*since);
                self.save_draft();
                return true;
            }
            return false;
        }
        if is_interrupt || since.elapsed() < PROMPT_KEY_DELAY {
            return false;
        }
        // A key that is held was pressed for what came before.
        if key.kind == KeyEventKind::Repeat && !prompt.is_typing_reason() {
            return true;
        }
        let call_id = prompt.call_id.clone();
        if let Some(decision) = prompt.key(key) {
            self.prompts.pop();
            self.show_decision(&decision);
            self.show_front();
            self.send_request(PersonRequest::Decide { call_id, decision })
                .await;
        }
        true
    }

    /// Says what was decided where it stays.
    fn show_decision(&mut self, decision: &Decision) {
        let lines = approval::decision_lines(decision, self.screen.columns());
        self.transcript.push_above(lines);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use conjure_core::chat::{CallAnnounced, QuestionAsked};
    use serde_json::json;
    use tokio::sync::mpsc;

    use super::*;
    use crate::completion::Command;
    use crate::conversation::Update;
    use crate::face::FaceOptions;
    use crate::picker::Picker;
    use crate::screen::Screen;

    pub(crate) fn face() -> (Face, mpsc::Receiver<PersonRequest>) {
        let (requests, asked) = mpsc::channel(16);
        let screen = Screen::new(Box::new(std::io::sink()), false, (80, 24));
        let (_, keys) = mpsc::channel(1);
        let options = FaceOptions {
            has_colors: false,
            history: None,
            directory: std::env::temp_dir(),
            commands: vec![Command {
                name: "/model",
                arguments: "",
                help: "",
            }],
            images: None,
            greeting: String::new(),
        };
        let keys = crate::keys::Keys::of(keys);
        (Face::new(options, screen, keys, requests), asked)
    }

    async fn call(face: &mut Face, id: &str, command: &str) {
        let call = CallAnnounced {
            id: id.to_owned(),
            name: "sh".to_owned(),
            arguments: json!({ "command": command }),
        };
        let reason = "ask".to_owned();
        let overwritten = None;
        face.update(Update::Approval {
            call,
            reason,
            overwritten,
        })
        .await;
    }

    pub(crate) async fn press(face: &mut Face, code: KeyCode) {
        face.key(KeyEvent::new(code, KeyModifiers::NONE)).await;
    }

    /// A question for a name.
    pub(crate) fn name_question(id: &str) -> QuestionAsked {
        QuestionAsked {
            id: id.to_owned(),
            plugin: "p".to_owned(),
            call_id: None,
            message: "m".to_owned(),
            schema: Some(json!({
                "type": "object",
                "properties": { "name": { "type": "string" } },
                "required": ["name"],
            })),
            url: None,
        }
    }

    /// A question of somebody else's turn, for a name.
    pub(crate) async fn others_ask(face: &mut Face) {
        let prompt = OthersPrompt::Question(name_question("q1"));
        face.update(Update::Others(prompt)).await;
    }

    /// Lets the time pass in which keys were meant for something else.
    pub(crate) fn wait(face: &mut Face) {
        if let Some(InputMode::Approval { since, .. } | InputMode::Form { since, .. }) =
            face.prompts.front_mut()
        {
            *since = since.checked_sub(PROMPT_KEY_DELAY).unwrap();
        }
    }

    /// What stands above the region and was not looked at before.
    pub(crate) fn shown(face: &mut Face) -> String {
        let (lines, _) = face.transcript.frame(0);
        let lines = lines.iter().map(Line::plain).collect::<Vec<_>>();
        lines.join("\n")
    }

    fn decided(asked: &mut mpsc::Receiver<PersonRequest>) -> Option<(String, Decision)> {
        match asked.try_recv() {
            Ok(PersonRequest::Decide { call_id, decision }) => Some((call_id, decision)),
            _ => None,
        }
    }

    #[tokio::test]
    async fn the_call_that_was_shown_last_is_the_one_that_is_decided() {
        let (mut face, mut asked) = face();
        call(&mut face, "c1", "rm one").await;
        call(&mut face, "c2", "rm two").await;
        let screen = shown(&mut face);
        assert!(screen.contains("rm one") && !screen.contains("rm two"));
        wait(&mut face);
        press(&mut face, KeyCode::Char('y')).await;
        assert_eq!(decided(&mut asked), Some(("c1".into(), Decision::Once)));
        let screen = shown(&mut face);
        let (first, second) = (screen.find("yes, once"), screen.find("rm two"));
        assert!(first.is_some() && first < second, "{screen}");
        // The same key once more was not meant for a call that was not read.
        press(&mut face, KeyCode::Char('y')).await;
        assert_eq!(decided(&mut asked), None);
        assert_eq!(face.editor.full_text(), "y");
        press(&mut face, KeyCode::Tab).await;
        let held =
            KeyEvent::new_with_kind(KeyCode::Char('y'), KeyModifiers::NONE, KeyEventKind::Repeat);
        face.key(held).await;
        assert_eq!(decided(&mut asked), None);
        press(&mut face, KeyCode::Char('y')).await;
        assert_eq!(decided(&mut asked), Some(("c2".into(), Decision::Once)));
        assert_eq!(face.editor.full_text(), "y");
    }

    #[tokio::test]
    async fn a_call_that_others_decided_gives_way_to_the_next() {
        let (mut face, mut asked) = face();
        call(&mut face, "c1", "rm one").await;
        call(&mut face, "c2", "rm two").await;
        wait(&mut face);
        face.settle("c1");
        assert!(shown(&mut face).contains("rm two"));
        press(&mut face, KeyCode::Char('y')).await;
        assert_eq!(decided(&mut asked), None);
    }

    #[tokio::test]
    async fn keys_that_were_meant_for_the_text_decide_nothing() {
        let (mut face, mut asked) = face();
        press(&mut face, KeyCode::Char('x')).await;
        call(&mut face, "c1", "rm one").await;
        wait(&mut face);
        // The text is gone at once, and the next key comes right after.
        for code in [KeyCode::Backspace, KeyCode::Char('y')] {
            press(&mut face, code).await;
        }
        assert_eq!(decided(&mut asked), None);
        assert_eq!(face.editor.full_text(), "y");
        press(&mut face, KeyCode::Tab).await;
        press(&mut face, KeyCode::Char('n')).await;
        press(&mut face, KeyCode::Enter).await;
        let no = Decision::No(String::new());
        assert_eq!(decided(&mut asked), Some(("c1".into(), no)));
        assert_eq!(face.editor.full_text(), "y");
    }

    #[tokio::test]
    async fn what_is_queued_waits_until_a_list_is_left() {
        let (mut face, mut asked) = face();
        face.is_busy = true;
        face.queue.push("next".to_owned());
        let picker = Picker::new("models", "Which?", Vec::new());
        face.update(Update::Pick(picker)).await;
        face.update(Update::Ready).await;
        assert_eq!(asked.try_recv().ok(), None);
        press(&mut face, KeyCode::Esc).await;
        let left = PersonRequest::Pick {
            list: "models".to_owned(),
            id: None,
        };
        assert_eq!(asked.try_recv().ok(), Some(left));
        face.update(Update::Ready).await;
        assert_eq!(
            asked.try_recv().ok(),
            Some(PersonRequest::Say("next".to_owned()))
        );
    }

    #[tokio::test]
    async fn who_asked_is_told_that_there_will_be_no_answer() {
        let (mut face, mut asked) = face();
        press(&mut face, KeyCode::Char('x')).await;
        face.update(Update::Question(name_question("q1"))).await;
        assert_eq!(face.editor.full_text(), "");
        face.update(Update::Ready).await;
        let declined = PersonRequest::Answer {
            id: "q1".to_owned(),
            content: None,
        };
        assert_eq!(asked.try_recv().ok(), Some(declined));
        assert_eq!(face.editor.full_text(), "x");
    }

    #[tokio::test]
    async fn what_others_wait_for_outlasts_what_was_asked_for_here() {
        let (mut face, mut asked) = face();
        let call = CallAnnounced {
            id: "c1".to_owned(),
            name: "sh".to_owned(),
            arguments: json!({ "command": "rm one" }),
        };
        let approval = || OthersPrompt::Approval {
            call: call.clone(),
            reason: "ask".to_owned(),
            overwritten: None,
        };
        face.is_busy = true;
        face.queue.push("next".to_owned());
        face.update(Update::Others(approval())).await;
        face.update(Update::Others(approval())).await;
        others_ask(&mut face).await;
        face.update(Update::Ready).await;
        let next = PersonRequest::Say("next".to_owned());
        assert_eq!(asked.try_recv().ok(), Some(next), "nothing is declined");
        assert_eq!(asked.try_recv().ok(), None);
        let screen = shown(&mut face);
        assert_eq!(screen.matches("somebody else began").count(), 1, "{screen}");
        wait(&mut face);
        press(&mut face, KeyCode::Char('y')).await;
        assert_eq!(decided(&mut asked), Some(("c1".into(), Decision::Once)));
        assert!(shown(&mut face).contains("p asks: m"));
        let id = "q1".to_owned();
        face.update(Update::Others(OthersPrompt::Settled { id }))
            .await;
        assert!(face.prompts.front().is_none());
    }

    #[tokio::test]
    async fn an_offer_goes_with_the_text_that_it_was_made_for() {
        let (mut face, _asked) = face();
        for c in "/mod".chars() {
            press(&mut face, KeyCode::Char(c)).await;
        }
        assert!(face.offers.is_open());
        face.replace_text("\u{e9}");
        assert!(!face.offers.is_open());
        face.editor.complete(1, "x");
        assert_eq!(face.editor.full_text(), "x");
    }

    #[tokio::test]
    async fn what_waits_for_a_turn_that_was_stopped_or_failed_is_the_persons_again() {
        let (mut face, mut asked) = face();
        for halted in [true, false] {
            face.begin(PersonRequest::Say("first".to_owned())).await;
            for text in ["second", "third"] {
                face.queue.push(text.to_owned());
            }
            if halted {
                press(&mut face, KeyCode::Esc).await;
            } else {
                face.update(Update::Halted).await;
            }
            face.update(Update::Ready).await;
            while let Ok(request) = asked.try_recv() {
                assert_ne!(request, PersonRequest::Say("second".to_owned()));
            }
            assert_eq!(face.editor.full_text(), "second");
            press(&mut face, KeyCode::Char('!')).await;
            press(&mut face, KeyCode::Enter).await;
            let second = PersonRequest::Say("second!".to_owned());
            assert_eq!(asked.try_recv().ok(), Some(second));
            // What goes well is followed by what waits.
            face.update(Update::Ready).await;
            let third = PersonRequest::Say("third".to_owned());
            assert_eq!(asked.try_recv().ok(), Some(third));
            face.update(Update::Ready).await;
        }
        // What is being typed stays what it is.
        face.begin(PersonRequest::Say("first".to_owned())).await;
        face.queue.push("second".to_owned());
        press(&mut face, KeyCode::Esc).await;
        press(&mut face, KeyCode::Char('x')).await;
        face.update(Update::Ready).await;
        assert_eq!(
            (face.editor.full_text().as_str(), face.queue.len()),
            ("x", 1)
        );
    }

    #[tokio::test]
    async fn what_is_typed_at_a_list_is_searched_for() {
        let (mut face, mut asked) = face();
        let picker = Picker::new("threads", "Which?", Vec::new()).with_search();
        face.update(Update::Pick(picker)).await;
        for c in "la".chars() {
            press(&mut face, KeyCode::Char(c)).await;
        }
        let search = |words: &str| PersonRequest::Search {
            list: "threads".to_owned(),
            words: words.to_owned(),
        };
        let found = |words: &str| Update::SearchResults {
            list: "threads".to_owned(),
            words: words.to_owned(),
            choices: vec![PickerItem {
                id: words.to_owned(),
                label: String::new(),
                detail: String::new(),
            }],
        };
        assert_eq!(asked.try_recv().ok(), Some(search("l")));
        assert_eq!(asked.try_recv().ok(), None, "one search runs at a time");
        face.update(found("l")).await;
        assert_eq!(asked.try_recv().ok(), Some(search("la")));
        face.update(found("la")).await;
        press(&mut face, KeyCode::Enter).await;
        let picked = PersonRequest::Pick {
            list: "threads".to_owned(),
            id: Some("la".to_owned()),
        };
        assert_eq!(asked.try_recv().ok(), Some(picked));
    }
}
