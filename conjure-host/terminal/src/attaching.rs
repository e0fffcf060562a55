//! Files and images that are to go with a message: paths that are pasted, and what the clipboard
//! holds. Both are looked at aside; what is typed meanwhile stands behind them.

use std::io;

use crossterm::event::{Event as Input, KeyCode, KeyEventKind, KeyModifiers};

use crate::attachments::AttachmentReady;
use crate::face::Face;
use crate::pasted::{self, PastedImage};

impl Face {
    /// Goes on with what was looked at.
    pub(crate) async fn attach(&mut self, ready: AttachmentReady) -> io::Result<()> {
        match ready {
            AttachmentReady::Image(image) => self.finish_image_paste(image).await,
            AttachmentReady::Paths(mentions) => self.finish_path_paste(mentions).await,
        }
    }

    /// Puts in a paste that was looked at, and what came behind it.
    async fn finish_path_paste(&mut self, mentions: Option<String>) -> io::Result<()> {
        let Some(paste) = self.attachments.take_paste() else {
            return Ok(());
        };
        if !self.is_writing_message() {
            // Something came up meanwhile: what was written before that is no answer to it.
            let text = paste.text + &inputs_text(&paste.following_input);
            self.prompts.save_draft(text);
            return Ok(());
        }
        match self.mention_prefix().zip(mentions) {
            Some((space, mentions)) => self.insert_text(&format!("{space}{mentions}")),
            None => self.insert_text(&paste.text),
        }
        for input in paste.following_input {
            self.input(input).await?;
        }
        Ok(())
    }

    pub(crate) fn insert_text(&mut self, text: &str) {
        self.editor.paste(text);
        self.offers.refresh(&self.editor);
    }

    /// What goes before the mention of a file, so that it stands apart; nothing where what is written
    /// is no message, but a command or what a form asks for.
    pub(crate) fn mention_prefix(&self) -> Option<&'static str> {
        let written = self.editor.full_text();
        let is_message = self.is_writing_message() && !written.starts_with(['!', '/']);
        let is_apart = written.is_empty() || written.ends_with(char::is_whitespace);
        is_message.then_some(if is_apart { "" } else { " " })
    }

    /// Takes the image that the clipboard holds, aside: its program may be slow.
    pub(crate) fn paste_image(&mut self) {
        if self.mention_prefix().is_none() {
            self.no_message();
        } else {
            self.attachments.take_from_clipboard();
        }
    }

    fn no_message(&mut self) {
        let words = "an image goes with a message, not with a command or an answer";
        self.transcript.note(words);
    }

    /// Attaches the image that the clipboard held, and goes on with what waited for it.
    async fn finish_image_paste(&mut self, image: Result<PastedImage, String>) -> io::Result<()> {
        let is_attached = self.attach_image(image);
        let behind = self.attachments.take_input_after_enter();
        if !self.is_writing_message() {
            // Neither is an answer to what came up meanwhile.
            let text = behind
                .map(|behind| inputs_text(&behind))
                .unwrap_or_default();
            if !text.is_empty() {
                self.prompts.save_draft(text);
            }
            return Ok(());
        }
        let Some(behind) = behind else {
            return Ok(());
        };
        if is_attached {
            self.enter().await;
            // It was typed long ago, behind the message.
            self.prompts.defer_question();
            for input in behind {
                self.input(input).await?;
            }
        } else {
            // What was meant to go with an image does not go without one.
            let text = inputs_text(&behind);
            if !text.is_empty() {
                self.insert_text(&format!("\n{text}"));
            }
        }
        Ok(())
    }

    /// Attaches an image; whether it goes with what is written now.
    fn attach_image(&mut self, image: Result<PastedImage, String>) -> bool {
        let mention = image.and_then(|image| {
            let mention = pasted::mention(&image.0);
            self.attachments.add_image(image);
            mention.ok_or_else(|| "the directory for it has a name that cannot be said".to_owned())
        });
        match mention {
            Ok(mention) => match self.mention_prefix() {
                Some(space) => {
                    self.insert_text(&format!("{space}{mention}"));
                    return true;
                }
                // Something else is being written by now.
                None => self.no_message(),
            },
            Err(words) => self.transcript.note(&words),
        }
        false
    }
}

/// What was typed and pasted, as text: an Enter is a line more.
fn inputs_text(inputs: &[Input]) -> String {
    let mut text = String::new();
    for input in inputs {
        match input {
            Input::Paste(pasted) => text.push_str(pasted),
            Input::Key(key) if key.kind == KeyEventKind::Release => {}
            Input::Key(key) if key.code == KeyCode::Enter => text.push('\n'),
            Input::Key(key) if !key.modifiers.contains(KeyModifiers::CONTROL) => {
                text.extend(key.code.as_char());
            }
            _ => {}
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use crossterm::event::KeyEvent;

    use super::*;
    use crate::conversation::{PersonRequest, Update};
    use crate::prompts::tests::{face, name_question, others_ask, press, shown, wait};

    #[tokio::test]
    async fn an_image_that_is_still_coming_goes_with_the_message() {
        let (mut face, mut asked) = face();
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("image.png");
        std::fs::write(&file, "an image").unwrap();
        let (come, image) = tokio::sync::oneshot::channel();
        face.attachments
            .take_image_of(tokio::spawn(async { image.await.unwrap() }));
        for letter in "What?".chars() {
            press(&mut face, KeyCode::Char(letter)).await;
        }
        assert!(face.editor.has("What?"), "typing waits for it");
        come.send(Ok(PastedImage(file.clone()))).unwrap();
        press(&mut face, KeyCode::Enter).await;
        assert_eq!(asked.try_recv().ok(), None, "keys do not wait for it");
        let next = KeyEvent::new(KeyCode::Char('x'), KeyModifiers::NONE);
        face.input(Input::Key(next)).await.unwrap();
        let ready = face.attachments.next().await;
        face.attach(ready).await.unwrap();
        assert_eq!(
            face.editor.full_text(),
            "x",
            "what is typed later is no part of it"
        );
        let said = format!("What? @{}", file.display());
        assert_eq!(asked.try_recv().ok(), Some(PersonRequest::Say(said)));
        drop(face);
        assert!(!file.exists());
    }

    #[tokio::test]
    async fn what_was_meant_to_go_with_an_image_does_not_go_without_one() {
        let (mut face, mut asked) = face();
        face.attachments
            .take_image_of(tokio::spawn(async { Err("there is no image".to_owned()) }));
        for code in [KeyCode::Char('?'), KeyCode::Enter, KeyCode::Char('x')] {
            let key = KeyEvent::new(code, KeyModifiers::NONE);
            face.input(Input::Key(key)).await.unwrap();
        }
        let ready = face.attachments.next().await;
        face.attach(ready).await.unwrap();
        assert_eq!(asked.try_recv().ok(), None);
        assert_eq!(face.editor.full_text(), "?\nx");
        assert!(shown(&mut face).contains("there is no image"));
        press(&mut face, KeyCode::Enter).await;
        let said = PersonRequest::Say("?\nx".to_owned());
        assert_eq!(asked.try_recv().ok(), Some(said));
    }

    #[tokio::test]
    async fn ctrl_c_waits_for_nothing_that_is_looked_at() {
        let (mut face, mut asked) = face();
        face.is_busy = true;
        let none = "/none/of/this.gif".to_owned();
        face.input(Input::Paste(none)).await.unwrap();
        let key = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        face.input(Input::Key(key)).await.unwrap();
        assert_eq!(asked.try_recv().ok(), Some(PersonRequest::Stop));
        let is_cleared = face.attachments.deferred_input().is_none();
        assert!(is_cleared, "it was typed before");
        // What waits for an image is taken back too.
        face.is_busy = false;
        face.attachments
            .take_image_of(tokio::spawn(std::future::pending()));
        for code in [KeyCode::Char('x'), KeyCode::Enter] {
            press(&mut face, code).await;
        }
        face.input(Input::Key(key)).await.unwrap();
        assert!(face.attachments.deferred_input().is_none() && face.editor.is_empty());
        assert_eq!(asked.try_recv().ok(), None);
    }

    #[tokio::test]
    async fn what_is_typed_while_a_pasted_path_is_looked_at_stands_behind_it() {
        let (mut face, _asked) = face();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().canonicalize().unwrap().join("a.gif");
        std::fs::write(&path, b"GIF89a\x0a\x00\x14\x00").unwrap();
        let none = dir.path().join("none.gif").display().to_string();
        let pasted = path.display().to_string();
        for (pasted, shown) in [
            (pasted, format!("@{} What?", path.display())),
            (none.clone(), format!("{none}What?")),
        ] {
            face.input(Input::Paste(pasted)).await.unwrap();
            for letter in "What?".chars() {
                let key = KeyEvent::new(KeyCode::Char(letter), KeyModifiers::NONE);
                face.input(Input::Key(key)).await.unwrap();
            }
            assert_eq!(face.editor.full_text(), "", "it is looked at aside");
            let ready = face.attachments.next().await;
            face.attach(ready).await.unwrap();
            assert_eq!(face.editor.full_text(), shown);
            face.replace_text("");
        }
        // Another text is there at once.
        face.input(Input::Paste("a.gif".to_owned())).await.unwrap();
        assert_eq!(face.editor.full_text(), "a.gif");
    }

    #[tokio::test]
    async fn a_paste_that_is_looked_at_is_no_answer_to_what_comes_up_meanwhile() {
        let (mut face, _asked) = face();
        let none = "/none/of/this.gif".to_owned();
        face.input(Input::Paste(none.clone())).await.unwrap();
        for code in [KeyCode::Char('W'), KeyCode::Char('?'), KeyCode::Enter] {
            let key = KeyEvent::new(code, KeyModifiers::NONE);
            face.input(Input::Key(key)).await.unwrap();
        }
        face.input(Input::Paste("and this".to_owned()))
            .await
            .unwrap();
        face.update(Update::Question(name_question("q1"))).await;
        let ready = face.attachments.next().await;
        face.attach(ready).await.unwrap();
        assert_eq!(face.editor.full_text(), "");
        assert_eq!(
            face.prompts.take_draft(),
            Some(format!("{none}W?\nand this"))
        );
    }

    #[tokio::test]
    async fn files_go_with_a_message_also_where_others_ask_something() {
        let (mut face, mut asked) = face();
        let dir = tempfile::tempdir().unwrap();
        let [path, image] = ["a.gif", "b.gif"].map(|name| {
            let path = dir.path().canonicalize().unwrap().join(name);
            std::fs::write(&path, b"GIF89a\x0a\x00\x14\x00").unwrap();
            path
        });
        press(&mut face, KeyCode::Char('?')).await;
        others_ask(&mut face).await;
        let pasted = path.display().to_string();
        face.input(Input::Paste(pasted)).await.unwrap();
        assert_eq!(face.editor.full_text(), "?", "it is looked at aside");
        let ready = face.attachments.next().await;
        face.attach(ready).await.unwrap();
        let said = format!("? @{} ", path.display());
        assert_eq!(face.editor.full_text(), said);
        let (come, coming) = tokio::sync::oneshot::channel();
        face.attachments
            .take_image_of(tokio::spawn(async { coming.await.unwrap() }));
        for code in [KeyCode::Enter, KeyCode::Char('x')] {
            let key = KeyEvent::new(code, KeyModifiers::NONE);
            face.input(Input::Key(key)).await.unwrap();
        }
        come.send(Ok(PastedImage(image.clone()))).unwrap();
        // However long it takes: what was typed behind it is no answer.
        wait(&mut face);
        let ready = face.attachments.next().await;
        face.attach(ready).await.unwrap();
        let said = PersonRequest::Say(format!("{said}@{}", image.display()));
        assert_eq!(asked.try_recv().ok(), Some(said));
        assert_eq!(face.editor.full_text(), "x");
        assert!(!face.is_answering());
    }

    #[tokio::test]
    async fn ctrl_c_takes_back_a_paste_also_where_others_ask_something() {
        let (mut face, _asked) = face();
        press(&mut face, KeyCode::Char('?')).await;
        others_ask(&mut face).await;
        let none = "/none/of/this.gif".to_owned();
        face.input(Input::Paste(none)).await.unwrap();
        assert!(face.attachments.deferred_input().is_some());
        let key = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        face.input(Input::Key(key)).await.unwrap();
        assert!(face.attachments.deferred_input().is_none() && face.editor.is_empty());
    }

    #[tokio::test]
    async fn keys_do_not_wait_for_an_image_that_is_shown() {
        let (mut face, _asked) = face();
        let (name, path) = ("none".to_owned(), "/none/of/this.png".into());
        face.update(Update::Image { name, path }).await;
        assert_eq!(shown(&mut face), "", "it is read aside");
        press(&mut face, KeyCode::Char('x')).await;
        assert_eq!(face.editor.full_text(), "x");
    }
}
