//! A list that a host's owner keeps, in a file: each line has what is listed and behind it a name.

use std::fmt::Display;
use std::io;
use std::marker::PhantomData;
use std::path::PathBuf;

use conjure_config::fs;

/// What stands on a line of such a list.
pub(crate) trait ListEntry: Sized {
    /// What is listed: no two lines have the same.
    type Key: Display + PartialEq;

    /// Reads a line: its first word, and what stands behind it. Nothing where the word is no key.
    fn read(key: &str, name: &str) -> Option<Self>;

    /// What is listed.
    fn key(&self) -> &Self::Key;

    /// What it was called when it was listed.
    fn name(&self) -> &str;
}

/// A list, or none, which has nothing on it.
#[derive(Debug, Clone)]
pub(crate) struct OwnersList<T> {
    file: Option<PathBuf>,
    entry: PhantomData<T>,
}

impl<T> Default for OwnersList<T> {
    fn default() -> Self {
        Self {
            file: None,
            entry: PhantomData,
        }
    }
}

impl<T: ListEntry> OwnersList<T> {
    /// The list in a file.
    pub(crate) fn in_file(file: impl Into<PathBuf>) -> Self {
        Self {
            file: Some(file.into()),
            entry: PhantomData,
        }
    }

    /// What is listed. Lines that say nothing are passed over.
    pub(crate) fn entries(&self) -> io::Result<Vec<T>> {
        let Some(file) = &self.file else {
            return Ok(Vec::new());
        };
        match fs::read_to_string(file) {
            Ok(text) => Ok(text.lines().filter_map(read_line).collect()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    /// Lists something; whether it was not listed before.
    pub(crate) fn add(&self, entry: T) -> io::Result<bool> {
        self.change(|listed| {
            let is_new = listed.iter().all(|other| other.key() != entry.key());
            listed.extend(is_new.then_some(entry));
            is_new
        })
    }

    /// Lists something no more; whether it was listed.
    pub(crate) fn remove(&self, key: &T::Key) -> io::Result<bool> {
        self.change(|listed| {
            let before = listed.len();
            listed.retain(|other| other.key() != key);
            listed.len() < before
        })
    }

    fn change(&self, change: impl FnOnce(&mut Vec<T>) -> bool) -> io::Result<bool> {
        let file = self.file.as_ref().ok_or(io::ErrorKind::Unsupported)?;
        if let Some(dir) = file.parent() {
            fs::create_private_dir(dir)?;
        }
        // Two who change it at once both get in.
        let _lock = fs::lock(file.with_extension("lock"))?;
        let mut listed = self.entries()?;
        if !change(&mut listed) {
            return Ok(false);
        }
        let lines = listed.iter().map(|entry| {
            // One line, whatever the name is.
            let name: String = entry.name().chars().filter(|c| !c.is_control()).collect();
            format!("{}  {name}\n", entry.key())
        });
        fs::write_atomic(file, lines.collect::<String>().as_bytes())?;
        Ok(true)
    }
}

/// A line of a list; nothing where it does not begin with a key.
pub(crate) fn read_line<T: ListEntry>(line: &str) -> Option<T> {
    let line = line.trim();
    let (key, name) = line.split_once(' ').unwrap_or((line, ""));
    T::read(key, name.trim())
}
