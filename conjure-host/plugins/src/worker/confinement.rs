//! What a worker may reach of this machine, and how the kernel keeps it to that.
//!
//! Files by Landlock: what every program needs is readable, and what its session and its manifest
//! name can be used. Everything that files do not say by seccomp: programs and processes, connections,
//! other processes' memory, mounts, modules and the like. Both begin before the library is opened, so
//! they hold for its constructors too, and nothing can take them back.
//!
//! That a file exists, and its size and times, the kernel tells in any case.

use std::path::{Path, PathBuf};

use conjure_skill_sdk::protocol::Permissions;
use serde::{Deserialize, Serialize};

/// What one worker may reach.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Confinement {
    /// Files and directories that it reads, absolute.
    pub(super) read: Vec<PathBuf>,
    /// Files and directories that it reads and changes, absolute.
    pub(super) write: Vec<PathBuf>,
    /// Whether it opens connections itself.
    pub(super) network: bool,
    /// Whether it starts programs.
    pub(super) commands: bool,
}

impl Confinement {
    /// What a manifest names. `home` stands for `~`.
    ///
    /// # Errors
    /// The path that cannot be granted: one that is not absolute, or that holds `secret`, where the
    /// host keeps its own.
    pub(super) fn of(
        permissions: &Permissions,
        home: Option<&Path>,
        secret: &Path,
    ) -> Result<Self, String> {
        let paths = |named: &[String]| -> Result<Vec<PathBuf>, String> {
            let named = named.iter();
            named.map(|name| granted(name, home, secret)).collect()
        };
        Ok(Self {
            read: paths(&permissions.read)?,
            write: paths(&permissions.write)?,
            network: permissions.network,
            commands: permissions.commands,
        })
    }

    /// The same, and these directories to work in.
    #[must_use]
    pub(super) fn working_in(mut self, dirs: impl IntoIterator<Item = PathBuf>) -> Self {
        self.write.extend(dirs);
        self
    }
}

fn granted(name: &str, home: Option<&Path>, secret: &Path) -> Result<PathBuf, String> {
    let path = match (name.strip_prefix("~/"), home) {
        (Some(rest), Some(home)) => home.join(rest),
        _ => PathBuf::from(name),
    };
    if !path.is_absolute() {
        return Err(format!(
            "its manifest asks for `{name}`, which is neither an absolute path nor below `~/`"
        ));
    }
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    if real(secret).starts_with(real(&path)) || real(&path).starts_with(real(secret)) {
        return Err(format!(
            "its manifest asks for `{name}`, where this host keeps its own files"
        ));
    }
    Ok(path)
}

/// What this system cannot keep a worker from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ConfinementGaps {
    /// Some or all of the files that are not the plugin's, and TCP connections: the kernel has no
    /// Landlock, or an old one.
    pub files: bool,
    /// Programs, sockets and the kernel's own settings: it has no seccomp.
    pub calls: bool,
}

/// What this system cannot keep workers from. Tries it out, on a thread that ends then.
///
/// # Errors
/// The system's, when it has no thread.
pub fn confinement_gaps() -> std::io::Result<ConfinementGaps> {
    let tried = std::thread::Builder::new()
        .name("confinement".to_owned())
        .spawn(|| Confinement::default().enter(Path::new("/dev/null")))?
        .join();
    tried.map_err(|_| std::io::Error::other("it could not be tried out"))
}

#[cfg(not(target_os = "linux"))]
impl Confinement {
    /// Confines this process, as far as the system can: not at all.
    pub(super) fn enter(&self, _copy: &Path) -> ConfinementGaps {
        ConfinementGaps {
            files: true,
            calls: true,
        }
    }
}

#[cfg(target_os = "linux")]
impl Confinement {
    /// Confines the calling thread and what it starts, as far as the system can: in a worker all
    /// of it, since it has no other yet. `copy` is the library that it opens then.
    pub(super) fn enter(&self, copy: &Path) -> ConfinementGaps {
        ConfinementGaps {
            files: !super::landlock::restrict(self, copy).unwrap_or(false),
            calls: super::seccomp::restrict(self).is_err(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(path: &str) -> Result<Confinement, String> {
        let permissions = Permissions {
            write: vec![path.to_owned()],
            ..Permissions::default()
        };
        let secret = Path::new("/home/ada/.local/share/conjure");
        Confinement::of(&permissions, Some(Path::new("/home/ada")), secret)
    }

    #[test]
    fn a_manifest_gets_what_it_names_and_never_what_is_the_hosts() {
        let paths = |path| asked(path).map(|confinement| confinement.write);
        assert_eq!(paths("/var/log"), Ok(vec!["/var/log".into()]));
        assert_eq!(paths("~/notes"), Ok(vec!["/home/ada/notes".into()]));
        for refused in [
            "/",
            "~/",
            "/home",
            "~/.local/share/conjure",
            "~/.local/share/conjure/store",
        ] {
            let reason = paths(refused).unwrap_err();
            assert!(reason.contains("keeps its own"), "{refused}: {reason}");
        }
        assert!(paths("notes").unwrap_err().contains("absolute"));
    }
}
