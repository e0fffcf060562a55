//! The person's own editor, for a long text. The text is in a file that no other user can read or
//! put something else in place of.

use std::fs::Permissions;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use conjure_config::fs;
use tempfile::TempDir;

/// Lets `$VISUAL`, `$EDITOR` or `vi` change a text.
///
/// # Errors
/// When the editor cannot be started, or says that it failed; with its name. When the file for the
/// text cannot be made.
pub(crate) fn edit(text: &str) -> io::Result<String> {
    let named = |name| {
        std::env::var(name)
            .ok()
            .filter(|value| !value.trim().is_empty())
    };
    let editor = named("VISUAL").or_else(|| named("EDITOR"));
    let editor = editor.unwrap_or_else(|| "vi".to_owned());
    edit_below(&std::env::temp_dir(), &editor, text)
}

/// Lets an editor change a text, in a file below a directory that others may write to.
fn edit_below(parent: &Path, editor: &str, text: &str) -> io::Result<String> {
    // With what the editor leaves beside the file, it goes when this is dropped.
    let dir = private_dir(parent)?;
    let file = dir.path().join("message.md");
    fs::write_new_private(&file, text.as_bytes())?;
    // The variable is a command line, as in other programs: `code --wait`.
    let mut words = editor.split_whitespace();
    let program = words.next().unwrap_or_default();
    let status = Command::new(program).args(words).arg(&file).status();
    let status = status.map_err(|error| {
        io::Error::new(
            error.kind(),
            format!("the editor `{editor}` cannot be started: {error}"),
        )
    })?;
    if !status.success() {
        return Err(io::Error::other(format!(
            "the editor `{editor}` failed ({status}); the text is as it was"
        )));
    }
    fs::read_to_string(&file)
}

/// A new directory that only its owner can enter. Its name is random, and one that exists is never
/// taken: another user can neither make it first nor have a link in it.
fn private_dir(parent: &Path) -> io::Result<TempDir> {
    tempfile::Builder::new()
        .prefix("conjure-")
        .permissions(Permissions::from_mode(0o700))
        .tempdir_in(parent)
        .map_err(|error| {
            io::Error::new(
                error.kind(),
                format!("there is no directory for the text that the editor is to have: {error}"),
            )
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_is_where_no_other_user_can_read_it_or_make_its_file_first() {
        let temp = tempfile::tempdir().unwrap();
        // What another user may have made before: the directory of an older version, with a link.
        let victim = temp.path().join("victim");
        std::fs::write(&victim, "precious").unwrap();
        let guessed = temp.path().join(format!("conjure-{}", std::process::id()));
        std::fs::create_dir(&guessed).unwrap();
        std::os::unix::fs::symlink(&victim, guessed.join("message.md")).unwrap();
        let (script, seen) = (temp.path().join("editor.sh"), temp.path().join("seen"));
        let text = format!(
            "ls -ld \"$(dirname \"$1\")\" \"$1\" > '{}'\nprintf ' edited' >> \"$1\"\n: > \"$1~\"\n",
            seen.display()
        );
        std::fs::write(&script, text).unwrap();
        let editor = format!("sh {}", script.display());
        let edited = edit_below(temp.path(), &editor, "a draft").unwrap();
        assert_eq!(edited, "a draft edited");
        assert_eq!(std::fs::read_to_string(&victim).unwrap(), "precious");
        let seen = std::fs::read_to_string(&seen).unwrap();
        let modes: Vec<&str> = seen.lines().filter_map(|line| line.get(..10)).collect();
        assert_eq!(modes, ["drwx------", "-rw-------"], "{seen}");
        let mut left: Vec<_> = std::fs::read_dir(temp.path())
            .unwrap()
            .map(|file| file.unwrap().path())
            .collect();
        left.sort();
        let mut expected = [guessed, script, temp.path().join("seen"), victim];
        expected.sort();
        assert_eq!(left, expected, "nothing stays behind");
    }

    #[test]
    fn an_editor_that_fails_leaves_the_text_and_no_file() {
        let temp = tempfile::tempdir().unwrap();
        let failed = edit_below(temp.path(), "false", "a draft").unwrap_err();
        assert!(failed.to_string().contains("the text is as it was"));
        let missing = edit_below(temp.path(), "conjure-no-such-editor", "a draft").unwrap_err();
        assert!(missing.to_string().contains("cannot be started"));
        assert_eq!(std::fs::read_dir(temp.path()).unwrap().count(), 0);
    }
}
