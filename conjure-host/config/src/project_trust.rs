//! Projects that a person trusts, so that their skill folders are used.
//!
//! Trust is in what was there when it was given: a digest over every file of the project's skills,
//! and over what links among them lead to, which has to be in the project too. When something of
//! that changes, the person is asked again. Nothing of a project is parsed here; its skills are
//! known by the names of their directories.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io::ErrorKind;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use sha2::{Digest as _, Sha256};

use crate::skill_folders;

/// The most bytes of a project's skills.
const MOST_BYTES: u64 = 256 * 1024 * 1024;
/// The most files and directories of them.
const MOST_FILES: usize = 20_000;
/// What a digest begins with where it is shown.
const ALGORITHM: &str = "sha256:";
/// How many hex digits a digest has. All are written: two contents whose digests begin alike are found at will.
const DIGITS: usize = 64;
/// The file in the directory of data, and the one that is locked while it changes.
const FILE: &str = "trusted.json";
const LOCK: &str = "trusted.lock";

/// The skill folders that a project brings, unread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProjectSkills {
    /// Directories of the skill folders.
    pub dirs: Vec<PathBuf>,
    /// SHA-256 over the paths, kinds, modes and contents of all their files, in lower-case hex.
    pub digest: String,
}

/// The digest of a project's skills: the content that somebody means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkillsDigest(String);

/// A text that is no digest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{}` is no digest: write `{ALGORITHM}` and the {DIGITS} hex digits that `conjure skill list` shows",
    text.escape_debug()
)]
pub struct SkillsDigestError {
    /// The text.
    pub text: String,
}

/// Whether a project is trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrustState {
    /// The project is trusted as it is.
    Trusted,
    /// The project was trusted, and its skills are others now.
    Changed,
    /// Nobody trusted the project.
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
    /// What a link leads to could be changed by whoever has nothing to do with the project.
    #[error(
        "`{}` leads out of the project, to `{}`: what is there is nobody's to trust with it. Put \
         the files themselves into the project, or name the folder that is meant with `--skill`",
        link.display(), target.display()
    )]
    LeadsOutside {
        /// What leads there.
        link: PathBuf,
        /// Path that the link leads to.
        target: PathBuf,
    },
    /// A pipe or a device.
    #[error("`{}` is neither a file nor a directory: remove it from the skill", path.display())]
    NoFile {
        /// Path of the pipe or device.
        path: PathBuf,
    },
}

impl ProjectSkills {
    /// Looks at a project.
    ///
    /// # Errors
    /// [`TrustError`].
    pub fn of(project: &Path) -> Result<Self, TrustError> {
        let dirs = skill_folders::project_folders(project);
        let mut content = ContentHasher {
            project: project.canonicalize()?,
            hash: Sha256::new(),
            bytes: 0,
            visited: BTreeSet::new(),
        };
        for dir in &dirs {
            content.add(project, dir)?;
        }
        let digest = content.hash.finalize();
        Ok(Self {
            dirs,
            digest: digest.iter().map(|byte| format!("{byte:02x}")).collect(),
        })
    }

    /// The digest as it is shown, and as [`SkillsDigest`] is read.
    #[must_use]
    pub fn digest_text(&self) -> String {
        format!("{ALGORITHM}{}", self.digest)
    }

    /// Whether they are the content that somebody means.
    #[must_use]
    pub fn matches(&self, meant: &SkillsDigest) -> bool {
        self.digest == meant.0
    }

    /// The names of their directories.
    pub fn names(&self) -> impl Iterator<Item = String> {
        let names = self.dirs.iter().filter_map(|dir| dir.file_name());
        names.map(|name| name.to_string_lossy().into_owned())
    }
}

impl FromStr for SkillsDigest {
    type Err = SkillsDigestError;

    fn from_str(text: &str) -> Result<Self, SkillsDigestError> {
        let is_digest = |digits: &&str| {
            digits.len() == DIGITS && digits.bytes().all(|digit| digit.is_ascii_hexdigit())
        };
        let digits = text.trim().strip_prefix(ALGORITHM).filter(is_digest);
        let digits = digits.ok_or_else(|| SkillsDigestError {
            text: text.to_owned(),
        })?;
        Ok(Self(digits.to_ascii_lowercase()))
    }
}

impl fmt::Display for SkillsDigest {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{ALGORITHM}{}", self.0)
    }
}

/// What is hashed, and how much it was.
struct ContentHasher {
    /// Without any link in it.
    project: PathBuf,
    hash: Sha256,
    bytes: u64,
    /// What was hashed already, by its path without any link in it, so that no link leads round.
    visited: BTreeSet<PathBuf>,
}

impl ContentHasher {
    /// Adds the directory of a skill, by the way that leads there.
    fn add(&mut self, project: &Path, dir: &Path) -> Result<(), TrustError> {
        let named = dir.strip_prefix(project).unwrap_or(dir);
        self.field(named.as_os_str().as_encoded_bytes());
        let mut waiting = vec![self.resolve_inside(dir)?];
        while let Some(path) = waiting.pop() {
            if !self.visited.insert(path.clone()) {
                continue;
            }
            if self.visited.len() > MOST_FILES {
                return Err(TrustError::TooMuch);
            }
            let found = path.symlink_metadata()?;
            let relative = path.strip_prefix(&self.project).unwrap_or(&path);
            let relative = relative.as_os_str().as_encoded_bytes().to_owned();
            self.field(&relative);
            if found.is_symlink() {
                self.field(b"link");
                let target = crate::fs::read_link(&path)?;
                self.field(target.as_os_str().as_encoded_bytes());
                match self.resolve_inside(&path) {
                    // What it leads to is used as if it were there.
                    Ok(real) => waiting.push(real),
                    Err(TrustError::Io(error)) if error.kind() == ErrorKind::NotFound => {}
                    Err(error) => return Err(error),
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
                return Err(TrustError::NoFile { path });
            }
        }
        Ok(())
    }

    /// Where a path leads, which is in the project.
    fn resolve_inside(&self, path: &Path) -> Result<PathBuf, TrustError> {
        let real = path.canonicalize()?;
        if real.starts_with(&self.project) {
            return Ok(real);
        }
        Err(TrustError::LeadsOutside {
            link: path.to_owned(),
            target: real,
        })
    }

    /// A field with its length, so that no two lists of fields are the same bytes.
    fn field(&mut self, bytes: &[u8]) {
        self.hash.update((bytes.len() as u64).to_le_bytes());
        self.hash.update(bytes);
    }

    fn file(&mut self, path: &Path) -> Result<(), TrustError> {
        let (file, ..) = crate::fs::open_no_follow(path)?;
        let mut file = file.take(MOST_BYTES - self.bytes + 1);
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
    /// Reads the trusted projects of a directory of data. A file of another form, such as a list without
    /// digests, trusts nothing.
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
    pub fn state(&self, project: &Path, skills: &ProjectSkills) -> TrustState {
        match self.projects.get(project) {
            Some(digest) if *digest == skills.digest => TrustState::Trusted,
            Some(_) => TrustState::Changed,
            None => TrustState::Unknown,
        }
    }

    /// Trusts a project with these skills.
    ///
    /// # Errors
    /// The file system's.
    pub fn trust(&mut self, project: &Path, skills: &ProjectSkills) -> std::io::Result<()> {
        let digest = skills.digest.clone();
        self.change(|projects| {
            projects.insert(project.to_owned(), digest);
        })
    }

    /// Trusts a project no more.
    ///
    /// # Errors
    /// The file system's.
    pub fn forget(&mut self, project: &Path) -> std::io::Result<()> {
        self.change(|projects| {
            projects.remove(project);
        })
    }

    /// The projects, each with the digest of its skills.
    #[must_use]
    pub fn projects(&self) -> &BTreeMap<PathBuf, String> {
        &self.projects
    }

    /// Changes what is there now: another process may have changed it since it was read.
    fn change(
        &mut self,
        change: impl FnOnce(&mut BTreeMap<PathBuf, String>),
    ) -> std::io::Result<()> {
        let dir = self.file.parent().unwrap_or(Path::new("")).to_owned();
        crate::fs::create_private_dir(&dir)?;
        let _locked = crate::fs::lock(dir.join(LOCK))?;
        *self = Self::read(&dir);
        change(&mut self.projects);
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
        assert_eq!(trusted.state(dir.path(), &first), TrustState::Unknown);
        trusted.trust(dir.path(), &first).unwrap();
        let stands = || TrustedProjects::read(data.path()).state(dir.path(), &look());
        assert_eq!(stands(), TrustState::Trusted);
        let script = skill.join("scripts/run.sh");
        let changes: [&dyn Fn(); 5] = [
            &|| std::fs::write(&script, "echo two").unwrap(),
            &|| {
                let mode = std::fs::Permissions::from_mode(0o755);
                std::fs::set_permissions(&script, mode).unwrap();
            },
            &|| std::fs::write(skill.join("more"), "").unwrap(),
            &|| std::os::unix::fs::symlink("scripts/run.sh", skill.join("link")).unwrap(),
            &|| {
                let another = dir.path().join(".claude/skills/two");
                std::fs::create_dir_all(&another).unwrap();
                std::fs::write(another.join("SKILL.md"), "").unwrap();
            },
        ];
        for (number, change) in changes.into_iter().enumerate() {
            change();
            assert_eq!(stands(), TrustState::Changed, "change {number}");
            trusted.trust(dir.path(), &look()).unwrap();
            assert_eq!(stands(), TrustState::Trusted, "change {number}");
        }
        trusted.forget(dir.path()).unwrap();
        assert_eq!(stands(), TrustState::Unknown);
    }

    #[test]
    fn a_digest_says_which_content_is_meant() {
        let (dir, skill) = project();
        let skills = ProjectSkills::of(dir.path()).unwrap();
        let shown = skills.digest_text();
        let meant = |text: &str| text.parse::<SkillsDigest>();
        assert_eq!(meant(&shown).unwrap().to_string(), shown);
        let written = [shown.as_str(), &format!(" {shown}\n")];
        let named: Vec<_> = written.iter().map(|text| meant(text).unwrap()).collect();
        assert!(named.iter().all(|digest| skills.matches(digest)));
        let upper = format!("{ALGORITHM}{}", skills.digest.to_ascii_uppercase());
        assert!(skills.matches(&meant(&upper).unwrap()));
        std::fs::write(skill.join("more"), "").unwrap();
        let changed = ProjectSkills::of(dir.path()).unwrap();
        assert!(!named.iter().any(|digest| changed.matches(digest)));
        let short = &shown[..shown.len() - 1];
        let long = format!("{shown}0");
        let no_digit = format!("{short}g");
        for wrong in ["", ALGORITHM, &skills.digest, short, &long, &no_digit] {
            assert!(meant(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn trust_is_in_what_links_lead_to() {
        let (dir, skill) = project();
        let write = |path: &str, text: &str| {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("tools/two/SKILL.md", "two");
        write("shared/run.sh", "echo");
        write("shared/deep/more.sh", "echo");
        let link = |target: &str, at: &Path| std::os::unix::fs::symlink(target, at).unwrap();
        let two = skill.parent().unwrap().join("two");
        link("../../tools/two", &two);
        link("../../../shared", &skill.join("shared"));
        // A link that leads round ends, and one that leads nowhere is only that.
        link("../shared", &dir.path().join("shared/round"));
        link("nowhere", &skill.join("gone"));
        let look = || ProjectSkills::of(dir.path()).unwrap().digest;
        for path in ["tools/two/SKILL.md", "shared/run.sh", "shared/deep/more.sh"] {
            let before = look();
            assert_eq!(look(), before);
            write(path, "other");
            assert_ne!(look(), before, "{path}");
        }
    }

    #[test]
    fn a_link_that_leads_outside_and_a_pipe_are_refused() {
        let (dir, skill) = project();
        let elsewhere = tempfile::tempdir().unwrap();
        std::fs::write(elsewhere.path().join("SKILL.md"), "x").unwrap();
        let file = elsewhere.path().join("SKILL.md");
        let another = skill.parent().unwrap().join("another");
        let places = [
            (elsewhere.path(), skill.join("link")),
            (file.as_path(), skill.join("link")),
            (elsewhere.path(), another),
            (Path::new("/proc/kmsg"), skill.join("link")),
        ];
        for (target, link) in places {
            std::os::unix::fs::symlink(target, &link).unwrap();
            let refused = ProjectSkills::of(dir.path()).unwrap_err();
            std::fs::remove_file(&link).unwrap();
            if target.exists() {
                let is = matches!(refused, TrustError::LeadsOutside { .. });
                assert!(is, "{}: {refused}", link.display());
            }
        }
        ProjectSkills::of(dir.path()).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(skill.join("socket")).unwrap();
        let refused = ProjectSkills::of(dir.path()).unwrap_err();
        assert!(matches!(refused, TrustError::NoFile { .. }), "{refused}");
    }

    #[test]
    fn projects_that_are_trusted_at_the_same_time_are_all_trusted() {
        let data = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let (dir, _) = project();
                    let skills = ProjectSkills::of(dir.path()).unwrap();
                    let mut trusted = TrustedProjects::read(data.path());
                    trusted.trust(dir.path(), &skills).unwrap();
                });
            }
        });
        assert_eq!(TrustedProjects::read(data.path()).projects().len(), 8);
    }

    #[test]
    fn a_list_of_projects_without_digests_trusts_nothing() {
        let (dir, _) = project();
        let data = tempfile::tempdir().unwrap();
        let old = serde_json::to_string(&[dir.path()]).unwrap();
        std::fs::write(data.path().join(FILE), old).unwrap();
        let skills = ProjectSkills::of(dir.path()).unwrap();
        let trusted = TrustedProjects::read(data.path());
        assert_eq!(trusted.state(dir.path(), &skills), TrustState::Unknown);
    }
}
