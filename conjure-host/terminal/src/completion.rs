//! What can be typed next: the host's commands behind `/`, the files of the directory behind `@`.

use crate::file_index::FileIndex;
use crate::text::{Color, Line, Style};

/// The most that are offered at once.
const MAX_OFFERS: usize = 8;

/// A command of the host's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// Name of the command, with the slash.
    pub name: &'static str,
    /// Arguments behind the name, such as `FILE [DIR]`; empty for none.
    pub arguments: &'static str,
    /// Description of what the command does.
    pub help: &'static str,
}

/// What is offered at the cursor.
#[derive(Debug, Default)]
pub(crate) struct CompletionList {
    /// Texts that are put in, each with its description.
    choices: Vec<(String, String)>,
    chosen: usize,
    /// Number of bytes before the cursor that are replaced.
    replaced: usize,
}

impl CompletionList {
    /// What there is for the text before the cursor.
    pub(crate) fn at(before: &str, commands: &[Command], files: &FileIndex) -> Option<Self> {
        let (choices, replaced) =
            if before.starts_with('/') && !before.contains(char::is_whitespace) {
                let fits = commands
                    .iter()
                    .filter(|command| command.name.starts_with(before));
                let told = |command: &Command| {
                    let text = match command.arguments {
                        "" => command.name.to_owned(),
                        _ => format!("{} ", command.name),
                    };
                    let help = match command.arguments {
                        "" => command.help.to_owned(),
                        arguments => format!("{arguments}: {}", command.help),
                    };
                    (text, help)
                };
                (fits.map(told).collect::<Vec<_>>(), before.len())
            } else {
                let letters = typed_mention(before)?;
                let fits = files.matching(letters);
                let told = fits.into_iter().map(|file| (mention(&file), String::new()));
                (told.collect(), letters.len() + 1)
            };
        (!choices.is_empty()).then_some(Self {
            choices,
            chosen: 0,
            replaced,
        })
    }

    /// What is chosen, and how many bytes before the cursor it replaces.
    pub(crate) fn chosen(&self) -> (&str, usize) {
        let text = self.choices.get(self.chosen).map_or("", |(text, _)| text);
        (text, self.replaced)
    }

    pub(crate) fn next(&mut self) {
        self.chosen = (self.chosen + 1) % self.choices.len().max(1);
    }

    pub(crate) fn previous(&mut self) {
        let count = self.choices.len().max(1);
        self.chosen = (self.chosen + count - 1) % count;
    }

    pub(crate) fn render(&self, columns: usize, most: usize) -> Vec<Line> {
        let most = most.clamp(1, MAX_OFFERS);
        let from = (self.chosen + 1).saturating_sub(most);
        let offered = self.choices.iter().enumerate().skip(from).take(most);
        let width = self
            .choices
            .iter()
            .map(|(text, _)| text.chars().count())
            .max();
        let width = width.unwrap_or_default().min(24);
        let lines = offered.map(|(at, (text, help))| {
            let style = if at == self.chosen {
                Style::of(Color::Cyan).bold()
            } else {
                Style::DIM
            };
            let mark = if at == self.chosen { "▸ " } else { "  " };
            Line::of(mark, style)
                .with(format!("{text:width$}"), style)
                .with(format!("  {help}"), Style::DIM)
                .truncate(columns)
        });
        let mut lines: Vec<Line> = lines.collect();
        let left = self.choices.len().saturating_sub(from + lines.len());
        if left > 0 {
            lines.push(Line::of(format!("  … {left} more"), Style::DIM));
        }
        lines
    }
}

/// What is typed of the name of a file behind an `@`; nothing where none is typed.
pub(crate) fn typed_mention(before: &str) -> Option<&str> {
    let word = before.rsplit(char::is_whitespace).next();
    word.unwrap_or_default().strip_prefix('@')
}

/// How a file is mentioned in a message.
fn mention(file: &str) -> String {
    if file.contains(char::is_whitespace) {
        format!("@\"{file}\" ")
    } else {
        format!("@{file} ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMMANDS: [Command; 2] = [
        Command {
            name: "/help",
            arguments: "",
            help: "this",
        },
        Command {
            name: "/model",
            arguments: "PROVIDER/MODEL",
            help: "another model",
        },
    ];

    #[tokio::test]
    async fn commands_and_files_are_offered_where_they_can_stand() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("src/deep")).unwrap();
        std::fs::create_dir_all(dir.path().join("target")).unwrap();
        for file in ["notes.txt", "src/deep/note.rs", "target/notes.o", ".hidden"] {
            std::fs::write(dir.path().join(file), "").unwrap();
        }
        std::fs::create_dir(dir.path().join(".git")).unwrap();
        std::fs::write(dir.path().join(".git/hidden"), "").unwrap();
        std::fs::write(dir.path().join(".gitignore"), "/target\n").unwrap();
        let mut files = FileIndex::below(dir.path().to_owned());
        files.start_scan("no");
        assert!(
            CompletionList::at("@no", &COMMANDS, &files).is_none(),
            "it looks aside"
        );
        files.finish_scan().await;
        // What is known stays while it is looked for again.
        files.forget();
        files.start_scan("no");
        let offered = |before: &str| {
            CompletionList::at(before, &COMMANDS, &files).map(|offer| {
                let texts = offer.choices.iter().map(|(text, _)| text.clone());
                texts.collect::<Vec<_>>()
            })
        };
        assert_eq!(offered("/m"), Some(vec!["/model ".to_owned()]));
        assert_eq!(offered("/model x"), None);
        assert_eq!(offered("look at /m"), None);
        let notes = vec!["@notes.txt ".to_owned(), "@src/deep/note.rs ".to_owned()];
        assert_eq!(offered("look at @no"), Some(notes));
        assert_eq!(offered("mail me@no"), None);
        assert_eq!(offered("@.h"), Some(vec!["@.hidden ".to_owned()]));
        assert_eq!(
            offered("@"),
            Some(vec![
                "@notes.txt ".to_owned(),
                "@src/deep/note.rs ".to_owned()
            ])
        );
    }
}
