//! What a worker may reach: nothing but what every program needs, and what is named here.

use std::path::{Path, PathBuf};

/// What one worker may reach.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct WorkerConfinement {
    /// Files and directories that it reads, absolute and without links.
    pub read: Vec<PathBuf>,
    /// Files and directories that it reads and changes, absolute and without links.
    pub write: Vec<PathBuf>,
    /// Whether it opens connections itself.
    pub network: bool,
    /// Whether it starts programs.
    pub commands: bool,
    /// Whether it becomes a program: that is no other process.
    #[cfg_attr(feature = "serde", serde(default))]
    pub program: bool,
}

/// What this system cannot keep a worker from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ConfinementGaps {
    /// Files that are not the plugin's, some or all of them, TCP connections, and sockets and signals
    /// beyond what seccomp knows of: the kernel has no Landlock, or an old one.
    pub files: bool,
    /// Programs, sockets and the kernel's own settings: it has no seccomp.
    pub calls: bool,
}

/// The version of Landlock that this kernel has; nothing where it has none.
#[must_use]
pub fn landlock_version() -> Option<u32> {
    #[cfg(target_os = "linux")]
    let version = super::files::landlock_version();
    #[cfg(not(target_os = "linux"))]
    let version = None;
    version
}

#[cfg(not(target_os = "linux"))]
impl WorkerConfinement {
    /// Confines this process, as far as the system can: not at all.
    ///
    /// # Errors
    /// None.
    pub fn enter(&self, _copy: &Path) -> Result<ConfinementGaps, String> {
        Ok(ConfinementGaps {
            files: true,
            calls: true,
        })
    }
}

#[cfg(target_os = "linux")]
impl WorkerConfinement {
    /// Confines the calling thread and what it starts, as far as the system can: in a worker all
    /// of it, since it has no other yet. `copy` is the library that it opens then, or the directory of
    /// the program that it becomes.
    ///
    /// # Errors
    /// That the kernel has what it takes and refused it all the same.
    pub fn enter(&self, copy: &Path) -> Result<ConfinementGaps, String> {
        // Root's own ways to other processes' memory and to the kernel's.
        super::capabilities::keep_worker_capabilities()
            .map_err(|error| format!("capabilities: {error}"))?;
        let whole = super::files::restrict_worker(self, copy);
        let whole = whole.map_err(|error| format!("Landlock: {error}"))?;
        Ok(ConfinementGaps {
            files: !whole,
            calls: super::system_calls::restrict_worker(self).is_err(),
        })
    }
}
