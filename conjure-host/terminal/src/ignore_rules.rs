//! What git leaves out below a directory: by `.gitignore` files, `.git/info/exclude` and the person's own
//! list. The patterns are read by the `ignore` crate.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use conjure_config::fs;
use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder, gitconfig_excludes_path};

/// Longest file that is read, in bytes.
const MAX_FILE_BYTES: u64 = 1024 * 1024;
/// Most lines of a file that are read: each is kept compiled.
const MAX_LINES: usize = 10_000;

/// The rules of a directory, and behind them those of the directories above it.
pub(crate) struct IgnoreRules {
    rules: Gitignore,
    above: Option<Rc<IgnoreRules>>,
}

impl IgnoreRules {
    /// The rules of a directory in a repository, as an absolute path; none where it is in no repository,
    /// or in one that ignores the directory itself.
    pub(crate) fn of(dir: &Path) -> Option<Rc<Self>> {
        Self::with_global(dir, gitconfig_excludes_path().as_deref())
    }

    /// Like [`Self::of`], with the file `global` as the person's own list.
    fn with_global(dir: &Path, global: Option<&Path>) -> Option<Rc<Self>> {
        let repository = dir.ancestors().find(|dir| is_repository(dir))?;
        let global = Rc::new(Self {
            rules: global.map_or_else(Gitignore::empty, |file| patterns(repository, file)),
            above: None,
        });
        let exclude = common_dir(repository).join("info/exclude");
        let exclude = Rc::new(Self {
            rules: patterns(repository, &exclude),
            above: Some(global),
        });
        let inside = dir.ancestors().take_while(|dir| *dir != repository);
        let inside: Vec<&Path> = inside.collect();
        let mut rules = exclude.below(repository);
        for dir in inside.into_iter().rev() {
            if rules.is_ignored(dir, true) {
                return None;
            }
            rules = rules.below(dir);
        }
        Some(rules)
    }

    /// The rules of a directory below.
    pub(crate) fn below(self: &Rc<Self>, dir: &Path) -> Rc<Self> {
        let own = patterns(dir, &dir.join(".gitignore"));
        if own.is_empty() {
            return Rc::clone(self);
        }
        Rc::new(Self {
            rules: own,
            above: Some(Rc::clone(self)),
        })
    }

    /// Whether a path in the directory is left out: the innermost rules that say something of it count.
    pub(crate) fn is_ignored(&self, path: &Path, is_dir: bool) -> bool {
        match self.rules.matched(path, is_dir) {
            Match::None => {
                let above = self.above.as_ref();
                above.is_some_and(|above| above.is_ignored(path, is_dir))
            }
            Match::Ignore(_) => true,
            Match::Whitelist(_) => false,
        }
    }
}

/// Whether a directory has a repository's data, or says where that is.
fn is_repository(dir: &Path) -> bool {
    fs::is_dir(dir.join(".git")).is_ok()
}

/// The directory with what all worktrees of a repository share. In a linked worktree and in a submodule
/// `.git` is a file that says where the data is, and that may say where the shared part is.
fn common_dir(repository: &Path) -> PathBuf {
    let git = repository.join(".git");
    let link = text_of(&git);
    let named = link
        .as_deref()
        .and_then(|link| link.strip_prefix("gitdir:"));
    let data = match named {
        Some(dir) => repository.join(dir.trim()),
        None => git,
    };
    match text_of(&data.join("commondir")) {
        Some(dir) => data.join(dir.trim()),
        None => data,
    }
}

/// The patterns of a file, for paths below a directory. A file that cannot be read, and a pattern that
/// cannot, leave nothing out.
fn patterns(dir: &Path, file: &Path) -> Gitignore {
    let Some(text) = text_of(file) else {
        return Gitignore::empty();
    };
    let mut builder = GitignoreBuilder::new(dir);
    for line in text.trim_start_matches('\u{feff}').lines().take(MAX_LINES) {
        let _ = builder.add_line(None, line);
    }
    builder.build().unwrap_or_else(|_| Gitignore::empty())
}

/// The text of a regular file that is not too long. What a repository has in its place, such as a pipe or
/// a link to a device, is not waited for.
fn text_of(path: &Path) -> Option<String> {
    // It may be a link to a list.
    let path = path.canonicalize().ok()?;
    let bytes = fs::read_no_follow(path, MAX_FILE_BYTES).ok()??;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_further_in_win_and_there_are_none_outside_of_a_repository() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let sub = root.join("a/b");
        std::fs::create_dir_all(&sub).unwrap();
        std::fs::write(root.join(".gitignore"), "*.log\nbuild/\n").unwrap();
        assert!(IgnoreRules::of(&sub).is_none());
        std::fs::create_dir_all(root.join(".git/info")).unwrap();
        std::fs::write(root.join(".git/info/exclude"), "secret\n").unwrap();
        std::fs::write(root.join("a/.gitignore"), "!kept.log\n/b/own\n").unwrap();
        let rules = IgnoreRules::of(&sub).unwrap();
        for (path, is_dir, is_left_out) in [
            ("a/b/x.log", false, true),
            ("a/b/kept.log", false, false),
            ("a/b/build", true, true),
            ("a/b/build", false, false),
            ("a/b/secret", false, true),
            ("a/b/own", false, true),
            ("a/b/x.rs", false, false),
        ] {
            assert_eq!(
                rules.is_ignored(&root.join(path), is_dir),
                is_left_out,
                "{path}"
            );
        }
        let rules = IgnoreRules::of(&root).unwrap();
        assert!(rules.is_ignored(&root.join("kept.log"), false));
    }

    #[test]
    fn a_list_that_is_no_regular_file_or_too_long_is_not_read() {
        use std::fs::File;

        use rustix::fs::{CWD, FileType, Mode, mknodat};

        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        std::fs::create_dir(root.join(".git")).unwrap();
        let list = root.join(".gitignore");
        let leaves_out = || {
            let rules = IgnoreRules::with_global(&root, None).unwrap();
            rules.is_ignored(&root.join("x.log"), false)
        };
        std::fs::write(&list, "*.log\n").unwrap();
        assert!(leaves_out());
        let file = File::options().write(true).open(&list).unwrap();
        file.set_len(MAX_FILE_BYTES + 1).unwrap();
        assert!(!leaves_out());
        std::fs::remove_file(&list).unwrap();
        mknodat(CWD, &list, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        assert!(!leaves_out());
    }

    #[test]
    fn a_linked_worktree_has_the_list_of_its_repository() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let data = root.join("main/.git/worktrees/linked");
        let linked = root.join("linked");
        for dir in [&data, &linked, &root.join("main/.git/info")] {
            std::fs::create_dir_all(dir).unwrap();
        }
        std::fs::write(root.join("main/.git/info/exclude"), "/secret\n").unwrap();
        std::fs::write(data.join("commondir"), "../..\n").unwrap();
        let link = "gitdir: ../main/.git/worktrees/linked\n";
        std::fs::write(linked.join(".git"), link).unwrap();
        let rules = IgnoreRules::with_global(&linked, None).unwrap();
        assert!(rules.is_ignored(&linked.join("secret"), false));
        assert!(!rules.is_ignored(&linked.join("a/secret"), false));
    }

    #[test]
    fn the_persons_own_list_is_of_the_repository() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let global = root.join("own-list");
        std::fs::write(&global, "/build\n").unwrap();
        let sub = root.join("repository/sub");
        std::fs::create_dir_all(&sub).unwrap();
        std::fs::create_dir(root.join("repository/.git")).unwrap();
        let rules = IgnoreRules::with_global(&sub, Some(&global)).unwrap();
        assert!(rules.is_ignored(&root.join("repository/build"), true));
        assert!(!rules.is_ignored(&sub.join("build"), true));
    }

    #[test]
    fn a_directory_that_its_repository_ignores_has_no_rules() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let sub = root.join("project/src");
        std::fs::create_dir_all(&sub).unwrap();
        std::fs::create_dir(root.join(".git")).unwrap();
        std::fs::write(root.join(".gitignore"), "*\n").unwrap();
        assert!(IgnoreRules::with_global(&root, None).is_some());
        assert!(IgnoreRules::with_global(&sub, None).is_none());
    }
}
