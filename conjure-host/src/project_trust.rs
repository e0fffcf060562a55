//! Which projects a person trusts, so that their skill folders are used.
//!
//! Trust is in what was there when it was given: a digest over every file of the project's skills.
//! When something of that changes, the person is asked again. Nothing of a project is parsed
//! here; its skills are known by the names of their directories.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use crate::skill_folders;

/// The most bytes of a project's skills.
const MOST_BYTES: u64 = 256 * 1024 * 1024;
/// The most files and directories of them.
const MOST_FILES: usize = 20_000;
/// The file in the directory of data.
const FILE: &str = "trusted.json";

/// The skill folders that a project brings, unread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProjectSkills {
    /// Their directories.
    pub dirs: Vec<PathBuf>,
    /// SHA-256 over the paths, kinds, modes and contents of all their files, in lower-case hex.
    pub digest: String,
}

/// How a project stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// It is trusted as it is.
    Trusted,
    /// It was trusted, and its skills are others now.
    Changed,
    /// Nobody trusted it.
    Unknown,
}

/// Why a project cannot be trusted.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    /// The file system says no.
    #[error("the project's skills cannot be looked at: {0}")]
    Io(#[from] std::io::Error),
    /// There is more than anybody looks at.
    #[error(
        "the project's skills are more than {MOST_FILES} files or {MOST_BYTES} bytes: too much to \
         be trusted; name the folders that are meant with `--skill`"
    )]
    TooMuch,
}

impl ProjectSkills {
    /// Looks at a project.
    ///
    /// # Errors
    /// [`TrustError`].
    pub fn of(project: &Path) -> Result<Self, TrustError> {
        let dirs = skill_folders::project_folders(project);
        let mut content = Content::default();
        for dir in &dirs {
            content.add(project, dir)?;
        }
        let digest = content.hash.finalize();
        Ok(Self {
            dirs,
            digest: digest.iter().map(|byte| format!("{byte:02x}")).collect(),
        })
    }

    /// The names of their directories.
    pub fn names(&self) -> impl Iterator<Item = String> {
        let names = self.dirs.iter().filter_map(|dir| dir.file_name());
        names.map(|name| name.to_string_lossy().into_owned())
    }
}

/// What is hashed, and how much it was.
#[derive(Default)]
struct Content {
    hash: Sha256,
    bytes: u64,
    files: usize,
}

impl Content {
    fn add(&mut self, project: &Path, path: &Path) -> Result<(), TrustError> {
        let mut waiting = vec![path.to_owned()];
        while let Some(path) = waiting.pop() {
            self.files += 1;
            if self.files > MOST_FILES {
                return Err(TrustError::TooMuch);
            }
            let found = path.symlink_metadata()?;
            let relative = path.strip_prefix(project).unwrap_or(&path);
            self.field(relative.as_os_str().as_encoded_bytes());
            if found.is_symlink() {
                self.field(b"link");
                let target = crate::fs::read_link(&path)?;
                self.field(target.as_os_str().as_encoded_bytes());
                // What it leads to is used as if it were there.
                if path.is_file() {
                    self.file(&path)?;
                }
            } else if found.is_dir() {
                self.field(b"directory");
                let entries = crate::fs::entries(&path)?;
                waiting.extend(entries.into_iter().rev());
            } else if found.is_file() {
                let is_executable = std::os::unix::fs::MetadataExt::mode(&found) & 0o111 != 0;
                self.field(if is_executable { b"program" } else { b"file" });
                self.file(&path)?;
            } else {
                // A pipe or a device is never read.
                self.field(b"other");
            }
        }
        Ok(())
    }

    /// A field with its length, so that no two lists of fields are the same bytes.
    fn field(&mut self, bytes: &[u8]) {
        self.hash.update((bytes.len() as u64).to_le_bytes());
        self.hash.update(bytes);
    }

    fn file(&mut self, path: &Path) -> Result<(), TrustError> {
        let mut file = crate::fs::open(path)?.take(MOST_BYTES - self.bytes + 1);
        let mut of_file = Sha256::new();
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let read = file.read(&mut buffer)?;
            if read == 0 {
                break;
            }
            self.bytes += read as u64;
            of_file.update(buffer.get(..read).unwrap_or_default());
        }
        if self.bytes > MOST_BYTES {
            return Err(TrustError::TooMuch);
        }
        self.field(&of_file.finalize());
        Ok(())
    }
}

/// The projects that are trusted, each with the digest of what was there.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TrustedProjects {
    file: PathBuf,
    projects: BTreeMap<PathBuf, String>,
}

impl TrustedProjects {
    /// Those of a directory of data. A file of another form, such as a list without digests, trusts
    /// nothing.
    #[must_use]
    pub fn read(data_dir: &Path) -> Self {
        let file = data_dir.join(FILE);
        let projects = crate::fs::read(&file)
            .ok()
            .and_then(|bytes| serde_json::from_slice(&bytes).ok())
            .unwrap_or_default();
        Self { file, projects }
    }

    /// How a project stands with these skills.
    #[must_use]
    pub fn standing(&self, project: &Path, skills: &ProjectSkills) -> Standing {
        match self.projects.get(project) {
            Some(digest) if *digest == skills.digest => Standing::Trusted,
            Some(_) => Standing::Changed,
            None => Standing::Unknown,
        }
    }

    /// Trusts a project with these skills.
    ///
    /// # Errors
    /// The file system's.
    pub fn trust(&mut self, project: &Path, skills: &ProjectSkills) -> std::io::Result<()> {
        let digest = skills.digest.clone();
        self.projects.insert(project.to_owned(), digest);
        self.write()
    }

    /// Trusts a project no more.
    ///
    /// # Errors
    /// The file system's.
    pub fn forget(&mut self, project: &Path) -> std::io::Result<()> {
        self.projects.remove(project);
        self.write()
    }

    /// The projects, each with the digest of its skills.
    #[must_use]
    pub fn projects(&self) -> &BTreeMap<PathBuf, String> {
        &self.projects
    }

    fn write(&self) -> std::io::Result<()> {
        if let Some(dir) = self.file.parent() {
            crate::fs::create_private_dir(dir)?;
        }
        let bytes = serde_json::to_vec_pretty(&self.projects).map_err(std::io::Error::other)?;
        crate::fs::write_atomic(&self.file, &bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn project() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let skill = dir.path().join(".agents/skills/one");
        std::fs::create_dir_all(skill.join("scripts")).unwrap();
        std::fs::write(skill.join("SKILL.md"), "---\n[[[[[[[[ never parsed").unwrap();
        std::fs::write(skill.join("scripts/run.sh"), "echo one").unwrap();
        (dir, skill)
    }

    #[test]
    fn trust_ends_with_any_change_of_what_was_shown() {
        let (dir, skill) = project();
        let data = tempfile::tempdir().unwrap();
        let look = || ProjectSkills::of(dir.path()).unwrap();
        let first = look();
        assert_eq!(first.names().collect::<Vec<_>>(), ["one"]);
        let mut trusted = TrustedProjects::read(data.path());
        assert_eq!(trusted.standing(dir.path(), &first), Standing::Unknown);
        trusted.trust(dir.path(), &first).unwrap();
        let stands = || TrustedProjects::read(data.path()).standing(dir.path(), &look());
        assert_eq!(stands(), Standing::Trusted);
        let script = skill.join("scripts/run.sh");
        let changes: [&dyn Fn(); 5] = [
            &|| std::fs::write(&script, "echo two").unwrap(),
            &|| {
                let mode = std::fs::Permissions::from_mode(0o755);
                std::fs::set_permissions(&script, mode).unwrap();
            },
            &|| std::fs::write(skill.join("more"), "").unwrap(),
            &|| std::os::unix::fs::symlink("/etc/hostname", skill.join("link")).unwrap(),
            &|| {
                let another = dir.path().join(".claude/skills/two");
                std::fs::create_dir_all(&another).unwrap();
                std::fs::write(another.join("SKILL.md"), "").unwrap();
            },
        ];
        for (number, change) in changes.into_iter().enumerate() {
            change();
            assert_eq!(stands(), Standing::Changed, "change {number}");
            trusted.trust(dir.path(), &look()).unwrap();
            assert_eq!(stands(), Standing::Trusted, "change {number}");
        }
        trusted.forget(dir.path()).unwrap();
        assert_eq!(stands(), Standing::Unknown);
    }

    #[test]
    fn a_list_of_projects_without_digests_trusts_nothing() {
        let (dir, _) = project();
        let data = tempfile::tempdir().unwrap();
        let old = serde_json::to_string(&[dir.path()]).unwrap();
        std::fs::write(data.path().join(FILE), old).unwrap();
        let skills = ProjectSkills::of(dir.path()).unwrap();
        let trusted = TrustedProjects::read(data.path());
        assert_eq!(trusted.standing(dir.path(), &skills), Standing::Unknown);
    }
}
