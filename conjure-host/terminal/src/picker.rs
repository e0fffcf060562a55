//! A list to pick from: what is typed narrows it.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use crate::text::{Color, Line, Style};

/// The most choices that are shown at once.
const MOST: usize = 12;

/// Something that can be picked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PickerItem {
    /// What is told when it is picked.
    pub id: String,
    /// Its name.
    pub label: String,
    /// What else there is to say of it.
    pub detail: String,
}

/// A list to pick from.
#[derive(Debug, Clone, Default)]
pub struct Picker {
    /// Which list it is, for whoever gets the answer.
    pub list: String,
    /// What is picked.
    pub title: String,
    /// What there is.
    pub choices: Vec<PickerItem>,
    letters: String,
    at: usize,
}

/// What a key came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Picked {
    /// This one.
    One(String),
    /// None: the list is left.
    None,
    /// Nothing yet.
    Goes,
}

impl Picker {
    /// A list of this title.
    pub fn new(
        list: impl Into<String>,
        title: impl Into<String>,
        choices: Vec<PickerItem>,
    ) -> Self {
        Self {
            list: list.into(),
            title: title.into(),
            choices,
            ..Self::default()
        }
    }

    fn fitting(&self) -> Vec<&PickerItem> {
        let words: Vec<String> = self
            .letters
            .split_whitespace()
            .map(str::to_lowercase)
            .collect();
        let fits = |choice: &&PickerItem| {
            let text = format!("{} {}", choice.label, choice.detail).to_lowercase();
            words.iter().all(|word| text.contains(word.as_str()))
        };
        self.choices.iter().filter(fits).collect()
    }

    pub(crate) fn key(&mut self, key: KeyEvent) -> Picked {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        let count = self.fitting().len();
        match key.code {
            KeyCode::Esc => return Picked::None,
            KeyCode::Char('c' | 'd') if control => return Picked::None,
            KeyCode::Enter => {
                if let Some(choice) = self.fitting().get(self.at) {
                    return Picked::One(choice.id.clone());
                }
            }
            KeyCode::Up => self.at = self.at.saturating_sub(1),
            KeyCode::Char('p') if control => self.at = self.at.saturating_sub(1),
            KeyCode::Down => self.at = (self.at + 1).min(count.saturating_sub(1)),
            KeyCode::Char('n') if control => self.at = (self.at + 1).min(count.saturating_sub(1)),
            KeyCode::PageUp => self.at = self.at.saturating_sub(MOST),
            KeyCode::PageDown => self.at = (self.at + MOST).min(count.saturating_sub(1)),
            KeyCode::Backspace => {
                self.letters.pop();
                self.at = 0;
            }
            KeyCode::Char(c) if !control => {
                self.letters.push(c);
                self.at = 0;
            }
            _ => {}
        }
        Picked::Goes
    }

    /// The list in at most so many lines, and where the cursor is.
    pub(crate) fn render(&self, columns: usize, most: usize) -> (Vec<Line>, (usize, usize)) {
        let head = Line::of(&self.title, Style::BOLD)
            .with(": ", Style::BOLD)
            .with(&self.letters, Style::PLAIN);
        let cursor = (0, head.width());
        let mut lines = vec![head.cut(columns)];
        let shown = most.saturating_sub(2).clamp(1, MOST);
        let from = (self.at + 1).saturating_sub(shown);
        let fitting = self.fitting();
        let width = fitting.iter().skip(from).take(shown);
        let width = width
            .map(|choice| Line::of(&choice.label, Style::PLAIN).width())
            .max();
        let width = width.unwrap_or_default().min(columns / 2);
        for (at, choice) in fitting.iter().enumerate().skip(from).take(shown) {
            let (mark, style) = if at == self.at {
                ("▸ ", Style::of(Color::Cyan).bold())
            } else {
                ("  ", Style::PLAIN)
            };
            let mut line = Line::of(mark, style);
            let label = Line::of(&choice.label, style).cut(width);
            let room = width.saturating_sub(label.width());
            line.extend(&label);
            line.push(" ".repeat(room), Style::PLAIN);
            if !choice.detail.is_empty() {
                line.push("  ", Style::PLAIN);
                line.push(&choice.detail, Style::DIM);
            }
            lines.push(line.cut(columns));
        }
        let hint = match fitting.len() {
            0 => "  nothing fits; Esc leaves".to_owned(),
            count => format!(
                "  {} of {count}; type to search, Enter picks, Esc leaves",
                self.at + 1
            ),
        };
        lines.push(Line::of(hint, Style::DIM).cut(columns));
        (lines, cursor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_typed_narrows_the_list() {
        let choice = |id: &str, detail: &str| PickerItem {
            id: id.to_owned(),
            label: id.to_owned(),
            detail: detail.to_owned(),
        };
        let choices = vec![
            choice("one", "red"),
            choice("two", "red"),
            choice("three", "blue"),
        ];
        let mut picker = Picker::new("list", "Pick", choices);
        let press = |picker: &mut Picker, code| picker.key(KeyEvent::new(code, KeyModifiers::NONE));
        for c in "RED".chars() {
            press(&mut picker, KeyCode::Char(c));
        }
        press(&mut picker, KeyCode::Down);
        press(&mut picker, KeyCode::Down);
        assert_eq!(
            press(&mut picker, KeyCode::Enter),
            Picked::One("two".to_owned())
        );
        press(&mut picker, KeyCode::Char('x'));
        assert_eq!(press(&mut picker, KeyCode::Enter), Picked::Goes);
        assert_eq!(press(&mut picker, KeyCode::Esc), Picked::None);
    }
}
