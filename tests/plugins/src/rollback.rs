//! Puts a build back as whoever agrees to the newest one that is kept.

use conjure_host::plugin::{InstallChange, InstallError, InstalledPlugins};

/// Puts the build before the newest change back, or the newest one of this version.
///
/// # Errors
/// [`InstallError::NoBackup`], [`InstallError::Altered`], and the system's.
pub fn roll_back(
    installed: &InstalledPlugins,
    name: &str,
    wanted: Option<&str>,
) -> Result<InstallChange, InstallError> {
    let before = installed.state(name)?;
    let build = installed.rollback_target(name, wanted)?;
    installed.rollback_if_unchanged(name, &build, &before)
}
