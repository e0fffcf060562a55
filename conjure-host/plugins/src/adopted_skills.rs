//! Skill folders that several data directories of a user have: one that was there and is the very one of a
//! package is taken over as it is, and stays when the data directory that took it over gives it up.

use std::io;
use std::path::{Path, PathBuf};

use conjure_config::file_name::safe_name;
use conjure_config::fs;
use conjure_config::skill_folders::{self, SkippedFile};

use super::InstalledPlugins;

impl InstalledPlugins {
    /// What is there where the skill folder of this name was taken over.
    fn adoption_marker(&self, name: &str) -> PathBuf {
        self.history.join("taken-over").join(safe_name(name))
    }

    /// Whether the skill folder of this name was there before this data directory had it.
    pub(super) fn is_adopted(&self, name: &str) -> bool {
        self.adoption_marker(name).is_file()
    }

    /// Notes that the skill folder of this name was there before, or was put there.
    pub(super) fn set_adopted(&self, name: &str, is_taken_over: bool) -> io::Result<()> {
        let note = self.adoption_marker(name);
        if !is_taken_over {
            fs::remove_file(note);
            return Ok(());
        }
        fs::create_private_dir(note.parent().unwrap_or(Path::new("")))?;
        fs::write(note, b"")
    }
}

/// Whether a skill's directory holds what its archive leaves out and nobody makes again: a repository, keys,
/// what links lead to.
///
/// # Errors
/// What is wrong with the skill.
pub(super) fn has_extra_files(dir: &Path) -> io::Result<bool> {
    let folder = skill_folders::load_dir(dir).map_err(io::Error::other)?;
    let mut left_out = folder.skipped.iter();
    let is_own = |entry: &SkippedFile| {
        let name = entry.path.rsplit('/').next().unwrap_or_default();
        !matches!(name, ".DS_Store" | "__pycache__")
    };
    let mut resources = folder.resources.iter();
    let is_in_cache = |path: &String| {
        let is_compiled = path.ends_with(".pyc");
        path.split('/').any(|part| part == "__pycache__") && !is_compiled
    };
    Ok(left_out.any(is_own) || resources.any(is_in_cache))
}

#[cfg(test)]
mod tests {
    use super::super::installed_build::{InstalledBuild, UserSkillFolders, archive};
    use super::super::{InstallError, InstalledVersion, LockedPlugin, Sha256};
    use super::*;

    const TEXT: &str = "---\nname: x\ndescription: Does it\n---\nOne.\n";
    const NEXT: &str = "---\nname: x\ndescription: Does it\n---\nTwo.\n";

    /// A home directory that several data directories share.
    struct Home(tempfile::TempDir);

    impl Home {
        fn new() -> Self {
            Self(tempfile::tempdir().unwrap())
        }

        fn place(&self) -> PathBuf {
            self.0.path().join("home/skills/x")
        }

        fn data_dir(&self, name: &str) -> InstalledPlugins {
            let mut installed = InstalledPlugins::of(&self.0.path().join(name));
            installed.skills = UserSkillFolders::below(self.0.path().join("home/skills"));
            fs::create_private_dir(&installed.history).unwrap();
            installed
        }

        /// Folders that were moved away, by one of their files.
        fn altered_with(&self, file: &str) -> usize {
            let dirs = fs::entries(self.0.path().join("home/altered")).unwrap();
            dirs.iter().filter(|dir| dir.join(file).exists()).count()
        }
    }

    fn packed(text: &str) -> Vec<u8> {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("x");
        fs::create_private_dir(&folder).unwrap();
        fs::write(folder.join("SKILL.md"), text).unwrap();
        archive(&folder).unwrap()
    }

    fn install(installed: &InstalledPlugins, bytes: &[u8]) -> Result<(), InstallError> {
        let sha256 = Sha256::of(bytes);
        let package = LockedPlugin {
            name: "x".to_owned(),
            version: "1.0.0".to_owned(),
            source: "x".to_owned(),
            index: None,
            sha256,
            signer: None,
            manifest: None,
            skill: Some(sha256),
            libraries: [].into(),
        };
        let new = InstalledVersion {
            version: "1.0.0".to_owned(),
            sha256,
            package: None,
        };
        let current: Option<InstalledBuild> = installed.build("x")?;
        installed.install_build("x", current.as_ref(), (new, bytes), Some(package))?;
        Ok(())
    }

    #[test]
    fn a_working_copy_with_a_repository_is_not_taken_for_the_package() {
        let home = Home::new();
        let own = home.place();
        fs::create_private_dir(own.join(".git")).unwrap();
        fs::write(own.join(".git/HEAD"), "ref: refs/heads/main\n").unwrap();
        fs::write(own.join("SKILL.md"), TEXT).unwrap();
        let bytes = packed(TEXT);
        assert_eq!(archive(&own).unwrap(), bytes, "what is packed is the same");
        let data = home.data_dir("data");
        let refused = install(&data, &bytes).unwrap_err();
        assert!(
            matches!(refused, InstallError::Conflict { .. }),
            "{refused}"
        );
        assert!(own.join(".git/HEAD").is_file());
        // What others make again is nothing of the user's own.
        fs::remove_dir_all(own.join(".git")).unwrap();
        fs::create_private_dir(own.join("__pycache__")).unwrap();
        fs::write(own.join("__pycache__/run.cpython-313.pyc"), "x").unwrap();
        install(&data, &bytes).unwrap();
        assert!(own.join("__pycache__/run.cpython-313.pyc").is_file());
    }

    #[test]
    fn what_came_into_an_installed_folder_is_kept_when_that_is_replaced_or_removed() {
        let home = Home::new();
        let data = home.data_dir("data");
        install(&data, &packed(TEXT)).unwrap();
        fs::write(home.place().join(".env"), "KEY=1").unwrap();
        // The same again leaves it alone.
        install(&data, &packed(TEXT)).unwrap();
        assert!(home.place().join(".env").is_file());
        install(&data, &packed(NEXT)).unwrap();
        assert!(!home.place().join(".env").exists());
        assert_eq!(home.altered_with(".env"), 1);
        fs::write(home.place().join(".env"), "KEY=2").unwrap();
        data.remove("x").unwrap();
        assert!(!home.place().exists());
        assert_eq!(home.altered_with(".env"), 2);
    }

    #[test]
    fn whoever_took_a_folder_over_leaves_it_to_whom_it_was_there_for() {
        let home = Home::new();
        let (first, second) = (home.data_dir("first"), home.data_dir("second"));
        install(&first, &packed(TEXT)).unwrap();
        install(&second, &packed(TEXT)).unwrap();
        assert!(second.is_adopted("x") && !first.is_adopted("x"));
        second.remove("x").unwrap();
        assert!(home.place().is_dir() && !second.is_adopted("x"));
        assert!(second.lock().plugin("x").unwrap().is_none());
        install(&second, &packed(TEXT)).unwrap();
        // What it puts there itself is its own.
        install(&second, &packed(NEXT)).unwrap();
        assert!(!second.is_adopted("x"));
        second.remove("x").unwrap();
        assert!(!home.place().exists());
    }
}
