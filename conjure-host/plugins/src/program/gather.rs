//! From a description and the files beside it to a bundle.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};

use super::bundle::{BundledFile, MAX_FILES, check_files, pack};
use super::description::{ProgramDescription, dirs_above, parse};
use crate::file::{FILE_LIMIT, FileStamp, LibraryCandidate, contents, judge_dir};
use crate::{PluginError, find};

/// What was gathered.
pub(crate) struct GatheredProgram {
    pub(crate) description: ProgramDescription,
    /// The bundle's bytes.
    pub(crate) bytes: Vec<u8>,
    /// How to recognise that one of the files changed.
    pub(crate) fingerprint: u64,
}

/// Reads the files that a description names, each judged as a library is, and makes a bundle of all.
///
/// # Errors
/// The first check that fails.
pub(crate) fn gather(path: &Path, text: &[u8]) -> Result<GatheredProgram, PluginError> {
    let wrong = |what: String| PluginError::Description {
        path: path.to_owned(),
        what,
    };
    let description = parse(path, text)?;
    let mut files: Vec<BundledFile> = Vec::new();
    let mut stamps = Vec::new();
    let mut left = FILE_LIMIT;
    for (name, file) in list_files(path, &description).map_err(&wrong)? {
        let candidate = LibraryCandidate::open(&file)?;
        // From the file's directory up to the description's, which was judged with that.
        let own = path.parent();
        let between = file.ancestors().skip(1).take_while(|dir| Some(*dir) != own);
        for dir in between {
            judge_dir(&file, dir)?;
        }
        let stamp = candidate.stamp();
        left = left
            .checked_sub(stamp.size)
            .ok_or_else(|| wrong(format!("its files have more than {FILE_LIMIT} bytes")))?;
        stamps.push((name.clone(), Some(stamp)));
        files.push((name, contents(candidate)?));
    }
    check_files(&description, &files).map_err(&wrong)?;
    let bytes = pack(text, &files).map_err(&wrong)?;
    // As a file of its own it could not be installed.
    if bytes.len() as u64 > FILE_LIMIT {
        return Err(wrong(format!(
            "its bundle has {} bytes, and a plugin has at most {FILE_LIMIT}",
            bytes.len()
        )));
    }
    Ok(GatheredProgram {
        description,
        bytes,
        fingerprint: hash_stamps(&stamps),
    })
}

/// How to recognise that a file of a description changed, one that came or went included.
pub(crate) fn stamp(path: &Path) -> u64 {
    let Ok(description) = read_description(path) else {
        return 0;
    };
    let Ok(listed) = list_files(path, &description) else {
        return 0;
    };
    let stamps = listed
        .into_iter()
        .map(|(name, file)| (name, FileStamp::of_single_file(&file)));
    hash_stamps(&stamps.collect::<Vec<_>>())
}

/// The files that a description names, and the directories in which they are or may come to be.
pub(crate) fn paths(path: &Path) -> Vec<PathBuf> {
    let listed = read_description(path)
        .ok()
        .and_then(|description| list_files(path, &description).ok());
    let files = listed.into_iter().flatten().map(|(_, file)| file);
    files.chain(file_dirs(path)).collect()
}

/// The description of a program and the files that it names, those too that are not there yet. The
/// description alone where that is not right.
pub fn program_files(path: &Path) -> Vec<PathBuf> {
    let mut files = vec![path.to_owned()];
    let (Ok(description), Some(own)) = (read_description(path), path.parent()) else {
        return files;
    };
    for name in &description.files {
        match name.strip_suffix('/') {
            None => files.push(own.join(name)),
            Some(dir) => {
                let mut all = Vec::new();
                // What cannot be listed is found wrong by whoever loads it.
                let _ = collect_below(dir, &own.join(dir), &mut all);
                files.extend(all.into_iter().map(|(_, file)| file));
            }
        }
    }
    files
}

/// Whether a file is one that a description names, or is below a directory that it names.
pub(crate) fn has_file(path: &Path, file: &Path) -> bool {
    let (Ok(description), Some(own)) = (read_description(path), path.parent()) else {
        return false;
    };
    let Ok(file) = file.strip_prefix(own) else {
        return false;
    };
    description
        .files
        .iter()
        .any(|name| match name.strip_suffix('/') {
            Some(dir) => file.starts_with(dir),
            None => file == Path::new(name),
        })
}

/// The directories below a description's own in which its files are or may come to be, for whoever
/// watches them.
pub(crate) fn file_dirs(path: &Path) -> Vec<PathBuf> {
    let (Ok(description), Some(own)) = (read_description(path), path.parent()) else {
        return Vec::new();
    };
    let mut dirs = BTreeSet::new();
    for file in &description.files {
        dirs.extend(dirs_above(file).map(|dir| own.join(dir)));
        if let Some(dir) = file.strip_suffix('/') {
            add_dirs(&own.join(dir), &mut dirs);
        }
    }
    dirs.into_iter().collect()
}

/// Adds a directory and those below it, apart from what is left out of a plugin.
fn add_dirs(dir: &Path, dirs: &mut BTreeSet<PathBuf>) {
    dirs.insert(dir.to_owned());
    for entry in conjure_config::fs::entries(dir).unwrap_or_default() {
        let is_dir = std::fs::symlink_metadata(&entry).is_ok_and(|there| there.is_dir());
        let last = entry.file_name().and_then(|last| last.to_str());
        let belongs = last.is_some_and(|last| !is_left_out(last));
        if is_dir && belongs && dirs.len() < MAX_FILES {
            add_dirs(&entry, dirs);
        }
    }
}

/// The description at a path. Neither follows a link, nor waits for the other end of a pipe, nor reads
/// more than a description has.
fn read_description(path: &Path) -> Result<ProgramDescription, PluginError> {
    let text = contents(LibraryCandidate::open(path)?.check_description_size()?)?;
    parse(path, &text)
}

fn hash_stamps(stamps: &[(String, Option<FileStamp>)]) -> u64 {
    let mut hasher = DefaultHasher::new();
    stamps.hash(&mut hasher);
    hasher.finish()
}

/// The files that a description names, in order, with their names in the bundle.
fn list_files(
    path: &Path,
    description: &ProgramDescription,
) -> Result<Vec<(String, PathBuf)>, String> {
    let own = path.parent().unwrap_or(Path::new(""));
    let mut all = Vec::new();
    for name in &description.files {
        match name.strip_suffix('/') {
            None => all.push((name.clone(), own.join(name))),
            Some(dir) => {
                let before = all.len();
                collect_below(dir, &own.join(dir), &mut all)?;
                if all.len() == before {
                    return Err(format!("its directory `{name}` holds no file"));
                }
            }
        }
    }
    Ok(all)
}

/// The files below a directory, in the order of their names.
fn collect_below(name: &str, dir: &Path, all: &mut Vec<(String, PathBuf)>) -> Result<(), String> {
    let entries = conjure_config::fs::entries(dir)
        .map_err(|error| format!("its directory `{name}/` cannot be read: {error}"))?;
    for entry in entries {
        let Some(last) = entry.file_name().and_then(|last| last.to_str()) else {
            return Err(format!(
                "a file in its directory `{name}/` has a name that is not UTF-8"
            ));
        };
        if is_left_out(last) {
            continue;
        }
        let name = format!("{name}/{last}");
        // A link is left to whoever opens it, who refuses it.
        let is_dir = std::fs::symlink_metadata(&entry).is_ok_and(|there| there.is_dir());
        if is_dir {
            collect_below(&name, &entry, all)?;
        } else {
            all.push((name, entry));
        }
        if all.len() > MAX_FILES {
            return Err(format!("it names more than {MAX_FILES} files"));
        }
    }
    Ok(())
}

/// Whether a name in a directory of a plugin is left out: it begins with a dot, is that of a copy that
/// still goes on, or of what Python keeps of its sources.
fn is_left_out(name: &str) -> bool {
    name.starts_with('.') || name == "__pycache__" || find::is_unfinished(name)
}
