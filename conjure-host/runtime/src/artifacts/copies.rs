//! Copies that the host itself puts where a call's backend finds them. They are nobody's work, so
//! that whoever finds one has not made a file.
//!
//! A host knows its own, whichever session they are for; those of other processes have a
//! [mark](conjure_config::platform::copy_mark).

use std::collections::{BTreeSet, VecDeque};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use conjure_skill_sdk::protocol::FileRef;

/// How many copies are remembered: what a call can find was made while it ran.
const CAPACITY: usize = 4096;

/// The copies of a host.
#[derive(Debug, Default)]
pub(crate) struct Copies(Mutex<CopyIndex>);

#[derive(Debug, Default)]
struct CopyIndex {
    /// The names of those that come now, each with a number.
    arriving: BTreeSet<(u64, String)>,
    next: u64,
    /// The names and hashes of those that came, the oldest first.
    completed: VecDeque<(String, String)>,
    /// What backends call those that lie with them, the oldest first.
    elsewhere: VecDeque<String>,
}

/// A copy that is being received. Dropping it discards what has come so far.
#[derive(Debug)]
pub(crate) struct IncomingCopy<'a> {
    copies: &'a Copies,
    key: (u64, String),
}

impl Copies {
    /// A copy will lie under this name, or under a like one where that is taken.
    pub(crate) fn expect(&self, name: &str) -> IncomingCopy<'_> {
        let mut known = self.lock();
        let key = (known.next, name.to_owned());
        known.next += 1;
        known.arriving.insert(key.clone());
        IncomingCopy { copies: self, key }
    }

    /// Whether a file is such a copy, and still what it was. Its hash is asked for only where its
    /// name is that of a copy.
    pub(super) fn has(&self, path: &Path, sha256: impl FnOnce() -> Option<String>) -> bool {
        let Some(found) = path.file_name().and_then(|name| name.to_str()) else {
            return false;
        };
        let known = self.lock();
        let mut arriving = known.arriving.iter();
        if arriving.any(|(_, name)| is_name_of_copy(found, name)) {
            return true;
        }
        let named = known.completed.iter();
        let mut named = named
            .filter(|(name, _)| is_name_of_copy(found, name))
            .peekable();
        if named.peek().is_none() {
            return false;
        }
        sha256().is_some_and(|sha256| named.any(|(_, known)| *known == sha256))
    }

    /// Whether a file that lies with its backend is such a copy, and still what it was.
    pub(super) fn has_elsewhere(&self, file: &FileRef) -> bool {
        let known = self.lock();
        let mut arriving = known.arriving.iter();
        arriving.any(|(_, name)| is_name_of_copy(&file.name, name))
            || file
                .id
                .as_ref()
                .is_some_and(|id| known.elsewhere.contains(id))
    }

    fn lock(&self) -> MutexGuard<'_, CopyIndex> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl IncomingCopy<'_> {
    /// Takes note that the copy lies with a backend, which calls it so.
    pub(crate) fn came_elsewhere(&self, id: String) {
        let mut known = self.copies.lock();
        if !known.elsewhere.contains(&id) {
            known.elsewhere.push_back(id);
            if known.elsewhere.len() > CAPACITY {
                known.elsewhere.pop_front();
            }
        }
    }

    /// Takes note that the copy is there, with content of this SHA-256.
    pub(crate) fn complete(self, sha256: &str) {
        let came = (self.key.1.clone(), sha256.to_owned());
        let mut known = self.copies.lock();
        if !known.completed.contains(&came) {
            known.completed.push_back(came);
            if known.completed.len() > CAPACITY {
                known.completed.pop_front();
            }
        }
    }
}

impl Drop for IncomingCopy<'_> {
    fn drop(&mut self) {
        self.copies.lock().arriving.remove(&self.key);
    }
}

/// Whether a copy of this name may lie under a name: `NUMBER-name` here, `stem-NUMBER.extension` in a
/// container.
fn is_name_of_copy(found: &str, name: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if found == name {
        return true;
    }
    if let Some(number) = found
        .strip_suffix(name)
        .and_then(|rest| rest.strip_suffix('-'))
    {
        return is_number(number);
    }
    let (stem, extension) = name.rsplit_once('.').unwrap_or((name, ""));
    let rest = found
        .strip_prefix(stem)
        .and_then(|rest| rest.strip_prefix('-'));
    let number = match extension {
        "" => rest,
        extension => rest
            .and_then(|rest| rest.strip_suffix(extension))
            .and_then(|rest| rest.strip_suffix('.')),
    };
    number.is_some_and(is_number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_known_by_name_and_content() {
        let copies = Copies::default();
        copies.expect("file-1-a.csv").complete("aa");
        for (name, sha256, is_copy) in [
            ("file-1-a.csv", "aa", true),
            ("2-file-1-a.csv", "aa", true),
            ("file-1-a-2.csv", "aa", true),
            ("file-1-a.csv", "bb", false),
            ("my-file-1-a.csv", "aa", false),
            ("2file-1-a.csv", "aa", false),
            ("file-1-a-b.csv", "aa", false),
            ("a.csv", "aa", false),
        ] {
            let path = Path::new("/dir").join(name);
            assert_eq!(
                copies.has(&path, || Some(sha256.to_owned())),
                is_copy,
                "{name} {sha256}"
            );
        }
    }

    #[test]
    fn a_copy_elsewhere_is_known_by_what_its_backend_calls_it() {
        let copies = Copies::default();
        let has = |id: &str| copies.has_elsewhere(&FileRef::lazy(id, "file-1-a-2.csv"));
        let arriving = copies.expect("file-1-a.csv");
        assert!(has("7:/w/file-1-a-2.csv"), "it comes now");
        arriving.came_elsewhere("7:/w/file-1-a-2.csv".to_owned());
        drop(arriving);
        assert!(has("7:/w/file-1-a-2.csv"));
        assert!(!has("8:/w/file-1-a-2.csv"), "somebody changed it");
    }

    #[test]
    fn half_a_copy_is_one_while_it_comes() {
        let copies = Copies::default();
        let path = Path::new("/dir/file-1-a");
        let has = || copies.has(path, || Some("half".to_owned()));
        let arriving = copies.expect("file-1-a");
        assert!(has());
        arriving.complete("whole");
        assert!(!has());
    }
}
