//! What rustc tells the linker.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

/// The arguments of a linker, those in files (`@FILE`) among them.
pub struct Arguments(Vec<OsString>);

impl Arguments {
    /// Reads what is in files, where rustc puts arguments that are too long for a command line.
    ///
    /// # Errors
    /// When such a file cannot be read.
    pub fn read(given: &[OsString]) -> Result<Self> {
        let mut all = Vec::new();
        for one in given {
            match one.to_str().and_then(|text| text.strip_prefix('@')) {
                Some(file) => {
                    let text = std::fs::read_to_string(file)
                        .with_context(|| format!("cannot read the arguments in `{file}`"))?;
                    all.extend(text.lines().map(|line| unescaped(line).into()));
                }
                None => all.push(one.clone()),
            }
        }
        Ok(Self(all))
    }

    /// Whether lld links: the last word about it counts.
    pub fn lld_links(&self) -> bool {
        let words = self.0.iter().filter_map(|one| one.to_str());
        words
            .filter_map(|word| word.strip_prefix("-fuse-ld="))
            .next_back()
            .is_some_and(|name| name == "lld")
    }

    /// The object files and libraries of Rust that are linked.
    pub fn inputs(&self) -> Vec<PathBuf> {
        let files = self.0.iter().map(Path::new);
        files
            .filter(|file| matches!(file.extension().and_then(OsStr::to_str), Some("o" | "rlib")))
            .map(Path::to_path_buf)
            .collect()
    }
}

/// A line of such a file: one argument, with `\` before what would end it.
fn unescaped(line: &str) -> String {
    let mut plain = String::with_capacity(line.len());
    let mut letters = line.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => plain.extend(letters.next()),
            '"' => {}
            other => plain.push(other),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(words: &[&str]) -> Arguments {
        let words: Vec<OsString> = words.iter().map(OsString::from).collect();
        Arguments::read(&words).unwrap()
    }

    #[test]
    fn a_linker_that_is_chosen_in_the_flags_is_told_nothing() {
        assert!(arguments(&["-m64", "-fuse-ld=lld", "a.o"]).lld_links());
        assert!(!arguments(&["-m64", "a.o"]).lld_links());
        assert!(!arguments(&["-fuse-ld=lld", "a.o", "-fuse-ld=mold"]).lld_links());
    }

    #[test]
    fn arguments_in_a_file_count() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("linker-arguments");
        std::fs::write(&file, "-fuse-ld=lld\n/a\\ b/\"c\\\\d\".o\n/e.rlib\n/f.so\n").unwrap();
        let read = arguments(&["-m64", &format!("@{}", file.display())]);
        assert!(read.lld_links());
        assert_eq!(
            read.inputs(),
            [PathBuf::from("/a b/c\\d.o"), PathBuf::from("/e.rlib")]
        );
    }
}
