//! What is being typed: a text of several lines, its cursor, and what was typed before.
//!
//! A long paste is one character of the text, shown by its size and put in its place when the text
//! is taken. Knows keys and nothing of the conversation.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use unicode_segmentation::UnicodeSegmentation as _;

use crate::history::InputHistory;
use crate::kill_buffer::{self, KilledPiece};
use crate::text::{Color, Line, Style};
use crate::text_layout::TextLayout;

/// From how many lines or characters on a paste is shown by its size.
const LONG_PASTE: (usize, usize) = (6, 1000);
/// The first of the characters that stand for pastes; the standard gives them no meaning.
const FIRST_PASTE: u32 = 0xE000;
/// How many there are.
const MAX_PASTES: usize = 6400;

/// What a key did to the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum EditOutcome {
    /// The text may have changed.
    Edited,
    /// The text is to be taken.
    Enter,
    /// The key means nothing here.
    Ignored,
}

/// A search through what was typed before.
#[derive(Debug)]
struct Search {
    query: String,
    hit: Option<usize>,
    /// What was being typed.
    draft: (String, usize),
}

/// An entry that was typed before and is shown.
#[derive(Debug)]
struct RecalledEntry {
    at: usize,
    /// What was being typed, and where the cursor was in it.
    draft: (String, usize),
}

/// The text that is being typed.
#[derive(Debug, Default)]
pub(crate) struct Editor {
    text: String,
    /// A byte position.
    cursor: usize,
    pastes: Vec<String>,
    /// What was cut last, and which pieces of it were pasted.
    killed: Vec<KilledPiece>,
    history: InputHistory,
    recalled: Option<RecalledEntry>,
    search: Option<Search>,
    /// The columns of its rows, once it is on a screen.
    columns: Option<usize>,
}

impl Editor {
    pub(crate) fn new(history: InputHistory) -> Self {
        Self {
            history,
            ..Self::default()
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// The text before the cursor, and whether nothing follows it in its word.
    pub(crate) fn before_cursor(&self) -> (&str, bool) {
        let (before, after) = self.text.split_at(self.cursor);
        (before, after.chars().next().is_none_or(char::is_whitespace))
    }

    /// Whether the cursor is behind all of it.
    pub(crate) fn is_at_end(&self) -> bool {
        self.cursor == self.text.len()
    }

    /// Whether the text is this.
    pub(crate) fn has(&self, text: &str) -> bool {
        self.text == text
    }

    /// The text with pastes in their places.
    pub(crate) fn full_text(&self) -> String {
        let mut whole = String::new();
        for c in self.text.chars() {
            match self.paste_at(c) {
                Some(paste) => whole.push_str(paste),
                None => whole.push(c),
            }
        }
        whole
    }

    /// Takes the text, which is remembered.
    pub(crate) fn take(&mut self) -> String {
        let whole = self.full_text();
        self.history.add(&whole);
        self.set("");
        whole
    }

    /// Puts a text in place of what is there.
    pub(crate) fn set(&mut self, text: &str) {
        text.clone_into(&mut self.text);
        self.cursor = self.text.len();
        self.pastes.clear();
        self.recalled = None;
        self.search = None;
    }

    /// Puts a text in place of so many bytes before the cursor.
    pub(crate) fn complete(&mut self, bytes: usize, text: &str) {
        let from = self.cursor.saturating_sub(bytes);
        let from = self.text.floor_char_boundary(from);
        self.text.replace_range(from..self.cursor, text);
        self.cursor = from + text.len();
    }

    /// Puts in what was pasted.
    pub(crate) fn paste(&mut self, text: &str) {
        let text = text.replace("\r\n", "\n").replace('\r', "\n");
        let text: String = text.chars().filter(|c| !is_placeholder(*c)).collect();
        let is_long = text.lines().count() >= LONG_PASTE.0 || text.chars().count() > LONG_PASTE.1;
        if is_long {
            self.insert_paste(text);
        } else {
            self.insert(&text);
        }
    }

    /// Puts in a paste that is shown by its size.
    fn insert_paste(&mut self, text: String) {
        let placeholder = u32::try_from(self.pastes.len())
            .ok()
            .and_then(|at| char::from_u32(FIRST_PASTE + at));
        match placeholder {
            Some(placeholder) if self.pastes.len() < MAX_PASTES => {
                self.pastes.push(text);
                self.insert(placeholder.encode_utf8(&mut [0; 4]));
            }
            _ => self.insert(&text),
        }
    }

    fn paste_at(&self, c: char) -> Option<&str> {
        let at = u32::from(c).checked_sub(FIRST_PASTE)?;
        let paste = self.pastes.get(usize::try_from(at).ok()?)?;
        Some(paste)
    }

    fn insert(&mut self, text: &str) {
        self.text.insert_str(self.cursor, text);
        self.cursor += text.len();
    }

    /// Does what a key says.
    pub(crate) fn key(&mut self, key: KeyEvent) -> EditOutcome {
        if self.search.is_some() && self.search_key(key) {
            return EditOutcome::Edited;
        }
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        let alt = key.modifiers.contains(KeyModifiers::ALT);
        let shift = key.modifiers.contains(KeyModifiers::SHIFT);
        match key.code {
            KeyCode::Enter if shift || alt || control => self.insert("\n"),
            KeyCode::Enter => {
                if self.text.split_at(self.cursor).0.ends_with('\\') {
                    self.complete(1, "\n");
                    return EditOutcome::Edited;
                }
                return EditOutcome::Enter;
            }
            KeyCode::Char('j') if control => self.insert("\n"),
            KeyCode::Char('a') if control => self.cursor = self.line_start(),
            KeyCode::Char('e') if control => self.cursor = self.line_end(),
            KeyCode::Char('b') if control => self.left(),
            KeyCode::Char('f') if control => self.right(),
            KeyCode::Char('h') if control => drop(self.delete_to(self.previous_boundary())),
            KeyCode::Char('d') if control => drop(self.delete_to(self.next_boundary())),
            KeyCode::Char('k') if control => {
                let end = self.line_end();
                self.cut_to(if end == self.cursor {
                    self.next_boundary()
                } else {
                    end
                });
            }
            KeyCode::Char('u') if control => self.cut_to(self.line_start()),
            KeyCode::Char('w') if control => self.cut_to(self.word_start()),
            KeyCode::Char('y') if control => {
                for piece in self.killed.clone() {
                    match piece {
                        KilledPiece::Typed(text) => self.insert(&text),
                        KilledPiece::Pasted(text) => self.insert_paste(text),
                    }
                }
            }
            KeyCode::Char('p') if control => return self.up(),
            KeyCode::Char('n') if control => return self.down(),
            KeyCode::Char('r') if control => {
                self.search = Some(Search {
                    query: String::new(),
                    hit: None,
                    draft: (self.text.clone(), self.cursor),
                });
            }
            KeyCode::Char('b') if alt => self.cursor = self.word_start(),
            KeyCode::Char('f') if alt => self.cursor = self.word_end(),
            KeyCode::Char('d') if alt => self.cut_to(self.word_end()),
            KeyCode::Backspace if alt || control => self.cut_to(self.word_start()),
            KeyCode::Left if alt || control => self.cursor = self.word_start(),
            KeyCode::Right if alt || control => self.cursor = self.word_end(),
            KeyCode::Backspace => drop(self.delete_to(self.previous_boundary())),
            KeyCode::Delete => drop(self.delete_to(self.next_boundary())),
            KeyCode::Left => self.left(),
            KeyCode::Right => self.right(),
            KeyCode::Home => self.cursor = self.line_start(),
            KeyCode::End => self.cursor = self.line_end(),
            KeyCode::Up => return self.up(),
            KeyCode::Down => return self.down(),
            KeyCode::Char(c) if !control && !alt && !c.is_control() && !is_placeholder(c) => {
                self.insert(c.encode_utf8(&mut [0; 4]));
            }
            _ => return EditOutcome::Ignored,
        }
        EditOutcome::Edited
    }

    fn previous_boundary(&self) -> usize {
        let (before, _) = self.text.split_at(self.cursor);
        before
            .grapheme_indices(true)
            .next_back()
            .map_or(0, |(at, _)| at)
    }

    fn next_boundary(&self) -> usize {
        let (_, behind) = self.text.split_at(self.cursor);
        self.cursor + behind.graphemes(true).next().map_or(0, str::len)
    }

    fn left(&mut self) {
        self.cursor = self.previous_boundary();
    }

    fn right(&mut self) {
        self.cursor = self.next_boundary();
    }

    fn line_start(&self) -> usize {
        let (before, _) = self.text.split_at(self.cursor);
        before.rfind('\n').map_or(0, |at| at + 1)
    }

    fn line_end(&self) -> usize {
        let (_, behind) = self.text.split_at(self.cursor);
        self.cursor + behind.find('\n').unwrap_or(behind.len())
    }

    fn word_start(&self) -> usize {
        let (before, _) = self.text.split_at(self.cursor);
        let word = before.trim_end();
        word.rfind(char::is_whitespace).map_or(0, |at| {
            at + word
                .get(at..)
                .and_then(|rest| rest.chars().next())
                .map_or(1, char::len_utf8)
        })
    }

    fn word_end(&self) -> usize {
        let (_, behind) = self.text.split_at(self.cursor);
        let blank = behind.len() - behind.trim_start().len();
        let word = behind.trim_start();
        self.cursor + blank + word.find(char::is_whitespace).unwrap_or(word.len())
    }

    fn delete_to(&mut self, to: usize) -> String {
        let (from, to) = (self.cursor.min(to), self.cursor.max(to));
        let deleted = self.text.drain(from..to).collect();
        self.cursor = from;
        deleted
    }

    fn cut_to(&mut self, to: usize) {
        let text = self.delete_to(to);
        let pieces = kill_buffer::pieces(&text, |c| self.paste_at(c));
        if !pieces.is_empty() {
            self.killed = pieces;
        }
    }

    /// To the row above, or to what was typed before.
    fn up(&mut self) -> EditOutcome {
        // An entry that was not moved in gives way to the one before it, however long it is.
        let is_untouched = self.recalled.is_some() && self.cursor == self.text.len();
        if !is_untouched && self.move_to_row(|row| row.checked_sub(1)) {
            return EditOutcome::Edited;
        }
        let shown = self.recalled.as_ref().map(|shown| shown.at);
        match shown.unwrap_or(self.history.len()).checked_sub(1) {
            Some(at) => self.show(at),
            None => return EditOutcome::Ignored,
        }
        EditOutcome::Edited
    }

    /// To the row below, or to what was typed after that.
    fn down(&mut self) -> EditOutcome {
        if self.move_to_row(|row| row.checked_add(1)) {
            return EditOutcome::Edited;
        }
        let Some(at) = self.recalled.as_ref().map(|shown| shown.at) else {
            return EditOutcome::Ignored;
        };
        self.show(at + 1);
        EditOutcome::Edited
    }

    /// To the cursor's column in another row; whether there is one.
    fn move_to_row(&mut self, other: impl Fn(usize) -> Option<usize>) -> bool {
        let layout = self.layout(self.columns.unwrap_or(usize::MAX));
        let (row, column) = layout.cell_at(self.cursor);
        let position = other(row).and_then(|row| layout.position(row, column));
        self.cursor = position.unwrap_or(self.cursor);
        position.is_some()
    }

    fn layout(&self, columns: usize) -> TextLayout {
        TextLayout::of(&self.text, columns, |c| self.paste_at(c))
    }

    /// Sets how many columns the rows have that the text is drawn in from now on.
    pub(crate) fn fit(&mut self, columns: usize) {
        self.columns = Some(columns);
    }

    /// Shows an entry, or behind the last one what was being typed.
    fn show(&mut self, at: usize) {
        let draft = match self.recalled.take() {
            Some(shown) => shown.draft,
            None => (self.text.clone(), self.cursor),
        };
        if let Some(entry) = self.history.get(at) {
            entry.clone_into(&mut self.text);
            self.cursor = self.text.len();
            self.recalled = Some(RecalledEntry { at, draft });
        } else {
            (self.text, self.cursor) = draft;
        }
    }

    /// Whether the key belonged to the search.
    fn search_key(&mut self, key: KeyEvent) -> bool {
        let Some(search) = &mut self.search else {
            return false;
        };
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        let from = match key.code {
            KeyCode::Char('r') if control => search.hit,
            KeyCode::Char('g' | 'c') if control => {
                self.leave_search();
                return true;
            }
            KeyCode::Esc => {
                self.leave_search();
                return true;
            }
            KeyCode::Backspace => {
                search.query.pop();
                None
            }
            KeyCode::Char(c) if !control => {
                search.query.push(c);
                None
            }
            // Anything else takes what was found and means what it means.
            _ => {
                self.search = None;
                return key.code == KeyCode::Tab;
            }
        };
        let before = from.unwrap_or(self.history.len());
        let found = self.history.search(&search.query, before);
        if found.is_some() || from.is_none() {
            search.hit = found;
        }
        if let Some(entry) = search.hit.and_then(|at| self.history.get(at)) {
            entry.clone_into(&mut self.text);
            self.cursor = self.text.len();
        }
        true
    }

    fn leave_search(&mut self) {
        if let Some(search) = self.search.take() {
            (self.text, self.cursor) = search.draft;
        }
    }

    /// Whether what was typed before is being searched.
    pub(crate) fn is_searching(&self) -> bool {
        self.search.is_some()
    }

    /// The text in at most so many lines, and the cursor's row and column in them.
    pub(crate) fn render(
        &self,
        mark: &str,
        hint: &str,
        columns: usize,
        most: usize,
    ) -> (Vec<Line>, (usize, usize)) {
        let mut lines = Vec::new();
        if let Some(search) = &self.search {
            let found = match search.hit {
                None if !search.query.is_empty() => " (not found)",
                _ => "",
            };
            let line = Line::of("search: ", Style::DIM)
                .with(&search.query, Style::PLAIN)
                .with(found, Style::DIM);
            lines.push(line);
        }
        let marked = Line::of(mark, Style::of(Color::Cyan).bold());
        let indent = marked.width();
        let layout = self.layout(columns.saturating_sub(indent));
        let mut rows = vec![marked];
        rows.resize(layout.rows(), Line::of(" ".repeat(indent), Style::PLAIN));
        if let Some(first) = rows.first_mut().filter(|_| self.text.is_empty()) {
            first.push(hint, Style::DIM);
        }
        for character in layout.characters() {
            let style = match character.is_paste {
                true => Style::of(Color::Cyan),
                false => Style::PLAIN,
            };
            if let Some(row) = rows.get_mut(character.row) {
                row.push(&character.display, style);
            }
        }
        let (row, column) = layout.cell_at(self.cursor);
        let cursor = (lines.len() + row, indent + column);
        lines.append(&mut rows);
        let most = most.max(1);
        let from = (cursor.0 + 1).saturating_sub(most);
        let lines = lines.into_iter().skip(from).take(most).collect();
        (lines, (cursor.0 - from, cursor.1))
    }
}

fn is_placeholder(c: char) -> bool {
    ('\u{e000}'..='\u{f8ff}').contains(&c)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(editor: &mut Editor, text: &str) {
        for c in text.chars() {
            editor.key(KeyEvent::new(KeyCode::Char(c), KeyModifiers::NONE));
        }
    }

    fn press(editor: &mut Editor, code: KeyCode, modifiers: KeyModifiers) -> EditOutcome {
        editor.key(KeyEvent::new(code, modifiers))
    }

    const CTRL: KeyModifiers = KeyModifiers::CONTROL;

    #[test]
    fn several_lines_are_typed_in_three_ways() {
        let mut editor = Editor::default();
        typed(&mut editor, "a");
        press(&mut editor, KeyCode::Enter, KeyModifiers::SHIFT);
        typed(&mut editor, "b");
        press(&mut editor, KeyCode::Enter, KeyModifiers::ALT);
        typed(&mut editor, "c\\");
        assert_eq!(
            press(&mut editor, KeyCode::Enter, KeyModifiers::NONE),
            EditOutcome::Edited
        );
        typed(&mut editor, "d");
        assert_eq!(
            press(&mut editor, KeyCode::Enter, KeyModifiers::NONE),
            EditOutcome::Enter
        );
        assert_eq!(editor.take(), "a\nb\nc\nd");
    }

    #[test]
    fn words_are_cut_and_put_back() {
        let mut editor = Editor::default();
        typed(&mut editor, "one two, drei");
        press(&mut editor, KeyCode::Char('w'), CTRL);
        press(&mut editor, KeyCode::Char('a'), CTRL);
        press(&mut editor, KeyCode::Char('y'), CTRL);
        assert_eq!(editor.take(), "dreione two, ");
        typed(&mut editor, "e\u{301}x");
        press(&mut editor, KeyCode::Left, KeyModifiers::NONE);
        press(&mut editor, KeyCode::Backspace, KeyModifiers::NONE);
        assert_eq!(editor.take(), "x");
    }

    #[test]
    fn a_paste_that_was_cut_is_put_back_whole_in_another_text_too() {
        let mut editor = Editor::default();
        let text: String = (0..20).map(|n| format!("line {n}\n")).collect();
        typed(&mut editor, "look: ");
        editor.paste(&text);
        typed(&mut editor, " now");
        press(&mut editor, KeyCode::Char('u'), CTRL);
        assert_eq!(editor.take(), "");
        editor.paste(&"another\n".repeat(20));
        press(&mut editor, KeyCode::Char('y'), CTRL);
        let whole = format!("{}look: {text} now", "another\n".repeat(20));
        assert_eq!(editor.take(), whole);
    }

    #[test]
    fn a_long_paste_is_shown_by_its_size_and_is_whole_when_it_is_taken() {
        let mut editor = Editor::default();
        let text: String = (0..20).map(|n| format!("line {n}\r\n")).collect();
        typed(&mut editor, "look: ");
        editor.paste(&text);
        typed(&mut editor, "!");
        let (lines, cursor) = editor.render("> ", "", 60, 5);
        assert_eq!(lines[0].plain(), "> look: [20 lines pasted]!");
        assert_eq!(cursor, (0, 26));
        press(&mut editor, KeyCode::Left, KeyModifiers::NONE);
        let taken = editor.take();
        assert!(taken.starts_with("look: line 0\nline 1\n") && taken.ends_with("line 19\n!"));
    }

    #[test]
    fn what_was_typed_before_comes_back_and_is_searched() {
        let mut editor = Editor::default();
        for text in ["first one", "second", "first two"] {
            typed(&mut editor, text);
            editor.take();
        }
        typed(&mut editor, "draft");
        press(&mut editor, KeyCode::Up, KeyModifiers::NONE);
        press(&mut editor, KeyCode::Up, KeyModifiers::NONE);
        assert!(editor.has("second"));
        press(&mut editor, KeyCode::Down, KeyModifiers::NONE);
        press(&mut editor, KeyCode::Down, KeyModifiers::NONE);
        assert!(editor.has("draft"));
        press(&mut editor, KeyCode::Char('r'), CTRL);
        typed(&mut editor, "first");
        assert!(editor.has("first two"));
        press(&mut editor, KeyCode::Char('r'), CTRL);
        assert!(editor.has("first one"));
        press(&mut editor, KeyCode::Esc, KeyModifiers::NONE);
        assert!(editor.has("draft"));
    }

    #[test]
    fn the_cursor_is_where_the_text_is_in_a_narrow_terminal() {
        let mut editor = Editor::default();
        typed(&mut editor, "世界世界abc");
        let (lines, cursor) = editor.render("> ", "", 6, 9);
        let lines: Vec<String> = lines.iter().map(Line::plain).collect();
        assert_eq!(lines, ["> 世界", "  世界", "  abc"]);
        assert_eq!(cursor, (2, 5));
    }

    #[test]
    fn up_and_down_move_in_the_rows_of_a_line_before_they_leave_it() {
        let mut editor = Editor::default();
        typed(&mut editor, "before");
        editor.take();
        editor.fit(6);
        typed(&mut editor, "世界世界世界");
        press(&mut editor, KeyCode::Up, KeyModifiers::NONE);
        assert!(editor.has("世界世界世界"));
        assert_eq!(editor.before_cursor().0, "世界");
        press(&mut editor, KeyCode::Left, KeyModifiers::NONE);
        press(&mut editor, KeyCode::Up, KeyModifiers::NONE);
        assert!(editor.has("before"));
        // It comes back as it was left.
        press(&mut editor, KeyCode::Down, KeyModifiers::NONE);
        assert_eq!(editor.before_cursor().0, "世");
        press(&mut editor, KeyCode::Down, KeyModifiers::NONE);
        assert_eq!(editor.before_cursor().0, "世界世界");
    }
}
