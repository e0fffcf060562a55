//! What is offered at the cursor while somebody types: commands behind `/`, files behind `@`.

use std::path::PathBuf;

use crossterm::event::{KeyCode, KeyEvent};

use crate::completion::{Command, CompletionList, typed_mention};
use crate::editor::Editor;
use crate::file_index::FileIndex;
use crate::text::Line;

/// What there is to offer, and what is offered now.
pub(crate) struct Offers {
    commands: Vec<Command>,
    files: FileIndex,
    list: Option<CompletionList>,
    /// Whether the person left what was offered for this text.
    is_dismissed: bool,
}

impl Offers {
    pub(crate) fn new(commands: Vec<Command>, directory: PathBuf) -> Self {
        Self {
            commands,
            files: FileIndex::below(directory),
            list: None,
            is_dismissed: false,
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        self.list.is_some()
    }

    /// Looks for what can be offered at the cursor.
    pub(crate) fn refresh(&mut self, editor: &Editor) {
        let (before, at_end) = editor.before_cursor();
        let is_word = before.starts_with('/') || before.contains('@');
        if !is_word || !at_end || editor.is_searching() {
            self.close();
        } else if !self.is_dismissed {
            if let Some(letters) = typed_mention(before) {
                self.files.start_scan(letters);
            }
            self.list = CompletionList::at(before, &self.commands, &self.files);
        }
    }

    /// The text is another one: what was offered for it is offered no longer.
    pub(crate) fn close(&mut self) {
        self.list = None;
        self.is_dismissed = false;
    }

    /// Whether what is offered took the key.
    pub(crate) fn key(&mut self, key: KeyEvent, editor: &mut Editor) -> bool {
        let Some(list) = &mut self.list else {
            return false;
        };
        match key.code {
            KeyCode::Down => list.next(),
            KeyCode::Up => list.previous(),
            KeyCode::Tab => self.take(editor),
            // A command that is whole is meant; one that is not becomes so.
            KeyCode::Enter
                if key.modifiers.is_empty() && !editor.has(list.chosen().0.trim_end()) =>
            {
                self.take(editor);
            }
            KeyCode::Esc => {
                self.list = None;
                self.is_dismissed = true;
            }
            _ => return false,
        }
        true
    }

    fn take(&mut self, editor: &mut Editor) {
        if let Some(list) = self.list.take() {
            let (text, replaced) = list.chosen();
            editor.complete(replaced, text);
        }
    }

    /// Waits until the files were looked for; for ever where they are not.
    pub(crate) async fn finish_scan(&mut self) {
        self.files.finish_scan().await;
    }

    /// There may be other files by now.
    pub(crate) fn forget_files(&mut self) {
        self.files.forget();
    }

    pub(crate) fn render(&self, columns: usize, most: usize) -> Vec<Line> {
        let list = self.list.as_ref();
        list.map_or_else(Vec::new, |list| list.render(columns, most))
    }
}
