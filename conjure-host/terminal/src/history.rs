//! What was typed before, in this conversation and in others. Kept in a file that only its owner
//! reads: a line of JSON for each.

use std::io::{self, Write as _};
use std::path::PathBuf;

use conjure_config::fs;

/// The most that are kept.
const MOST: usize = 2000;
/// The most bytes of the file that are read.
const MOST_BYTES: u64 = 4 * 1024 * 1024;

/// What was typed before, the oldest first.
#[derive(Debug, Default)]
pub struct InputHistory {
    file: Option<PathBuf>,
    entries: Vec<String>,
}

impl InputHistory {
    /// What the file has; nothing where it is not there or cannot be read. Without a file nothing
    /// is kept.
    pub fn open(file: Option<PathBuf>) -> Self {
        let text = file.as_ref().and_then(|file| {
            let size = fs::size(file).ok()?;
            let from = size.saturating_sub(MOST_BYTES);
            let bytes = fs::read_range(file, from, MOST_BYTES).ok()?;
            Some(String::from_utf8_lossy(&bytes).into_owned())
        });
        let text = text.unwrap_or_default();
        // A line that is cut, or somebody else's, is no entry.
        let entries = text
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok());
        let entries: Vec<String> = entries.collect();
        let mut history = Self { file, entries };
        if history.entries.len() > MOST * 2 {
            history.entries.drain(..history.entries.len() - MOST);
            history.rewrite();
        }
        history
    }

    /// Adds what was typed. What cannot be kept is known until the program ends.
    pub fn add(&mut self, text: &str) {
        if text.trim().is_empty() || self.entries.last().is_some_and(|last| last == text) {
            return;
        }
        self.entries.push(text.to_owned());
        let _ = self.append(text);
    }

    fn append(&self, text: &str) -> io::Result<()> {
        let Some(file) = &self.file else {
            return Ok(());
        };
        let mut line = serde_json::to_string(text)?;
        line.push('\n');
        fs::append_to(file)?.write_all(line.as_bytes())
    }

    fn rewrite(&self) {
        let Some(file) = &self.file else { return };
        let lines = self
            .entries
            .iter()
            .filter_map(|entry| serde_json::to_string(entry).ok());
        let text: String = lines.map(|line| line + "\n").collect();
        let _ = fs::write_atomic(file, text.as_bytes());
    }

    /// They, the oldest first.
    pub fn entries(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().map(String::as_str)
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// One of them, counted from the oldest.
    pub(crate) fn get(&self, at: usize) -> Option<&str> {
        self.entries.get(at).map(String::as_str)
    }

    /// The newest before `before` that has these letters in it, whatever their case.
    pub(crate) fn search(&self, letters: &str, before: usize) -> Option<usize> {
        let letters = letters.to_lowercase();
        let entries = self.entries.iter().take(before);
        let mut entries = entries.enumerate().rev();
        entries.find_map(|(at, entry)| entry.to_lowercase().contains(&letters).then_some(at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_typed_is_there_in_the_next_conversation() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("history.jsonl");
        let mut history = InputHistory::open(Some(file.clone()));
        for text in ["first", "two\nlines", "two\nlines", " "] {
            history.add(text);
        }
        std::io::Write::write_all(&mut fs::append_to(&file).unwrap(), b"\"cut").unwrap();
        let history = InputHistory::open(Some(file.clone()));
        assert_eq!((history.len(), history.get(1)), (2, Some("two\nlines")));
        assert_eq!(history.search("FIR", history.len()), Some(0));
        assert_eq!(history.search("fir", 0), None);
        assert!(fs::is_private(file).unwrap());
    }
}
