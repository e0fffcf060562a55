//! Changes that somebody agreed to who was shown what is there: they are made as long as that is there,
//! since what becomes another one meanwhile was not compared with what is to take its place.

use super::installed::version;
use super::{
    InstallChange, InstallError, InstalledPlugins, InstalledVersion, LockedPlugin, PluginFile,
    Sha256,
};

/// What is there of a plugin when a change of it is judged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstalledState {
    build: Option<Sha256>,
    locked: Option<LockedPlugin>,
}

impl InstalledState {
    /// What the lock says of it, where it came in a package.
    pub fn locked(&self) -> Option<&LockedPlugin> {
        self.locked.as_ref()
    }

    /// Refuses where something else is there `now`, unless that `is_wanted`.
    fn check_unchanged(&self, name: &str, now: &Self, is_wanted: bool) -> Result<(), InstallError> {
        if now == self || is_wanted {
            return Ok(());
        }
        Err(InstallError::ChangedMeanwhile {
            name: name.to_owned(),
        })
    }
}

impl InstalledPlugins {
    /// What is there of a plugin now, after a change that a crash left half has ended. To be asked
    /// before anything else is read that a change is judged by.
    ///
    /// # Errors
    /// The system's.
    pub fn state(&self, name: &str) -> Result<InstalledState, InstallError> {
        Ok(self.state_and_file(name)?.0)
    }

    /// Like [`Self::state`], with the plugin's file, which is read only once; a skill folder has none.
    ///
    /// # Errors
    /// The system's.
    pub fn state_and_file(
        &self,
        name: &str,
    ) -> Result<(InstalledState, Option<PluginFile>), InstallError> {
        self.recover_interrupted()?;
        let file = self.file(name)?;
        let build = match &file {
            Some(file) => Some(file.sha256),
            None => self.skill_build(name)?.map(|skill| skill.sha256),
        };
        Ok((self.state_with(name, build)?, file))
    }

    fn state_with(
        &self,
        name: &str,
        build: Option<Sha256>,
    ) -> Result<InstalledState, InstallError> {
        let locked = self.lock().plugin(name)?;
        Ok(InstalledState { build, locked })
    }

    /// As [`InstalledPlugins::add`], in the place of what was there when it was judged.
    ///
    /// # Errors
    /// As [`InstalledPlugins::add`], and [`InstallError::ChangedMeanwhile`].
    pub fn add_if_unchanged(
        &self,
        file: &PluginFile,
        before: &InstalledState,
    ) -> Result<Option<InstallChange>, InstallError> {
        let _lock = self.lock_changes()?;
        let name = &file.header.name;
        let current = self.build(name)?;
        let now = self.state_with(name, current.as_ref().map(|it| it.sha256))?;
        // The very same build may have come meanwhile.
        let is_same = now.build == Some(file.sha256) && now.locked == before.locked;
        before.check_unchanged(name, &now, is_same)?;
        let new = (version(file), file.bytes.as_slice());
        self.install_build(name, current.as_ref(), new, None)
    }

    /// Installs what came in a package, as [`InstalledPlugins::add_if_unchanged`] what did not.
    ///
    /// # Errors
    /// As [`InstalledPlugins::add_if_unchanged`].
    pub fn install(
        &self,
        file: &PluginFile,
        package: LockedPlugin,
        before: &InstalledState,
    ) -> Result<Option<InstallChange>, InstallError> {
        let new = (version(file), file.bytes.as_slice());
        self.put_package(package, new, before)
    }

    /// As [`InstalledPlugins::install`], of the archive of a skill folder, which goes to the user's
    /// skills.
    ///
    /// # Errors
    /// As [`InstalledPlugins::install`], and [`InstallError::Conflict`].
    pub fn install_skill(
        &self,
        archive: &[u8],
        package: LockedPlugin,
        before: &InstalledState,
    ) -> Result<Option<InstallChange>, InstallError> {
        let new = InstalledVersion {
            version: package.version.clone(),
            sha256: Sha256::of(archive),
            package: None,
        };
        self.put_package(package, (new, archive), before)
    }

    fn put_package(
        &self,
        package: LockedPlugin,
        (new, bytes): (InstalledVersion, &[u8]),
        before: &InstalledState,
    ) -> Result<Option<InstallChange>, InstallError> {
        let _lock = self.lock_changes()?;
        let name = package.name.clone();
        let current = self.build(&name)?;
        let now = self.state_with(&name, current.as_ref().map(|it| it.sha256))?;
        // The very same package may have come meanwhile.
        let is_same = now.build == Some(new.sha256)
            && now.locked().is_some_and(|now| now.sha256 == package.sha256);
        before.check_unchanged(&name, &now, is_same)?;
        self.packaged.record_package(&package)?;
        self.install_build(&name, current.as_ref(), (new, bytes), Some(package))
    }

    /// Puts the very build back that was judged, which [`InstalledPlugins::rollback_target`] found, in the place
    /// of what was there then.
    ///
    /// # Errors
    /// [`InstallError::ChangedMeanwhile`], [`InstallError::Altered`], and the system's.
    pub fn rollback_if_unchanged(
        &self,
        name: &str,
        build: &InstalledVersion,
        before: &InstalledState,
    ) -> Result<InstallChange, InstallError> {
        let _lock = self.lock_changes()?;
        let current = self.build(name)?;
        let now = self.state_with(name, current.as_ref().map(|it| it.sha256))?;
        before.check_unchanged(name, &now, false)?;
        self.restore(name, current.as_ref(), build)
    }
}

#[cfg(test)]
mod tests {
    use conjure_config::fs;

    use super::super::SkillArchive;
    use super::super::installed_build::UserSkillFolders;
    use super::*;

    #[test]
    fn a_skill_folder_that_another_data_directory_has_too_is_taken_over() {
        let dir = tempfile::tempdir().unwrap();
        let of = |name: &str| {
            let mut installed = InstalledPlugins::of(&dir.path().join(name));
            installed.skills = UserSkillFolders::below(dir.path().join("home/skills"));
            installed
        };
        let archive = |body: &str| {
            let folder = dir.path().join("author/x");
            fs::create_private_dir(&folder).unwrap();
            let text = format!("---\nname: x\ndescription: Does it\n---\n{body}\n");
            fs::write(folder.join("SKILL.md"), text).unwrap();
            SkillArchive::read(&folder).unwrap().bytes
        };
        let install = |at: &InstalledPlugins, archive: &[u8]| {
            let package = LockedPlugin {
                name: "x".to_owned(),
                version: "1.0.0".to_owned(),
                source: "x".to_owned(),
                index: None,
                sha256: Sha256::of(b"package"),
                signer: None,
                manifest: None,
                skill: Some(Sha256::of(archive)),
                libraries: [].into(),
            };
            let state = at.state("x").unwrap();
            at.install_skill(archive, package, &state)
        };
        let (old, new) = (archive("Old."), archive("New."));
        let (one, two) = (of("one"), of("two"));
        for at in [&one, &two] {
            install(at, &old).unwrap().unwrap();
            assert_eq!(at.skill_archive("x").unwrap().as_ref(), Some(&old));
        }
        assert!(
            !dir.path().join("home/altered").exists(),
            "nobody altered it"
        );
        // Of another version it is said what it may be.
        let error = install(&of("three"), &new).unwrap_err().to_string();
        assert!(error.contains("another data directory"), "{error}");
        assert_eq!(one.skill_archive("x").unwrap(), Some(old));
    }
}
