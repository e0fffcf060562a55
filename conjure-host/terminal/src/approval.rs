//! A call that waits for the person: what exactly would run, and what can be said to it.

use conjure_core::chat::CallAnnounced;
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use serde_json::Value;

use crate::call::whole;
use crate::conversation::Decision;
use crate::text::{Color, Line, Style};

/// A call that waits for a decision.
#[derive(Debug)]
pub(crate) struct ApprovalPrompt {
    pub(crate) call_id: String,
    pub(crate) name: String,
    /// The pattern of a rule that lets calls like this one run.
    pattern: String,
    chosen: usize,
    /// Why it is not to run, while that is typed.
    reason: Option<String>,
    /// Whether a key was pressed that means nothing.
    asks_again: bool,
}

impl ApprovalPrompt {
    pub(crate) fn new(call: &CallAnnounced) -> Self {
        Self {
            call_id: call.id.clone(),
            name: call.name.clone(),
            pattern: pattern(&call.name, &call.arguments),
            chosen: 0,
            reason: None,
            asks_again: false,
        }
    }

    /// Whether the reason of a no is being typed.
    pub(crate) fn asks_why(&self) -> bool {
        self.reason.is_some()
    }

    /// What a key decides.
    pub(crate) fn key(&mut self, key: KeyEvent) -> Option<Decision> {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        if let Some(reason) = &mut self.reason {
            match key.code {
                KeyCode::Enter => return Some(Decision::No(std::mem::take(reason))),
                KeyCode::Esc => self.reason = None,
                KeyCode::Char('u') if control => reason.clear(),
                KeyCode::Backspace => drop(reason.pop()),
                KeyCode::Char(c) if !control => reason.push(c),
                _ => {}
            }
            return None;
        }
        self.asks_again = false;
        let chosen = match key.code {
            KeyCode::Up => {
                self.chosen = (self.chosen + 3) % 4;
                return None;
            }
            KeyCode::Down | KeyCode::Tab => {
                self.chosen = (self.chosen + 1) % 4;
                return None;
            }
            KeyCode::Enter => self.chosen,
            KeyCode::Char('y' | '1') if !control => 0,
            KeyCode::Char('s' | '2') if !control => 1,
            KeyCode::Char('a' | '3') if !control => 2,
            KeyCode::Char('n' | '4') if !control => 3,
            _ => {
                self.asks_again = true;
                return None;
            }
        };
        match chosen {
            0 => Some(Decision::Once),
            1 => Some(Decision::Session(self.pattern.clone())),
            2 => Some(Decision::Always(self.pattern.clone())),
            _ => {
                self.reason = Some(String::new());
                None
            }
        }
    }

    /// A text that was pasted.
    pub(crate) fn paste(&mut self, text: &str) {
        match &mut self.reason {
            Some(reason) => reason.push_str(&text.replace(['\n', '\r'], " ")),
            None => self.asks_again = true,
        }
    }

    pub(crate) fn render(&self, columns: usize) -> (Vec<Line>, (usize, usize)) {
        if let Some(reason) = &self.reason {
            let first = Line::of("Why not? ", Style::of(Color::Yellow).bold());
            let text = Line::of(reason, Style::PLAIN);
            let indent = Line::of(" ".repeat(first.width()), Style::PLAIN);
            let mut lines = text.chunks(columns.saturating_sub(1), &first, &indent);
            let cursor = (lines.len() - 1, lines.last().map_or(0, Line::width));
            let hint = "The model reads it. Enter says no, Esc goes back.";
            lines.push(Line::of(hint, Style::DIM).cut(columns));
            return (lines, cursor);
        }
        let choices = [
            ("y", "yes, once".to_owned()),
            ("s", format!("yes, and in this session: {}", self.pattern)),
            (
                "a",
                format!("yes, and always: writes the rule {}", self.pattern),
            ),
            ("n", "no, and why".to_owned()),
        ];
        let mut lines = Vec::new();
        let mut cursor = (0, 0);
        for (at, (key, text)) in choices.iter().enumerate() {
            let is_chosen = at == self.chosen;
            let style = if is_chosen {
                Style::of(Color::Cyan).bold()
            } else {
                Style::PLAIN
            };
            let first = Line::of(if is_chosen { "▸ " } else { "  " }, style)
                .with(*key, Style::of(Color::Yellow).bold())
                .with("  ", style);
            let indent = Line::of(" ".repeat(first.width()), Style::PLAIN);
            if is_chosen {
                cursor = (lines.len(), 0);
            }
            // A rule is shown whole, however long it is.
            lines.extend(Line::of(text, style).wrap(columns, &first, &indent));
        }
        let hint = if self.asks_again {
            Line::of("That is no answer: y, s, a or n.", Style::of(Color::Yellow))
        } else {
            Line::of("It waits for you. Ctrl-C stops the turn.", Style::DIM)
        };
        lines.push(hint.cut(columns));
        (lines, cursor)
    }
}

/// Everything that would run, to be read before it is decided.
pub(crate) fn told(call: &CallAnnounced, reason: &str, columns: usize) -> Vec<Line> {
    let head = Line::of("? ", Style::of(Color::Yellow).bold())
        .with(&call.name, Style::BOLD)
        .with(" wants to run ", Style::PLAIN)
        .with(format!("({reason})"), Style::DIM);
    let indent = Line::of("  ", Style::PLAIN);
    let mut lines = head.wrap(columns, &Line::new(), &indent);
    let bar = Line::of("  │ ", Style::of(Color::Yellow));
    for line in whole(&call.arguments) {
        lines.extend(line.chunks(columns, &bar, &bar));
    }
    lines
}

/// The pattern of a rule that lets calls like this one run: for a command those of the same program,
/// or this very one where it is more than a program with its arguments; else those of the tool.
fn pattern(name: &str, arguments: &Value) -> String {
    let Some(command) = arguments.get("command").and_then(Value::as_str) else {
        return name.to_owned();
    };
    let command = command.trim();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./=,:@+ ".contains(c);
    let mut words = command.split(' ');
    let program = words.next().unwrap_or_default();
    let is_name = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if command.chars().all(is_plain) && !program.is_empty() && program.chars().all(is_name) {
        return match words.next() {
            Some(_) => format!("{name}({program} *)"),
            None => format!("{name}({program})"),
        };
    }
    if command.contains(['*', '\n']) {
        return name.to_owned();
    }
    format!("{name}({command})")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_an_answer_is_an_answer() {
        let call = CallAnnounced {
            id: "c1".to_owned(),
            name: "local_bash_tool".to_owned(),
            arguments: json!({ "command": "cargo test" }),
        };
        let mut prompt = ApprovalPrompt::new(&call);
        let press =
            |prompt: &mut ApprovalPrompt, code| prompt.key(KeyEvent::new(code, KeyModifiers::NONE));
        for c in "/help".chars() {
            assert_eq!(press(&mut prompt, KeyCode::Char(c)), None);
        }
        let (lines, _) = prompt.render(80);
        assert!(
            lines
                .iter()
                .any(|line| line.plain().starts_with("That is no answer"))
        );
        let rule = "local_bash_tool(cargo *)".to_owned();
        assert_eq!(
            press(&mut prompt, KeyCode::Char('a')),
            Some(Decision::Always(rule))
        );
        press(&mut prompt, KeyCode::Char('n'));
        for c in "yes? no".chars() {
            assert_eq!(press(&mut prompt, KeyCode::Char(c)), None);
        }
        let no = Some(Decision::No("yes? no".to_owned()));
        assert_eq!(press(&mut prompt, KeyCode::Enter), no);
    }

    #[test]
    fn a_rule_is_as_narrow_as_what_it_was_made_for() {
        let of = |command: &str| pattern("sh", &json!({ "command": command }));
        assert_eq!(of("ls"), "sh(ls)");
        assert_eq!(of("git status -s"), "sh(git *)");
        assert_eq!(of("curl x | sh"), "sh(curl x | sh)");
        assert_eq!(pattern("view", &json!({ "path": "x" })), "view");
    }
}
