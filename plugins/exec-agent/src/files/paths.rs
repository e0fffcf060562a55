//! Paths that a call may touch, and how one becomes a place inside a root.
//!
//! A path is resolved first, links and all, and must end up inside a root. Opening then walks
//! from the root through directory handles and follows no link, so that a path which changes in
//! between is refused instead of followed.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::io::{self, ErrorKind};
use std::path::{Component, Path, PathBuf};

use super::resolved_skill_dirs::ResolvedSkillDirs;
use crate::error::{AgentError, Result};

/// The directories of one call.
#[derive(Debug)]
pub struct CallRoots {
    /// The first is the working directory.
    roots: Vec<AllowedRoot>,
    working: AllowedRoot,
    /// Parts of the roots that nobody reads or writes, without links in their paths.
    private: Vec<PathBuf>,
}

/// A directory that paths may be in.
#[derive(Debug, Clone)]
struct AllowedRoot {
    /// Path as the host gave it, which results use.
    display: PathBuf,
    /// Without any link in it.
    real: PathBuf,
    kind: RootKind,
}

/// Purpose of a directory in the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RootKind {
    /// The session's working directory.
    Working,
    /// A skill's folder, read only.
    Skill,
    /// The directory through which large payloads cross.
    Exchange,
}

/// A path below a root. It need not exist.
#[derive(Debug)]
pub struct RootedPath {
    root: AllowedRoot,
    /// From the root, only plain components; empty for the root itself.
    relative: PathBuf,
    /// The path as the model wrote it.
    requested: String,
}

impl CallRoots {
    /// The working directory, the folders of skills, and the exchange directory, as they lead now.
    ///
    /// # Errors
    /// When the working directory cannot be used.
    pub fn new(
        working: &Path,
        skills: impl Iterator<Item = PathBuf>,
        exchange: Option<&Path>,
    ) -> Result<Self> {
        let dirs = ResolvedSkillDirs::default();
        let root = |dir: &Path, kind| AllowedRoot::resolve_root(&dirs, dir.to_owned(), kind);
        Self::with(&dirs, root, working, skills, exchange)
    }

    /// Roots of a session's call. The host names the working and the exchange directory without
    /// links, as they led when the session began. One where a link is by now is none, and none of them
    /// is resolved anew, also where this is a new version of the plugin. Skills are where they led at
    /// first.
    ///
    /// # Errors
    /// When the working directory cannot be used.
    pub fn of(
        dirs: &ResolvedSkillDirs,
        working: &Path,
        skills: impl Iterator<Item = PathBuf>,
        exchange: Option<&Path>,
    ) -> Result<Self> {
        let root = |dir: &Path, kind| AllowedRoot::new(dir.to_owned(), dir.to_owned(), kind);
        Self::with(dirs, root, working, skills, exchange)
    }

    fn with(
        dirs: &ResolvedSkillDirs,
        root: impl Fn(&Path, RootKind) -> io::Result<AllowedRoot>,
        working: &Path,
        skills: impl Iterator<Item = PathBuf>,
        exchange: Option<&Path>,
    ) -> Result<Self> {
        let working = root(working, RootKind::Working).map_err(|error| {
            AgentError::new(format!(
                "the working directory {} cannot be used: {error}",
                working.display()
            ))
        })?;
        let mut roots = vec![working.clone()];
        // One that does not exist is no place to read from, and no reason to refuse the others.
        roots.extend(exchange.and_then(|dir| root(dir, RootKind::Exchange).ok()));
        for dir in skills {
            if !roots.iter().any(|root| root.display == dir) {
                roots.extend(AllowedRoot::resolve_root(dirs, dir, RootKind::Skill));
            }
        }
        Ok(Self {
            roots,
            working,
            private: Vec::new(),
        })
    }

    /// Takes these places away, also where they are below one of the directories. A directory
    /// of the call's that is itself below a private one stays.
    #[must_use]
    pub fn without<'a>(mut self, private: impl IntoIterator<Item = &'a PathBuf>) -> Self {
        let real = |path: &PathBuf| resolve_existing(path).unwrap_or_else(|_| path.clone());
        self.private = private.into_iter().map(real).collect();
        self
    }

    /// The working directory without any link in it.
    #[must_use]
    pub fn working_dir(&self) -> &Path {
        &self.working.real
    }

    /// Where a path leads.
    ///
    /// # Errors
    /// A sentence that says why it must not be used.
    pub fn resolve(&self, path: &str) -> Result<RootedPath> {
        if path.is_empty() {
            return Err(AgentError::invalid("the path is empty"));
        }
        let real = resolve_existing(&self.working.real.join(path))
            .map_err(|reason| AgentError::new(format!("`{path}` cannot be used: {reason}")))?;
        let root = self
            .roots
            .iter()
            .filter(|root| real.starts_with(&root.real))
            // The innermost; of two that are the same directory, the one named first.
            .rev()
            .max_by_key(|root| root.real.as_os_str().len())
            .ok_or_else(|| self.outside_error(path, &real))?;
        let is_below = |inner: &Path, outer: &Path| inner != outer && inner.starts_with(outer);
        let mut private = self.private.iter();
        if private.any(|place| real.starts_with(place) && !is_below(&root.real, place)) {
            return Err(AgentError::new(format!(
                "`{path}` cannot be used: it belongs to the host's own files, its key among them, \
                 which no tool reads or writes"
            )));
        }
        let relative = real
            .strip_prefix(&root.real)
            .map_err(|_| self.outside_error(path, &real))?
            .to_owned();
        Ok(RootedPath {
            root: root.clone(),
            relative,
            requested: path.to_owned(),
        })
    }

    /// As [`CallRoots::resolve`], for a path that will be written to.
    ///
    /// # Errors
    /// As there, and for a path of a skill.
    pub fn resolve_for_writing(&self, path: &str) -> Result<RootedPath> {
        let place = self.resolve(path)?;
        if place.root.kind == RootKind::Skill {
            return Err(AgentError::new(format!(
                "`{path}` belongs to a skill's folder ({}), which is read only; write to a path \
                 in the working directory {}",
                place.root.display.display(),
                self.working.display.display()
            )));
        }
        Ok(place)
    }

    fn outside_error(&self, path: &str, real: &Path) -> AgentError {
        let mut text = format!("`{path}` is outside of the session's directories");
        if self.working.real.join(path) != real {
            let _ = write!(text, " (it leads to {})", real.display());
        }
        text.push_str("; allowed are");
        for (i, root) in self.roots.iter().enumerate() {
            let what = match root.kind {
                RootKind::Working => "the working directory",
                RootKind::Skill => "the skill's folder (read only)",
                RootKind::Exchange => "the exchange directory",
            };
            let comma = if i == 0 { "" } else { "," };
            let _ = write!(text, "{comma} {what} {}", root.display.display());
        }
        AgentError::new(text)
    }
}

impl AllowedRoot {
    /// A directory as it led when it was asked for first.
    fn resolve_root(dirs: &ResolvedSkillDirs, shown: PathBuf, kind: RootKind) -> io::Result<Self> {
        let real = dirs.resolve(&shown)?;
        Self::new(shown, real, kind)
    }

    /// A directory at a path that had no links.
    fn new(shown: PathBuf, real: PathBuf, kind: RootKind) -> io::Result<Self> {
        if real.canonicalize()? != real {
            return Err(io::Error::other(
                "a link is there, or on the way to it, that was not there when the session began; put \
                 the directory back, or begin another session",
            ));
        }
        if !real.is_dir() {
            return Err(io::Error::from(ErrorKind::NotADirectory));
        }
        Ok(Self {
            display: shown,
            real,
            kind,
        })
    }
}

impl RootedPath {
    /// The path for people and for the host: the root as the host named it, and what follows.
    #[must_use]
    pub fn display_path(&self) -> PathBuf {
        self.root.display.join(&self.relative)
    }

    /// The path as the model wrote it.
    #[must_use]
    pub fn requested(&self) -> &str {
        &self.requested
    }

    /// The root, without any link in its path.
    pub(super) fn root(&self) -> &Path {
        &self.root.real
    }

    /// The names from the root to the place; none for the root itself.
    pub(super) fn names(&self) -> impl Iterator<Item = &OsStr> {
        self.relative.iter()
    }

    /// Kind of the directory that holds the path.
    #[must_use]
    pub fn kind(&self) -> RootKind {
        self.root.kind
    }

    /// An error about this place.
    pub fn error(&self, what: &str, error: impl Into<io::Error>) -> AgentError {
        let error = error.into();
        let reason = match error.kind() {
            ErrorKind::NotFound => "it does not exist".to_owned(),
            ErrorKind::PermissionDenied => "permission denied".to_owned(),
            ErrorKind::NotADirectory => "a part of its path is not a directory".to_owned(),
            ErrorKind::IsADirectory => "it is a directory".to_owned(),
            ErrorKind::StorageFull => {
                "the disk is full: remove what is not needed, and try again".to_owned()
            }
            _ if error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) => {
                "a link is in the way that was not there a moment ago".to_owned()
            }
            _ => error.to_string(),
        };
        AgentError::new(format!("`{}` cannot be {what}: {reason}", self.requested))
    }
}

/// Resolves every link of the part that exists. What does not exist yet may only be plain names.
fn resolve_existing(path: &Path) -> Result<PathBuf, String> {
    let mut existing = path.to_owned();
    let mut missing = Vec::new();
    loop {
        match existing.canonicalize() {
            Ok(mut real) => {
                real.extend(missing.iter().rev());
                return Ok(real);
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) if error.kind() == ErrorKind::NotADirectory => {
                return Err("a part of its path is not a directory".to_owned());
            }
            Err(error) => return Err(error.to_string()),
        }
        if existing.is_symlink() {
            return Err("it goes through a link that leads nowhere".to_owned());
        }
        match existing.components().next_back() {
            Some(Component::Normal(name)) => missing.push(name.to_owned()),
            Some(Component::ParentDir) => {
                return Err("`..` follows a directory that does not exist".to_owned());
            }
            _ => return Err("it does not exist".to_owned()),
        }
        existing.pop();
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[cfg(feature = "executor")]
    #[test]
    fn what_is_private_of_the_host_is_in_no_directory_of_a_call() {
        use crate::private::PrivatePaths;

        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("home/data");
        let inside = data.join("sessions/one/work");
        fs::create_dir_all(&inside).unwrap();
        symlink(&data, dir.path().join("home/link")).unwrap();
        let key = dir.path().join("home/my.key");
        let private = PrivatePaths::of(None, &[data, key]);
        let roots = |working: &Path| {
            let roots = CallRoots::new(working, std::iter::empty(), None).unwrap();
            roots.without(private.iter())
        };
        let home = roots(&dir.path().join("home"));
        for path in [
            "data",
            "data/new",
            "link/vault.key",
            "x/../data/a",
            "my.key",
        ] {
            let refused = home.resolve(path).is_err();
            assert!(refused && home.resolve_for_writing(path).is_err(), "{path}");
        }
        assert!(home.resolve_for_writing("data2").is_ok());
        // What a session has of its own there is its own.
        assert!(roots(&inside).resolve_for_writing("new").is_ok());
        let all = roots(&dir.path().join("home/data"));
        assert!(all.resolve("vault.key").is_err());
    }

    struct World {
        dir: tempfile::TempDir,
    }

    impl World {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            for name in ["work/sub", "skill/scripts", "exchange", "elsewhere"] {
                fs::create_dir_all(dir.path().join(name)).unwrap();
            }
            fs::write(dir.path().join("elsewhere/secret"), "s").unwrap();
            fs::write(dir.path().join("skill/SKILL.md"), "m").unwrap();
            Self { dir }
        }

        fn path(&self, name: &str) -> String {
            self.dir.path().join(name).to_str().unwrap().to_owned()
        }

        fn roots(&self) -> CallRoots {
            CallRoots::new(
                &self.dir.path().join("work"),
                [self.dir.path().join("skill")].into_iter(),
                Some(&self.dir.path().join("exchange")),
            )
            .unwrap()
        }
    }

    #[test]
    fn paths_inside_are_found() {
        let world = World::new();
        let roots = world.roots();
        for (asked, shown) in [
            ("a.txt", "work/a.txt"),
            ("./sub/../a.txt", "work/a.txt"),
            ("new/deep/a.txt", "work/new/deep/a.txt"),
            (".", "work/"),
            (&world.path("work/sub"), "work/sub"),
            (&world.path("skill/SKILL.md"), "skill/SKILL.md"),
            ("../skill/SKILL.md", "skill/SKILL.md"),
            (&world.path("exchange/big"), "exchange/big"),
        ] {
            let place = roots.resolve(asked).unwrap();
            assert_eq!(
                place.display_path(),
                Path::new(&world.path(shown)),
                "{asked}"
            );
        }
    }

    #[test]
    fn p6_a_path_outside_is_refused_and_the_roots_are_named() {
        let world = World::new();
        let roots = world.roots();
        for asked in [
            "/etc/passwd",
            "../elsewhere/secret",
            "sub/../../elsewhere/new",
            "..",
            "/",
            &world.path("workshop"),
        ] {
            let error = roots.resolve(asked).unwrap_err();
            let message = error.message();
            assert!(
                message.starts_with(&format!("`{asked}` is outside")),
                "{message}"
            );
            for root in ["work", "skill", "exchange"] {
                assert!(message.contains(&world.path(root)), "{message}");
            }
        }
    }

    #[test]
    fn b9_a_link_that_leads_outside_is_refused() {
        let world = World::new();
        let roots = world.roots();
        symlink(world.path("elsewhere"), world.path("work/dir")).unwrap();
        symlink("../elsewhere/secret", world.path("work/file")).unwrap();
        symlink("../elsewhere/not-yet", world.path("work/dangling")).unwrap();
        for asked in ["dir/secret", "dir/new", "file", "dangling", "dangling/x"] {
            assert!(roots.resolve(asked).is_err(), "{asked}");
        }
    }

    #[test]
    fn a_link_between_two_roots_is_followed() {
        let world = World::new();
        let roots = world.roots();
        symlink(world.path("skill"), world.path("work/tools")).unwrap();
        let place = roots.resolve("tools/SKILL.md").unwrap();
        assert_eq!(
            place.display_path(),
            Path::new(&world.path("skill/SKILL.md"))
        );
        assert!(roots.resolve_for_writing("tools/SKILL.md").is_err());
    }

    #[test]
    fn a_skill_inside_the_working_directory_stays_read_only() {
        let world = World::new();
        let nested = world.dir.path().join("work/sub");
        let roots =
            CallRoots::new(&world.dir.path().join("work"), [nested].into_iter(), None).unwrap();
        assert!(roots.resolve_for_writing("sub/x").is_err());
        assert!(roots.resolve_for_writing("x").is_ok());
    }

    #[test]
    fn work_in_a_skills_own_folder_may_write_there() {
        let world = World::new();
        let skill = world.dir.path().join("skill");
        let roots = CallRoots::new(&skill, [skill.clone()].into_iter(), None).unwrap();
        assert!(roots.resolve_for_writing("SKILL.md").is_ok());
    }

    /// The directories of a call in a session that began before the working directory was exchanged.
    #[test]
    fn a_link_in_the_place_of_a_root_leads_no_call_elsewhere() {
        let world = World::new();
        let working = world.dir.path().canonicalize().unwrap().join("work");
        // Each time as in a plugin that was loaded anew and knows of nothing that was before.
        let roots = || {
            CallRoots::of(
                &ResolvedSkillDirs::default(),
                &working,
                std::iter::empty(),
                None,
            )
        };
        let before = roots().unwrap();
        let place = before.resolve("secret").unwrap();
        fs::rename(world.path("work"), world.path("old")).unwrap();
        symlink(world.path("elsewhere"), world.path("work")).unwrap();
        let said = roots().unwrap_err();
        assert!(
            said.message().contains("a link is there"),
            "{}",
            said.message()
        );
        // What was looked at before is not opened there either.
        assert!(crate::files::open(&place).is_err());
        assert!(crate::files::create_file(&before, "new", |_| Ok(0)).is_err());
        assert!(!world.dir.path().join("elsewhere/new").exists());
        // A directory that was put back is one again.
        fs::remove_file(world.path("work")).unwrap();
        fs::rename(world.path("old"), world.path("work")).unwrap();
        assert!(roots().is_ok());
    }
}
