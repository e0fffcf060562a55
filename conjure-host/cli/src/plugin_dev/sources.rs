//! An author's sources: which files they are, and whether they changed.
//!
//! Looked at every 50 ms, which finds changes on every file system, files that an editor replaces and
//! directories that are new; a crate has few files. Of a program it is exactly the files that its
//! description names, wherever they are built.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use conjure_plugins::program_files;

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(50);
/// How deep directories are looked into.
const DEPTH: usize = 16;
/// Files beyond so many are not looked at.
const MAX_FILES: usize = 20_000;

/// The files that count.
#[derive(Debug, Clone)]
pub(super) struct Sources {
    /// Directories below which files count.
    dirs: Vec<PathBuf>,
    /// Description of the program whose files count.
    program: Option<PathBuf>,
    /// Directories that are not looked into, such as where cargo builds.
    except: Vec<PathBuf>,
}

/// The state of all files at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct SourceState(BTreeMap<PathBuf, SourceStamp>);

/// What says that a file is another one, also where it was moved there with its old times.
#[derive(Debug, Clone, PartialEq, Eq)]
struct SourceStamp {
    size: u64,
    inode: u64,
    modified: Option<SystemTime>,
    /// When the system noted a change of it last, which nobody else sets.
    changed: Option<SystemTime>,
}

impl SourceStamp {
    fn of(found: &Metadata) -> Self {
        let seconds = u64::try_from(found.ctime()).ok();
        let nanos = u32::try_from(found.ctime_nsec()).ok();
        let since = seconds.zip(nanos);
        let since = since.map(|(seconds, nanos)| Duration::new(seconds, nanos));
        Self {
            size: found.len(),
            inode: found.ino(),
            modified: found.modified().ok(),
            changed: since.and_then(|since| SystemTime::UNIX_EPOCH.checked_add(since)),
        }
    }
}

impl SourceState {
    /// How long ago a file was changed last.
    pub(super) fn age(&self) -> Option<Duration> {
        let changed = self.0.values().filter_map(|stamp| stamp.changed);
        changed.max()?.elapsed().ok()
    }
}

impl Sources {
    /// The files below these directories, without those below `except`.
    pub(super) fn new(dirs: Vec<PathBuf>, except: Vec<PathBuf>) -> Self {
        Self {
            dirs,
            program: None,
            except,
        }
    }

    /// Adds the files of a program.
    pub(super) fn with_program(self, description: Option<PathBuf>) -> Self {
        Self {
            program: description,
            ..self
        }
    }

    /// The files now.
    pub(super) async fn state(&self) -> SourceState {
        let sources = self.clone();
        let looking = tokio::task::spawn_blocking(move || {
            let excepted = sources.except.iter().filter_map(|dir| identity(dir));
            let mut look = SourceScan {
                visited: excepted.collect(),
                state: SourceState::default(),
            };
            for dir in &sources.dirs {
                look.at(dir, DEPTH);
            }
            // What is named counts, whatever it is called.
            let named = sources.program.as_deref().map(program_files);
            for file in named.into_iter().flatten() {
                look.file(file);
            }
            look.state
        });
        looking.await.unwrap_or_default()
    }

    /// Waits until the files are others than in `known`, and nobody writes them any more.
    pub(super) async fn wait_for_change(&self, known: &SourceState) -> SourceState {
        let mut before = self.state().await;
        loop {
            tokio::time::sleep(PAUSE).await;
            let now = self.state().await;
            if now != *known && now == before {
                return now;
            }
            before = now;
        }
    }
}

/// Identity of a directory, by whatever path it is named: its device and its inode.
fn identity(dir: &Path) -> Option<(u64, u64)> {
    let found = dir.metadata().ok()?;
    Some((found.dev(), found.ino()))
}

/// One look at all files.
struct SourceScan {
    /// Directories that are not looked into any more: a link may lead to one of them again.
    visited: BTreeSet<(u64, u64)>,
    state: SourceState,
}

impl SourceScan {
    fn at(&mut self, dir: &Path, depth: usize) {
        let (Some(depth), Some(own)) = (depth.checked_sub(1), identity(dir)) else {
            return;
        };
        if !self.visited.insert(own) {
            return;
        }
        for path in conjure_config::fs::entries(dir).unwrap_or_default() {
            if !counts(&path) || self.state.0.len() >= MAX_FILES {
                continue;
            }
            // Through a link: what it leads to may be the author's too.
            let Ok(found) = path.metadata() else { continue };
            if found.is_dir() {
                self.at(&path, depth);
            } else {
                self.state.0.insert(path, SourceStamp::of(&found));
            }
        }
    }

    fn file(&mut self, path: PathBuf) {
        if let Ok(found) = path.metadata()
            && self.state.0.len() < MAX_FILES
        {
            self.state.0.insert(path, SourceStamp::of(&found));
        }
    }
}

/// Whether a file or a directory is one of the author's: not what cargo, Python, an editor or version
/// control writes beside it.
fn counts(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let is_tools = name.starts_with('.')
        || name.ends_with('~')
        || name.ends_with(".swp")
        || name.ends_with(".tmp");
    // Vim tries with this name whether it can write.
    !is_tools && !["target", "Cargo.lock", "__pycache__", "4913"].contains(&&*name)
}

#[cfg(test)]
mod tests {
    use conjure_config::fs;

    use super::*;

    #[tokio::test]
    async fn a_change_is_found_however_it_is_made_and_what_tools_write_is_none() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        fs::create_dir_all(root.join("src")).unwrap();
        fs::write(root.join("src/lib.rs"), "one").unwrap();
        let built = root.join("built");
        let sources = Sources::new(vec![root.to_owned()], vec![built.clone()]);
        let mut known = sources.state().await;
        fs::create_dir_all(root.join("target/debug")).unwrap();
        fs::create_dir_all(&built).unwrap();
        fs::create_dir_all(root.join("src/__pycache__")).unwrap();
        // A link to a directory above it leads nowhere new.
        std::os::unix::fs::symlink(root, root.join("src/above")).unwrap();
        for tools in [
            "target/debug/x",
            "built/x",
            "src/__pycache__/x.pyc",
            "Cargo.lock",
            "src/.lib.rs.swp",
            "src/lib.rs~",
        ] {
            fs::write(root.join(tools), "x").unwrap();
            assert_eq!(sources.state().await, known, "{tools}");
        }
        let replaced = || {
            fs::write(root.join(".new"), "two").unwrap();
            fs::rename(root.join(".new"), root.join("src/lib.rs")).unwrap();
        };
        let deeper = || {
            fs::create_dir_all(root.join("src/parts")).unwrap();
            fs::write(root.join("src/parts/mod.rs"), "").unwrap();
        };
        let removed = || fs::remove_file(root.join("src/parts/mod.rs"));
        let changes: [&dyn Fn(); 3] = [&replaced, &deeper, &removed];
        for change in changes {
            change();
            let changed = sources.wait_for_change(&known);
            let now = tokio::time::timeout(Duration::from_secs(30), changed).await;
            known = now.unwrap();
        }
        assert!(known.age().is_some());
    }
    #[tokio::test]
    async fn of_a_program_the_files_count_that_it_names_also_where_they_come_with_their_old_times()
    {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        let description = root.join("plugin.toml");
        fs::create_dir_all(root.join("target")).unwrap();
        fs::write(root.join("target/x"), "one").unwrap();
        let text = "plugin = 1\nprotocol = 1\nkind = \"skill\"\nname = \"x\"\nversion = \"0.1.0\"\n\
                    command = [\"target/x\"]\nfiles = [\"target/x\", \"data/\"]\n";
        fs::write(&description, text).unwrap();
        let sources = Sources::new(Vec::new(), Vec::new()).with_program(Some(description.clone()));
        let mut known = sources.state().await;
        assert_eq!(known.0.len(), 2);
        fs::write(root.join("main.go"), "package main").unwrap();
        assert_eq!(sources.state().await, known);
        let replaced = || {
            // As `cp --preserve` and `mv` do it.
            let before = root
                .join("target/x")
                .metadata()
                .unwrap()
                .modified()
                .unwrap();
            fs::write(root.join("new"), "two").unwrap();
            let new = std::fs::File::options().write(true).open(root.join("new"));
            new.unwrap().set_modified(before).unwrap();
            fs::rename(root.join("new"), root.join("target/x")).unwrap();
        };
        let added = || {
            fs::create_dir_all(root.join("data")).unwrap();
            fs::write(root.join("data/words"), "a").unwrap();
        };
        let described = || fs::write(&description, text.replace("0.1.0", "0.1.1")).unwrap();
        let changes: [&dyn Fn(); 3] = [&replaced, &added, &described];
        for change in changes {
            change();
            let changed = sources.wait_for_change(&known);
            let now = tokio::time::timeout(Duration::from_secs(30), changed).await;
            known = now.unwrap();
        }
    }
}
