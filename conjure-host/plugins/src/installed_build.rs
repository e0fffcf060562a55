//! A build that is installed, as it lies there: a library, the bundle of a program, a skill folder.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use conjure_config::platform::LIBRARY_EXTENSION;
use conjure_config::skill_folders::{self, LoadedFolder, SkippedFile};
use conjure_config::{env, fs, skill_archive};
use rustix::fs::{CWD, RenameFlags};

use super::adopted_skills::has_extra_files;
use super::{LockedPlugin, PluginFile, Sha256, program};

/// Where what was replaced is, below what was made for a change.
const REPLACED_DIR: &str = "old";

/// What a build is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BuildForm {
    /// A library.
    Library,
    /// A program and its files, in a bundle.
    Program,
    /// A skill folder; its bytes are its archive.
    Skill,
}

impl BuildForm {
    /// What these bytes are.
    pub(crate) fn of(bytes: &[u8]) -> Self {
        if skill_archive::is_archive(bytes) {
            Self::Skill
        } else if program::is_bundle(bytes) {
            Self::Program
        } else {
            Self::Library
        }
    }

    /// What the name of a file of this form ends with.
    pub(crate) fn extension(self) -> &'static str {
        match self {
            Self::Library => LIBRARY_EXTENSION,
            Self::Program => program::EXTENSION,
            Self::Skill => skill_archive::EXTENSION,
        }
    }
}

/// A build that is there.
#[derive(Debug)]
pub(crate) struct InstalledBuild {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) sha256: Sha256,
    pub(crate) bytes: Vec<u8>,
    pub(crate) path: PathBuf,
    pub(crate) form: BuildForm,
}

impl From<PluginFile> for InstalledBuild {
    fn from(file: PluginFile) -> Self {
        Self {
            form: BuildForm::of(&file.bytes),
            name: file.header.name,
            version: file.header.version,
            sha256: file.sha256,
            bytes: file.bytes,
            path: file.path,
        }
    }
}

/// The user's skill folders, where those out of packages lie beside the user's own.
#[derive(Debug, Clone)]
pub(crate) struct UserSkillFolders {
    root: Option<PathBuf>,
}

impl UserSkillFolders {
    /// Returns the places below the home directory.
    pub(crate) fn of_user() -> Self {
        let home = env::home();
        Self {
            root: home.map(|home| home.join(".conjure").join("skills")),
        }
    }

    /// Returns the places below another directory.
    #[cfg(test)]
    pub(crate) fn below(root: PathBuf) -> Self {
        Self { root: Some(root) }
    }

    /// Where the skill of this name is or would be; nothing where there is no home directory, or
    /// where the name would lead elsewhere.
    pub(crate) fn path(&self, name: &str) -> Option<PathBuf> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
        let is_name = !name.is_empty() && name.chars().all(is_plain);
        self.root
            .as_ref()
            .filter(|_| is_name)
            .map(|root| root.join(name))
    }

    /// The names of the skills that a directory is the place of: its own where it lies in the root, and that
    /// of the folder there which it leads to, or which leads to it, under whatever name it was found.
    pub(crate) fn names_of(&self, dir: &Path) -> BTreeSet<String> {
        let real = |path: &Path| path.canonicalize().ok();
        let real_dir = real(dir);
        let root = self.root.as_deref();
        let is_root = |parent: &Path| {
            let both = (real(parent), root.and_then(real));
            root == Some(parent) || matches!(both, (Some(parent), Some(root)) if parent == root)
        };
        let named = [Some(dir), real_dir.as_deref()].into_iter().flatten();
        let named = named.filter_map(|path| {
            let name = path.file_name()?.to_str()?;
            let place = self.path(name)?;
            let is_there = path.parent().is_some_and(is_root);
            let leads_there = || real_dir.is_some() && real(&place) == real_dir;
            (is_there || leads_there()).then(|| name.to_owned())
        });
        named.collect()
    }

    /// What is there of a skill that the lock names; nothing where that is no skill.
    pub(crate) fn build(&self, locked: &LockedPlugin) -> Option<InstalledBuild> {
        let path = self.path(&locked.name)?;
        let bytes = archive(&path).ok()?;
        Some(InstalledBuild {
            name: locked.name.clone(),
            version: locked.version.clone(),
            sha256: Sha256::of(&bytes),
            bytes,
            path,
            form: BuildForm::Skill,
        })
    }

    /// Puts the folder of an archive there, in one step where the system can exchange directories.
    pub(crate) fn install(&self, path: &Path, archive: &[u8]) -> io::Result<()> {
        let staging = self.staging()?;
        let placed = self.swap_in(&staging, path, archive);
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        self.drop_staging(&staging, placed, &name)
    }

    /// Removes what was made for a change, and the folder in it that was replaced or taken away; that is
    /// moved where the others are that somebody changed where it holds what its archive does not have.
    fn drop_staging(
        &self,
        staging: &Path,
        replaced: io::Result<Option<PathBuf>>,
        name: &str,
    ) -> io::Result<()> {
        if let Ok(Some(old)) = &replaced
            && !old.is_symlink()
            && has_extra_files(old).unwrap_or(true)
            && let Err(error) = self.move_aside(old, name, now_ms())
        {
            // The change is made, and nothing is to be lost by it.
            let old = old.display();
            tracing::warn!("what was in the skill {name} is in {old}: {error}");
            return Ok(());
        }
        let _ = fs::remove_dir_all(staging);
        self.remove_empty_staging_root();
        replaced.map(drop)
    }

    /// The folder that was replaced, if there was one.
    fn swap_in(&self, staging: &Path, path: &Path, archive: &[u8]) -> io::Result<Option<PathBuf>> {
        let new = unpack(staging, archive)?;
        if let Some(root) = path.parent() {
            fs::create_dir_all(root)?;
        }
        if std::fs::symlink_metadata(path).is_err() {
            return fs::rename(&new.dir, path).map(|()| None);
        }
        let exchanged = rustix::fs::renameat_with(CWD, &new.dir, CWD, path, RenameFlags::EXCHANGE);
        match exchanged {
            Ok(()) => Ok(Some(new.dir)),
            Err(_) => {
                let old = staging
                    .join(REPLACED_DIR)
                    .join(path.file_name().unwrap_or_default());
                fs::create_private_dir(staging.join(REPLACED_DIR))?;
                fs::rename(path, &old)?;
                fs::rename(&new.dir, path).inspect_err(|_| {
                    // Nothing is lost where the new one cannot come.
                    let _ = fs::rename(&old, path);
                })?;
                Ok(Some(old))
            }
        }
    }

    /// Moves the folder of a skill, if there is one, to where nobody looks for skills.
    pub(crate) fn set_aside(&self, name: &str, at_ms: i64) -> io::Result<()> {
        let Some(path) = self.path(name) else {
            return Ok(());
        };
        if std::fs::symlink_metadata(&path).is_err() {
            return Ok(());
        }
        self.move_aside(&path, name, at_ms)
    }

    fn move_aside(&self, path: &Path, name: &str, at_ms: i64) -> io::Result<()> {
        let root = self.root.as_ref().ok_or(io::ErrorKind::NotFound)?;
        let all = root.with_file_name("altered");
        fs::create_private_dir(&all)?;
        let mut aside = all.join(format!("{name}-{at_ms}"));
        let mut number = 2;
        while std::fs::symlink_metadata(&aside).is_ok() {
            aside = all.join(format!("{name}-{at_ms}-{number}"));
            number += 1;
        }
        fs::rename(path, &aside)?;
        let aside = aside.display();
        tracing::warn!(
            "the skill {name} was more than its package had, or another; as it was it is in {aside}"
        );
        Ok(())
    }

    /// Takes the folder of a skill away, in one step.
    pub(crate) fn remove(&self, name: &str) -> io::Result<()> {
        let Some(path) = self.path(name) else {
            return Ok(());
        };
        if std::fs::symlink_metadata(&path).is_err() {
            return Ok(());
        }
        let staging = self.staging()?;
        // Under its own name, by which its archive is made.
        let old = staging.join(REPLACED_DIR).join(name);
        let taken = fs::create_private_dir(staging.join(REPLACED_DIR))
            .and_then(|()| fs::rename(&path, &old))
            .map(|()| Some(old));
        self.drop_staging(&staging, taken, name)
    }

    /// A new directory on the file system of the folders, which nobody looks for skills in. Its name is none
    /// that a process of the same number left which was killed.
    fn staging(&self) -> io::Result<PathBuf> {
        let all = self.staging_root().ok_or(io::ErrorKind::NotFound)?;
        fs::create_private_dir(&all)?;
        let own = tempfile::Builder::new()
            .prefix(&format!("{}-", std::process::id()))
            .tempdir_in(&all)?;
        Ok(own.keep())
    }

    fn staging_root(&self) -> Option<PathBuf> {
        let root = self.root.as_ref()?;
        Some(root.with_file_name("installing"))
    }

    fn remove_empty_staging_root(&self) {
        if let Some(all) = self.staging_root() {
            fs::remove_dir_if_empty(all);
        }
    }

    /// Removes what installations left that ended in their middle.
    pub(crate) fn clean_staging(&self) {
        let Some(all) = self.staging_root() else {
            return;
        };
        for dir in fs::entries(&all).unwrap_or_default() {
            let name = dir.file_name().and_then(|name| name.to_str());
            let owner = name.and_then(|name| name.split_once('-'));
            let is_left = owner.is_none_or(|(owner, _)| !is_running(owner));
            if is_left && self.rescue_user_files(&dir) {
                let _ = fs::remove_dir_all(&dir);
            }
        }
        self.remove_empty_staging_root();
    }

    /// Moves what somebody had in a folder that a killed change had replaced to where such folders are.
    /// Whether nothing of it is left in the directory of that change.
    fn rescue_user_files(&self, staging: &Path) -> bool {
        let below = |dir: &PathBuf| fs::entries(dir).unwrap_or_default();
        let mut folders = below(&staging.to_owned()).into_iter();
        let folders = folders.by_ref().filter(|dir| !dir.is_symlink());
        let replaced = folders.flat_map(|dir| below(&dir));
        let of_somebody = |dir: &PathBuf| {
            !dir.is_symlink() && dir.is_dir() && has_extra_files(dir).unwrap_or(true)
        };
        let mut is_kept = true;
        for dir in replaced.filter(of_somebody) {
            let name = dir.file_name().unwrap_or_default().to_string_lossy();
            is_kept &= self.move_aside(&dir, &name, now_ms()).is_ok();
        }
        is_kept
    }
}

/// The time now, in milliseconds since 1970.
pub(crate) fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
    })
}

/// Whether a process with this number is there.
pub(crate) fn is_running(number: &str) -> bool {
    let number = number.parse().ok().and_then(rustix::process::Pid::from_raw);
    number
        .is_some_and(|pid| rustix::process::test_kill_process(pid) != Err(rustix::io::Errno::SRCH))
}

/// The archive of the skill folder in a directory.
pub(crate) fn archive(dir: &Path) -> io::Result<Vec<u8>> {
    let folder = skill_folders::load_dir(dir).map_err(io::Error::other)?;
    skill_archive::pack(&folder).map_err(io::Error::other)
}

/// Unpacks an archive below a directory, where the folder is then what the archive was.
fn unpack(below: &Path, archive: &[u8]) -> io::Result<LoadedFolder> {
    let file = below.join("sent.skill");
    fs::write(&file, archive)?;
    let folder = skill_folders::load(&file, below).map_err(io::Error::other)?;
    let again = skill_archive::pack(&folder).map_err(io::Error::other)?;
    match again == archive {
        true => Ok(folder),
        false => Err(io::Error::other(
            "the skill's archive holds more than its folder would",
        )),
    }
}

/// A skill that was judged: its archive, and what its `SKILL.md` says.
#[derive(Debug)]
pub struct SkillArchive {
    /// The name of the skill.
    pub name: String,
    /// Purpose of the skill, as it describes itself.
    pub description: String,
    /// Version of the skill, where it says one.
    pub version: Option<String>,
    /// Licence of the skill, where it says one.
    pub license: Option<String>,
    /// Files of the skill's folder that are not in the archive: relative paths, each with the reason.
    pub left_out: Vec<SkippedFile>,
    /// The archive: the same bytes for the same files.
    pub bytes: Vec<u8>,
}

impl SkillArchive {
    /// Reads a skill folder, or a package of one (`.skill`, `.zip`), and runs nothing of it.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read(path: &Path) -> io::Result<Self> {
        let scratch = tempfile::tempdir()?;
        let folder = skill_folders::load(path, scratch.path()).map_err(io::Error::other)?;
        let bytes = skill_archive::pack(&folder).map_err(io::Error::other)?;
        Ok(Self::of_folder(folder, bytes))
    }

    /// Judges an archive that [`SkillArchive::read`] made.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn judge(bytes: &[u8]) -> io::Result<Self> {
        let scratch = tempfile::tempdir()?;
        let folder = unpack(scratch.path(), bytes)?;
        Ok(Self::of_folder(folder, bytes.to_owned()))
    }

    fn of_folder(loaded: LoadedFolder, bytes: Vec<u8>) -> Self {
        let folder = loaded.folder;
        let said = folder.metadata.iter().find(|(key, _)| key == "version");
        let beside = folder.extra.get("version").and_then(|it| it.as_str());
        Self {
            version: said
                .map(|(_, version)| version.clone())
                .or_else(|| beside.map(str::to_owned)),
            name: folder.name.as_str().to_owned(),
            description: folder.description,
            license: folder.license,
            left_out: loaded.skipped,
            bytes,
        }
    }
}
