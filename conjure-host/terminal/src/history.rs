//! What was typed before, in this conversation and in others. Kept in a file that only its owner
//! reads: a line of JSON for each.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use conjure_config::fs;

/// The most that are kept.
const MAX_ENTRIES: usize = 2000;
/// The most bytes of the file that are read.
const MAX_FILE_BYTES: u64 = 4 * 1024 * 1024;
/// The most bytes of an entry that is kept: a larger one would leave little room for others in what is
/// read.
const MAX_ENTRY_BYTES: usize = 256 * 1024;

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
        let entries = file.as_deref().map(read).unwrap_or_default();
        // Of a large file only the end is read, which may be few entries.
        let size = file.as_deref().and_then(|file| fs::size(file).ok());
        let is_large = size.is_some_and(|size| size > MAX_FILE_BYTES * 2);
        let mut history = Self { file, entries };
        if is_large || history.entries.len() > MAX_ENTRIES * 2 {
            // What cannot be made shorter stays as it is.
            let _ = history.shorten();
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
        if text.len() > MAX_ENTRY_BYTES {
            return Ok(());
        }
        let mut line = serde_json::to_string(text)?;
        line.push('\n');
        // Where no file can be locked it is written all the same.
        let _lock = lock(file);
        fs::append_to(file)?.write_all(line.as_bytes())
    }

    /// Leaves the oldest entries out of the file, and takes in what others wrote meanwhile.
    fn shorten(&mut self) -> io::Result<()> {
        let Some(file) = &self.file else {
            return Ok(());
        };
        let _lock = lock(file)?;
        let mut entries = read(file);
        entries.drain(..entries.len().saturating_sub(MAX_ENTRIES));
        let lines = entries
            .iter()
            .filter_map(|entry| serde_json::to_string(entry).ok());
        let text: String = lines.map(|line| line + "\n").collect();
        fs::write_atomic(file, text.as_bytes())?;
        self.entries = entries;
        Ok(())
    }

    /// The entries, the oldest first.
    pub fn entries(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().map(String::as_str)
    }

    /// Number of entries.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// An entry, counted from the oldest.
    pub(crate) fn get(&self, at: usize) -> Option<&str> {
        self.entries.get(at).map(String::as_str)
    }

    /// The newest entry before `before` that has these letters in it, whatever their case.
    pub(crate) fn search(&self, letters: &str, before: usize) -> Option<usize> {
        let letters = letters.to_lowercase();
        let entries = self.entries.iter().take(before);
        let mut entries = entries.enumerate().rev();
        entries.find_map(|(at, entry)| entry.to_lowercase().contains(&letters).then_some(at))
    }
}

/// Keeps other processes from writing the file. Its lock is a file of its own, as a shortened history is
/// another file.
fn lock(file: &Path) -> io::Result<std::fs::File> {
    fs::lock(file.with_extension("lock"))
}

/// The entries of a file, the oldest first.
fn read(file: &Path) -> Vec<String> {
    let bytes = fs::size(file).and_then(|size| {
        let from = size.saturating_sub(MAX_FILE_BYTES);
        fs::read_range(file, from, MAX_FILE_BYTES)
    });
    let bytes = bytes.unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    // A line that is cut, or somebody else's, is no entry.
    let entries = text
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok());
    entries.collect()
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

    #[test]
    fn an_entry_that_is_too_large_to_be_kept_costs_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("history.jsonl");
        let mut history = InputHistory::open(Some(file.clone()));
        history.add("first");
        history.add(&"large ".repeat(1024 * 1024));
        assert_eq!(history.len(), 2, "it is known until the program ends");
        let history = InputHistory::open(Some(file));
        assert_eq!(history.entries().collect::<Vec<_>>(), ["first"]);
    }

    #[test]
    fn what_others_write_while_the_file_is_made_shorter_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("history.jsonl");
        let many: String = (0..=MAX_ENTRIES * 2)
            .map(|n| format!("\"{n}\"\n"))
            .collect();
        fs::write_atomic(&file, many.as_bytes()).unwrap();
        let mut history = InputHistory {
            file: Some(file.clone()),
            entries: read(&file),
        };
        let mut others = InputHistory {
            file: Some(file.clone()),
            entries: Vec::new(),
        };
        others.add("theirs");
        history.shorten().unwrap();
        let last = history.len() - 1;
        assert_eq!(
            (history.len(), history.get(last)),
            (MAX_ENTRIES, Some("theirs"))
        );
        assert_eq!(read(&file), history.entries);
        assert!(fs::is_private(file.with_extension("lock")).unwrap());
    }
}
