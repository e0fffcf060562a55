//! From a description and the files beside it to a bundle.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};

use super::bundle::{BundledFile, MOST_FILES, agree, pack};
use super::description::{ProgramDescription, parse};
use crate::file::{FILE_LIMIT, FileStamp, LibraryCandidate, contents, judge_dir};
use crate::{PluginError, find};

/// What was gathered.
pub(crate) struct Gathered {
    pub(crate) description: ProgramDescription,
    /// The bundle's bytes.
    pub(crate) bytes: Vec<u8>,
    /// How to recognise that one of the files changed.
    pub(crate) files: u64,
}

/// Reads the files that a description names, each judged as a library is, and makes a bundle of all.
///
/// # Errors
/// The first check that fails.
pub(crate) fn gather(path: &Path, text: &[u8]) -> Result<Gathered, PluginError> {
    let wrong = |what: String| PluginError::Description {
        path: path.to_owned(),
        what,
    };
    let description = parse(path, text)?;
    let mut files: Vec<BundledFile> = Vec::new();
    let mut stamps = Vec::new();
    let mut left = FILE_LIMIT;
    for (name, file) in listed(path, &description).map_err(&wrong)? {
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
    agree(&description, &files).map_err(&wrong)?;
    let bytes = pack(text, &files).map_err(&wrong)?;
    // As a file of its own it could not be installed.
    if bytes.len() as u64 > FILE_LIMIT {
        return Err(wrong(format!(
            "its bundle has {} bytes, and a plugin has at most {FILE_LIMIT}",
            bytes.len()
        )));
    }
    Ok(Gathered {
        description,
        bytes,
        files: folded(&stamps),
    })
}

/// How to recognise that a file of a description changed, one that came or went included.
pub(crate) fn stamp(path: &Path) -> u64 {
    let description = conjure_config::fs::read(path)
        .ok()
        .and_then(|text| parse(path, &text).ok());
    let Some(description) = description else {
        return 0;
    };
    let Ok(listed) = listed(path, &description) else {
        return 0;
    };
    let stamps = listed
        .into_iter()
        .map(|(name, file)| (name, FileStamp::of_one(&file)));
    folded(&stamps.collect::<Vec<_>>())
}

fn folded(stamps: &[(String, Option<FileStamp>)]) -> u64 {
    let mut hasher = DefaultHasher::new();
    stamps.hash(&mut hasher);
    hasher.finish()
}

/// The files that a description names, in order, with their names in the bundle.
fn listed(path: &Path, description: &ProgramDescription) -> Result<Vec<(String, PathBuf)>, String> {
    let own = path.parent().unwrap_or(Path::new(""));
    let mut all = Vec::new();
    for name in &description.files {
        match name.strip_suffix('/') {
            None => all.push((name.clone(), own.join(name))),
            Some(dir) => {
                let before = all.len();
                below(dir, &own.join(dir), &mut all)?;
                if all.len() == before {
                    return Err(format!("its directory `{name}` holds no file"));
                }
            }
        }
    }
    Ok(all)
}

/// The files below a directory, in the order of their names. What begins with a dot, is a copy that
/// still goes on, or is what Python keeps of its sources is left out.
fn below(name: &str, dir: &Path, all: &mut Vec<(String, PathBuf)>) -> Result<(), String> {
    let entries = conjure_config::fs::entries(dir)
        .map_err(|error| format!("its directory `{name}/` cannot be read: {error}"))?;
    for entry in entries {
        let Some(last) = entry.file_name().and_then(|last| last.to_str()) else {
            return Err(format!(
                "a file in its directory `{name}/` has a name that is not UTF-8"
            ));
        };
        if last.starts_with('.') || last == "__pycache__" || find::is_unfinished(last) {
            continue;
        }
        let name = format!("{name}/{last}");
        // A link is left to whoever opens it, who refuses it.
        let is_dir = std::fs::symlink_metadata(&entry).is_ok_and(|there| there.is_dir());
        if is_dir {
            below(&name, &entry, all)?;
        } else {
            all.push((name, entry));
        }
        if all.len() > MOST_FILES {
            return Err(format!("it names more than {MOST_FILES} files"));
        }
    }
    Ok(())
}
