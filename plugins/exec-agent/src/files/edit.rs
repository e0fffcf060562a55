//! Writes files and replaces passages in them.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::PathBuf;

use super::beneath::{self, open_file};
use super::paths::{CallRoots, RootKind, RootedPath};
use crate::error::{AgentError, Result};

/// The largest file in which a passage is replaced.
const MAX_EDITED: u64 = 32 * 1024 * 1024;
/// Maximum number of places of a passage that an error lists.
const MAX_LISTED_PLACES: usize = 8;

/// A file that was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrittenFile {
    /// Path of the file, for people and for the host.
    pub path: PathBuf,
    /// The directory that it is in.
    pub kind: RootKind,
    /// Size in bytes.
    pub size: u64,
    /// Whether there was a file before.
    pub replaced: bool,
}

/// Writes a file with what `fill` writes into it; it says how many bytes that are.
///
/// # Errors
/// When the path may not be written to, or writing fails; then nothing has changed.
pub fn create_file(
    roots: &CallRoots,
    path: &str,
    fill: impl FnOnce(&mut File) -> io::Result<u64>,
) -> Result<WrittenFile> {
    let place = roots.resolve_for_writing(path)?;
    if path.ends_with('/') {
        return Err(AgentError::invalid(format!(
            "`{path}` names a directory; a file's path does not end with a slash"
        )));
    }
    write(&place, fill)
}

/// Replaces the only occurrence of a passage.
///
/// # Errors
/// When it is not there exactly once, or the file may not be written to; then nothing has changed.
pub fn str_replace(roots: &CallRoots, path: &str, old: &str, new: &str) -> Result<WrittenFile> {
    let place = roots.resolve_for_writing(path)?;
    if old.is_empty() {
        return Err(AgentError::invalid(
            "`old_str` is empty; it must be the passage to replace",
        ));
    }
    let (mut file, size) = open_file(&place)?;
    if size > MAX_EDITED {
        return Err(AgentError::new(format!(
            "`{path}` has {size} bytes; passages are replaced in files of up to {MAX_EDITED}. \
             Use a command such as sed"
        )));
    }
    let mut content = Vec::new();
    file.read_to_end(&mut content)
        .map_err(|error| place.error("read", error))?;
    let found = occurrences(&content, old.as_bytes());
    let [at] = found.as_slice() else {
        return Err(AgentError::new(if found.is_empty() {
            passage_not_found(path, &content, old)
        } else {
            ambiguous_passage(path, &content, &found)
        }));
    };
    let mut edited = Vec::with_capacity(content.len() + new.len());
    edited.extend_from_slice(content.get(..*at).unwrap_or_default());
    edited.extend_from_slice(new.as_bytes());
    edited.extend_from_slice(content.get(at + old.len()..).unwrap_or_default());
    write(&place, |file| {
        file.write_all(&edited)?;
        Ok(edited.len() as u64)
    })
}

fn write(
    place: &RootedPath,
    fill: impl FnOnce(&mut File) -> io::Result<u64>,
) -> Result<WrittenFile> {
    let mut size = 0;
    let replaced = beneath::write(place, |file| {
        size = fill(file)?;
        Ok(())
    })?;
    Ok(WrittenFile {
        path: place.display_path(),
        kind: place.kind(),
        size,
        replaced,
    })
}

/// Positions of a passage, overlapping occurrences included.
fn occurrences(content: &[u8], passage: &[u8]) -> Vec<usize> {
    let Some(first) = passage.first() else {
        return Vec::new();
    };
    let mut found = Vec::new();
    let mut from = 0;
    while let Some(rest) = content.get(from..) {
        let Some(next) = rest.iter().position(|byte| byte == first) else {
            break;
        };
        if rest.get(next..).is_some_and(|at| at.starts_with(passage)) {
            found.push(from + next);
        }
        from += next + 1;
    }
    found
}

fn passage_not_found(path: &str, content: &[u8], passage: &str) -> String {
    let with_returns = passage.replace('\n', "\r\n");
    let trimmed = passage.trim();
    let hint =
        if with_returns != passage && !occurrences(content, with_returns.as_bytes()).is_empty() {
            "its lines end with \\r\\n there; write them so"
        } else if trimmed != passage
            && !trimmed.is_empty()
            && !occurrences(content, trimmed.as_bytes()).is_empty()
        {
            "without the blanks around it, it is there: copy them exactly as they are in the file"
        } else {
            "view the file and copy the passage exactly, blanks included and line numbers left out"
        };
    format!("old_str is 0 times in `{path}`, nothing was changed: {hint}")
}

fn ambiguous_passage(path: &str, content: &[u8], found: &[usize]) -> String {
    let lines: Vec<String> = found
        .iter()
        .take(MAX_LISTED_PLACES)
        .map(|at| {
            let before = content.get(..*at).unwrap_or_default();
            let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
            line.to_string()
        })
        .collect();
    let more = if found.len() > MAX_LISTED_PLACES {
        ", …"
    } else {
        ""
    };
    format!(
        "old_str is {} times in `{path}` (lines {}{more}), nothing was changed: make it longer, \
         so that it is there only once",
        found.len(),
        lines.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlapping_occurrences_count() {
        assert_eq!(occurrences(b"aaa", b"aa"), [0, 1]);
        assert_eq!(occurrences(b"xaybxay", b"xay"), [0, 4]);
        assert_eq!(occurrences(b"abc", b"abcd"), [0_usize; 0]);
    }
}
