//! Copies that the host itself puts where a call's backend finds them. They are nobody's work, so
//! that whoever finds one has not made a file.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// The names and hashes of the host's copies.
#[derive(Debug, Default)]
pub(super) struct Copies(Mutex<BTreeSet<(String, String)>>);

impl Copies {
    /// A copy will lie under this name, or under `NUMBER-name` where that is taken.
    pub(super) fn expect(&self, name: &str, sha256: &str) {
        let mut copies = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        copies.insert((sha256.to_owned(), name.to_owned()));
    }

    /// Whether a file is such a copy, and still what it was. Its hash is asked for only where its
    /// name is that of a copy.
    pub(super) fn has(&self, path: &Path, sha256: impl FnOnce() -> Option<String>) -> bool {
        let Some(found) = path.file_name().and_then(|name| name.to_str()) else {
            return false;
        };
        let copies = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let named = copies
            .iter()
            .filter(|(_, name)| is_name_of_copy(found, name));
        let mut hashes = named.map(|(known, _)| known).peekable();
        if hashes.peek().is_none() {
            return false;
        }
        sha256().is_some_and(|sha256| hashes.any(|known| *known == sha256))
    }
}

fn is_name_of_copy(found: &str, name: &str) -> bool {
    let Some(before) = found.strip_suffix(name) else {
        return false;
    };
    let number = before.strip_suffix('-').unwrap_or(before);
    before.is_empty() || (before.len() > number.len() && number.bytes().all(|b| b.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_known_by_name_and_content() {
        let copies = Copies::default();
        copies.expect("file-1-a.csv", "aa");
        for (name, sha256, is_copy) in [
            ("file-1-a.csv", "aa", true),
            ("2-file-1-a.csv", "aa", true),
            ("file-1-a.csv", "bb", false),
            ("my-file-1-a.csv", "aa", false),
            ("2file-1-a.csv", "aa", false),
            ("a.csv", "aa", false),
        ] {
            let path = Path::new("/work").join(name);
            assert_eq!(
                copies.has(&path, || Some(sha256.to_owned())),
                is_copy,
                "{name} {sha256}"
            );
        }
    }
}
