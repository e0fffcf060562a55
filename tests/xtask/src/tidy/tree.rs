//! The files that the rules look at.
//!
//! What git tracks or would track, so that build output and a developer's own ignored files
//! do not matter; where git cannot tell, every file outside `target`. Binary files have no
//! text and are left out, but for pictures, whose sizes are known.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result};

use super::words::{code_of, without_tests};

/// All text files of the repository.
pub(crate) struct Tree {
    /// In the order of their paths.
    pub(crate) files: Vec<File>,
    /// The pictures of pages: their paths and bytes.
    pub(crate) pictures: Vec<(String, usize)>,
}

/// One text file.
pub(crate) struct File {
    /// From the root, with `/` on every system.
    pub(crate) path: String,
    pub(crate) text: String,
    /// For Rust: the text with comments and the contents of literals blanked, every line in
    /// its place. Empty for other files.
    pub(crate) code: String,
    /// As `code`, also without items under `#[cfg(test)]`.
    pub(crate) shipped: String,
}

impl Tree {
    /// Reads the repository at `root`.
    pub(crate) fn read(root: &Path) -> Result<Self> {
        let paths = match listed_by_git(root) {
            Some(paths) => paths,
            None => {
                let mut paths = Vec::new();
                walk(root, root, &mut paths)?;
                paths
            }
        };
        let (mut files, mut pictures) = (Vec::new(), Vec::new());
        for path in paths {
            // Listed but deleted, or a link to nowhere: nothing to look at.
            let Ok(bytes) = std::fs::read(root.join(&path)) else {
                continue;
            };
            if path.ends_with(".png") {
                pictures.push((path, bytes.len()));
            } else if let Ok(text) = String::from_utf8(bytes) {
                files.push(File::new(path, text));
            }
        }
        files.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(Self { files, pictures })
    }

    /// A tree of these files, for tests.
    #[cfg(test)]
    pub(crate) fn of(files: &[(&str, &str)]) -> Self {
        let file = |(path, text): &(&str, &str)| File::new((*path).to_owned(), (*text).to_owned());
        Self {
            files: files.iter().map(file).collect(),
            pictures: Vec::new(),
        }
    }

    /// The Rust files.
    pub(crate) fn rust(&self) -> impl Iterator<Item = &File> {
        self.files.iter().filter(|file| file.is_rust())
    }

    /// Whether a file or directory of that path is there.
    pub(crate) fn has(&self, path: &str) -> bool {
        let directory = format!("{path}/");
        self.files
            .iter()
            .any(|file| file.path == path || file.path.starts_with(&directory))
            || self.pictures.iter().any(|(picture, _)| picture == path)
    }
}

impl File {
    fn new(path: String, text: String) -> Self {
        let code = if path.ends_with(".rs") {
            code_of(&text)
        } else {
            String::new()
        };
        let shipped = without_tests(&code);
        Self {
            path,
            text,
            code,
            shipped,
        }
    }

    pub(crate) fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// Whether the whole file is test code.
    pub(crate) fn is_test(&self) -> bool {
        self.path.contains("/tests/") || self.path.ends_with("/tests.rs")
    }

    /// `path:line` of the byte at `offset` in `text`, `code` or `shipped`.
    pub(crate) fn location(&self, offset: usize) -> String {
        let before = self.text.as_bytes().get(..offset).unwrap_or_default();
        let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
        format!("{}:{line}", self.path)
    }
}

/// Tracked files and new ones that are not ignored; `None` where git is not to be had.
fn listed_by_git(root: &Path) -> Option<Vec<String>> {
    let output = Command::new("git")
        .args([
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
        ])
        .current_dir(root)
        .output()
        .ok()?;
    let list = String::from_utf8(output.stdout).ok()?;
    let mut paths: Vec<_> = list
        .split('\0')
        .filter(|path| !path.is_empty())
        .map(str::to_owned)
        .collect();
    paths.sort();
    paths.dedup();
    (output.status.success() && !paths.is_empty()).then_some(paths)
}

fn walk(root: &Path, directory: &Path, paths: &mut Vec<String>) -> Result<()> {
    let entries = std::fs::read_dir(directory)
        .with_context(|| format!("cannot list `{}`", directory.display()))?;
    for entry in entries {
        let entry = entry?;
        let (name, path): (_, PathBuf) = (entry.file_name(), entry.path());
        if entry.file_type()?.is_dir() {
            if name != "target" && name != ".git" {
                walk(root, &path, paths)?;
            }
        } else if let Ok(inner) = path.strip_prefix(root) {
            paths.push(inner.to_string_lossy().replace('\\', "/"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_git_every_text_file_outside_target_is_read() {
        let root = tempfile::tempdir().unwrap();
        for (path, bytes) in [
            ("a.rs", b"//! a\n".as_slice()),
            ("b/c.md", b"c"),
            ("target/d.rs", b"d"),
            ("e.bin", b"\xff\xfe"),
        ] {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, bytes).unwrap();
        }
        let mut paths = Vec::new();
        walk(root.path(), root.path(), &mut paths).unwrap();
        paths.sort();
        assert_eq!(paths, ["a.rs", "b/c.md", "e.bin"]);
        assert!(
            Tree::read(root.path())
                .unwrap()
                .files
                .iter()
                .all(|file| file.path != "e.bin")
        );
    }

    #[test]
    fn a_place_is_path_and_line() {
        let tree = Tree::of(&[("a.rs", "one\ntwo\n")]);
        let file = tree.files.first().unwrap();
        assert_eq!(file.location(0), "a.rs:1");
        assert_eq!(file.location(5), "a.rs:2");
    }
}
