//! A call that waits for the person: what exactly would run, and what can be said to it.

use conjure_core::chat::CallAnnounced;
use conjure_core::foreign_text::escape_line;
use conjure_core::routing::Pattern;
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use crate::call::full_lines;
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
    /// The choice that Up or Down moved onto, which Enter takes. None is marked before: an Enter that
    /// was meant for something else decides nothing.
    chosen: Option<usize>,
    /// Why it is not to run, while that is typed.
    reason: Option<String>,
    /// Whether a key was pressed that means nothing.
    has_unknown_key: bool,
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

    /// What it means where the rule has lines of its own.
    fn short_text(&self) -> &'static str {
        match self {
            Self::Once => "yes, once",
            Self::Session(_) => "yes, in this session by the rule",
            Self::Always(_) => "yes, and always: writes the rule",
            Self::No => "no, and why",
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
            chosen: None,
            reason: None,
            has_unknown_key: false,
        }
    }

    /// Whether the reason of a no is being typed.
    pub(crate) fn is_typing_reason(&self) -> bool {
        self.reason.is_some()
    }

    /// What a key decides.
    pub(crate) fn key(&mut self, key: KeyEvent) -> Option<Decision> {
        // Keys with Alt or Ctrl are commands elsewhere, and never an answer.
        let is_plain = key.modifiers.difference(KeyModifiers::SHIFT).is_empty();
        if let Some(reason) = &mut self.reason {
            match key.code {
                KeyCode::Enter => return Some(Decision::No(std::mem::take(reason))),
                KeyCode::Esc => self.reason = None,
                KeyCode::Char('u') if key.modifiers.contains(KeyModifiers::CONTROL) => {
                    reason.clear();
                }
                KeyCode::Backspace => drop(reason.pop()),
                KeyCode::Char(c) if is_plain => reason.push(c),
                _ => {}
            }
            return None;
        }
        let mut choices = self.choices();
        let picked = match key.code {
            KeyCode::Up | KeyCode::Down if is_plain => {
                self.move_mark(key.code == KeyCode::Up, choices.len());
                return None;
            }
            KeyCode::Enter if is_plain => self.chosen,
            KeyCode::Char(c) if is_plain => choices.iter().position(|choice| choice.key() == c),
            _ => None,
        };
        match picked.filter(|at| *at < choices.len()) {
            Some(at) => self.choose(choices.swap_remove(at)),
            None => {
                self.reject_key();
                None
            }
        }
    }

    /// Marks the choice above or below the one that is marked; where none is, the last or the first.
    fn move_mark(&mut self, is_up: bool, count: usize) {
        self.has_unknown_key = false;
        let last = count.saturating_sub(1);
        self.chosen = Some(match (self.chosen, is_up) {
            (None | Some(0), true) => last,
            (Some(at), true) => at - 1,
            (Some(at), false) if at < last => at + 1,
            (None | Some(_), false) => 0,
        });
    }

    /// What a choice decides; a no is asked for its reason first.
    fn choose(&mut self, choice: ApprovalChoice) -> Option<Decision> {
        (self.has_unknown_key, self.chosen) = (false, None);
        match choice {
            ApprovalChoice::Once => Some(Decision::Once),
            ApprovalChoice::Session(pattern) => Some(Decision::Session(pattern)),
            ApprovalChoice::Always(pattern) => Some(Decision::Always(pattern)),
            ApprovalChoice::No => {
                self.reason = Some(String::new());
                None
            }
        }
    }

    /// What came is no answer. An Enter that follows belongs to it, so nothing is marked any more.
    fn reject_key(&mut self) {
        self.has_unknown_key = true;
        self.chosen = None;
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
            None => self.reject_key(),
        }
    }

    /// The question in so many columns, and where the cursor stands in it. Of the choices it has no
    /// more than so many rows, so that none is cut off by what stands around them.
    pub(crate) fn render(&self, columns: usize, rows: usize) -> (Vec<Line>, (usize, usize)) {
        if let Some(reason) = &self.reason {
            return render_reason(reason, columns);
        }
        let (mut lines, mut marked) = self.full_choices(columns);
        // A line is the hint's.
        let room = rows.saturating_sub(1);
        if lines.len() > room {
            (lines, marked) = self.short_choices(columns, room);
        }
        let cursor = marked.unwrap_or(lines.len());
        lines.push(self.hint().truncate(columns));
        // In fewer rows than that the marked choice stays: Enter takes none that is not seen.
        let above = lines.len().saturating_sub(rows).min(cursor);
        lines.drain(..above);
        lines.truncate(rows);
        (lines, (cursor - above, 0))
    }

    /// The choices with what each of them means, and the line on which the marked one begins. A rule
    /// is shown whole, however long it is.
    fn full_choices(&self, columns: usize) -> (Vec<Line>, Option<usize>) {
        let mut lines = Vec::new();
        let mut marked = None;
        for (at, choice) in self.choices().iter().enumerate() {
            let (first, style) = self.choice_prefix(at, choice);
            let indent = Line::of(" ".repeat(first.width()), Style::PLAIN);
            if self.chosen == Some(at) {
                marked = Some(lines.len());
            }
            let text = Line::of(choice.text(&self.name), style);
            lines.extend(text.wrap(columns, &first, &indent));
        }
        (lines, marked)
    }

    /// Like [`Self::full_choices`], but with one line for each choice, and below them the rule once, in
    /// what is left of `most` lines.
    fn short_choices(&self, columns: usize, most: usize) -> (Vec<Line>, Option<usize>) {
        let mut lines = Vec::new();
        for (at, choice) in self.choices().iter().enumerate() {
            let (line, style) = self.choice_prefix(at, choice);
            lines.push(line.with(choice.short_text(), style).truncate(columns));
        }
        if let Some(pattern) = &self.pattern {
            let indent = Line::of("  ", Style::PLAIN);
            let mut text = Line::of("Rule: ", Style::DIM).with(escape_line(pattern), Style::PLAIN);
            if *pattern == self.name {
                text.push(", for every call of it", Style::PLAIN);
            }
            let mut rule = text.wrap(columns, &indent, &indent);
            let room = most.saturating_sub(lines.len()).max(1);
            if rule.len() > room {
                rule.truncate(room);
                let last = rule.pop().unwrap_or_default();
                rule.push(last.with("…", Style::DIM).truncate(columns));
            }
            lines.extend(rule);
        }
        (lines, self.chosen)
    }

    /// What a choice's line begins with, and its style.
    fn choice_prefix(&self, at: usize, choice: &ApprovalChoice) -> (Line, Style) {
        let (mark, style) = if self.chosen == Some(at) {
            ("▸ ", Style::of(Color::Cyan).bold())
        } else {
            ("  ", Style::PLAIN)
        };
        let line = Line::of(mark, style)
            .with(choice.key().to_string(), Style::of(Color::Yellow).bold())
            .with("  ", style);
        (line, style)
    }

    /// What stands below the choices.
    fn hint(&self) -> Line {
        if self.has_unknown_key {
            let text = format!("That is no answer: {}.", self.keys());
            Line::of(text, Style::of(Color::Yellow))
        } else if self.is_of_others {
            Line::of("It waits for you.", Style::DIM)
        } else {
            Line::of("It waits for you. Ctrl-C stops the turn.", Style::DIM)
        }
    }
}

/// The reason of a no while it is typed, and where the cursor stands in it.
fn render_reason(reason: &str, columns: usize) -> (Vec<Line>, (usize, usize)) {
    let first = Line::of("Why not? ", Style::of(Color::Yellow).bold());
    let text = Line::of(reason, Style::PLAIN);
    let indent = Line::of(" ".repeat(first.width()), Style::PLAIN);
    let mut lines = text.chunks(columns.saturating_sub(1), &first, &indent);
    let row = lines.len().saturating_sub(1);
    let cursor = (row, lines.last().map_or(0, Line::width));
    let hint = "The model reads it. Enter says no, Esc goes back.";
    lines.push(Line::of(hint, Style::DIM).truncate(columns));
    (lines, cursor)
}

/// The pattern of a rule for calls like this one, where there is one.
fn pattern(call: &CallAnnounced) -> Option<String> {
    let pattern = Pattern::for_calls_like(&call.name, &call.arguments)?;
    Some(pattern.to_string())
}

/// Everything that would run, to be read before it is decided; `before` is what the file has that it
/// would write.
pub(crate) fn call_lines(
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
    for line in full_lines(&call.arguments, before) {
        lines.extend(line.chunks(columns, &bar, &bar));
    }
    lines
}

/// What was decided, where it stays.
pub(crate) fn decision_lines(decision: &Decision, columns: usize) -> Vec<Line> {
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

    /// A call of a command that waits.
    fn prompt(name: &str, command: &str) -> ApprovalPrompt {
        ApprovalPrompt::new(&CallAnnounced {
            id: "c1".to_owned(),
            name: name.to_owned(),
            arguments: json!({ "command": command }),
        })
    }

    fn press(prompt: &mut ApprovalPrompt, code: KeyCode) -> Option<Decision> {
        prompt.key(KeyEvent::new(code, KeyModifiers::NONE))
    }

    fn shown(prompt: &ApprovalPrompt, columns: usize, rows: usize) -> Vec<String> {
        let (lines, cursor) = prompt.render(columns, rows);
        assert!(lines.len() <= rows && cursor.0 < lines.len(), "{lines:?}");
        assert!(lines.iter().all(|line| line.width() <= columns));
        lines.iter().map(Line::plain).collect()
    }

    #[test]
    fn only_an_answer_is_an_answer() {
        let mut prompt = prompt("local_bash_tool", "cargo test -q");
        for c in "/help".chars() {
            assert_eq!(press(&mut prompt, KeyCode::Char(c)), None);
        }
        let again = "That is no answer: y, s, a or n.".to_owned();
        assert!(shown(&prompt, 80, 24).contains(&again));
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
    fn enter_takes_only_what_was_marked_since_the_last_key_that_is_no_answer() {
        let mut prompt = prompt("local_bash_tool", "cargo test -q");
        assert_eq!(press(&mut prompt, KeyCode::Enter), None);
        for c in "/help".chars() {
            press(&mut prompt, KeyCode::Char(c));
        }
        // A word that is completed is no choice either.
        for code in [KeyCode::Tab, KeyCode::Enter] {
            assert_eq!(press(&mut prompt, code), None);
        }
        assert!(
            shown(&prompt, 80, 24)
                .iter()
                .all(|line| !line.contains('▸'))
        );
        press(&mut prompt, KeyCode::Down);
        assert!(shown(&prompt, 80, 24).contains(&"▸ y  yes, once".to_owned()));
        press(&mut prompt, KeyCode::Char('x'));
        assert_eq!(press(&mut prompt, KeyCode::Enter), None);
        press(&mut prompt, KeyCode::Down);
        prompt.paste("y\n");
        assert_eq!(press(&mut prompt, KeyCode::Enter), None);
        for _ in 0..2 {
            press(&mut prompt, KeyCode::Down);
        }
        let rule = "local_bash_tool(cargo test *)".to_owned();
        let session = Some(Decision::Session(rule));
        assert_eq!(press(&mut prompt, KeyCode::Enter), session);
    }

    #[test]
    fn up_and_down_go_round() {
        let mut prompt = prompt("sh", "git status");
        let marked = |prompt: &ApprovalPrompt| {
            let lines = shown(prompt, 80, 24);
            lines.iter().position(|line| line.starts_with('▸'))
        };
        assert_eq!(marked(&prompt), None);
        for (code, row) in [
            (KeyCode::Up, 3),
            (KeyCode::Down, 0),
            (KeyCode::Down, 1),
            (KeyCode::Up, 0),
            (KeyCode::Up, 3),
        ] {
            assert_eq!(press(&mut prompt, code), None);
            assert_eq!(marked(&prompt), Some(row));
        }
    }

    #[test]
    fn keys_with_alt_or_ctrl_decide_nothing() {
        let mut prompt = prompt("local_bash_tool", "cargo test -q");
        for modifiers in [KeyModifiers::ALT, KeyModifiers::CONTROL] {
            for c in ['y', 's', 'a', 'n'] {
                let key = KeyEvent::new(KeyCode::Char(c), modifiers);
                assert_eq!(prompt.key(key), None, "{key:?}");
                assert!(!prompt.is_typing_reason(), "{key:?}");
            }
            press(&mut prompt, KeyCode::Down);
            let enter = KeyEvent::new(KeyCode::Enter, modifiers);
            assert_eq!(prompt.key(enter), None, "{enter:?}");
        }
    }

    #[test]
    fn a_call_that_no_rule_can_say_runs_once_or_not() {
        let mut prompt = prompt("sh", "ls *.rs");
        for c in ['s', 'a', '1', '3', '0'] {
            assert_eq!(press(&mut prompt, KeyCode::Char(c)), None);
        }
        let lines = [
            "  y  yes, once",
            "  n  no, and why",
            "That is no answer: y or n.",
        ];
        assert_eq!(shown(&prompt, 80, 24), lines);
        let once = Some(Decision::Once);
        assert_eq!(press(&mut prompt, KeyCode::Char('y')), once);
    }

    #[test]
    fn every_choice_and_the_rule_are_seen_in_a_small_terminal() {
        let mut small = prompt("cache-manager_execute", "set city Lyon");
        let lines = [
            "  y  yes, once",
            "  s  yes, in this session by the rule",
            "  a  yes, and always: writes the rule",
            "  n  no, and why",
            "  Rule: cache-manager_execute(set *)",
            "It waits for you. Ctrl-C stops the tur…",
        ];
        assert_eq!(shown(&small, 39, 6), lines);
        press(&mut small, KeyCode::Down);
        assert_eq!(shown(&small, 39, 6)[0], "▸ y  yes, once");
        let long = prompt("sh", &format!("cd x && echo {}", "y".repeat(400)));
        let lines = shown(&long, 39, 8);
        let keys: Vec<_> = lines
            .iter()
            .take(4)
            .map(|line| line.chars().nth(2))
            .collect();
        assert_eq!(keys, [Some('y'), Some('s'), Some('a'), Some('n')]);
    }

    #[test]
    fn the_marked_choice_is_seen_however_few_rows_there_are() {
        for rows in 1..12 {
            let mut prompt = prompt("cache-manager_execute", "set city Lyon");
            for key in ['y', 's', 'a', 'n'] {
                press(&mut prompt, KeyCode::Down);
                let marked = format!("▸ {key}  ");
                let lines = shown(&prompt, 39, rows);
                assert!(
                    lines.iter().any(|line| line.starts_with(&marked)),
                    "{key} in {rows}: {lines:?}"
                );
            }
        }
    }
}
