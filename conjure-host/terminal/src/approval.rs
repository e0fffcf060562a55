//! A call that waits for the person: what exactly would run, and what can be said to it.

use conjure_core::chat::CallAnnounced;
use conjure_core::foreign_text::escape_line;
use conjure_core::routing::Pattern;
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use crate::call::whole;
use crate::conversation::Decision;
use crate::text::{Color, Line, Style};

/// A call that waits for a decision.
#[derive(Debug)]
pub(crate) struct ApprovalPrompt {
    pub(crate) call_id: String,
    /// Whether it waits in a turn that somebody else began, which is not stopped from here.
    pub(crate) is_of_others: bool,
    name: String,
    /// The pattern of a rule that lets calls like this one run, where one can.
    pattern: Option<String>,
    chosen: usize,
    /// Why it is not to run, while that is typed.
    reason: Option<String>,
    /// Whether a key was pressed that means nothing.
    asks_again: bool,
}

/// What a person can say to a call.
enum ApprovalChoice {
    Once,
    Session(String),
    Always(String),
    No,
}

impl ApprovalChoice {
    fn key(&self) -> char {
        match self {
            Self::Once => 'y',
            Self::Session(_) => 's',
            Self::Always(_) => 'a',
            Self::No => 'n',
        }
    }

    /// What it means; a rule is told whole, and one that is the tool's name says so.
    fn text(&self, tool: &str) -> String {
        match self {
            Self::Once => "yes, once".to_owned(),
            Self::Session(pattern) if pattern == tool => {
                format!("yes, and in this session: every call of {tool}")
            }
            Self::Session(pattern) => {
                format!("yes, and in this session: {}", escape_line(pattern))
            }
            Self::Always(pattern) if pattern == tool => {
                format!("yes, and always: writes the rule {pattern}, for every call of it")
            }
            Self::Always(pattern) => {
                format!("yes, and always: writes the rule {}", escape_line(pattern))
            }
            Self::No => "no, and why".to_owned(),
        }
    }
}

impl ApprovalPrompt {
    pub(crate) fn new(call: &CallAnnounced) -> Self {
        Self {
            call_id: call.id.clone(),
            is_of_others: false,
            name: call.name.clone(),
            pattern: pattern(call),
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
        let choices = self.choices();
        let chosen = match key.code {
            KeyCode::Up => {
                self.chosen = (self.chosen + choices.len() - 1) % choices.len();
                return None;
            }
            KeyCode::Down | KeyCode::Tab => {
                self.chosen = (self.chosen + 1) % choices.len();
                return None;
            }
            KeyCode::Enter => choices.get(self.chosen),
            KeyCode::Char(c) if !control => {
                let at = c.to_digit(10).and_then(|digit| usize::try_from(digit).ok());
                match at.and_then(|at| at.checked_sub(1)) {
                    Some(at) => choices.get(at),
                    None => choices.iter().find(|choice| choice.key() == c),
                }
            }
            _ => None,
        };
        match chosen {
            Some(ApprovalChoice::Once) => Some(Decision::Once),
            Some(ApprovalChoice::Session(pattern)) => Some(Decision::Session(pattern.clone())),
            Some(ApprovalChoice::Always(pattern)) => Some(Decision::Always(pattern.clone())),
            Some(ApprovalChoice::No) => {
                self.reason = Some(String::new());
                None
            }
            None => {
                self.asks_again = true;
                None
            }
        }
    }

    /// What can be said. Where no rule can let just calls like this one run, none is offered.
    fn choices(&self) -> Vec<ApprovalChoice> {
        let mut choices = vec![ApprovalChoice::Once];
        if let Some(pattern) = &self.pattern {
            choices.push(ApprovalChoice::Session(pattern.clone()));
            choices.push(ApprovalChoice::Always(pattern.clone()));
        }
        choices.push(ApprovalChoice::No);
        choices
    }

    /// The choices, a line each, for where nothing is redrawn.
    pub(crate) fn choice_lines(&self) -> Vec<Line> {
        let choices = self.choices();
        let line = |choice: &ApprovalChoice| {
            Line::of("  ", Style::PLAIN)
                .with(choice.key().to_string(), Style::of(Color::Yellow).bold())
                .with(format!("  {}", choice.text(&self.name)), Style::PLAIN)
        };
        choices.iter().map(line).collect()
    }

    /// The keys that are answers.
    pub(crate) fn keys(&self) -> &'static str {
        match self.pattern {
            Some(_) => "y, s, a or n",
            None => "y or n",
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
        let choices = self.choices();
        let mut lines = Vec::new();
        let mut cursor = (0, 0);
        for (at, choice) in choices.iter().enumerate() {
            let is_chosen = at == self.chosen;
            let style = if is_chosen {
                Style::of(Color::Cyan).bold()
            } else {
                Style::PLAIN
            };
            let first = Line::of(if is_chosen { "▸ " } else { "  " }, style)
                .with(choice.key().to_string(), Style::of(Color::Yellow).bold())
                .with("  ", style);
            let indent = Line::of(" ".repeat(first.width()), Style::PLAIN);
            if is_chosen {
                cursor = (lines.len(), 0);
            }
            // A rule is shown whole, however long it is.
            let text = Line::of(choice.text(&self.name), style);
            lines.extend(text.wrap(columns, &first, &indent));
        }
        let hint = if self.asks_again {
            let text = format!("That is no answer: {}.", self.keys());
            Line::of(text, Style::of(Color::Yellow))
        } else if self.is_of_others {
            Line::of("It waits for you.", Style::DIM)
        } else {
            Line::of("It waits for you. Ctrl-C stops the turn.", Style::DIM)
        };
        lines.push(hint.cut(columns));
        (lines, cursor)
    }
}

/// The pattern of a rule for calls like this one, where there is one.
fn pattern(call: &CallAnnounced) -> Option<String> {
    let pattern = Pattern::for_calls_like(&call.name, &call.arguments)?;
    Some(pattern.to_string())
}

/// Everything that would run, to be read before it is decided; `before` is what the file has that it
/// would write.
pub(crate) fn told(
    call: &CallAnnounced,
    reason: &str,
    before: Option<&str>,
    columns: usize,
) -> Vec<Line> {
    let head = Line::of("? ", Style::of(Color::Yellow).bold())
        .with(&call.name, Style::BOLD)
        .with(" wants to run ", Style::PLAIN)
        .with(format!("({reason})"), Style::DIM);
    let indent = Line::of("  ", Style::PLAIN);
    let mut lines = head.wrap(columns, &Line::new(), &indent);
    let bar = Line::of("  │ ", Style::of(Color::Yellow));
    for line in whole(&call.arguments, before) {
        lines.extend(line.chunks(columns, &bar, &bar));
    }
    lines
}

/// What was decided, where it stays.
pub(crate) fn decided(decision: &Decision, columns: usize) -> Vec<Line> {
    let text = match decision {
        Decision::Once => "yes, once".to_owned(),
        Decision::Session(pattern) => format!("yes, and in this session: {}", escape_line(pattern)),
        Decision::Always(pattern) => format!("yes, and always: {}", escape_line(pattern)),
        Decision::No(reason) if reason.is_empty() => "no".to_owned(),
        Decision::No(reason) => format!("no: {reason}"),
    };
    let first = Line::of("  ↳ ", Style::of(Color::Yellow));
    let indent = Line::of("    ", Style::PLAIN);
    Line::of(text, Style::PLAIN).wrap(columns, &first, &indent)
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
            arguments: json!({ "command": "cargo test -q" }),
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
        let rule = "local_bash_tool(cargo test *)".to_owned();
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
    fn a_call_that_no_rule_can_say_runs_once_or_not() {
        let call = CallAnnounced {
            id: "c1".to_owned(),
            name: "sh".to_owned(),
            arguments: json!({ "command": "ls *.rs" }),
        };
        let mut prompt = ApprovalPrompt::new(&call);
        let press = |prompt: &mut ApprovalPrompt, c| {
            prompt.key(KeyEvent::new(KeyCode::Char(c), KeyModifiers::NONE))
        };
        for c in ['s', 'a', '3', '0'] {
            assert_eq!(press(&mut prompt, c), None);
        }
        let (lines, _) = prompt.render(80);
        let lines = lines.iter().map(Line::plain).collect::<Vec<_>>();
        let shown = [
            "▸ y  yes, once",
            "  n  no, and why",
            "That is no answer: y or n.",
        ];
        assert_eq!(lines, shown);
        assert_eq!(press(&mut prompt, '1'), Some(Decision::Once));
    }
}
