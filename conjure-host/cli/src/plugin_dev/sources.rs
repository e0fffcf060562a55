//! An author's sources: which files they are, and whether they changed.
//!
//! Looked at every 50 ms, which finds changes on every file system, files that an editor replaces and
//! directories that are new; a crate has few files.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(50);
/// How deep directories are looked into.
const DEPTH: usize = 16;
/// Files beyond so many are not looked at.
const MOST_FILES: usize = 20_000;

/// The directories whose files count.
#[derive(Debug, Clone)]
pub(super) struct Sources {
    dirs: Vec<PathBuf>,
    /// What is not looked into, such as where cargo builds.
    except: Vec<PathBuf>,
}

/// The state of all files at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct SourceState(BTreeMap<PathBuf, (u64, Option<SystemTime>)>);

impl SourceState {
    /// How long ago the newest file was written.
    pub(super) fn age(&self) -> Option<Duration> {
        let newest = self.0.values().filter_map(|(_, at)| *at).max()?;
        newest.elapsed().ok()
    }
}

impl Sources {
    /// The files below these directories, without those below `except`.
    pub(super) fn new(dirs: Vec<PathBuf>, except: Vec<PathBuf>) -> Self {
        Self { dirs, except }
    }

    /// The files now.
    pub(super) async fn state(&self) -> SourceState {
        let sources = self.clone();
        let looking = tokio::task::spawn_blocking(move || {
            let excepted = sources.except.iter().filter_map(|dir| identity(dir));
            let mut look = Look {
                seen: excepted.collect(),
                state: SourceState::default(),
            };
            for dir in &sources.dirs {
                look.at(dir, DEPTH);
            }
            look.state
        });
        looking.await.unwrap_or_default()
    }

    /// Waits until the files are others than in `known`, and nobody writes them any more.
    pub(super) async fn changed_from(&self, known: &SourceState) -> SourceState {
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

/// Which directory it is, by whatever path.
fn identity(dir: &Path) -> Option<(u64, u64)> {
    let found = dir.metadata().ok()?;
    Some((found.dev(), found.ino()))
}

/// One look at all files.
struct Look {
    /// Directories that are not looked into any more: a link may lead to one of them again.
    seen: BTreeSet<(u64, u64)>,
    state: SourceState,
}

impl Look {
    fn at(&mut self, dir: &Path, depth: usize) {
        let (Some(depth), Some(own)) = (depth.checked_sub(1), identity(dir)) else {
            return;
        };
        if !self.seen.insert(own) {
            return;
        }
        for path in conjure_config::fs::entries(dir).unwrap_or_default() {
            if !counts(&path) || self.state.0.len() >= MOST_FILES {
                continue;
            }
            // Through a link: what it leads to may be the author's too.
            let Ok(found) = path.metadata() else { continue };
            if found.is_dir() {
                self.at(&path, depth);
            } else {
                let stamp = (found.len(), found.modified().ok());
                self.state.0.insert(path, stamp);
            }
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
            let changed = sources.changed_from(&known);
            let now = tokio::time::timeout(Duration::from_secs(30), changed).await;
            known = now.unwrap();
        }
        assert!(known.age().is_some());
    }
}
