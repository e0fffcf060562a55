//! Skill folders on disk: finding, reading and unpacking them.
//!
//! What a folder's text means is decided in `conjure_core::skill_folder`; here are the walk over
//! directories, the limits, and the care with archives.

use std::collections::BTreeSet;
use std::io::Read as _;
use std::path::{Component, Path, PathBuf};

use conjure_core::skill_folder::discovery::{
    FoundSkill, RootWalk, ShadowedSkill, SkillScope, WalkStep, roots, shadow,
};
use conjure_core::skill_folder::{Diagnostic, SkillFolder};

use crate::skill_files::FolderFiles;
pub use crate::skill_files::SkippedFile;

/// The most bytes of a `SKILL.md`.
const MAX_SKILL_MD: u64 = 1024 * 1024;
/// The most bytes that a package may unpack to.
const MAX_UNPACKED: u64 = 64 * 1024 * 1024;
/// The most members of a package.
const MAX_MEMBERS: usize = 10_000;
/// The largest ratio of unpacked to packed size, once it matters (1 MiB).
const MAX_RATIO: u64 = 100;

/// A skill folder that was loaded.
#[derive(Debug, Clone)]
pub struct LoadedFolder {
    /// Skill that `SKILL.md` describes.
    pub folder: SkillFolder,
    /// Directory of the skill, absolute, links resolved.
    pub dir: PathBuf,
    /// Files beside `SKILL.md`, relative, sorted, `/` between components.
    pub resources: Vec<String>,
    /// Paths that the instructions may name: the resources, and `SKILL.md`.
    pub paths: Vec<String>,
    /// Files and directories of the skill that are not taken along.
    pub skipped: Vec<SkippedFile>,
    /// Faults that did not keep the skill from loading.
    pub diagnostics: Vec<Diagnostic>,
}

/// Why a skill folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// The file system says no.
    #[error("the skill at `{}` cannot be read: {source}", path.display())]
    Io {
        /// The folder, or what in it was read.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// There is no `SKILL.md`.
    #[error("`{}` is not a skill: it has no SKILL.md", path.display())]
    NoSkillMd {
        /// The directory.
        path: PathBuf,
    },
    /// `SKILL.md` cannot be used.
    #[error("the skill at `{}` does not load: {}", path.display(), first(diagnostics))]
    Invalid {
        /// The directory.
        path: PathBuf,
        /// What is wrong with it.
        diagnostics: Vec<Diagnostic>,
    },
    /// The skill came in a package and is not what the package had.
    #[error("the skill at `{}` is not used: {reason}", path.display())]
    Altered {
        /// The directory.
        path: PathBuf,
        /// What is known of the skill, and what to do.
        reason: String,
    },
    /// The package is not one, or is hostile.
    #[error("the package `{}` is refused: {reason}", path.display())]
    Package {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
}

fn first(diagnostics: &[Diagnostic]) -> String {
    diagnostics
        .iter()
        .map(|d| d.message.clone())
        .next()
        .unwrap_or_default()
}

/// Loads a skill folder, or a package (`.skill`, `.zip`), which is unpacked into a new directory
/// below `unpack_to`.
///
/// # Errors
/// [`FolderError`].
pub fn load(path: &Path, unpack_to: &Path) -> Result<LoadedFolder, FolderError> {
    if path.is_file() && is_package(path) {
        let dir = unpack(path, unpack_to)?;
        return load_dir(&dir);
    }
    load_dir(path)
}

/// Loads the skill folder in a directory.
///
/// # Errors
/// [`FolderError`].
pub fn load_dir(path: &Path) -> Result<LoadedFolder, FolderError> {
    let io = |source| FolderError::Io {
        path: path.to_owned(),
        source,
    };
    let dir = path.canonicalize().map_err(io)?;
    let text = match skill_md(&dir).and_then(|path| read_bounded(&path, MAX_SKILL_MD)) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(FolderError::NoSkillMd {
                path: path.to_owned(),
            });
        }
        Err(error) => return Err(io(error)),
    };
    let name = dir
        .file_name()
        .map(|n| n.to_string_lossy().into_owned())
        .unwrap_or_default();
    let parsed = SkillFolder::parse(&name, &text);
    let Some(folder) = parsed.folder else {
        return Err(FolderError::Invalid {
            path: path.to_owned(),
            diagnostics: parsed.diagnostics,
        });
    };
    let FolderFiles {
        resources,
        skipped: left_out,
    } = FolderFiles::of(&dir);
    let mut paths = resources.clone();
    paths.push("SKILL.md".to_owned());
    Ok(LoadedFolder {
        folder,
        resources,
        skipped: left_out,
        paths,
        dir,
        diagnostics: parsed.diagnostics,
    })
}

/// What was found below the usual places.
#[derive(Debug, Default)]
pub struct DiscoveredSkills {
    /// The skills, the project's before the user's.
    pub skills: Vec<FoundSkill>,
    /// Skills that another one of the same name hides.
    pub hidden: Vec<ShadowedSkill>,
    /// Skills that do not load.
    pub broken: Vec<FolderError>,
    /// What is not as it should be in those that load, with the skill's directory.
    pub notes: Vec<(PathBuf, Diagnostic)>,
}

/// Finds the skills of a project and of the user.
pub fn discover(project: Option<&Path>, home: Option<&Path>) -> DiscoveredSkills {
    let mut found = Vec::new();
    let mut broken = Vec::new();
    let mut notes = Vec::new();
    for root in roots(project, home) {
        let within = project.filter(|_| root.scope == SkillScope::Project);
        for dir in folders_below(&root.path, within) {
            find_at(&dir, root.scope, &mut found, &mut broken, &mut notes);
        }
    }
    let (skills, hidden) = shadow(found);
    DiscoveredSkills {
        skills,
        hidden,
        broken,
        notes,
    }
}

/// Finds the skills below a directory that somebody named.
pub fn discover_in(dir: &Path) -> DiscoveredSkills {
    let mut found = Vec::new();
    let mut broken = Vec::new();
    let mut notes = Vec::new();
    for dir in folders_below(dir, None) {
        find_at(&dir, SkillScope::Named, &mut found, &mut broken, &mut notes);
    }
    let (skills, hidden) = shadow(found);
    DiscoveredSkills {
        skills,
        hidden,
        broken,
        notes,
    }
}

/// The directories of the skills that a project brings. Reads none of them: nothing of a project is
/// parsed before somebody trusts it.
pub fn project_folders(project: &Path) -> Vec<PathBuf> {
    let roots = roots(Some(project), None).into_iter();
    roots
        .flat_map(|root| folders_below(&root.path, Some(project)))
        .collect()
}

fn find_at(
    dir: &Path,
    scope: SkillScope,
    found: &mut Vec<FoundSkill>,
    broken: &mut Vec<FolderError>,
    notes: &mut Vec<(PathBuf, Diagnostic)>,
) {
    match load_dir(dir) {
        Ok(loaded) => {
            let dir = &loaded.dir;
            let more = loaded.diagnostics.into_iter();
            notes.extend(more.map(|note| (dir.clone(), note)));
            found.push(FoundSkill {
                folder: loaded.folder,
                scope,
                path: loaded.dir,
            });
        }
        Err(error) => broken.push(error),
    }
}

/// The directories below a root that have a `SKILL.md`. A link that leads out of `within` is not
/// gone through: it counts where it is a skill itself, so that somebody can be told.
fn folders_below(root: &Path, within: Option<&Path>) -> Vec<PathBuf> {
    let within = within.and_then(|within| within.canonicalize().ok());
    let mut folders = Vec::new();
    let mut walk = RootWalk::default();
    let mut waiting = vec![(root.to_owned(), 0)];
    let mut seen = BTreeSet::new();
    while let Some((dir, depth)) = waiting.pop() {
        let Ok(real) = dir.canonicalize() else {
            continue;
        };
        let is_outside = within
            .as_ref()
            .is_some_and(|within| !real.starts_with(within));
        if !seen.insert(real) {
            continue;
        }
        if dir.join("SKILL.md").exists() {
            folders.push(dir);
            continue;
        }
        if is_outside {
            continue;
        }
        let Ok(entries) = crate::fs::entries(&dir) else {
            continue;
        };
        for child in entries.into_iter().rev().filter(|path| path.is_dir()) {
            let name = child.file_name().map(|n| n.to_string_lossy().into_owned());
            match walk.step(&name.unwrap_or_default(), depth + 1) {
                WalkStep::Enter => waiting.push((child, depth + 1)),
                WalkStep::Full => return folders,
                _ => {}
            }
        }
    }
    folders
}

/// Where a folder's `SKILL.md` is, if it is a regular file in the folder. Looked at before it is
/// opened: opening a pipe waits for whoever writes into it.
fn skill_md(dir: &Path) -> std::io::Result<PathBuf> {
    let real = dir.join("SKILL.md").canonicalize()?;
    if real.starts_with(dir) && real.is_file() {
        return Ok(real);
    }
    Err(std::io::Error::other(
        "its SKILL.md is not a regular file in the folder",
    ))
}

fn read_bounded(path: &Path, most: u64) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    crate::fs::open(path)?
        .take(most + 1)
        .read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(std::io::Error::other(format!(
            "it is larger than {most} bytes"
        )));
    }
    Ok(bytes)
}

fn is_package(path: &Path) -> bool {
    path.extension().is_some_and(|e| e == "skill" || e == "zip")
}

/// Unpacks a package into a directory of its own below `below`, and gives the skill's directory.
fn unpack(path: &Path, below: &Path) -> Result<PathBuf, FolderError> {
    let refused = |reason: String| FolderError::Package {
        path: path.to_owned(),
        reason,
    };
    let io = |source| FolderError::Io {
        path: path.to_owned(),
        source,
    };
    let file = crate::fs::open(path).map_err(io)?;
    let packed = file.metadata().map_err(io)?.len();
    let mut archive = zip::ZipArchive::new(std::io::BufReader::new(file))
        .map_err(|error| refused(format!("it is not a ZIP archive: {error}")))?;
    if archive.len() > MAX_MEMBERS {
        return Err(refused(format!(
            "{} members; at most {MAX_MEMBERS}",
            archive.len()
        )));
    }
    crate::fs::create_dir_all(below).map_err(io)?;
    let target = tempfile::Builder::new()
        .prefix("skill-")
        .tempdir_in(below)
        .map_err(io)?;
    let stem = path
        .file_stem()
        .map(|s| s.to_string_lossy().into_owned())
        .unwrap_or_default();
    check_one_skill(&archive).map_err(refused)?;
    let wrapper = wrapper_of(&archive).map_err(refused)?;
    let root = target.path().join(
        wrapper
            .clone()
            .unwrap_or_else(|| crate::file_name::safe_name(&stem)),
    );
    let mut unpacked = 0;
    for index in 0..archive.len() {
        let mut member = archive
            .by_index(index)
            .map_err(|error| refused(format!("member {index} cannot be read: {error}")))?;
        let name = member
            .name()
            .map_err(|error| refused(format!("member {index} has no usable name: {error}")))?
            .into_owned();
        let Some(relative) = member_path(&name, wrapper.as_deref()).map_err(refused)? else {
            continue;
        };
        let mode = member.unix_mode().unwrap_or(0o644);
        if mode & 0o170_000 != 0 && mode & 0o170_000 != 0o100_000 && mode & 0o170_000 != 0o040_000 {
            return Err(refused(format!("`{name}` is a link or a device")));
        }
        let to = root.join(&relative);
        if member.is_dir() {
            crate::fs::create_dir_all(&to).map_err(io)?;
            continue;
        }
        if let Some(parent) = to.parent() {
            crate::fs::create_dir_all(parent).map_err(io)?;
        }
        let mut out = crate::fs::create_new(&to)
            .map_err(|error| refused(format!("`{name}` is there twice: {error}")))?;
        // The size that the archive declares is its word; what comes out is what counts.
        let copied = std::io::copy(
            &mut member.by_ref().take(MAX_UNPACKED - unpacked + 1),
            &mut out,
        )
        .map_err(|error| refused(format!("`{name}` cannot be unpacked: {error}")))?;
        unpacked += copied;
        if unpacked > MAX_UNPACKED {
            return Err(refused(format!(
                "it unpacks to more than {MAX_UNPACKED} bytes"
            )));
        }
        if unpacked > 1024 * 1024 && unpacked / packed.max(1) > MAX_RATIO {
            return Err(refused(format!(
                "it unpacks to more than {MAX_RATIO} times its size: a bomb"
            )));
        }
        if mode & 0o111 != 0 {
            crate::fs::make_executable(&to).map_err(io)?;
        }
    }
    if !root.join("SKILL.md").is_file() {
        return Err(refused(
            "it has no SKILL.md at its root or in one folder".to_owned(),
        ));
    }
    let _ = target.keep();
    Ok(root)
}

/// Refuses a package in which two files have one name, or could be taken for its `SKILL.md`: what one
/// reader shows may not be what another one uses.
fn check_one_skill<R: std::io::Read + std::io::Seek>(
    archive: &zip::ZipArchive<R>,
) -> Result<(), String> {
    // Of several with one name the archive's list has the last.
    if archive.has_duplicate_names() {
        return Err("it has two files with the same name".to_owned());
    }
    let mut found = Vec::new();
    for name in archive.file_names() {
        let name = name.map_err(|error| format!("a member has no usable name: {error}"))?;
        let last = name.rsplit('/').next().unwrap_or_default();
        if !is_ignored(&name) && last.eq_ignore_ascii_case("SKILL.md") {
            found.push(name.into_owned());
        }
    }
    match found.as_slice() {
        [first, second, ..] => Err(format!(
            "it has two SKILL.md, `{first}` and `{second}`; a package holds one skill"
        )),
        _ => Ok(()),
    }
}

/// The one folder that everything is in, if `SKILL.md` is not at the root.
fn wrapper_of<R: std::io::Read + std::io::Seek>(
    archive: &zip::ZipArchive<R>,
) -> Result<Option<String>, String> {
    let mut folders: BTreeSet<String> = BTreeSet::new();
    for name in archive.file_names() {
        let name = name.map_err(|error| format!("a member has no usable name: {error}"))?;
        if is_ignored(&name) {
            continue;
        }
        match name.split_once('/') {
            None if name == "SKILL.md" => return Ok(None),
            Some((folder, _)) => {
                folders.insert(folder.to_owned());
            }
            None => {}
        }
    }
    let mut folders = folders.into_iter();
    match (folders.next(), folders.next()) {
        (Some(folder), None) if member_path(&folder, None).is_ok() => Ok(Some(folder)),
        _ => Err("it has no SKILL.md at its root or in one folder".to_owned()),
    }
}

fn is_ignored(name: &str) -> bool {
    name.split('/')
        .any(|part| part == "__MACOSX" || (part.starts_with('.') && part != "." && part != ".."))
}

/// Where a member goes below the skill's directory; nothing for those that are ignored.
fn member_path(name: &str, wrapper: Option<&str>) -> Result<Option<PathBuf>, String> {
    let path = Path::new(name);
    let plain = !name.contains('\\')
        && !name.contains('\0')
        && path.components().all(|c| matches!(c, Component::Normal(_)));
    if !plain || name.is_empty() {
        return Err(format!("`{name}` leads outside the package"));
    }
    if is_ignored(name) {
        return Ok(None);
    }
    match wrapper {
        None => Ok(Some(path.to_owned())),
        Some(wrapper) => Ok(path.strip_prefix(wrapper).ok().map(Path::to_owned)),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;

    #[test]
    fn a_skill_md_that_is_a_pipe_or_lies_elsewhere_is_broken_and_holds_nothing_up() {
        let dir = tempfile::tempdir().unwrap();
        let skill = |name: &str| {
            let skill = dir.path().join("skills").join(name);
            std::fs::create_dir_all(&skill).unwrap();
            skill.join("SKILL.md")
        };
        let text = "---\nname: fine\ndescription: Does things\n---\n";
        std::fs::write(dir.path().join("SKILL.md"), text).unwrap();
        std::fs::write(skill("fine"), text).unwrap();
        std::os::unix::fs::symlink(dir.path().join("SKILL.md"), skill("link")).unwrap();
        let pipe = skill("pipe");
        mknodat(CWD, &pipe, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        let (done, found) = std::sync::mpsc::channel();
        let skills = dir.path().join("skills");
        std::thread::spawn(move || done.send(discover_in(&skills)));
        let found = found.recv_timeout(Duration::from_secs(30)).unwrap();
        let names: Vec<_> = found
            .skills
            .iter()
            .map(|s| s.folder.name.as_str())
            .collect();
        assert_eq!((names, found.broken.len()), (vec!["fine"], 2));
    }
}
