//! Files that a message mentions with `@`: they go with it.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use conjure_config::fs;
use conjure_runtime::Host;
use conjure_terminal::Update;

use super::attachments::{AttachedMessage, attach};
use super::chat_commands;
use super::error::CliError;
use super::output::{self, DIM, RESET, YELLOW, clean, print_note};
use super::shorten::one_line;

/// The most mentions of no file that are told: a text that is pasted may be full of them.
const MAX_NOTICES: usize = 5;

/// What a message mentions.
#[derive(Debug, Default, PartialEq, Eq)]
struct MentionedFiles {
    files: Vec<PathBuf>,
    /// Why something that was mentioned is not among them.
    notices: Vec<String>,
}

/// What a line of a chat says; nothing where that failed, which is told. What a program writes is what
/// it is: nothing in it is looked at.
pub(crate) fn of_line(
    host: &Host,
    dir: &Path,
    text: &str,
    said_by_commands: &[String],
    attended: bool,
) -> Option<AttachedMessage> {
    if !attended {
        return Some(text.to_owned().into());
    }
    message(host, dir, text, said_by_commands)
        .map_err(|error| chat_commands::report_error(&error))
        .ok()
}

/// What a person says, with the files that it mentions; what commands of the person's own said stands
/// before it. Tells what is attached, and what is not.
///
/// # Errors
/// When a file cannot be attached.
pub(crate) fn message(
    host: &Host,
    dir: &Path,
    text: &str,
    said_by_commands: &[String],
) -> Result<AttachedMessage, CliError> {
    let mentioned = MentionedFiles::of(text, dir);
    for notice in mentioned.notices.iter().take(MAX_NOTICES) {
        print_note(format_args!("{YELLOW}note:{RESET} {}", clean(notice)));
    }
    let mut attached = Vec::new();
    for path in mentioned.files {
        let file = attach(host, &path)?;
        print_note(format_args!(
            "{DIM}  + {}  {}{RESET}",
            clean(&file.name),
            output::size(file.size)
        ));
        if file.is_image {
            let name = file.name.clone();
            // Where no face has the terminal there is the line alone.
            output::send_to_face(Update::Image { name, path });
        }
        attached.push(file);
    }
    let mut whole = String::new();
    for said in said_by_commands {
        whole.push_str(said);
        whole.push_str("\n\n");
    }
    whole.push_str(text);
    Ok(AttachedMessage::new(whole, attached))
}

impl MentionedFiles {
    /// The files below a directory, or anywhere, that a text mentions. A mention of anything else
    /// stays text: of a directory, a device, a pipe, a file with nothing in it.
    fn of(text: &str, dir: &Path) -> Self {
        let mut found = Self::default();
        for name in mentions(text) {
            let path = path_of(name, dir);
            match check(name, &path) {
                Ok(()) if !found.files.contains(&path) => found.files.push(path),
                Err(Some(notice)) if !found.notices.contains(&notice) => {
                    found.notices.push(notice);
                }
                _ => {}
            }
        }
        found
    }
}

/// Where a name leads: `~` is the home of whoever writes.
fn path_of(name: &str, dir: &Path) -> PathBuf {
    let below_home = name.strip_prefix("~/");
    let home = below_home.and_then(|_| std::env::var_os("HOME"));
    match (below_home, home) {
        (Some(name), Some(home)) => Path::new(&home).join(name),
        _ => dir.join(name),
    }
}

/// Whether a name is that of a file that can be attached; else why not, unless it is clearly no path.
fn check(name: &str, path: &Path) -> Result<(), Option<String>> {
    let shown = one_line(name, 100);
    let notice = match fs::is_dir(path) {
        Ok(true) => {
            format!("`{shown}` is a directory and was not attached; files are attached one by one")
        }
        Ok(false) if !matches!(fs::is_file(path), Ok(true)) => {
            format!("`{shown}` is no regular file and was not attached")
        }
        Ok(false) if fs::size(path).is_ok_and(|size| size > 0) => return Ok(()),
        Ok(false) => format!("`{shown}` is empty and was not attached"),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            format!("`{shown}` was not attached: {error}")
        }
        // It may be the name of a person.
        Err(_) if !name.contains(['.', '/']) => return Err(None),
        Err(_) => format!("there is no file `{shown}`, so none was attached"),
    };
    Err(Some(notice))
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
        assert_eq!(MentionedFiles::of(text, dir.path()).files, wanted);
    }

    #[test]
    fn a_name_below_the_home_leads_there() {
        let home = std::env::var_os("HOME").unwrap();
        let dir = Path::new("/work");
        assert_eq!(path_of("~/x", dir), Path::new(&home).join("x"));
        assert_eq!(path_of("~x", dir), dir.join("~x"));
        assert_eq!(path_of("/a", dir), Path::new("/a"));
    }

    #[test]
    fn what_is_mentioned_and_cannot_be_attached_is_told_unless_it_is_no_path() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("src")).unwrap();
        std::fs::write(dir.path().join("empty.txt"), "").unwrap();
        let told = |text: &str| MentionedFiles::of(text, dir.path()).notices;
        for (text, wanted) in [
            ("See @missing.txt.", "there is no file `missing.txt`"),
            ("See @\"a b/c\"", "there is no file `a b/c`"),
            ("See @src", "`src` is a directory"),
            ("See @src/", "`src/` is a directory"),
            ("See @empty.txt", "`empty.txt` is empty"),
            ("See @/dev/null", "`/dev/null` is no regular file"),
            ("@x.y @x.y (@x.y)", "there is no file `x.y`"),
        ] {
            let told = told(text);
            assert_eq!(told.len(), 1, "{text}: {told:?}");
            assert!(told[0].starts_with(wanted), "{text}: {told:?}");
        }
        for text in ["Ask @alice, @Bob!", "me@missing.txt", "@", "@ missing.txt"] {
            assert_eq!(told(text), [""; 0], "{text}");
        }
    }
}
