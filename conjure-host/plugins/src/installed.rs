//! The plugins that are installed in a data directory, and what became of them: added, upgraded,
//! removed, put back.
//!
//! A change is one rename in the directory that hosts watch, so whoever runs takes it over. What is
//! replaced or removed is kept, so that it can be put back.

use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use conjure_config::file_name::safe_name;
use conjure_config::fs;
use conjure_config::platform::LIBRARY_EXTENSION;
use serde::{Deserialize, Serialize};

use super::{
    LockError, LockedPlugin, PackagedPlugins, PluginError, PluginFile, PluginLock, Sha256,
    libraries, program,
};

/// Changes of one plugin whose libraries are kept.
const KEPT: usize = 10;

/// The installed plugins of a data directory.
#[derive(Debug, Clone)]
pub struct InstalledPlugins {
    plugins: PathBuf,
    history: PathBuf,
    packaged: PackagedPlugins,
}

/// One build of a plugin.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstalledVersion {
    /// Its version.
    pub version: String,
    /// The digest of its bytes.
    pub sha256: Sha256,
    /// The package that it came in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub package: Option<Box<LockedPlugin>>,
}

/// What was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InstallAction {
    /// It is new, or in the place of another build.
    Add,
    /// It is gone.
    Remove,
    /// A build that was there before is there again.
    Rollback,
}

/// A change of an installed plugin.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstallChange {
    /// When, in milliseconds since 1970.
    pub at_ms: i64,
    /// What was done.
    pub action: InstallAction,
    /// The plugin.
    pub plugin: String,
    /// What was there before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<InstalledVersion>,
    /// What is there since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<InstalledVersion>,
}

/// Why nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// There is no such plugin.
    #[error(
        "no plugin `{name}` is installed in {dir}; installed are: {installed}. What comes with the \
         program or was named by hand is not installed, so it is changed where it is",
        dir = dir.display()
    )]
    NotInstalled {
        /// The name.
        name: String,
        /// Where plugins are installed.
        dir: PathBuf,
        /// Those that there are.
        installed: String,
    },
    /// There is no such build to put back.
    #[error(
        "there is no {wanted} of `{name}` to put back; kept are: {kept}. `conjure plugin history \
         {name}` shows what there was"
    )]
    NotKept {
        /// The plugin.
        name: String,
        /// What was asked for.
        wanted: String,
        /// The versions that there are.
        kept: String,
    },
    /// What was kept is not what it was.
    #[error(
        "the kept library of `{name}` {version} ({path}) was altered, so it is not put back: add a \
         build that you trust instead",
        path = path.display()
    )]
    Altered {
        /// The plugin.
        name: String,
        /// The version.
        version: String,
        /// The file.
        path: PathBuf,
    },
    /// Somebody else installed or removed it meanwhile.
    #[error(
        "{name} became another one while this one was looked at, so nothing was changed: install it \
         again to have it compared with the one that is there now"
    )]
    Overtaken {
        /// The plugin.
        name: String,
    },
    /// What the packages were that plugins came in is not known.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// The file that is installed is no plugin.
    #[error(transparent)]
    Plugin(#[from] PluginError),
    /// The system's.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl InstalledPlugins {
    /// Those of a data directory.
    pub fn of(data_dir: &Path) -> Self {
        Self {
            plugins: data_dir.join("plugins"),
            history: data_dir.join("plugin-history"),
            packaged: PackagedPlugins::of(data_dir),
        }
    }

    /// Where they are.
    pub fn dir(&self) -> &Path {
        &self.plugins
    }

    /// The file of a plugin that is installed.
    ///
    /// # Errors
    /// The system's.
    pub fn file(&self, name: &str) -> Result<Option<PluginFile>, InstallError> {
        Ok(self.files(name)?.into_iter().next())
    }

    /// Every file of this name; what is no plugin has none.
    fn files(&self, name: &str) -> io::Result<Vec<PluginFile>> {
        let paths = self.installed()?.into_iter();
        let files = paths.filter_map(|path| PluginFile::read(&path, true).ok());
        Ok(files.filter(|file| file.header.name == name).collect())
    }

    /// What the plugins are that came in packages.
    pub fn lock(&self) -> &PluginLock {
        self.packaged.lock()
    }

    /// What is installed: libraries and bundles. Whoever describes a program there keeps its files
    /// there too, and changes them.
    fn installed(&self) -> io::Result<Vec<PathBuf>> {
        let mut paths = libraries(&self.plugins)?;
        paths.retain(|path| !program::is_description(path));
        Ok(paths)
    }

    /// Installs a build that was judged, in the place of the one that is there. Nothing where it is
    /// that very one.
    ///
    /// # Errors
    /// The system's; what was there before is then as it was.
    pub fn add(&self, file: &PluginFile) -> Result<Option<InstallChange>, InstallError> {
        let _lock = self.one_at_a_time()?;
        self.put(file, None)
    }

    /// As [`InstalledPlugins::add`], of what came in a package. `before` is what the lock said of it
    /// when that was judged.
    ///
    /// # Errors
    /// As [`InstalledPlugins::add`], and [`InstallError::Overtaken`].
    pub fn install(
        &self,
        file: &PluginFile,
        package: LockedPlugin,
        before: Option<&LockedPlugin>,
    ) -> Result<Option<InstallChange>, InstallError> {
        let _lock = self.one_at_a_time()?;
        let now = self.lock().plugin(&file.header.name)?;
        // The very same package may have come meanwhile.
        let is_same = now.as_ref().is_some_and(|now| now.sha256 == package.sha256);
        if now.as_ref() != before && !is_same {
            return Err(InstallError::Overtaken {
                name: file.header.name.clone(),
            });
        }
        self.packaged.note(&package)?;
        self.put(file, Some(package))
    }

    fn put(
        &self,
        file: &PluginFile,
        package: Option<LockedPlugin>,
    ) -> Result<Option<InstallChange>, InstallError> {
        let name = &file.header.name;
        let before = self.file(name)?;
        if let Some(before) = before.as_ref().filter(|it| it.sha256 == file.sha256) {
            if self.lock().plugin(name)? != package {
                self.lock().set(name, package)?;
                // Another file with the same bytes, so that hosts look at it again.
                self.place(&before.path, &before.bytes)?;
            }
            return Ok(None);
        }
        let to = InstalledVersion {
            package: package.map(Box::new),
            ..version(file)
        };
        let to = Some((file.bytes.as_slice(), &to));
        self.replace(InstallAction::Add, name, before.as_ref(), to)
            .map(Some)
    }

    /// Puts a build in the place of `own`, which the same author put there, without a change that is
    /// remembered. Nothing is done, and `false` the answer, where something else is there by now.
    ///
    /// # Errors
    /// The system's; what was there before is then as it was.
    pub fn put_next(&self, file: &PluginFile, own: &Sha256) -> Result<bool, InstallError> {
        let _lock = self.one_at_a_time()?;
        let name = &file.header.name;
        let form = extension(&file.bytes);
        let is_own = |it: &PluginFile| it.sha256 == *own && extension(&it.bytes) == form;
        let there = self.file(name)?.filter(is_own);
        let there = there.filter(|_| matches!(self.lock().plugin(name), Ok(None)));
        let placed = there.map(|there| self.place(&there.path, &file.bytes));
        Ok(placed.transpose()?.is_some())
    }

    /// Removes a plugin. It is kept and can be put back.
    ///
    /// # Errors
    /// [`InstallError::NotInstalled`], and the system's.
    pub fn remove(&self, name: &str) -> Result<InstallChange, InstallError> {
        let _lock = self.one_at_a_time()?;
        let Some(before) = self.file(name)? else {
            if self.lock().plugin(name)?.is_none() {
                return Err(self.not_installed(name));
            }
            // Its library is lost.
            return self.replace(InstallAction::Remove, name, None, None);
        };
        self.replace(InstallAction::Remove, name, Some(&before), None)
    }

    /// The build that [`InstalledPlugins::rollback`] would put back now.
    ///
    /// # Errors
    /// [`InstallError::NotKept`], and the system's.
    pub fn earlier(
        &self,
        name: &str,
        wanted: Option<&str>,
    ) -> Result<InstalledVersion, InstallError> {
        let now = self.file(name)?.map(|file| file.sha256);
        self.kept_build(name, wanted, now)
    }

    /// Puts a build back that was there before: the one before the newest change, or the newest one
    /// of this version.
    ///
    /// # Errors
    /// [`InstallError::NotKept`], [`InstallError::Altered`], and the system's.
    pub fn rollback(
        &self,
        name: &str,
        wanted: Option<&str>,
    ) -> Result<InstallChange, InstallError> {
        let _lock = self.one_at_a_time()?;
        let current = self.file(name)?;
        let now = current.as_ref().map(|current| current.sha256);
        let build = self.kept_build(name, wanted, now)?;
        let path = self.kept(&build.sha256);
        let bytes = fs::read(&path)?;
        if Sha256::of(&bytes) != build.sha256 {
            return Err(InstallError::Altered {
                name: name.to_owned(),
                version: build.version,
                path,
            });
        }
        let to = Some((bytes.as_slice(), &build));
        self.replace(InstallAction::Rollback, name, current.as_ref(), to)
    }

    /// The newest build of a version that is kept and is not there now; of any, what the newest change
    /// took away comes first.
    fn kept_build(
        &self,
        name: &str,
        wanted: Option<&str>,
        now: Option<Sha256>,
    ) -> Result<InstalledVersion, InstallError> {
        let mut history = self.history(Some(name))?;
        history.reverse();
        let builds = history
            .into_iter()
            .flat_map(|change| [change.from, change.to]);
        let mut kept: Vec<InstalledVersion> = Vec::new();
        for build in builds.flatten() {
            let is_there = self.kept(&build.sha256).is_file();
            if is_there && now != Some(build.sha256) && !kept.contains(&build) {
                kept.push(build);
            }
        }
        let is_meant = |build: &InstalledVersion| wanted.is_none_or(|it| build.version == it);
        if let Some(build) = kept.iter().find(|build| is_meant(build)) {
            return Ok(build.clone());
        }
        let versions: Vec<&str> = kept.iter().map(|build| build.version.as_str()).collect();
        Err(InstallError::NotKept {
            name: name.to_owned(),
            wanted: match wanted {
                Some(wanted) => format!("version {wanted}"),
                None => "earlier build".to_owned(),
            },
            kept: listed(&versions),
        })
    }

    /// Takes back what a change did, as if it had not been made.
    ///
    /// # Errors
    /// As [`InstalledPlugins::rollback`] and [`InstalledPlugins::remove`].
    pub fn undo(&self, change: &InstallChange) -> Result<(), InstallError> {
        match &change.from {
            Some(_) => self.rollback(&change.plugin, None),
            None => self.remove(&change.plugin),
        }
        .map(drop)
    }

    /// Has every host that watches load the plugin again, also one that it has given up on.
    ///
    /// # Errors
    /// [`InstallError::NotInstalled`], and the system's.
    pub fn reload(&self, name: &str) -> Result<InstalledVersion, InstallError> {
        let _lock = self.one_at_a_time()?;
        let Some(there) = self.file(name)? else {
            return Err(self.not_installed(name));
        };
        // Another file with the same bytes.
        self.place(&there.path, &there.bytes)?;
        Ok(version(&there))
    }

    /// What was changed, the oldest first: of one plugin, or of all.
    ///
    /// # Errors
    /// The system's.
    pub fn history(&self, name: Option<&str>) -> Result<Vec<InstallChange>, InstallError> {
        let text = match fs::read_to_string(self.history.join("history.jsonl")) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error.into()),
        };
        let lines = text.lines();
        // A line that was cut by a crash says nothing.
        let changes = lines.filter_map(|line| serde_json::from_str::<InstallChange>(line).ok());
        let is_meant = |change: &InstallChange| name.is_none_or(|name| change.plugin == name);
        Ok(changes.filter(is_meant).collect())
    }

    fn replace(
        &self,
        action: InstallAction,
        name: &str,
        before: Option<&PluginFile>,
        to: Option<(&[u8], &InstalledVersion)>,
    ) -> Result<InstallChange, InstallError> {
        // What its lock does not know is nothing to put back.
        let is_known = |before: &PluginFile| self.version(before).is_some();
        let is_altered = before.is_some_and(|before| !is_known(before));
        if let Some(before) = before.filter(|_| !is_altered) {
            let kept = self.kept_as(&before.sha256, extension(&before.bytes));
            fs::write_atomic(kept, &before.bytes)?;
        }
        let form = match (before, to) {
            (_, Some((bytes, _))) => extension(bytes),
            (Some(before), None) => extension(&before.bytes),
            (None, None) => LIBRARY_EXTENSION,
        };
        let path = match before {
            Some(before) if extension(&before.bytes) == form => before.path.clone(),
            _ => self.free_path(name, form),
        };
        let change = InstallChange {
            at_ms: now_ms(),
            action,
            plugin: name.to_owned(),
            from: before.and_then(|before| self.version(before)),
            to: to.map(|(_, version)| version.clone()),
        };
        // Where it cannot be noted nothing is changed.
        let mut history = self.open_history()?;
        // Before the library, which whoever watches loads as soon as it is there.
        let locked = self.lock().plugin(name)?;
        let package = to.and_then(|(_, version)| version.package.as_deref().cloned());
        if to.is_some() {
            self.lock().set(name, package)?;
        }
        let placed = match to {
            Some((bytes, _)) => self.place(&path, bytes),
            None => self.take_away(name),
        };
        match placed {
            Ok(()) if to.is_none() => self.lock().set(name, None)?,
            Ok(()) => {
                for other in self.files(name)? {
                    if other.path != path {
                        std::fs::remove_file(&other.path)?;
                    }
                }
            }
            Err(error) => {
                self.lock().set(name, locked)?;
                return Err(error);
            }
        }
        note(&mut history, &change)?;
        if let Err(error) = self.sweep(name) {
            tracing::warn!("kept builds of {name} cannot be looked through: {error}");
        }
        Ok(change)
    }

    /// Puts a library there in one step: readers see all of it or what was there before.
    fn place(&self, path: &Path, bytes: &[u8]) -> Result<(), InstallError> {
        fs::create_private_dir(&self.plugins)?;
        Ok(fs::write_atomic(path, bytes)?)
    }

    /// Removes every file of a plugin.
    fn take_away(&self, name: &str) -> Result<(), InstallError> {
        for file in self.files(name)? {
            std::fs::remove_file(&file.path)?;
        }
        Ok(())
    }

    /// The history, at its end. What a crash left of a line ends there.
    fn open_history(&self) -> Result<std::fs::File, InstallError> {
        use std::io::Write as _;
        let path = self.history.join("history.jsonl");
        let length = fs::size(&path).unwrap_or_default();
        let last = match length.checked_sub(1) {
            Some(last) => fs::read_range(&path, last, 1)?,
            None => Vec::new(),
        };
        let mut history = fs::append_to(path)?;
        if last.first().is_some_and(|byte| *byte != b'\n') {
            history.write_all(b"\n")?;
        }
        Ok(history)
    }

    /// Removes kept libraries that only older changes name.
    fn sweep(&self, name: &str) -> Result<(), InstallError> {
        let builds = |changes: &[InstallChange]| -> HashSet<Sha256> {
            let builds = changes.iter().flat_map(|change| [&change.from, &change.to]);
            builds.flatten().map(|build| build.sha256).collect()
        };
        let own = self.history(Some(name))?;
        let (old, new) = own.split_at(own.len().saturating_sub(KEPT));
        let others = self.history(None)?;
        let others: Vec<_> = others
            .into_iter()
            .filter(|one| one.plugin != name)
            .collect();
        let needed: HashSet<Sha256> = &builds(new) | &builds(&others);
        for gone in builds(old).difference(&needed) {
            fs::remove_file(self.kept(gone));
        }
        Ok(())
    }

    /// What is there, and the package that it came in; nothing where it is not what its lock says.
    fn version(&self, file: &PluginFile) -> Option<InstalledVersion> {
        let locked = self.lock().plugin(&file.header.name).ok()?;
        if locked.as_ref().is_some_and(|it| !it.holds(&file.sha256)) {
            return None;
        }
        Some(InstalledVersion {
            package: locked.map(Box::new),
            ..version(file)
        })
    }

    fn not_installed(&self, name: &str) -> InstallError {
        let found = self.installed().unwrap_or_default().into_iter();
        let files = found.filter_map(|path| PluginFile::read(&path, true).ok());
        let names: Vec<String> = files.map(|file| file.header.name).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        InstallError::NotInstalled {
            name: name.to_owned(),
            dir: self.plugins.clone(),
            installed: listed(&names),
        }
    }

    /// A path for a plugin that is not there yet.
    fn free_path(&self, name: &str, extension: &str) -> PathBuf {
        let is_locked = matches!(self.lock().plugin(name), Ok(Some(_)));
        let name = match extension == LIBRARY_EXTENSION {
            true => format!("lib{}", safe_name(name).replace('-', "_")),
            false => safe_name(name),
        };
        let mut path = self.plugins.join(format!("{name}.{extension}"));
        let mut number = 2;
        // What is there and is no plugin was one that the lock names, and was altered.
        let is_lost = |path: &Path| is_locked && PluginFile::read(path, true).is_err();
        while path.exists() && !is_lost(&path) {
            path = self.plugins.join(format!("{name}_{number}.{extension}"));
            number += 1;
        }
        path
    }

    /// Where a build is kept, if it is.
    fn kept(&self, sha256: &Sha256) -> PathBuf {
        let bundle = self.kept_as(sha256, program::EXTENSION);
        match bundle.is_file() {
            true => bundle,
            false => self.kept_as(sha256, LIBRARY_EXTENSION),
        }
    }

    fn kept_as(&self, sha256: &Sha256, extension: &str) -> PathBuf {
        self.history.join(format!("{sha256}.{extension}"))
    }

    /// One change at a time, whoever makes it.
    fn one_at_a_time(&self) -> Result<std::fs::File, InstallError> {
        fs::create_private_dir(&self.history)?;
        Ok(fs::lock(self.history.join("lock"))?)
    }
}

/// What the file of a plugin with these bytes ends in.
fn extension(bytes: &[u8]) -> &'static str {
    match program::is_bundle(bytes) {
        true => program::EXTENSION,
        false => LIBRARY_EXTENSION,
    }
}

fn note(history: &mut std::fs::File, change: &InstallChange) -> Result<(), InstallError> {
    use std::io::Write as _;
    let mut line = serde_json::to_string(change).map_err(io::Error::other)?;
    line.push('\n');
    history.write_all(line.as_bytes())?;
    Ok(history.sync_all()?)
}

fn version(file: &PluginFile) -> InstalledVersion {
    InstalledVersion {
        version: file.header.version.clone(),
        sha256: file.sha256,
        package: None,
    }
}

fn listed(words: &[&str]) -> String {
    match words {
        [] => "none".to_owned(),
        words => words.join(", "),
    }
}

fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
    })
}
