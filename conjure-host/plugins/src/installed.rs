//! The plugins that are installed in a data directory, and what became of them: added, upgraded,
//! removed, put back.
//!
//! A change is one rename in the directory that hosts watch, so whoever runs takes it over. What is
//! replaced or removed is kept, so that it can be put back. Skill folders out of packages are among
//! the plugins here, though they lie with the user's skills.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use conjure_config::file_name::safe_name;
use conjure_config::fs;
use semver::Version;

use super::adopted_skills::has_extra_files;
use super::install_history::append_change;
use super::installed_build::{self, BuildForm, InstalledBuild, UserSkillFolders, now_ms};
use super::pending::PendingChange;
use super::{
    InstallAction, InstallChange, InstallError, InstalledVersion, LockedPlugin, PackagedPlugins,
    PluginFile, PluginLock, Sha256, libraries, program,
};

/// The installed plugins of a data directory.
#[derive(Debug, Clone)]
pub struct InstalledPlugins {
    plugins: PathBuf,
    pub(super) history: PathBuf,
    pub(super) packaged: PackagedPlugins,
    pub(super) skills: UserSkillFolders,
}

impl InstalledPlugins {
    /// Returns the installed plugins of a data directory.
    pub fn of(data_dir: &Path) -> Self {
        Self {
            plugins: data_dir.join("plugins"),
            history: data_dir.join("plugin-history"),
            packaged: PackagedPlugins::of(data_dir),
            skills: UserSkillFolders::of_user(),
        }
    }

    /// Directory of the installed plugins.
    pub fn dir(&self) -> &Path {
        &self.plugins
    }

    /// The file of a plugin that is installed; of several, that of the highest version.
    ///
    /// # Errors
    /// The system's.
    pub fn file(&self, name: &str) -> Result<Option<PluginFile>, InstallError> {
        Ok(self.files(name)?.into_iter().next())
    }

    /// Every file of this name, the highest version first, which is the one that hosts use; what is no
    /// plugin has none.
    fn files(&self, name: &str) -> io::Result<Vec<PluginFile>> {
        let paths = self.installed_paths()?.into_iter();
        let files = paths.filter_map(|path| PluginFile::read_of(&path, name, true).ok()?);
        let mut files: Vec<PluginFile> = files.collect();
        files.sort_by_cached_key(|file| Reverse(Version::parse(&file.header.version).ok()));
        Ok(files)
    }

    /// Every build of this name that is there; of skill folders only one that the lock names.
    pub(super) fn builds(&self, name: &str) -> Result<Vec<InstalledBuild>, InstallError> {
        let files = self.files(name)?.into_iter();
        let mut builds: Vec<InstalledBuild> = files.map(InstalledBuild::from).collect();
        builds.extend(self.skill_build(name)?);
        Ok(builds)
    }

    /// The skill folder of this name that is there, if the lock names it.
    pub(super) fn skill_build(&self, name: &str) -> Result<Option<InstalledBuild>, InstallError> {
        let skill = self.locked_skill(name)?;
        Ok(skill.and_then(|skill| self.skills.build(&skill)))
    }

    pub(super) fn build(&self, name: &str) -> Result<Option<InstalledBuild>, InstallError> {
        Ok(self.builds(name)?.into_iter().next())
    }

    /// The archive of the skill folder of this name that is there, if the lock names it.
    ///
    /// # Errors
    /// The system's.
    pub fn skill_archive(&self, name: &str) -> Result<Option<Vec<u8>>, InstallError> {
        Ok(self.skill_build(name)?.map(|skill| skill.bytes))
    }

    fn locked_skill(&self, name: &str) -> Result<Option<LockedPlugin>, InstallError> {
        let locked = self.lock().plugin(name)?;
        Ok(locked.filter(|locked| locked.skill.is_some()))
    }

    /// What the plugins are that came in packages.
    pub fn lock(&self) -> &PluginLock {
        self.packaged.lock()
    }

    /// What is installed: libraries and bundles. Whoever describes a program there keeps its files
    /// there too, and changes them.
    fn installed_paths(&self) -> io::Result<Vec<PathBuf>> {
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
        let _lock = self.lock_changes()?;
        let name = &file.header.name;
        let current = self.build(name)?;
        let new = (version(file), file.bytes.as_slice());
        self.install_build(name, current.as_ref(), new, None)
    }

    pub(super) fn install_build(
        &self,
        name: &str,
        current: Option<&InstalledBuild>,
        (new, bytes): (InstalledVersion, &[u8]),
        package: Option<LockedPlugin>,
    ) -> Result<Option<InstallChange>, InstallError> {
        if let Some(current) = current.filter(|it| it.sha256 == new.sha256) {
            if self.lock().plugin(name)? != package {
                self.lock().set(name, package)?;
                if current.form != BuildForm::Skill {
                    // Another file with the same bytes, so that hosts look at it again.
                    self.write_build(&current.path, &current.bytes)?;
                }
            }
            return Ok(None);
        }
        let to = InstalledVersion {
            package: package.map(Box::new),
            ..new
        };
        let to = Some((bytes, &to));
        self.replace(InstallAction::Add, name, current, to)
            .map(Some)
    }

    /// Puts a build in the place of `own`, which the same author put there, without a change that is
    /// remembered. Nothing is done, and `false` the answer, where something else is there by now.
    ///
    /// # Errors
    /// The system's; what was there before is then as it was.
    pub fn replace_own_build(&self, file: &PluginFile, own: &Sha256) -> Result<bool, InstallError> {
        let _lock = self.lock_changes()?;
        let name = &file.header.name;
        let form = BuildForm::of(&file.bytes);
        let is_own = |it: &PluginFile| it.sha256 == *own && BuildForm::of(&it.bytes) == form;
        let there = self.file(name)?.filter(is_own);
        let there = there.filter(|_| matches!(self.lock().plugin(name), Ok(None)));
        let placed = there.map(|there| self.write_build(&there.path, &file.bytes));
        Ok(placed.transpose()?.is_some())
    }

    /// Removes a plugin. It is kept and can be put back.
    ///
    /// # Errors
    /// [`InstallError::NotInstalled`], and the system's.
    pub fn remove(&self, name: &str) -> Result<InstallChange, InstallError> {
        let _lock = self.lock_changes()?;
        let Some(before) = self.build(name)? else {
            if self.lock().plugin(name)?.is_none() {
                return Err(self.not_installed(name));
            }
            // Its library is lost.
            return self.replace(InstallAction::Remove, name, None, None);
        };
        self.replace(InstallAction::Remove, name, Some(&before), None)
    }

    /// The build to put back: the one before the newest change, or the newest one of this version.
    ///
    /// # Errors
    /// [`InstallError::NoBackup`], and the system's.
    pub fn rollback_target(
        &self,
        name: &str,
        wanted: Option<&str>,
    ) -> Result<InstalledVersion, InstallError> {
        let now = self.build(name)?.map(|build| build.sha256);
        self.find_backup(name, wanted, now)
    }

    pub(super) fn restore(
        &self,
        name: &str,
        current: Option<&InstalledBuild>,
        build: &InstalledVersion,
    ) -> Result<InstallChange, InstallError> {
        let path = self.backup_path(&build.sha256);
        let bytes = fs::read(&path)?;
        if Sha256::of(&bytes) != build.sha256 {
            return Err(InstallError::Altered {
                name: name.to_owned(),
                version: build.version.clone(),
                path,
            });
        }
        let to = Some((bytes.as_slice(), build));
        self.replace(InstallAction::Rollback, name, current, to)
    }

    /// The newest build of a version that is kept and is not there now; of any, what the newest change
    /// took away comes first.
    fn find_backup(
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
            let is_there = self.backup_path(&build.sha256).is_file();
            if is_there && now != Some(build.sha256) && !kept.contains(&build) {
                kept.push(build);
            }
        }
        let is_meant = |build: &InstalledVersion| wanted.is_none_or(|it| build.version == it);
        if let Some(build) = kept.iter().find(|build| is_meant(build)) {
            return Ok(build.clone());
        }
        let versions: Vec<&str> = kept.iter().map(|build| build.version.as_str()).collect();
        Err(InstallError::NoBackup {
            name: name.to_owned(),
            wanted: match wanted {
                Some(wanted) => format!("version {wanted}"),
                None => "earlier build".to_owned(),
            },
            kept: join_or_none(&versions),
        })
    }

    /// Has every host that watches load the plugin again, also one that it has given up on.
    ///
    /// # Errors
    /// [`InstallError::NotInstalled`], and the system's.
    pub fn reload(&self, name: &str) -> Result<InstalledVersion, InstallError> {
        let _lock = self.lock_changes()?;
        let Some(there) = self.file(name)? else {
            return Err(self.not_installed(name));
        };
        // Another file with the same bytes.
        self.write_build(&there.path, &there.bytes)?;
        Ok(version(&there))
    }

    pub(super) fn replace(
        &self,
        action: InstallAction,
        name: &str,
        before: Option<&InstalledBuild>,
        to: Option<(&[u8], &InstalledVersion)>,
    ) -> Result<InstallChange, InstallError> {
        // What its lock does not know is nothing to put back.
        let known = before.and_then(|before| self.version(before));
        if let (Some(before), Some(_)) = (before, &known) {
            let kept = self.backup_path_as(&before.sha256, before.form);
            fs::write_atomic(kept, &before.bytes)?;
        }
        let is_unknown = known.is_none();
        let lost = match action {
            InstallAction::Remove if is_unknown => self.locked_version(name)?,
            _ => None,
        };
        let form = match (before, to) {
            (_, Some((bytes, _))) => BuildForm::of(bytes),
            (Some(before), None) => before.form,
            (None, None) if self.locked_skill(name)?.is_some() => BuildForm::Skill,
            (None, None) => BuildForm::Library,
        };
        self.check_conflict(name, before, form, to.map(|(bytes, _)| bytes))?;
        let path = match before {
            Some(before) if before.form == form => before.path.clone(),
            _ => self.free_path(name, form)?,
        };
        let change = InstallChange {
            at_ms: now_ms(),
            action,
            plugin: name.to_owned(),
            altered: lost.is_some(),
            from: known.or(lost),
            to: to.map(|(_, version)| version.clone()),
        };
        // Where it cannot be noted nothing is changed.
        let mut history = self.open_history()?;
        // Before the library, which whoever watches loads as soon as it is there.
        let locked = self.lock().plugin(name)?;
        let package = to.and_then(|(_, version)| version.package.as_deref().cloned());
        let takes_over = before.is_none() && self.is_same_skill(name, to.map(|(bytes, _)| bytes));
        let pending = PendingChange {
            change,
            locked,
            path,
            takes_over,
        };
        // From here on a crash leaves something to end.
        self.write_pending(&pending)?;
        if to.is_some() {
            self.lock().set(name, package)?;
        }
        let stays = takes_over || (to.is_none() && self.is_adopted(name));
        if form == BuildForm::Skill && is_unknown && !stays {
            // Somebody changed it, or it is no skill any more: nothing else has what was written there.
            self.skills.set_aside(name, pending.change.at_ms)?;
        }
        let placed = match to {
            Some(_) if takes_over => Ok(()),
            Some((bytes, _)) => self.write_build(&pending.path, bytes),
            None => self.remove_all_builds(&pending.change, &mut history),
        };
        match placed {
            Ok(()) if to.is_none() => self.lock().set(name, None)?,
            Ok(()) => self.remove_others(&pending, &mut history)?,
            Err(error) => {
                self.lock().set(name, pending.locked.clone())?;
                self.clear_pending();
                return Err(error);
            }
        }
        self.set_adopted(name, takes_over)?;
        append_change(&mut history, &pending.change)?;
        self.clear_pending();
        let change = pending.change;
        if let Err(error) = self.sweep(name) {
            tracing::warn!("kept builds of {name} cannot be looked through: {error}");
        }
        Ok(change)
    }

    /// A skill folder of the user's own is not replaced, and neither a plugin by a skill folder. One that is
    /// the very one that comes, and nothing more, is taken over: another data directory of the user's may
    /// have it too.
    fn check_conflict(
        &self,
        name: &str,
        before: Option<&InstalledBuild>,
        form: BuildForm,
        new: Option<&[u8]>,
    ) -> Result<(), InstallError> {
        let refused = |reason: String| {
            let name = name.to_owned();
            Err(InstallError::Conflict { name, reason })
        };
        let is_skill = form == BuildForm::Skill;
        if before.is_some_and(|before| (before.form == BuildForm::Skill) != is_skill) {
            return refused(format!(
                "what is there of this name is {}. `conjure plugin remove {name}` makes room",
                match is_skill {
                    true => "a plugin, and this is a skill folder",
                    false => "a skill folder, and this is a plugin",
                }
            ));
        }
        let place = self
            .skills
            .path(name)
            .filter(|_| is_skill && before.is_none());
        match place.filter(|place| std::fs::symlink_metadata(place).is_ok()) {
            Some(place) if self.locked_skill(name)?.is_none() && !self.is_same_skill(name, new) => {
                refused(format!(
                    "{} is a skill that {} does not name: your own, maybe with files that no package has \
                     (such as `.git`), or another version that another data directory has. Move it away \
                     first",
                    place.display(),
                    self.lock().path().display()
                ))
            }
            _ => Ok(()),
        }
    }

    /// Whether the skill folder of this name, which is no link, is that of an archive and holds no more.
    fn is_same_skill(&self, name: &str, archive: Option<&[u8]>) -> bool {
        let (Some(place), Some(archive)) = (self.skills.path(name), archive) else {
            return false;
        };
        std::fs::symlink_metadata(&place).is_ok_and(|there| there.is_dir())
            && installed_build::archive(&place).is_ok_and(|there| there == archive)
            && matches!(has_extra_files(&place), Ok(false))
    }

    /// Puts a build there in one step: readers see all of it or what was there before.
    fn write_build(&self, path: &Path, bytes: &[u8]) -> Result<(), InstallError> {
        if BuildForm::of(bytes) == BuildForm::Skill {
            return Ok(self.skills.install(path, bytes)?);
        }
        fs::create_private_dir(&self.plugins)?;
        Ok(fs::write_atomic(path, bytes)?)
    }

    /// Removes this build of a plugin, wherever it lies, and nothing else.
    pub(super) fn remove_build(
        &self,
        name: &str,
        build: Option<&InstalledVersion>,
    ) -> Result<(), InstallError> {
        let Some(build) = build else { return Ok(()) };
        for there in self.builds(name)? {
            if there.sha256 != build.sha256 {
                continue;
            }
            match there.form {
                BuildForm::Skill if self.is_adopted(name) => {}
                BuildForm::Skill => self.skills.remove(name)?,
                BuildForm::Library | BuildForm::Program => std::fs::remove_file(&there.path)?,
            }
        }
        Ok(())
    }

    /// Removes every file of a plugin, or the folder of a skill.
    fn remove_all_builds(
        &self,
        change: &InstallChange,
        history: &mut File,
    ) -> Result<(), InstallError> {
        let name = &change.plugin;
        for file in self.files(name)? {
            self.remove_and_record(&file, change, history)?;
        }
        if self.locked_skill(name)?.is_some() && !self.is_adopted(name) {
            self.skills.remove(name)?;
        }
        Ok(())
    }

    /// Removes the other files of a plugin.
    fn remove_others(
        &self,
        pending: &PendingChange,
        history: &mut File,
    ) -> Result<(), InstallError> {
        for other in self.files(&pending.change.plugin)? {
            if other.path != pending.path {
                self.remove_and_record(&other, &pending.change, history)?;
            }
        }
        Ok(())
    }

    /// Removes a file of a plugin. What the change does not name is a removal of its own, which is noted
    /// first: it is kept and can be put back as well.
    fn remove_and_record(
        &self,
        file: &PluginFile,
        change: &InstallChange,
        history: &mut File,
    ) -> Result<(), InstallError> {
        let named = [&change.from, &change.to].into_iter().flatten();
        let mut named = named.map(|build| build.sha256);
        if !named.any(|sha256| sha256 == file.sha256) {
            let kept = self.backup_path_as(&file.sha256, BuildForm::of(&file.bytes));
            fs::write_atomic(kept, &file.bytes)?;
            let removal = InstallChange {
                at_ms: change.at_ms,
                action: InstallAction::Remove,
                plugin: change.plugin.clone(),
                from: Some(version(file)),
                to: None,
                altered: false,
            };
            append_change(history, &removal)?;
        }
        Ok(std::fs::remove_file(&file.path)?)
    }

    /// What is there, and the package that it came in; nothing where it is not what its lock says.
    fn version(&self, build: &InstalledBuild) -> Option<InstalledVersion> {
        let locked = self.lock().plugin(&build.name).ok()?;
        if locked
            .as_ref()
            .is_some_and(|it| !it.contains(&build.sha256))
        {
            return None;
        }
        Some(InstalledVersion {
            version: build.version.clone(),
            sha256: build.sha256,
            package: locked.map(Box::new),
        })
    }

    /// What the lock says that is there, whatever became of it.
    fn locked_version(&self, name: &str) -> Result<Option<InstalledVersion>, InstallError> {
        let locked = self.lock().plugin(name)?;
        Ok(locked.and_then(|locked| {
            Some(InstalledVersion {
                version: locked.version.clone(),
                sha256: *locked.local_digest()?,
                package: Some(Box::new(locked)),
            })
        }))
    }

    fn not_installed(&self, name: &str) -> InstallError {
        let found = self.installed_paths().unwrap_or_default().into_iter();
        let files = found.filter_map(|path| PluginFile::read(&path, true).ok());
        // Skill folders lie elsewhere, and what was altered or lost is no plugin any more.
        let locked = self.lock().plugins().unwrap_or_default().into_iter();
        let names = files.map(|file| file.header.name);
        let names: BTreeSet<String> = names.chain(locked.map(|locked| locked.name)).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        InstallError::NotInstalled {
            name: name.to_owned(),
            dir: self.plugins.clone(),
            installed: join_or_none(&names),
        }
    }

    /// A path for a plugin that is not there yet.
    fn free_path(&self, name: &str, form: BuildForm) -> Result<PathBuf, InstallError> {
        let extension = form.extension();
        let is_locked = matches!(self.lock().plugin(name), Ok(Some(_)));
        let name = match form {
            BuildForm::Library => format!("lib{}", safe_name(name).replace('-', "_")),
            BuildForm::Program => safe_name(name),
            BuildForm::Skill => {
                return self
                    .skills
                    .path(name)
                    .ok_or_else(|| InstallError::Conflict {
                        name: name.to_owned(),
                        reason:
                            "there is no home directory, or none that has a place for this name"
                                .to_owned(),
                    });
            }
        };
        let mut path = self.plugins.join(format!("{name}.{extension}"));
        let mut number = 2;
        // What is there and is no plugin was one that the lock names, and was altered.
        let is_lost = |path: &Path| is_locked && PluginFile::read(path, true).is_err();
        while path.exists() && !is_lost(&path) {
            path = self.plugins.join(format!("{name}_{number}.{extension}"));
            number += 1;
        }
        Ok(path)
    }

    /// One change at a time, whoever makes it; what one before left half is ended first.
    pub(super) fn lock_changes(&self) -> Result<File, InstallError> {
        fs::create_private_dir(&self.history)?;
        let lock = fs::lock(self.history.join("lock"))?;
        self.finish_interrupted()?;
        Ok(lock)
    }

    /// Brings a change that ended in its middle to its beginning or its end, and removes what such
    /// changes left; whether there was something.
    pub(super) fn recover_interrupted(&self) -> Result<bool, InstallError> {
        if !self.has_interrupted_change() {
            return Ok(false);
        }
        drop(self.lock_changes()?);
        Ok(true)
    }
}

pub(super) fn version(file: &PluginFile) -> InstalledVersion {
    InstalledVersion {
        version: file.header.version.clone(),
        sha256: file.sha256,
        package: None,
    }
}

fn join_or_none(words: &[&str]) -> String {
    match words {
        [] => "none".to_owned(),
        words => words.join(", "),
    }
}
