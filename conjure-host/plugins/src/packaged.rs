//! Libraries that came in packages, and whether they still are what their packages had.
//!
//! The lock says what is installed now, and the list of digests what ever was: code that came from
//! elsewhere stays somebody else's, wherever its file lies and whatever becomes of the lock.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use conjure_config::fs;
use conjure_config::skill_folders::{DiscoveredSkills, FolderError};
use serde::Deserialize as _;
use serde::de::IntoDeserializer;
use serde::de::value::Error;

use super::installed_build::UserSkillFolders;
use super::{InstalledPlugins, LOCK_FILE, LockedPlugin, PluginError, PluginLock, Sha256};

/// What stands in the list for a library that nobody signed.
const UNSIGNED: &str = "-";

/// The packages of a data directory.
#[derive(Debug, Clone)]
pub struct PackagedPlugins {
    data_dir: PathBuf,
    plugins: PathBuf,
    lock: PluginLock,
    list: PathBuf,
}

/// What is known of a library that came in a package.
#[derive(Debug, Default)]
pub(crate) struct PackagedOrigin {
    /// Key that signed the package; `None` where nobody did.
    pub(crate) signer: Option<String>,
    /// The digest of the manifest that was allowed.
    pub(crate) manifest: Option<Sha256>,
}

impl PackagedPlugins {
    /// Returns the packages of a data directory.
    pub fn of(data_dir: &Path) -> Self {
        Self {
            data_dir: data_dir.to_owned(),
            plugins: data_dir.join("plugins"),
            lock: PluginLock::at(data_dir.join(LOCK_FILE)),
            list: data_dir.join("packaged-libraries"),
        }
    }

    /// Where installed plugins are.
    pub(crate) fn plugins(&self) -> &Path {
        &self.plugins
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
        if self.is_in_plugin_dir(path) {
            let locked = || {
                let locked = self.lock.plugin(name);
                locked.map_err(|error| unknown(error.to_string()))
            };
            let mut found = locked()?;
            if found
                .as_ref()
                .is_some_and(|locked| !locked.contains(sha256))
                && self.recover_interrupted()
            {
                found = locked()?;
            }
            if let Some(locked) = found {
                if !locked.contains(sha256) {
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
        let listed = self
            .read_list()
            .map_err(|error| unknown(error.to_string()))?;
        Ok(listed.get(sha256).map(|signer| PackagedOrigin {
            signer: signer.clone(),
            manifest: None,
        }))
    }

    /// Brings what a change left that ended in its middle to the state before it or after it, whichever
    /// is there; whether there was something.
    pub(crate) fn recover_interrupted(&self) -> bool {
        let ended = InstalledPlugins::of(&self.data_dir).recover_interrupted();
        ended.unwrap_or_else(|error| {
            tracing::warn!("a change of plugins that ended in its middle is left so: {error}");
            false
        })
    }

    /// Judges a skill folder of the user's before a session uses it: by where it is, whatever it is called
    /// on the way there, and by what is in it.
    ///
    /// # Errors
    /// [`FolderError::Altered`] where it came in a package and is not what that had, and where nobody
    /// knows what was installed.
    pub fn judge_skill(&self, dir: &Path) -> Result<(), FolderError> {
        self.judge_dir(&UserSkillFolders::of_user(), dir)
    }

    fn judge_dir(&self, folders: &UserSkillFolders, dir: &Path) -> Result<(), FolderError> {
        let names = folders.names_of(dir);
        let mut names = names.iter();
        names.try_for_each(|name| self.judge_skill_in(folders, name))
    }

    fn judge_skill_in(&self, folders: &UserSkillFolders, name: &str) -> Result<(), FolderError> {
        let altered = |reason: String| FolderError::Altered {
            path: folders.path(name).unwrap_or_default(),
            reason,
        };
        let is_it = || {
            let locked = self.lock.plugin(name);
            let locked = locked.map_err(|error| altered(error.to_string()))?;
            let Some(locked) = locked.filter(|locked| locked.skill.is_some()) else {
                return Ok(None);
            };
            let there = folders.build(&locked).map(|build| build.sha256);
            Ok((there != locked.skill).then_some(locked.version))
        };
        let mut other = is_it()?;
        if other.is_some() && self.recover_interrupted() {
            other = is_it()?;
        }
        match other {
            None => Ok(()),
            Some(version) => Err(altered(format!(
                "it came in a package as {name} {version} ({}) and is not what that had: it was changed, or \
                 another data directory has another version there. `conjure plugin install` puts back \
                 what the lock names, `conjure plugin remove {name}` makes room for one of your own; \
                 either keeps what was changed in ~/.conjure/altered",
                self.lock.path().display()
            ))),
        }
    }

    /// The skill folders that the lock names and that are nowhere.
    fn missing_skills(&self, places: &UserSkillFolders) -> Vec<FolderError> {
        let lost = || {
            // What cannot be read is told of each skill that is there.
            let locked = self.lock.plugins().unwrap_or_default().into_iter();
            let locked = locked.filter(|locked| locked.skill.is_some());
            let lost = locked.filter_map(|locked| Some((places.path(&locked.name)?, locked)));
            lost.filter(|(path, _)| !path.exists()).collect::<Vec<_>>()
        };
        let mut found = lost();
        if !found.is_empty() && self.recover_interrupted() {
            found = lost();
        }
        let told = found.into_iter().map(|(path, locked)| FolderError::Altered {
            path,
            reason: format!(
                "it came in a package as {name} {} ({}) and is not there: it was removed by hand, or with \
                 another data directory. `conjure plugin install` puts it back, `conjure plugin remove \
                 {name}` forgets it",
                locked.version,
                self.lock.path().display(),
                name = locked.name
            ),
        });
        told.collect()
    }

    /// Leaves out the found skills that are not what their packages had, and tells those that are not
    /// there any more.
    pub fn judge_skills(&self, found: &mut DiscoveredSkills) {
        found
            .broken
            .extend(self.missing_skills(&UserSkillFolders::of_user()));
        let DiscoveredSkills { skills, broken, .. } = found;
        skills.retain(|skill| match self.judge_skill(&skill.path) {
            Ok(()) => true,
            Err(error) => {
                broken.push(error);
                false
            }
        });
    }

    /// Lists the libraries of a package, for good. To be done before one of them is there.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn record_package(&self, package: &LockedPlugin) -> io::Result<()> {
        let mut listed = self.read_list()?;
        let before = listed.clone();
        for sha256 in package.digests() {
            listed.insert(*sha256, package.signer.clone());
        }
        if listed == before {
            return Ok(());
        }
        let lines = listed.iter().map(|(sha256, signer)| {
            let signer = signer.as_deref().unwrap_or(UNSIGNED);
            format!("{sha256} {signer}\n")
        });
        fs::write_atomic(&self.list, lines.collect::<String>().as_bytes())
    }

    fn read_list(&self) -> io::Result<BTreeMap<Sha256, Option<String>>> {
        match fs::read_to_string(&self.list) {
            Ok(text) => Ok(text.lines().filter_map(read_line).collect()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(BTreeMap::new()),
            Err(error) => Err(error),
        }
    }

    fn is_in_plugin_dir(&self, path: &Path) -> bool {
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
    let signer = (signer != UNSIGNED).then(|| signer.to_owned());
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
            skill: None,
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
        packaged.record_package(&package(Some("RWQ"))).unwrap();
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
    #[test]
    fn a_skill_folder_is_what_its_package_had_or_is_not_used() {
        let dir = tempfile::tempdir().unwrap();
        let places = UserSkillFolders::below(dir.path().join("skills"));
        let packaged = PackagedPlugins::of(dir.path());
        let own = dir.path().join("skills/x");
        fs::create_private_dir(&own).unwrap();
        let text = "---\nname: x\ndescription: Does it\n---\nDo it.\n";
        fs::write(own.join("SKILL.md"), text).unwrap();
        packaged.judge_skill_in(&places, "x").unwrap();
        let archive = crate::installed_build::archive(&own).unwrap();
        let locked = LockedPlugin {
            skill: Some(Sha256::of(&archive)),
            libraries: BTreeMap::new(),
            ..package(None)
        };
        packaged.lock.set("x", Some(locked)).unwrap();
        packaged.judge_skill_in(&places, "x").unwrap();
        fs::write(own.join("more.md"), "and that").unwrap();
        let error = packaged.judge_skill_in(&places, "x").unwrap_err();
        assert!(
            error.to_string().contains("conjure plugin remove x"),
            "{error}"
        );
        // It is the same folder by another way and another name, and another folder of its name is not.
        let link = dir.path().join("y");
        std::os::unix::fs::symlink(&own, &link).unwrap();
        let beside = dir.path().join("skills/z");
        std::os::unix::fs::symlink(&own, &beside).unwrap();
        let way = dir.path().join("skills/../skills/x");
        for same in [&own, &link, &beside, &way] {
            packaged.judge_dir(&places, same).unwrap_err();
        }
        let other = dir.path().join("elsewhere/x");
        fs::create_private_dir(&other).unwrap();
        packaged.judge_dir(&places, &other).unwrap();
        assert!(packaged.missing_skills(&places).is_empty());
        // Whoever renames it has made it their own.
        fs::rename(&own, dir.path().join("skills/renamed")).unwrap();
        let lost = packaged.missing_skills(&places);
        let [error] = lost.as_slice() else {
            panic!("{lost:?}");
        };
        assert!(error.to_string().contains("is not there"), "{error}");
        let renamed = dir.path().join("skills/renamed");
        packaged.judge_dir(&places, &renamed).unwrap();
        fs::write(packaged.lock.path(), "what").unwrap();
        packaged.judge_skill_in(&places, "x").unwrap_err();
    }
}
