//! Files that a message mentions with `@`: what is in them goes with it.

use std::path::Path;

use conjure_config::fs;

use super::output::size;

/// The most bytes of a file that go with a message.
const MOST: u64 = 256 * 1024;

/// A message with the files that it mentions, and what there is to say of them.
pub(crate) struct Mentioning {
    pub(crate) text: String,
    pub(crate) notes: Vec<String>,
}

/// Puts the files that a message mentions behind it. A mention of no file stays as it is.
pub(crate) fn add_files(text: &str, dir: &Path) -> Mentioning {
    let mut mentioning = Mentioning {
        text: text.to_owned(),
        notes: Vec::new(),
    };
    let mut added: Vec<&str> = Vec::new();
    for name in mentions(text) {
        let path = dir.join(name);
        let Ok(bytes) = fs::size(&path) else { continue };
        if added.contains(&name) || fs::is_dir(&path).unwrap_or(true) {
            continue;
        }
        added.push(name);
        if bytes > MOST {
            let note = format!(
                "{name} has {}, more than goes with a message: only its name does",
                size(bytes)
            );
            mentioning.notes.push(note);
            continue;
        }
        match fs::read_to_string(&path) {
            Ok(content) => {
                let fence = fence(&content);
                let end = if content.ends_with('\n') { "" } else { "\n" };
                mentioning.text += &format!("\n\n`{name}`:\n\n{fence}\n{content}{end}{fence}");
                mentioning
                    .notes
                    .push(format!("{name} goes with it ({})", size(bytes)));
            }
            Err(error) => {
                let note = format!("{name} does not go with it: {error}");
                mentioning.notes.push(note);
            }
        }
    }
    mentioning
}

/// The names behind `@`, in quotation marks or up to the next blank, without a sentence's end.
fn mentions(text: &str) -> Vec<&str> {
    let mut names = Vec::new();
    for (at, _) in text.match_indices('@') {
        let (before, from) = text.split_at(at);
        if before
            .chars()
            .next_back()
            .is_some_and(|c| !c.is_whitespace() && !"([".contains(c))
        {
            continue;
        }
        let from = from.get(1..).unwrap_or_default();
        let name = match from.strip_prefix('"') {
            Some(quoted) => quoted.split('"').next(),
            None => from.split(char::is_whitespace).next(),
        };
        let name = name
            .unwrap_or_default()
            .trim_end_matches([',', '.', ';', ':', '!', '?', ')', ']']);
        if !name.is_empty() {
            names.push(name);
        }
    }
    names
}

/// A fence that is not in a text.
fn fence(text: &str) -> String {
    let mut fence = "```".to_owned();
    while text.contains(&fence) {
        fence.push('`');
    }
    fence
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_mentioned_goes_with_the_message() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("notes.txt"), "one\n```\ntwo").unwrap();
        std::fs::write(dir.path().join("a b.txt"), "x\n").unwrap();
        std::fs::write(dir.path().join("bytes"), [0xff, 0xfe]).unwrap();
        let text =
            "Look at @notes.txt, (@notes.txt) and @\"a b.txt\", not @none or me@notes.txt @bytes";
        let with = add_files(text, dir.path());
        assert_eq!(
            with.text,
            format!(
                "{text}\n\n`notes.txt`:\n\n````\none\n```\ntwo\n````\n\n`a b.txt`:\n\n```\nx\n```"
            )
        );
        assert_eq!(with.notes.len(), 3);
        assert!(
            with.notes[2].starts_with("bytes does not go with it: "),
            "{:?}",
            with.notes
        );
    }
}
