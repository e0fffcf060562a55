//! What is in the archive of a skill folder, and what another version of it changes: files, tools that it
//! wants allowed, and what it says to a model. Shown to a person before it is taken.

use std::collections::BTreeMap;
use std::io::{Cursor, Read as _};

use conjure_core::skill_folder::SkillFolder;
use conjure_runtime::shortened_change;
use serde_json::{Value, json};

use super::line_difference::changed_lines;
use super::output;
use super::shorten::shorten;

/// What a model reads first.
const INSTRUCTIONS: &str = "SKILL.md";

/// The most bytes of the files of a skill: what such an archive may unpack to.
const LIMIT: u64 = 64 * 1024 * 1024;

/// The most lines of a difference, and the most characters of one, that are shown.
const LINES: usize = 400;
const LINE: usize = 2_000;

/// What is in a skill folder.
#[derive(Default)]
pub(crate) struct SkillContents {
    files: BTreeMap<String, SkillFile>,
    description: String,
    allowed_tools: Option<String>,
}

#[derive(PartialEq, Eq)]
struct SkillFile {
    bytes: Vec<u8>,
    is_executable: bool,
}

impl SkillContents {
    /// Reads an archive that was judged before.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn read(archive: &[u8]) -> Result<Self, String> {
        let unreadable = |error: &dyn std::fmt::Display| {
            format!("what is in the skill folder cannot be read: {error}")
        };
        let mut archive =
            zip::ZipArchive::new(Cursor::new(archive)).map_err(|error| unreadable(&error))?;
        let mut contents = Self::default();
        let mut left = LIMIT;
        for number in 0..archive.len() {
            let file = archive.by_index(number);
            let file = file.map_err(|error| unreadable(&error))?;
            let name = file.name().map_err(|error| unreadable(&error))?;
            let name = name.into_owned();
            // It has one folder, which is called as the skill is.
            let Some((folder, path)) = name.split_once('/') else {
                continue;
            };
            let (folder, path) = (folder.to_owned(), path.to_owned());
            let is_executable = file.unix_mode().is_some_and(|mode| mode & 0o111 != 0);
            let mut bytes = Vec::new();
            let read = file.take(left).read_to_end(&mut bytes);
            read.map_err(|error| unreadable(&error))?;
            left = left.saturating_sub(bytes.len() as u64);
            if path == INSTRUCTIONS
                && let Some(said) = SkillFolder::parse(&folder, &bytes).folder
            {
                contents.description = said.description;
                contents.allowed_tools = said.allowed_tools;
            }
            let file = SkillFile {
                bytes,
                is_executable,
            };
            contents.files.insert(path, file);
        }
        Ok(contents)
    }

    /// What is in it, a line each.
    pub(crate) fn lines(&self) -> Vec<String> {
        let files = self.files.iter().map(|(path, file)| {
            let size = output::size(file.bytes.len() as u64);
            match file.is_executable {
                true => format!("{path} ({size}, executable)"),
                false => format!("{path} ({size})"),
            }
        });
        let files: Vec<String> = files.collect();
        let tools = self.allowed_tools.as_ref();
        let tools = tools.map(|tools| format!("wants allowed: {}", shorten(tools, LINE)));
        let files = format!("files: {}", files.join(", "));
        tools.into_iter().chain([files]).collect()
    }

    /// For programs.
    pub(crate) fn json(&self) -> Value {
        let files = self.files.iter().map(|(path, file)| {
            json!({ "path": path, "size": file.bytes.len(), "executable": file.is_executable })
        });
        json!({
            "files": files.collect::<Vec<_>>(),
            "allowed_tools": self.allowed_tools,
        })
    }

    /// What is different from the version that is there.
    pub(crate) fn difference(&self, before: &Self) -> SkillDifference {
        let gone = before.files.keys();
        let gone = gone.filter(|path| !self.files.contains_key(*path));
        let mut difference = SkillDifference {
            removed: gone.cloned().collect(),
            ..SkillDifference::default()
        };
        for (path, file) in &self.files {
            match before.files.get(path) {
                None => difference.added.push(path.clone()),
                Some(known) if known != file => difference.changed.push(path.clone()),
                Some(_) => {}
            }
        }
        let said = [
            (
                "description",
                Some(&before.description),
                Some(&self.description),
            ),
            (
                "wants allowed",
                before.allowed_tools.as_ref(),
                self.allowed_tools.as_ref(),
            ),
        ];
        for (what, old, new) in said {
            if old == new {
                continue;
            }
            for (sign, text, other) in [('-', old, new), ('+', new, old)] {
                let other = other.map_or("", String::as_str);
                let shown = text.map(|text| shortened_change(text, other, LINE));
                let line = shown.map(|shown| format!("{what} {sign} {shown}"));
                difference.details.extend(line);
            }
        }
        let text = |of: &Self| {
            let file = of.files.get(INSTRUCTIONS);
            file.map(|file| String::from_utf8_lossy(&file.bytes).into_owned())
        };
        let (old, new) = (text(before), text(self));
        let changed = changed_lines(
            old.as_deref().unwrap_or_default(),
            new.as_deref().unwrap_or_default(),
        );
        let more = changed.len().saturating_sub(LINES);
        let shown = changed.iter().take(LINES);
        let shown = shown.map(|(sign, line)| {
            let other = closest_line(&changed, *sign, line);
            let shown = shortened_change(line, other, LINE);
            format!("{INSTRUCTIONS} {sign} {shown}")
        });
        difference.details.extend(shown);
        if more > 0 {
            let line = format!("{INSTRUCTIONS}: … and {more} lines more are other ones");
            difference.details.push(line);
        }
        difference
    }
}

/// Returns the changed line of the other side that begins most as this one does; empty where this one is
/// short enough to be shown as a whole.
fn closest_line<'a>(changed: &[(char, &'a str)], sign: char, line: &str) -> &'a str {
    if line.len() <= LINE {
        return "";
    }
    let same = |other: &str| {
        let both = other.bytes().zip(line.bytes());
        both.take_while(|(one, other)| one == other).count()
    };
    let others = changed.iter().filter(|(other, _)| *other != sign);
    let found = others.map(|(_, other)| *other).max_by_key(|it| same(it));
    found.unwrap_or_default()
}

/// What another version of a skill folder changes.
#[derive(Default)]
pub(crate) struct SkillDifference {
    added: Vec<String>,
    removed: Vec<String>,
    changed: Vec<String>,
    /// What it says otherwise, a line each.
    details: Vec<String>,
}

impl SkillDifference {
    /// For a person, a line each.
    pub(crate) fn lines(&self) -> Vec<String> {
        let parts = [
            ("new files", &self.added),
            ("files that are gone", &self.removed),
            ("files that differ", &self.changed),
        ];
        let parts = parts.into_iter().filter(|(_, list)| !list.is_empty());
        let lines = parts.map(|(what, list)| format!("{what}: {}", list.join(", ")));
        lines.collect()
    }

    /// What it says otherwise, a line each.
    pub(crate) fn details(&self) -> &[String] {
        &self.details
    }

    /// For programs.
    pub(crate) fn json(&self) -> Value {
        json!({
            "files": { "added": self.added, "removed": self.removed, "changed": self.changed },
            "details": self.details,
        })
    }
}

#[cfg(test)]
mod tests {
    use conjure_config::fs;
    use conjure_plugins::SkillArchive;

    use super::*;

    fn contents(files: &[(&str, &str)]) -> SkillContents {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("reports");
        for (name, text) in files {
            let path = folder.join(name);
            fs::create_private_dir(path.parent().unwrap()).unwrap();
            fs::write(&path, text).unwrap();
        }
        let archive = SkillArchive::read(&folder).unwrap();
        SkillContents::read(&archive.bytes).unwrap()
    }

    fn skill(tools: &str, body: &str) -> String {
        format!("---\nname: reports\ndescription: Writes\n{tools}---\n{body}")
    }

    #[test]
    fn what_another_version_changes_is_told() {
        let old = contents(&[
            ("SKILL.md", &skill("", "One.\nTwo.\nThree.\n")),
            ("gone.md", "x"),
            ("same.md", "x"),
            ("scripts/run.py", "print(1)"),
        ]);
        let new = contents(&[
            (
                "SKILL.md",
                &skill("allowed-tools: Bash(*)\n", "One.\nSend it.\nThree.\n"),
            ),
            ("new.md", "x"),
            ("same.md", "x"),
            ("scripts/run.py", "print(2)"),
        ]);
        let difference = new.difference(&old);
        assert_eq!(
            difference.lines(),
            [
                "new files: new.md",
                "files that are gone: gone.md",
                "files that differ: SKILL.md, scripts/run.py",
            ]
        );
        assert_eq!(
            difference.details(),
            [
                "wants allowed + Bash(*)",
                "SKILL.md + allowed-tools: Bash(*)",
                "SKILL.md - Two.",
                "SKILL.md + Send it.",
            ]
        );
        assert_eq!(difference.json()["files"]["added"][0], "new.md");
        let lines = new.lines();
        assert!(lines[0].contains("Bash(*)"), "{lines:?}");
        assert!(lines[1].contains("scripts/run.py"), "{lines:?}");
        assert_eq!(new.difference(&new).lines(), [""; 0]);
        assert!(new.difference(&new).details().is_empty());
    }
    #[test]
    fn a_change_behind_a_long_beginning_is_shown() {
        let long = "Write the report. ".repeat(300);
        let of = |end: &str, tools: &str| {
            let description = format!("{}{end}", "Writes ".repeat(100));
            let text = format!(
                "---\nname: reports\ndescription: {description}\nallowed-tools: {tools}\n---\nOne.\n\
                 {long}{end}\n"
            );
            contents(&[("SKILL.md", &text)])
        };
        let tools = "Read ".repeat(600);
        let old = of("that", &format!("{tools}Glob"));
        let new = of("and send it", &format!("{tools}Bash(*)"));
        let details = new.difference(&old).details().to_vec();
        let has = |begin: &str, end: &str| {
            let mut lines = details.iter();
            lines.any(|line| line.starts_with(begin) && line.ends_with(end))
        };
        assert!(has("wants allowed +", "Bash(*)"), "{details:?}");
        assert!(has("SKILL.md +", "report. and send it"), "{details:?}");
        assert!(has("SKILL.md -", "report. that"), "{details:?}");
    }
}
