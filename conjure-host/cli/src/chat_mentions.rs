//! Files that a message mentions with `@`: they go with it.

use std::path::{Path, PathBuf};

use conjure_config::fs;

/// The files below a directory, or anywhere, that a message mentions. A mention of no file is text,
/// and so is one of a device, a pipe or a file with nothing in it.
pub(crate) fn files(text: &str, dir: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = Vec::new();
    for name in mentions(text) {
        let path = dir.join(name);
        let has_content =
            matches!(fs::is_file(&path), Ok(true)) && fs::size(&path).is_ok_and(|size| size > 0);
        if has_content && !files.contains(&path) {
            files.push(path);
        }
    }
    files
}

/// The names behind `@`, in quotation marks or up to the next blank, without a sentence's end.
fn mentions(text: &str) -> Vec<&str> {
    let mut names = Vec::new();
    for (at, _) in text.match_indices('@') {
        let (before, from) = text.split_at(at);
        let last = before.chars().next_back();
        if last.is_some_and(|c| !c.is_whitespace() && !"([".contains(c)) {
            continue;
        }
        let from = from.get(1..).unwrap_or_default();
        let name = match from.strip_prefix('"') {
            Some(quoted) => quoted.split('"').next(),
            None => from.split(char::is_whitespace).next(),
        };
        let end = [',', '.', ';', ':', '!', '?', ')', ']'];
        let name = name.unwrap_or_default().trim_end_matches(end);
        if !name.is_empty() {
            names.push(name);
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_mentioned_goes_with_the_message() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("src")).unwrap();
        for name in ["notes.txt", "a b.txt", "src/main.rs"] {
            std::fs::write(dir.path().join(name), "x").unwrap();
        }
        std::fs::write(dir.path().join("empty.txt"), "").unwrap();
        let text = "Look at @empty.txt, @/dev/zero, @notes.txt, (@notes.txt) and @\"a b.txt\", not @src, @none or \
                    me@notes.txt; but @src/main.rs.";
        let wanted = ["notes.txt", "a b.txt", "src/main.rs"].map(|name| dir.path().join(name));
        assert_eq!(files(text, dir.path()), wanted);
    }
}
