//! A call that waits for the person where no conversation has the screen: asked as the conversation
//! asks it, with keys, or in lines where nothing may be redrawn.

use std::io;
use std::time::Instant;

use async_recursion::async_recursion as boxed;
use conjure_core::chat::CallAnnounced;
use crossterm::event::{Event as Input, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use rustix::process::{Signal, getpid, kill_process};

use crate::approval::{self, ApprovalPrompt};
use crate::conversation::Decision;
use crate::keys::{Keys, output};
use crate::lending::suspend;
use crate::pick::size;
use crate::prompts::PROMPT_KEY_DELAY;
use crate::screen::Screen;
use crate::text::Line;

/// Asks the person whether a call may run; nothing where the terminal is gone. `before` is what the
/// file has that it would write. Where it is dropped
/// the terminal is as it was before. Ctrl-C is a signal to the program, as elsewhere.
///
/// # Errors
/// When there is no terminal.
#[boxed]
pub async fn decide(
    call: &CallAnnounced,
    reason: &str,
    before: Option<&str>,
    has_colors: bool,
) -> io::Result<Option<Decision>> {
    let screen = Screen::new(output(), has_colors, size()?);
    let mut asking = ApprovalDialog {
        screen,
        keys: Keys::read()?,
    };
    let mut prompt = ApprovalPrompt::new(call);
    let mut told = vec![Line::new()];
    told.extend(approval::call_lines(
        call,
        reason,
        before,
        asking.screen.columns(),
    ));
    let mut typing: Option<Typing> = None;
    loop {
        asking.draw(&prompt, &told)?;
        told.clear();
        // From when on the call can be seen.
        let typing = typing.get_or_insert_with(|| Typing::since(Instant::now()));
        match asking.keys.next().await {
            Some(input) if typing.continues(&input, Instant::now()) => {}
            Some(Input::Key(key)) if key.kind != KeyEventKind::Release => {
                if let Some(decision) = asking.key(key, &mut prompt)? {
                    let decided = approval::decision_lines(&decision, asking.screen.columns());
                    asking.screen.draw(&decided, &[], (0, 0))?;
                    return Ok(Some(decision));
                }
            }
            Some(Input::Paste(text)) => prompt.paste(&text),
            Some(Input::Resize(columns, rows)) => {
                let (columns, rows) = (usize::from(columns), usize::from(rows));
                asking.screen.resize(columns, rows)?;
            }
            Some(_) => {}
            None => return Ok(None),
        }
    }
}

/// What somebody types who was typing when the call was shown: it is for something else, until there
/// was a moment of silence.
struct Typing {
    last: Option<Instant>,
}

impl Typing {
    fn since(shown: Instant) -> Self {
        Self { last: Some(shown) }
    }

    /// Whether this input still belongs to it. Keys with Ctrl and what is no text do not.
    fn continues(&mut self, input: &Input, now: Instant) -> bool {
        let is_text = match input {
            Input::Key(key) => !key.modifiers.contains(KeyModifiers::CONTROL),
            Input::Paste(_) => true,
            _ => false,
        };
        if !is_text {
            return false;
        }
        let goes_on = |last: Instant| now.saturating_duration_since(last) < PROMPT_KEY_DELAY;
        self.last = self.last.filter(|last| goes_on(*last)).map(|_| now);
        self.last.is_some()
    }
}

/// The terminal while somebody is asked.
struct ApprovalDialog {
    screen: Screen,
    keys: Keys,
}

impl ApprovalDialog {
    fn draw(&mut self, prompt: &ApprovalPrompt, told: &[Line]) -> io::Result<()> {
        let (columns, rows) = (self.screen.columns(), self.screen.rows());
        let (mut lines, mut cursor) = prompt.render(columns, rows);
        // The lowest lines count where not all fit.
        let over = lines.len().saturating_sub(rows);
        lines.drain(..over);
        cursor.0 = cursor.0.saturating_sub(over);
        self.screen.draw(told, &lines, cursor)
    }

    fn key(&mut self, key: KeyEvent, prompt: &mut ApprovalPrompt) -> io::Result<Option<Decision>> {
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('c') if is_control => kill_process(getpid(), Signal::INT)?,
            KeyCode::Char('z') if is_control => {
                self.screen.clear()?;
                self.keys.lend(suspend)?;
                // It may have another size by now.
                let (columns, rows) = size()?;
                self.screen.resize(columns, rows)?;
            }
            // A key that is held was pressed for what came before.
            _ if key.kind == KeyEventKind::Repeat && !prompt.is_typing_reason() => {}
            _ => return Ok(prompt.key(key)),
        }
        Ok(None)
    }
}

impl Drop for ApprovalDialog {
    fn drop(&mut self) {
        // A terminal that is gone has nothing to be taken away.
        let _ = self.screen.clear();
    }
}

/// A call that waits, asked in lines and answered in lines.
#[derive(Debug)]
pub struct ApprovalLines {
    prompt: ApprovalPrompt,
    question: String,
}

/// Meaning of a line that a person typed at the question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LineAnswer {
    /// The call is decided.
    Decided(Decision),
    /// The call is refused; the reason is to be asked for.
    AskReason,
    /// The line is no answer; this text is to be told.
    Invalid(String),
}

impl ApprovalLines {
    /// What can be said to a call, and the reason why that is asked. `before` is what the file has that
    /// it would write.
    pub fn new(call: &CallAnnounced, reason: &str, before: Option<&str>) -> Self {
        let prompt = ApprovalPrompt::new(call);
        // Lines are as long as they are: the terminal breaks them.
        let mut lines = approval::call_lines(call, reason, before, usize::from(u16::MAX));
        lines.extend(prompt.choice_lines());
        let lines: Vec<String> = lines.iter().map(Line::plain).collect();
        let question = lines.join("\n");
        Self { prompt, question }
    }

    /// Everything that would run, and the choices, without styles.
    pub fn question(&self) -> &str {
        &self.question
    }

    /// The letters that are answers, for the line that is typed at.
    pub fn keys(&self) -> &'static str {
        self.prompt.keys()
    }

    /// What a line says.
    pub fn answer(&mut self, line: &str) -> LineAnswer {
        let key = match line.trim() {
            "yes" => Some('y'),
            "always" => Some('a'),
            "no" => Some('n'),
            word => {
                let mut letters = word.chars();
                letters.next().filter(|_| letters.next().is_none())
            }
        };
        let key = key.map(|key| KeyEvent::new(KeyCode::Char(key), KeyModifiers::NONE));
        match key.and_then(|key| self.prompt.key(key)) {
            Some(decision) => LineAnswer::Decided(decision),
            None if self.prompt.is_typing_reason() => LineAnswer::AskReason,
            None => LineAnswer::Invalid(format!("That is no answer: {}.", self.keys())),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;

    fn lines(command: &str) -> ApprovalLines {
        let call = CallAnnounced {
            id: "c1".to_owned(),
            name: "sh".to_owned(),
            arguments: json!({ "command": command }),
        };
        ApprovalLines::new(&call, "ask", None)
    }

    #[test]
    fn who_was_typing_decides_nothing_until_there_was_silence() {
        let shown = Instant::now();
        let after = |ms: u64| shown + Duration::from_millis(ms);
        let key = |c| Input::Key(KeyEvent::new(KeyCode::Char(c), KeyModifiers::NONE));
        let mut typing = Typing::since(shown);
        // A sentence, or a key that is held.
        for at in (50..2_000).step_by(200) {
            assert!(typing.continues(&key('y'), after(at)), "{at} ms");
        }
        assert!(typing.continues(&Input::Paste("y".to_owned()), after(1_900)));
        let stop = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert!(!typing.continues(&Input::Key(stop), after(1_910)));
        assert!(!typing.continues(&Input::Resize(80, 24), after(1_910)));
        assert!(!typing.continues(&key('y'), after(2_300)));
        // From then on it is an answer, however quickly it comes.
        assert!(!typing.continues(&key('y'), after(2_310)));
        let mut quiet = Typing::since(shown);
        assert!(!quiet.continues(&key('y'), after(300)));
    }

    #[test]
    fn only_a_line_that_is_an_answer_decides() {
        let mut asked = lines("git status -s");
        for no_answer in ["", "/help", "1", "yy", "x", "yes please", "\u{1b}"] {
            let again = LineAnswer::Invalid("That is no answer: y, s, a or n.".to_owned());
            assert_eq!(asked.answer(no_answer), again, "{no_answer:?}");
        }
        let rule = "sh(git status *)".to_owned();
        for (line, decision) in [
            (" y\n", Decision::Once),
            ("yes", Decision::Once),
            ("s", Decision::Session(rule.clone())),
            ("always", Decision::Always(rule)),
        ] {
            assert_eq!(asked.answer(line), LineAnswer::Decided(decision));
        }
        assert_eq!(asked.answer("no"), LineAnswer::AskReason);
    }

    #[test]
    fn the_question_has_all_that_would_run() {
        let command = format!("echo {}\nrm -r x", "y".repeat(300));
        let asked = lines(&command);
        for line in command.lines() {
            assert!(asked.question().contains(line), "{}", asked.question());
        }
        assert_eq!(asked.keys(), "y or n");
        assert!(!asked.question().contains("always"), "{}", asked.question());
        let hostile = lines("echo \u{1b}]0;x\u{7}");
        assert!(!hostile.question().contains('\u{1b}'));
    }
}
