//! A list to pick from: what is typed narrows it.

use std::collections::BTreeSet;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use crate::text::{Color, Line, Style};

/// The most choices that are shown at once.
const MAX_SHOWN: usize = 12;

/// Something that can be picked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PickerItem {
    /// Id that is told when the item is picked.
    pub id: String,
    /// Name of the item, as the list shows it.
    pub label: String,
    /// Further words about the item.
    pub detail: String,
}

/// A list to pick from.
#[derive(Debug, Clone, Default)]
pub struct Picker {
    /// Name of the list, for whoever gets the answer.
    pub list: String,
    /// Title: what the list is for.
    pub title: String,
    /// Items that can be picked.
    pub choices: Vec<PickerItem>,
    query: String,
    at: usize,
    /// Search for what is typed elsewhere too, where the list can be searched.
    search: Option<PickerSearch>,
}

/// The search for what is typed in more than a list shows, such as the texts of conversations.
#[derive(Debug, Clone, Default)]
struct PickerSearch {
    /// Words that were searched for last.
    query: String,
    /// Whether the answer is still to come.
    is_running: bool,
    /// Items that were found for these words.
    results: Vec<PickerItem>,
}

/// Result of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PickResult {
    /// The item with this id is picked.
    Item(String),
    /// Nothing is picked: the list is left.
    None,
    /// Nothing is picked yet.
    Pending,
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

    /// Lets whoever shows the list search more than the list has.
    #[must_use]
    pub fn with_search(mut self) -> Self {
        self.search = Some(PickerSearch::default());
        self
    }

    /// What is to be searched for next. What is typed while a search runs waits for its end.
    pub(crate) fn next_search(&mut self) -> Option<String> {
        let words = self.query.trim();
        let search = self.search.as_mut()?;
        if search.is_running || words.is_empty() || search.query == words {
            return None;
        }
        words.clone_into(&mut search.query);
        search.results.clear();
        search.is_running = true;
        Some(words.to_owned())
    }

    /// Takes what the search for these words found.
    pub(crate) fn set_results(&mut self, words: &str, found: Vec<PickerItem>) {
        if let Some(search) = self.search.as_mut().filter(|search| search.query == words) {
            search.is_running = false;
            search.results = found;
        }
    }

    /// Items with what is typed in their names, and then items that were found with it elsewhere.
    fn matches(&self) -> Vec<&PickerItem> {
        let mut fitting = self.label_matches();
        let asked = |search: &&PickerSearch| search.query == self.query.trim();
        if let Some(search) = self.search.as_ref().filter(asked) {
            let named: BTreeSet<&str> = fitting
                .iter()
                .copied()
                .map(|choice| choice.id.as_str())
                .collect();
            let found = search.results.iter();
            fitting.extend(found.filter(|choice| !named.contains(choice.id.as_str())));
        }
        fitting
    }

    fn label_matches(&self) -> Vec<&PickerItem> {
        let words: Vec<String> = self
            .query
            .split_whitespace()
            .map(str::to_lowercase)
            .collect();
        let fits = |choice: &&PickerItem| {
            let text = format!("{} {}", choice.label, choice.detail).to_lowercase();
            words.iter().all(|word| text.contains(word.as_str()))
        };
        self.choices.iter().filter(fits).collect()
    }

    pub(crate) fn key(&mut self, key: KeyEvent) -> PickResult {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        let count = self.matches().len();
        match key.code {
            KeyCode::Esc => return PickResult::None,
            KeyCode::Char('c' | 'd') if control => return PickResult::None,
            KeyCode::Enter => {
                if let Some(choice) = self.matches().get(self.at) {
                    return PickResult::Item(choice.id.clone());
                }
            }
            KeyCode::Up => self.at = self.at.saturating_sub(1),
            KeyCode::Char('p') if control => self.at = self.at.saturating_sub(1),
            KeyCode::Down => self.at = (self.at + 1).min(count.saturating_sub(1)),
            KeyCode::Char('n') if control => self.at = (self.at + 1).min(count.saturating_sub(1)),
            KeyCode::PageUp => self.at = self.at.saturating_sub(MAX_SHOWN),
            KeyCode::PageDown => self.at = (self.at + MAX_SHOWN).min(count.saturating_sub(1)),
            KeyCode::Backspace => {
                self.query.pop();
                self.at = 0;
            }
            KeyCode::Char(c) if !control => {
                self.query.push(c);
                self.at = 0;
            }
            _ => {}
        }
        PickResult::Pending
    }

    /// The list in at most so many lines, and where the cursor is.
    pub(crate) fn render(&self, columns: usize, most: usize) -> (Vec<Line>, (usize, usize)) {
        // A question has its sign already.
        let separator = if self.title.ends_with('?') { " " } else { ": " };
        let head = Line::of(&self.title, Style::BOLD)
            .with(separator, Style::BOLD)
            .with(&self.query, Style::PLAIN);
        let cursor = (0, head.width());
        let mut lines = vec![head.truncate(columns)];
        let shown = most.saturating_sub(2).clamp(1, MAX_SHOWN);
        let from = (self.at + 1).saturating_sub(shown);
        let fitting = self.matches();
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
            let label = Line::of(&choice.label, style).truncate(width);
            let room = width.saturating_sub(label.width());
            line.extend(&label);
            line.push(" ".repeat(room), Style::PLAIN);
            if !choice.detail.is_empty() {
                line.push("  ", Style::PLAIN);
                line.push(&choice.detail, Style::DIM);
            }
            lines.push(line.truncate(columns));
        }
        let is_searching = self.search.as_ref().is_some_and(|search| search.is_running);
        let hint = match fitting.len() {
            0 if is_searching => "  searching what was said; Esc leaves".to_owned(),
            0 => "  nothing fits; Esc leaves".to_owned(),
            count => format!(
                "  {} of {count}; type to search, Enter picks, Esc leaves",
                self.at + 1
            ),
        };
        lines.push(Line::of(hint, Style::DIM).truncate(columns));
        (lines, cursor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_title_that_asks_has_no_colon() {
        for (title, head) in [("Pick", "Pick: "), ("Which one?", "Which one? ")] {
            let (lines, cursor) = Picker::new("list", title, Vec::new()).render(40, 6);
            assert_eq!(lines.first().map(Line::plain).as_deref(), Some(head));
            assert_eq!(cursor, (0, head.len()));
        }
    }

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
            PickResult::Item("two".to_owned())
        );
        press(&mut picker, KeyCode::Char('x'));
        assert_eq!(press(&mut picker, KeyCode::Enter), PickResult::Pending);
        assert_eq!(press(&mut picker, KeyCode::Esc), PickResult::None);
    }

    #[test]
    fn what_is_typed_is_searched_for_in_more_than_the_list_shows() {
        let item = |id: &str| PickerItem {
            id: id.to_owned(),
            label: format!("The {id}"),
            detail: String::new(),
        };
        let mut picker =
            Picker::new("threads", "Pick", vec![item("lamp"), item("door")]).with_search();
        assert_eq!(picker.next_search(), None);
        let press = |picker: &mut Picker, c| {
            picker.key(KeyEvent::new(KeyCode::Char(c), KeyModifiers::NONE))
        };
        press(&mut picker, 'l');
        assert_eq!(picker.next_search().as_deref(), Some("l"));
        press(&mut picker, 'a');
        // The next search waits for the one that runs, whose answer is for other words.
        assert_eq!(picker.next_search(), None);
        picker.set_results("l", vec![item("old")]);
        assert_eq!(picker.matches(), [&item("lamp")]);
        assert_eq!(picker.next_search().as_deref(), Some("la"));
        picker.set_results("other", vec![item("other")]);
        picker.set_results("la", vec![item("window"), item("lamp")]);
        assert_eq!(picker.matches(), [&item("lamp"), &item("window")]);
        assert_eq!(picker.next_search(), None);
    }
}
