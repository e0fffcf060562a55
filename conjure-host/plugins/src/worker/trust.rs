//! Libraries that run inside the host where others have workers: those that their owner has listed, by
//! the digest of their bytes, and those that come with the program, by a list of digests beside them.

use std::io;
use std::path::{Path, PathBuf};

use serde::de::IntoDeserializer;
use serde::de::value::Error;
use serde::{Deserialize as _, Serialize};

use super::IsolationReason;
use crate::Sha256;
use crate::owners_list::{ListEntry, OwnersList};

/// A file beside the program's own plugins that lists them, as `sha256sum` writes it.
const CHECKSUMS: &str = "SHA256SUMS";

/// The owner's list, and what needs none.
#[derive(Debug, Clone, Default)]
pub struct PluginTrust {
    list: OwnersList<TrustedLibrary>,
    shipped: Vec<PathBuf>,
}

/// A library that is trusted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TrustedLibrary {
    /// The digest of its bytes.
    pub sha256: Sha256,
    /// What it was called when it was listed: name and version.
    pub name: String,
}

impl PluginTrust {
    /// The list is in this file; each line has a digest and behind it a name.
    #[must_use]
    pub fn listed_in(mut self, list: impl Into<PathBuf>) -> Self {
        self.list = OwnersList::in_file(list);
        self
    }

    /// The program's own plugins are in this directory, and need no listing by the owner: those whose digests its
    /// `SHA256SUMS` has, or all where there is no such file, as where they are built.
    #[must_use]
    pub fn shipped_in(mut self, dir: impl Into<PathBuf>) -> Self {
        self.shipped.push(dir.into());
        self
    }

    /// Why the library may run inside the host; nothing where it may not.
    pub(crate) fn reason(&self, path: &Path, sha256: &Sha256) -> Option<IsolationReason> {
        if self
            .shipped_dir(path)
            .is_some_and(|dir| has_checksum(&dir, sha256))
        {
            return Some(IsolationReason::Shipped);
        }
        self.is_listed(sha256)
            .then_some(IsolationReason::TrustedFile)
    }

    /// Whether it lies where the program's own plugins are.
    pub(crate) fn is_shipped(&self, path: &Path) -> bool {
        self.shipped_dir(path).is_some()
    }

    /// The directory of the program's own plugins that a file lies in.
    fn shipped_dir(&self, path: &Path) -> Option<PathBuf> {
        let dir = path.parent()?.canonicalize().ok()?;
        let mut shipped = self
            .shipped
            .iter()
            .filter_map(|dir| dir.canonicalize().ok());
        shipped.find(|shipped| *shipped == dir)
    }

    fn is_listed(&self, sha256: &Sha256) -> bool {
        let listed = self.entries().unwrap_or_else(|error| {
            tracing::warn!("the list of trusted plugins cannot be read: {error}");
            Vec::new()
        });
        listed.iter().any(|trusted| trusted.sha256 == *sha256)
    }

    /// What is listed.
    ///
    /// # Errors
    /// The system's.
    pub fn entries(&self) -> io::Result<Vec<TrustedLibrary>> {
        self.list.entries()
    }

    /// Lists a library; whether it was not listed before.
    ///
    /// # Errors
    /// The system's.
    pub fn add(&self, library: TrustedLibrary) -> io::Result<bool> {
        self.list.add(library)
    }

    /// Lists a library no more; whether it was listed.
    ///
    /// # Errors
    /// The system's.
    pub fn remove(&self, sha256: &Sha256) -> io::Result<bool> {
        self.list.remove(sha256)
    }
}

/// Whether a directory's list of checksums has this one. A directory without a list has any; one whose list
/// cannot be read has none. Read anew each time: an upgrade of the program replaces it while hosts run.
fn has_checksum(dir: &Path, sha256: &Sha256) -> bool {
    let list = dir.join(CHECKSUMS);
    if std::fs::symlink_metadata(&list).is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
    {
        return true;
    }
    match OwnersList::<TrustedLibrary>::in_file(&list).entries() {
        Ok(listed) => listed.iter().any(|library| library.sha256 == *sha256),
        Err(error) => {
            tracing::warn!("{} cannot be read: {error}", list.display());
            false
        }
    }
}

impl ListEntry for TrustedLibrary {
    type Key = Sha256;

    fn read(key: &str, name: &str) -> Option<Self> {
        let digest = IntoDeserializer::<Error>::into_deserializer(key);
        Some(Self {
            sha256: Sha256::deserialize(digest).ok()?,
            name: name.to_owned(),
        })
    }

    fn key(&self) -> &Sha256 {
        &self.sha256
    }

    fn name(&self) -> &str {
        &self.name
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::owners_list::read_line;

    fn holds(trust: &PluginTrust, path: &Path, sha256: &Sha256) -> bool {
        trust.reason(path, sha256).is_some()
    }

    fn library(name: &str) -> TrustedLibrary {
        TrustedLibrary {
            sha256: Sha256::of(name.as_bytes()),
            name: format!("{name} 1.0.0"),
        }
    }

    #[test]
    fn a_library_is_trusted_by_its_bytes_from_its_listing_to_its_removal() {
        let dir = tempfile::tempdir().unwrap();
        let trust = PluginTrust::default().listed_in(dir.path().join("trusted-plugins"));
        let (one, two) = (library("one"), library("two"));
        let anywhere = Path::new("/anywhere/lib.so");
        assert!(!holds(&trust, anywhere, &one.sha256));
        assert!(trust.add(one.clone()).unwrap());
        assert!(!trust.add(one.clone()).unwrap());
        assert!(trust.add(two.clone()).unwrap());
        assert!(holds(&trust, anywhere, &one.sha256));
        assert!(!holds(&trust, anywhere, &library("three").sha256));
        assert_eq!(trust.entries().unwrap(), [one.clone(), two.clone()]);
        assert!(trust.remove(&one.sha256).unwrap());
        assert!(!trust.remove(&one.sha256).unwrap());
        assert_eq!(trust.entries().unwrap(), [two]);
        assert!(!holds(&trust, anywhere, &one.sha256));
    }

    #[test]
    fn what_ten_list_at_once_is_all_listed() {
        let dir = tempfile::tempdir().unwrap();
        let trust = PluginTrust::default().listed_in(dir.path().join("trusted-plugins"));
        std::thread::scope(|scope| {
            for number in 0..10 {
                let trust = &trust;
                scope.spawn(move || trust.add(library(&format!("p{number}"))).unwrap());
            }
        });
        assert_eq!(trust.entries().unwrap().len(), 10);
    }

    #[test]
    fn only_the_very_directory_of_the_program_needs_no_listing() {
        let dir = tempfile::tempdir().unwrap();
        let shipped = dir.path().join("plugins");
        std::fs::create_dir_all(shipped.join("more")).unwrap();
        let trust = PluginTrust::default().shipped_in(&shipped);
        let digest = Sha256::of(b"any");
        assert!(holds(&trust, &shipped.join("liba.so"), &digest));
        assert!(holds(&trust, &shipped.join("more/../liba.so"), &digest));
        assert!(!holds(&trust, &shipped.join("more/liba.so"), &digest));
        let beside = dir.path().join("liba.so");
        assert!(!holds(&trust, &beside, &digest));
        assert!(holds(&trust.shipped_in(dir.path()), &beside, &digest));
    }

    #[test]
    fn where_the_programs_plugins_are_listed_no_other_one_needs_no_listing() {
        let dir = tempfile::tempdir().unwrap();
        let trust = PluginTrust::default().shipped_in(dir.path());
        let (own, strange) = (Sha256::of(b"own"), Sha256::of(b"strange"));
        let library = dir.path().join("liba.so");
        let list = dir.path().join(CHECKSUMS);
        std::fs::write(&list, format!("{own}  liba.so\n")).unwrap();
        assert!(holds(&trust, &library, &own));
        assert!(!holds(&trust, &library, &strange));
        // An upgrade.
        std::fs::write(&list, format!("{strange}  liba.so\n")).unwrap();
        assert!(!holds(&trust, &library, &own) && holds(&trust, &library, &strange));
        // A list that cannot be read lists nothing.
        std::fs::remove_file(&list).unwrap();
        std::fs::create_dir(&list).unwrap();
        assert!(!holds(&trust, &library, &own) && !holds(&trust, &library, &strange));
    }

    #[test]
    fn lines_that_say_nothing_are_passed_over() {
        let digest = Sha256::of(b"x");
        let line: TrustedLibrary = read_line(&format!("{digest}  cache manager 1.0.0")).unwrap();
        assert_eq!(line.name, "cache manager 1.0.0");
        let bare: TrustedLibrary = read_line(&digest.to_string()).unwrap();
        assert_eq!(bare.sha256, digest);
        for nothing in ["", "# a comment", "abc  short", "../../etc/passwd"] {
            assert_eq!(read_line::<TrustedLibrary>(nothing), None);
        }
    }
}
