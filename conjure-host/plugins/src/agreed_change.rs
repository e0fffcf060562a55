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

impl InstalledPlugins {
    /// What is there of a plugin now. To be asked before anything else is read that a change is judged
    /// by.
    ///
    /// # Errors
    /// The system's.
    pub fn state(&self, name: &str) -> Result<InstalledState, InstallError> {
        let build = self.build(name)?.map(|build| build.sha256);
        self.state_with(name, build)
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
    /// As [`InstalledPlugins::add`], and [`InstallError::Overtaken`].
    pub fn add_agreed(
        &self,
        file: &PluginFile,
        before: &InstalledState,
    ) -> Result<Option<InstallChange>, InstallError> {
        let _lock = self.one_at_a_time()?;
        let name = &file.header.name;
        let now = self.state(name)?;
        // The very same build may have come meanwhile.
        let is_same = now.build == Some(file.sha256) && now.locked == before.locked;
        if now != *before && !is_same {
            return Err(overtaken(name));
        }
        self.put(name, (version(file), file.bytes.as_slice()), None)
    }

    /// As [`InstalledPlugins::rollback`], of the very build that was judged, in the place of what was
    /// there then.
    ///
    /// # Errors
    /// [`InstallError::Overtaken`], [`InstallError::Altered`], and the system's.
    pub fn rollback_agreed(
        &self,
        name: &str,
        build: &InstalledVersion,
        before: &InstalledState,
    ) -> Result<InstallChange, InstallError> {
        let _lock = self.one_at_a_time()?;
        let current = self.build(name)?;
        let sha256 = current.as_ref().map(|current| current.sha256);
        if self.state_with(name, sha256)? != *before {
            return Err(overtaken(name));
        }
        self.put_back(name, current.as_ref(), build)
    }
}

fn overtaken(name: &str) -> InstallError {
    InstallError::Overtaken {
        name: name.to_owned(),
    }
}
