//! The files of a directory that can be mentioned: those below it that are not ignored, and those in a
//! directory whose name is typed out, whatever they are.

use std::collections::{HashSet, VecDeque};
use std::path::{Component, Path, PathBuf};

use tokio::task::JoinHandle;

use crate::directory_entries::{DirectoryEntry, directory_entries};
use crate::ignore_rules::IgnoreRules;

/// How much of a tree is looked at.
const LIMITS: IndexLimits = IndexLimits {
    read: 200_000,
    indexed: 20_000,
};
/// The most files that are told.
const MAX_MATCHES: usize = 50;
/// The rank of one that is ignored and begins with the letters.
const IGNORED: u8 = 3;
/// Directories that nobody means where no repository says which are left out.
const EXCLUDED_DIRS: [&str; 4] = ["target", "node_modules", "__pycache__", "venv"];

/// The files below a directory, looked for at first use, aside: a tree may be large and a disk slow.
#[derive(Debug)]
pub(crate) struct FileIndex {
    dir: PathBuf,
    files: Vec<String>,
    /// The directory that was typed last, as far as it is typed, and those of its files that were not
    /// found without it.
    typed_dir: Option<(String, Vec<String>)>,
    /// Whether there may be others by now.
    is_stale: bool,
    scan: Option<JoinHandle<FileScan>>,
}

/// How many entries are looked at, directories among them.
#[derive(Debug, Clone, Copy)]
struct IndexLimits {
    /// Most that are read.
    read: usize,
    /// Most that are not left out.
    indexed: usize,
}

/// Result of a look for files.
#[derive(Debug)]
enum FileScan {
    /// The files below the directory.
    Below(Vec<String>),
    /// The files in the directory of this name.
    In(String, Vec<String>),
}

impl FileIndex {
    pub(crate) fn below(dir: PathBuf) -> Self {
        Self {
            dir,
            files: Vec::new(),
            typed_dir: None,
            is_stale: true,
            scan: None,
        }
    }

    /// Looks again at next use: a turn may have made some. Until then those that are known are there.
    pub(crate) fn forget(&mut self) {
        self.is_stale = true;
    }

    /// Begins to look where that is needed for these letters.
    pub(crate) fn start_scan(&mut self, letters: &str) {
        if self.scan.is_some() {
            return;
        }
        let dir = self.dir.clone();
        let typed = directory_of(letters);
        if std::mem::take(&mut self.is_stale) {
            self.typed_dir = None;
            let look = move || FileScan::Below(files_below(&dir, LIMITS));
            self.scan = Some(tokio::task::spawn_blocking(look));
        } else if self
            .typed_dir
            .as_ref()
            .is_none_or(|(known, _)| known != typed)
        {
            let typed = typed.to_owned();
            let look = move || {
                let files = files_in(&dir, &typed, LIMITS);
                FileScan::In(typed, files)
            };
            self.scan = Some(tokio::task::spawn_blocking(look));
        }
    }

    /// Waits until it has looked; for ever where it does not.
    pub(crate) async fn finish_scan(&mut self) {
        let Some(looking) = &mut self.scan else {
            return std::future::pending().await;
        };
        match looking.await {
            Ok(FileScan::Below(found)) => self.files = found,
            Ok(FileScan::In(typed, mut files)) => {
                let found = self.files.iter().map(String::as_str);
                let found: HashSet<&str> = found.filter(|file| file.starts_with(&typed)).collect();
                files.retain(|file| !found.contains(file.as_str()));
                self.typed_dir = Some((typed, files));
            }
            Err(_) => {}
        }
        self.scan = None;
    }

    /// Files that have these letters, in their order; names that begin with them first, then ignored
    /// files that begin with them. Hidden files only for letters that begin a name with a dot.
    pub(crate) fn matching(&self, letters: &str) -> Vec<String> {
        let lower = letters.to_lowercase();
        let wants_hidden = is_hidden(letters);
        let is_wanted = |file: &&String| wants_hidden || !is_hidden(file);
        let found = self.files.iter().filter(is_wanted);
        let mut fitting: Vec<(u8, usize, &String)> = found
            .filter_map(|file| Some((rank(file, &lower)?, file.len(), file)))
            .collect();
        if !letters.is_empty() {
            let typed = self.typed_dir.iter().flat_map(|(_, files)| files);
            let begins = |file: &&String| file.to_lowercase().starts_with(&lower);
            let ignored = typed.filter(is_wanted).filter(begins);
            fitting.extend(ignored.map(|file| (IGNORED, file.len(), file)));
        }
        fitting.sort();
        let fitting = fitting.into_iter().take(MAX_MATCHES);
        fitting.map(|(_, _, file)| file.clone()).collect()
    }
}

/// The directory that letters name, with its slash; empty for none.
fn directory_of(letters: &str) -> &str {
    letters
        .rfind('/')
        .and_then(|slash| letters.get(..=slash))
        .unwrap_or_default()
}

/// Whether a name on the path begins with a dot.
fn is_hidden(path: &str) -> bool {
    path.split('/').any(|name| name.starts_with('.'))
}

fn rank(file: &str, letters: &str) -> Option<u8> {
    let file = file.to_lowercase();
    let name = file
        .trim_end_matches('/')
        .rsplit('/')
        .next()
        .unwrap_or_default();
    if file.starts_with(letters) {
        return Some(0);
    }
    if name.starts_with(letters) {
        return Some(1);
    }
    if file.contains(letters) {
        return Some(2);
    }
    let mut rest = file.chars();
    letters
        .chars()
        .all(|c| rest.any(|other| other == c))
        .then_some(IGNORED + 1)
}

/// The files below a directory that are not ignored, breadth first, those in hidden directories last.
fn files_below(dir: &Path, limits: IndexLimits) -> Vec<String> {
    let IndexLimits {
        mut read,
        indexed: mut kept,
    } = limits;
    let dir = conjure_config::fs::real_path(dir);
    let rules = IgnoreRules::of(&dir);
    let mut found = Vec::new();
    let mut dirs = VecDeque::from([(dir, String::new(), rules)]);
    let mut hidden = VecDeque::new();
    while let Some((dir, prefix, rules)) = dirs.pop_front().or_else(|| hidden.pop_front()) {
        let mut entries = Vec::new();
        for entry in directory_entries(&dir).take(read) {
            read -= 1;
            if is_excluded(&dir, &entry, rules.as_deref()) {
                continue;
            }
            if entries.len() == kept {
                break;
            }
            entries.push(entry);
        }
        kept -= entries.len();
        entries.sort();
        for DirectoryEntry { name, is_dir } in entries {
            if !is_dir {
                found.push(format!("{prefix}{name}"));
                continue;
            }
            let below = format!("{prefix}{name}/");
            let later = if is_hidden(&below) {
                &mut hidden
            } else {
                &mut dirs
            };
            let path = dir.join(&name);
            let rules = rules.as_ref().map(|rules| rules.below(&path));
            later.push_back((path, below, rules));
        }
        if read == 0 || kept == 0 {
            break;
        }
    }
    found
}

fn is_excluded(dir: &Path, entry: &DirectoryEntry, rules: Option<&IgnoreRules>) -> bool {
    let name = entry.name.as_str();
    name == ".git"
        || match rules {
            Some(rules) => rules.is_ignored(&dir.join(name), entry.is_dir),
            None => EXCLUDED_DIRS.contains(&name),
        }
}

/// The files in a directory below this one, or below the home, also those that are ignored.
fn files_in(dir: &Path, typed: &str, limits: IndexLimits) -> Vec<String> {
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let Some(dir) = named_directory(dir, typed, home.as_deref()) else {
        return Vec::new();
    };
    let entries = directory_entries(&dir).take(limits.read);
    let files = entries.filter(|entry| !entry.is_dir).take(limits.indexed);
    let mut files: Vec<String> = files.map(|file| format!("{typed}{}", file.name)).collect();
    files.sort();
    files
}

/// The directory that a name leads to: below this one, or with `~/` below the home. None for a name that
/// leads out of it.
fn named_directory(dir: &Path, typed: &str, home: Option<&Path>) -> Option<PathBuf> {
    let (root, name) = match typed.strip_prefix("~/") {
        Some(name) => (home?, name),
        None => (dir, typed),
    };
    let mut parts = Path::new(name).components();
    let is_below = parts.all(|part| matches!(part, Component::Normal(_)));
    is_below.then(|| root.join(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn fitting(files: &mut FileIndex, letters: &str) -> Vec<String> {
        // Once for the tree, once for the directory that is typed.
        for _ in 0..2 {
            files.start_scan(letters);
            if files.scan.is_some() {
                files.finish_scan().await;
            }
        }
        files.matching(letters)
    }

    #[tokio::test]
    async fn what_is_ignored_is_there_when_it_is_typed_out() {
        let dir = tempfile::tempdir().unwrap();
        for sub in ["src", "out", "venv", ".git"] {
            std::fs::create_dir(dir.path().join(sub)).unwrap();
        }
        for (file, text) in [
            (".gitignore", "/out\n*.log\n.env\n"),
            (".env", ""),
            ("notes.log", ""),
            ("notes.txt", ""),
            ("out/notes.o", ""),
            ("src/notes.rs", ""),
            ("venv/notes.py", ""),
        ] {
            std::fs::write(dir.path().join(file), text).unwrap();
        }
        let mut files = FileIndex::below(dir.path().to_owned());
        // A repository says itself what is left out.
        assert_eq!(
            fitting(&mut files, "").await,
            ["notes.txt", "src/notes.rs", "venv/notes.py"]
        );
        assert_eq!(
            fitting(&mut files, "notes").await,
            ["notes.txt", "src/notes.rs", "venv/notes.py", "notes.log"]
        );
        assert_eq!(fitting(&mut files, "out").await, [""; 0]);
        assert_eq!(fitting(&mut files, "out/").await, ["out/notes.o"]);
        assert_eq!(fitting(&mut files, "out/x").await, [""; 0]);
        assert_eq!(fitting(&mut files, ".e").await, [".env", ".gitignore"]);
    }

    #[tokio::test]
    async fn outside_of_a_repository_directories_of_builds_are_left_out() {
        let dir = tempfile::tempdir().unwrap();
        for sub in ["src", "target"] {
            std::fs::create_dir(dir.path().join(sub)).unwrap();
            std::fs::write(dir.path().join(sub).join("notes"), "").unwrap();
        }
        let mut files = FileIndex::below(dir.path().to_owned());
        assert_eq!(fitting(&mut files, "no").await, ["src/notes"]);
        let typed = fitting(&mut files, "target/n").await;
        assert_eq!(typed, ["target/notes"]);
    }

    #[test]
    fn what_is_left_out_takes_no_room_from_what_is_not() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join(".git")).unwrap();
        std::fs::write(dir.path().join(".gitignore"), "*.log\n").unwrap();
        for number in 0..20 {
            std::fs::write(dir.path().join(format!("{number}.log")), "").unwrap();
        }
        std::fs::write(dir.path().join("notes"), "").unwrap();
        let limits = IndexLimits {
            read: 100,
            indexed: 2,
        };
        assert_eq!(files_below(dir.path(), limits), [".gitignore", "notes"]);
    }

    #[test]
    fn a_directory_is_read_no_further_than_is_wanted() {
        let dir = tempfile::tempdir().unwrap();
        for number in 0..20 {
            std::fs::write(dir.path().join(number.to_string()), "").unwrap();
        }
        for (read, kept) in [(5, 100), (100, 5)] {
            let limits = IndexLimits {
                read,
                indexed: kept,
            };
            assert_eq!(files_below(dir.path(), limits).len(), 5);
            assert_eq!(files_in(dir.path(), "", limits).len(), 5);
        }
    }

    #[test]
    fn a_directory_that_is_typed_is_below_this_one_or_the_home() {
        let (dir, home) = (Path::new("/project"), Path::new("/home/ada"));
        for (typed, leads_to) in [
            ("", Some("/project")),
            ("a/b/", Some("/project/a/b")),
            ("~/", Some("/home/ada")),
            ("~/a/", Some("/home/ada/a")),
            ("/etc/", None),
            ("../", None),
            ("a/../../", None),
            ("~/../", None),
            ("~//etc/", None),
        ] {
            let named = named_directory(dir, typed, Some(home));
            assert_eq!(named.as_deref(), leads_to.map(Path::new), "{typed}");
        }
        assert_eq!(named_directory(dir, "~/", None), None);
    }
}
