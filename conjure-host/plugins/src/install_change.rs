//! What becomes of installed plugins, in words: builds, changes, and why nothing was changed.

use std::io;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::{LockError, LockedPlugin, PluginError, Sha256};

/// One build of a plugin.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstalledVersion {
    /// Version of the plugin.
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
    /// A build came that is new, or in the place of another one.
    Add,
    /// The plugin was removed.
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
    /// Whether a removal found another build than the package's, or none, so that nothing is kept;
    /// `from` is then what the lock named. Whatever else replaces such a build has no `from`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub altered: bool,
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
        /// Names of the installed plugins, for the message.
        installed: String,
    },
    /// There is no such build to put back.
    #[error(
        "there is no {wanted} of `{name}` to put back; kept are: {kept}. `conjure plugin history \
         {name}` shows what there was"
    )]
    NoBackup {
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
    /// Somebody else installed or removed the plugin meanwhile.
    #[error(
        "{name} became another one while this one was looked at, so nothing was changed: install it \
         again to have it compared with the one that is there now"
    )]
    ChangedMeanwhile {
        /// The plugin.
        name: String,
    },
    /// The plugin cannot take the place of what has its name.
    #[error("{name} cannot be installed: {reason}")]
    Conflict {
        /// The name.
        name: String,
        /// What is there, and what to do.
        reason: String,
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
