//! The person's own editor, for a long text.

use std::io;
use std::process::Command;

use conjure_config::fs;

/// Lets `$VISUAL`, `$EDITOR` or `vi` change a text.
///
/// # Errors
/// When the editor cannot be started, or says that it failed; with its name.
pub(crate) fn edit(text: &str) -> io::Result<String> {
    let named = |name| {
        std::env::var(name)
            .ok()
            .filter(|value| !value.trim().is_empty())
    };
    let editor = named("VISUAL").or_else(|| named("EDITOR"));
    let editor = editor.unwrap_or_else(|| "vi".to_owned());
    let dir = std::env::temp_dir().join(format!("conjure-{}", std::process::id()));
    fs::create_private_dir(&dir)?;
    let file = dir.join("message.md");
    let done = (|| {
        fs::write(&file, text)?;
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
    })();
    let _ = fs::remove_dir_all(&dir);
    done
}
