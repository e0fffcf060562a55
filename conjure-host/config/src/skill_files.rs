//! What belongs to a skill folder, and what lies in its directory and is not taken along.

use std::fmt;
use std::path::Path;

use conjure_core::skill_folder::discovery::{MAX_DEPTH, MAX_DIRECTORIES, RootWalk, WalkStep};

/// The files of a skill folder beside `SKILL.md`.
#[derive(Default)]
pub(crate) struct FolderFiles {
    /// Relative paths, sorted, `/` between components.
    pub(crate) resources: Vec<String>,
    /// Relative paths of what is not taken along, sorted, each with the reason.
    pub(crate) skipped: Vec<SkippedFile>,
}

/// A file or directory of a skill folder that is not taken along. Shown as `path (reason)`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct SkippedFile {
    /// Relative path, `/` between components.
    pub path: String,
    /// Rule that leaves it out, such as `hidden`.
    pub reason: String,
}

impl fmt::Display for SkippedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.path, self.reason)
    }
}

impl FolderFiles {
    /// What is in a skill's directory, in directories below it too.
    pub(crate) fn of(dir: &Path) -> Self {
        let mut files = Self::default();
        let mut walk = RootWalk::default();
        let mut waiting = vec![(dir.to_owned(), 0)];
        while let Some((current, depth)) = waiting.pop() {
            let Ok(entries) = crate::fs::entries(&current) else {
                continue;
            };
            for path in entries {
                let Ok(relative) = path.strip_prefix(dir) else {
                    continue;
                };
                let relative = relative.to_string_lossy().replace('\\', "/");
                match judge_entry(dir, &path, depth, &mut walk) {
                    FolderEntry::File => files.resources.push(relative),
                    FolderEntry::Dir => waiting.push((path, depth + 1)),
                    FolderEntry::Instructions => {}
                    FolderEntry::Skipped(reason) => {
                        files.skipped.push(SkippedFile {
                            path: relative,
                            reason,
                        });
                    }
                }
            }
        }
        files.resources.sort();
        files.skipped.sort();
        files
    }
}

/// What something in a skill's directory is to the skill.
enum FolderEntry {
    /// A file that belongs to the skill.
    File,
    /// A directory whose files do.
    Dir,
    /// The skill's `SKILL.md`.
    Instructions,
    /// Nothing, for this reason.
    Skipped(String),
}

/// Judges what lies `depth` levels below a skill's directory.
fn judge_entry(skill: &Path, path: &Path, depth: usize, walk: &mut RootWalk) -> FolderEntry {
    let left_out = |reason: &str| FolderEntry::Skipped(reason.to_owned());
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    if name.starts_with('.') {
        return left_out("hidden");
    }
    if !path
        .canonicalize()
        .is_ok_and(|real| real.starts_with(skill))
    {
        return left_out("a link that leads out of the skill, or nowhere");
    }
    if path.is_file() {
        return match depth == 0 && name == "SKILL.md" {
            true => FolderEntry::Instructions,
            false => FolderEntry::File,
        };
    }
    if !path.is_dir() {
        return left_out("neither a file nor a directory");
    }
    if path.is_symlink() {
        return left_out("a link to a directory");
    }
    match walk.step(&name, depth + 1) {
        WalkStep::Enter => FolderEntry::Dir,
        WalkStep::Skip => left_out("a directory of that name is not taken along"),
        WalkStep::TooDeep => FolderEntry::Skipped(format!("more than {MAX_DEPTH} levels deep")),
        WalkStep::Full => {
            FolderEntry::Skipped(format!("there are more than {MAX_DIRECTORIES} directories"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_taken_along_is_said() {
        let dir = tempfile::tempdir().unwrap();
        let skill = dir.path().join("packed");
        let deep = skill.join("1/2/3/4/5/6/7");
        std::fs::create_dir_all(&deep).unwrap();
        std::fs::create_dir_all(skill.join("node_modules/left-pad")).unwrap();
        let text = "---\nname: packed\ndescription: Does things\n---\n";
        for name in [
            "SKILL.md",
            "run.py",
            ".env",
            "1/SKILL.md",
            "1/2/3/4/5/6/there.txt",
        ] {
            std::fs::write(skill.join(name), text).unwrap();
        }
        std::os::unix::fs::symlink("/etc/hostname", skill.join("host")).unwrap();
        std::os::unix::fs::symlink("1", skill.join("one")).unwrap();
        let loaded = FolderFiles::of(&skill.canonicalize().unwrap());
        let files = ["1/2/3/4/5/6/there.txt", "1/SKILL.md", "run.py"];
        assert_eq!(loaded.resources, files);
        let left_out = [
            ".env (hidden)",
            "1/2/3/4/5/6/7 (more than 6 levels deep)",
            "host (a link that leads out of the skill, or nowhere)",
            "node_modules (a directory of that name is not taken along)",
            "one (a link to a directory)",
        ];
        let said: Vec<String> = loaded.skipped.iter().map(SkippedFile::to_string).collect();
        assert_eq!(said, left_out);
    }
}
