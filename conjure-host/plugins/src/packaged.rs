//! Which libraries came in packages, and whether they still are what their packages had.
//!
//! The lock says what is installed now, and the list of digests what ever was: code that came from
//! elsewhere stays somebody else's, wherever its file lies and whatever becomes of the lock.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use conjure_config::fs;
use serde::Deserialize as _;
use serde::de::IntoDeserializer;
use serde::de::value::Error;

use super::{LOCK_FILE, LockedPlugin, PluginError, PluginLock, Sha256};

/// What stands in the list for a library that nobody signed.
const NOBODY: &str = "-";

/// The packages of a data directory.
#[derive(Debug, Clone)]
pub struct PackagedPlugins {
    plugins: PathBuf,
    lock: PluginLock,
    list: PathBuf,
}

/// What is known of a library that came in a package.
#[derive(Debug, Default)]
pub(crate) struct PackagedOrigin {
    /// Whose signature the package had.
    pub(crate) signer: Option<String>,
    /// The digest of the manifest that was allowed.
    pub(crate) manifest: Option<Sha256>,
}

impl PackagedPlugins {
    /// Those of a data directory.
    pub fn of(data_dir: &Path) -> Self {
        Self {
            plugins: data_dir.join("plugins"),
            lock: PluginLock::at(data_dir.join(LOCK_FILE)),
            list: data_dir.join("packaged-libraries"),
        }
    }

    /// What is installed now.
    pub fn lock(&self) -> &PluginLock {
        &self.lock
    }

    /// Judges a library before it is opened: where it came from, or nothing where it came in no
    /// package.
    ///
    /// # Errors
    /// [`PluginError::Locked`] where it has other bytes than the lock says, and [`PluginError::Lock`]
    /// where nobody knows what was installed.
    pub(crate) fn judge(
        &self,
        path: &Path,
        name: &str,
        sha256: &Sha256,
    ) -> Result<Option<PackagedOrigin>, PluginError> {
        let unknown = |reason: String| PluginError::Lock {
            path: path.to_owned(),
            reason,
        };
        if self.is_here(path) {
            let locked = self.lock.plugin(name);
            let locked = locked.map_err(|error| unknown(error.to_string()))?;
            if let Some(locked) = locked {
                if !locked.holds(sha256) {
                    return Err(PluginError::Locked {
                        path: path.to_owned(),
                        name: name.to_owned(),
                        version: locked.version,
                        lock: self.lock.path().to_owned(),
                    });
                }
                return Ok(Some(PackagedOrigin {
                    signer: locked.signer,
                    manifest: locked.manifest,
                }));
            }
        }
        let listed = self.listed().map_err(|error| unknown(error.to_string()))?;
        Ok(listed.get(sha256).map(|signer| PackagedOrigin {
            signer: signer.clone(),
            manifest: None,
        }))
    }

    /// Lists the libraries of a package, for good. To be done before one of them is there.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn note(&self, package: &LockedPlugin) -> io::Result<()> {
        let mut listed = self.listed()?;
        let before = listed.clone();
        for sha256 in package.libraries.values() {
            listed.insert(*sha256, package.signer.clone());
        }
        if listed == before {
            return Ok(());
        }
        let lines = listed.iter().map(|(sha256, signer)| {
            let signer = signer.as_deref().unwrap_or(NOBODY);
            format!("{sha256} {signer}\n")
        });
        fs::write_atomic(&self.list, lines.collect::<String>().as_bytes())
    }

    fn listed(&self) -> io::Result<BTreeMap<Sha256, Option<String>>> {
        match fs::read_to_string(&self.list) {
            Ok(text) => Ok(text.lines().filter_map(read_line).collect()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(BTreeMap::new()),
            Err(error) => Err(error),
        }
    }

    fn is_here(&self, path: &Path) -> bool {
        let dir = match path.parent() {
            Some(dir) if dir.as_os_str().is_empty() => Path::new("."),
            Some(dir) => dir,
            None => return false,
        };
        dir == self.plugins
            || matches!(
                (dir.canonicalize(), self.plugins.canonicalize()),
                (Ok(dir), Ok(plugins)) if dir == plugins
            )
    }
}

fn read_line(line: &str) -> Option<(Sha256, Option<String>)> {
    let (digest, signer) = line.split_once(' ')?;
    let digest = IntoDeserializer::<Error>::into_deserializer(digest);
    let signer = (signer != NOBODY).then(|| signer.to_owned());
    Some((Sha256::deserialize(digest).ok()?, signer))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(signer: Option<&str>) -> LockedPlugin {
        LockedPlugin {
            name: "x".to_owned(),
            version: "1.0.0".to_owned(),
            source: "x".to_owned(),
            index: None,
            sha256: Sha256::of(b"package"),
            signer: signer.map(str::to_owned),
            manifest: None,
            libraries: [("here".to_owned(), Sha256::of(b"library"))].into(),
        }
    }

    #[test]
    fn what_came_in_a_package_is_known_wherever_it_lies_and_whatever_becomes_of_the_lock() {
        let dir = tempfile::tempdir().unwrap();
        let packaged = PackagedPlugins::of(dir.path());
        let library = Sha256::of(b"library");
        let elsewhere = Path::new("/elsewhere/libx.so");
        let here = dir.path().join("plugins/libx.so");
        assert!(packaged.judge(&here, "x", &library).unwrap().is_none());
        packaged.note(&package(Some("RWQ"))).unwrap();
        for path in [elsewhere, here.as_path()] {
            let origin = packaged.judge(path, "x", &library).unwrap().unwrap();
            assert_eq!(origin.signer.as_deref(), Some("RWQ"));
        }
        packaged.lock.set("x", Some(package(None))).unwrap();
        let other = Sha256::of(b"other");
        packaged.judge(&here, "x", &other).unwrap_err();
        assert!(packaged.judge(elsewhere, "x", &other).unwrap().is_none());
        assert!(packaged.judge(&here, "y", &other).unwrap().is_none());
    }
}
