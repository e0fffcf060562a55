//! What can be typed next: the host's commands behind `/`, the files of the directory behind `@`.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use conjure_config::fs;
use tokio::task::JoinHandle;

use crate::text::{Color, Line, Style};

/// The most entries that are looked at for files, directories among them.
const MOST_ENTRIES: usize = 20_000;
/// The most that are offered at once.
const MOST_OFFERED: usize = 8;
/// Directories that nobody means.
const LEFT_OUT: [&str; 5] = ["target", "node_modules", "__pycache__", "venv", ".git"];

/// A command of the host's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// Its name, with the slash.
    pub name: &'static str,
    /// What follows it, such as `FILE [DIR]`; empty for nothing.
    pub arguments: &'static str,
    /// What it does.
    pub help: &'static str,
}

/// What is offered at the cursor.
#[derive(Debug, Default)]
pub(crate) struct CompletionList {
    /// What is put in, and what is said of it.
    choices: Vec<(String, String)>,
    chosen: usize,
    /// How many bytes before the cursor are replaced.
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
                let word = before
                    .rsplit(char::is_whitespace)
                    .next()
                    .unwrap_or_default();
                let letters = word.strip_prefix('@')?;
                let fits = files.that_fit(letters);
                let told = fits.into_iter().map(|file| (mention(&file), String::new()));
                (told.collect(), word.len())
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
        let most = most.clamp(1, MOST_OFFERED);
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
                .cut(columns)
        });
        let mut lines: Vec<Line> = lines.collect();
        let left = self.choices.len().saturating_sub(from + lines.len());
        if left > 0 {
            lines.push(Line::of(format!("  … {left} more"), Style::DIM));
        }
        lines
    }
}

/// How a file is mentioned in a message.
fn mention(file: &str) -> String {
    if file.contains(char::is_whitespace) {
        format!("@\"{file}\" ")
    } else {
        format!("@{file} ")
    }
}

/// The files below a directory, looked for at first use, aside: a tree may be large and a disk slow.
#[derive(Debug)]
pub(crate) struct FileIndex {
    dir: PathBuf,
    found: Vec<String>,
    /// Whether there may be others by now.
    is_stale: bool,
    looking: Option<JoinHandle<Vec<String>>>,
}

impl FileIndex {
    pub(crate) fn below(dir: PathBuf) -> Self {
        Self {
            dir,
            found: Vec::new(),
            is_stale: true,
            looking: None,
        }
    }

    /// Looks again at next use: a turn may have made some. Until then those that are known are there.
    pub(crate) fn forget(&mut self) {
        self.is_stale = true;
    }

    /// Begins to look where that is needed.
    pub(crate) fn look_aside(&mut self) {
        if self.looking.is_none() && std::mem::take(&mut self.is_stale) {
            let dir = self.dir.clone();
            self.looking = Some(tokio::task::spawn_blocking(move || look(&dir)));
        }
    }

    /// Waits until it has looked; for ever where it does not.
    pub(crate) async fn looked(&mut self) {
        let Some(looking) = &mut self.looking else {
            return std::future::pending().await;
        };
        if let Ok(found) = looking.await {
            self.found = found;
        }
        self.looking = None;
    }

    /// Those that have these letters, in their order; names that begin with them first. Hidden ones
    /// only for letters that begin a name with a dot.
    fn that_fit(&self, letters: &str) -> Vec<String> {
        let letters = letters.to_lowercase();
        let wants_hidden = is_hidden(&letters);
        let mut fitting: Vec<(u8, usize, &String)> = self
            .found
            .iter()
            .filter(|file| wants_hidden || !is_hidden(file))
            .filter_map(|file| Some((rank(file, &letters)?, file.len(), file)))
            .collect();
        fitting.sort();
        let fitting = fitting.into_iter().take(50);
        fitting.map(|(_, _, file)| file.clone()).collect()
    }
}

/// Whether a name on the path begins with a dot.
fn is_hidden(path: &str) -> bool {
    path.split('/').any(|name| name.starts_with('.'))
}

fn rank(file: &str, letters: &str) -> Option<u8> {
    let file = file.to_lowercase();
    let name = file
        .trim_end_matches('/')
        .rsplit('/')
        .next()
        .unwrap_or_default();
    if file.starts_with(letters) {
        return Some(0);
    }
    if name.starts_with(letters) {
        return Some(1);
    }
    if file.contains(letters) {
        return Some(2);
    }
    let mut rest = file.chars();
    letters
        .chars()
        .all(|c| rest.any(|other| other == c))
        .then_some(3)
}

/// The files below a directory, breadth first, those in hidden directories last.
fn look(dir: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut looked_at = 0;
    let mut dirs = VecDeque::from([(dir.to_owned(), String::new())]);
    let mut hidden = VecDeque::new();
    while let Some((dir, prefix)) = dirs.pop_front().or_else(|| hidden.pop_front()) {
        let mut entries = fs::entries(&dir).unwrap_or_default();
        entries.sort();
        for entry in entries {
            looked_at += 1;
            if looked_at > MOST_ENTRIES {
                return found;
            }
            let Some(name) = entry.file_name().and_then(|name| name.to_str()) else {
                continue;
            };
            if LEFT_OUT.contains(&name) {
                continue;
            }
            let is_link = fs::read_link(&entry).is_ok();
            if is_link || !fs::is_dir(&entry).unwrap_or(false) {
                found.push(format!("{prefix}{name}"));
                continue;
            }
            let below = format!("{prefix}{name}/");
            let later = if is_hidden(&below) {
                &mut hidden
            } else {
                &mut dirs
            };
            later.push_back((entry, below));
        }
    }
    found
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
        let mut files = FileIndex::below(dir.path().to_owned());
        files.look_aside();
        assert!(
            CompletionList::at("@no", &COMMANDS, &files).is_none(),
            "it looks aside"
        );
        files.looked().await;
        // What is known stays while it is looked for again.
        files.forget();
        files.look_aside();
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
