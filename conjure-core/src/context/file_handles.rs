//! Handles of files in a call's arguments: `file-3` stands for a file wherever a path may stand.
//!
//! A file that one backend made is used by a call to another that names it. A handle counts where
//! it is a whole word of a command, or all of an argument; in any other text it is a word like
//! others. Which words are handles the caller knows.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::command_words::{WordRole, replace_words};

/// Paths of files, by handle.
pub type FilePaths = BTreeMap<String, String>;

/// The handles that a command reads: whole words that no redirection writes to.
#[must_use]
pub fn handles_of_command(command: &str, is_handle: impl Fn(&str) -> bool) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    replace_words(command, |word, place| {
        if is_read(place) && is_handle(word) {
            found.insert(word.to_owned());
        }
        None
    });
    found
}

/// The command with handles replaced by the paths of their files, quoted as the command needs it.
#[must_use]
pub fn with_command_paths(command: &str, paths: &FilePaths) -> String {
    replace_words(command, |word, place| {
        is_read(place).then(|| paths.get(word).cloned()).flatten()
    })
}

/// The handles among a call's arguments: texts that are nothing else, however deep.
#[must_use]
pub fn handles_of_arguments(
    arguments: &Value,
    is_handle: impl Fn(&str) -> bool,
) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    visit(arguments, &mut |text| {
        if is_handle(text) {
            found.insert(text.to_owned());
        }
    });
    found
}

/// The arguments with handles replaced by the paths of their files.
#[must_use]
pub fn with_argument_paths(arguments: &Value, paths: &FilePaths) -> Value {
    match arguments {
        Value::String(text) => paths.get(text).unwrap_or(text).as_str().into(),
        Value::Array(items) => items
            .iter()
            .map(|item| with_argument_paths(item, paths))
            .collect(),
        Value::Object(fields) => fields
            .iter()
            .map(|(name, value)| (name.clone(), with_argument_paths(value, paths)))
            .collect(),
        other => other.clone(),
    }
}

fn is_read(role: WordRole) -> bool {
    matches!(role, WordRole::Word | WordRole::AfterCd)
}

fn visit(value: &Value, visitor: &mut impl FnMut(&str)) {
    match value {
        Value::String(text) => visitor(text),
        Value::Array(items) => items.iter().for_each(|item| visit(item, visitor)),
        Value::Object(fields) => fields.values().for_each(|value| visit(value, visitor)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn paths() -> FilePaths {
        FilePaths::from([
            ("file-1".to_owned(), "/w/a.csv".to_owned()),
            ("file-12".to_owned(), "/w/my 'b'.csv".to_owned()),
        ])
    }

    fn known(word: &str) -> bool {
        paths().contains_key(word)
    }

    #[test]
    fn b24_a_handle_is_a_path_where_a_command_reads() {
        for (command, expected) in [
            ("wc -l file-1", "wc -l /w/a.csv"),
            ("cat <file-1 | sort > out", "cat </w/a.csv | sort > out"),
            ("cd x && cat file-1", "cd x && cat /w/a.csv"),
            ("run --in=file-12", r"run --in='/w/my '\''b'\''.csv'"),
            (
                "cat \"file-12\" 'file-12'",
                "cat \"/w/my 'b'.csv\" '/w/my '\\''b'\\''.csv'",
            ),
        ] {
            assert!(!handles_of_command(command, known).is_empty(), "{command}");
            assert_eq!(with_command_paths(command, &paths()), expected);
        }
        for same in [
            "cat file-2.csv profile-1 file-1a file-",
            "echo 'see file-1 there'",
            "sort x > file-1",
            "cat <<EOF\nfile-1\nEOF",
            "cat ./file-1 file-01",
        ] {
            let found = handles_of_command(same, known);
            assert_eq!(found, BTreeSet::new(), "{same}");
            assert_eq!(with_command_paths(same, &paths()), same);
        }
    }

    #[test]
    fn b24_an_argument_that_is_a_handle_is_a_path() {
        let arguments = json!({
            "path": "file-1", "more": [{ "at": "file-12" }, 7], "text": "about file-1", "file-1": null
        });
        let handles: Vec<_> = handles_of_arguments(&arguments, known)
            .into_iter()
            .collect();
        assert_eq!(handles, ["file-1", "file-12"]);
        assert_eq!(
            with_argument_paths(&arguments, &paths()),
            json!({
                "path": "/w/a.csv", "more": [{ "at": "/w/my 'b'.csv" }, 7],
                "text": "about file-1", "file-1": null
            })
        );
    }
}
