//! A description and its files as one: a ZIP archive, which anybody can make and look into.

use std::collections::HashSet;
use std::io::{Cursor, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use conjure_config::fs;
use zip::result::ZipError;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, DateTime, ZipArchive, ZipWriter};

use super::description::{ProgramDescription, dirs_above, is_description, is_plain, parse};
use crate::PluginError;
use crate::file::FILE_LIMIT;

/// What an archive begins with.
const MAGIC: &[u8] = b"PK\x03\x04";
/// The most files of a plugin, its description being one.
pub(super) const MOST_FILES: usize = 10_000;
/// The description's name in a bundle that a host makes.
const DESCRIPTION: &str = "plugin.toml";

/// A file of a plugin: its path below the plugin's directory, and its bytes.
pub(super) type BundledFile = (String, Vec<u8>);

/// Whether these bytes are a bundle, as far as their beginning says it.
pub(crate) fn is_bundle(bytes: &[u8]) -> bool {
    bytes.starts_with(MAGIC)
}

/// Makes a bundle. The same files always make the same bytes.
///
/// # Errors
/// The archive's, such as that a name is too long for it.
pub(super) fn pack(description: &[u8], files: &[BundledFile]) -> Result<Vec<u8>, String> {
    let options = SimpleFileOptions::default()
        .compression_method(CompressionMethod::Stored)
        .last_modified_time(DateTime::default())
        .unix_permissions(0o600);
    let packed = || -> zip::result::ZipResult<Vec<u8>> {
        let mut archive = ZipWriter::new(Cursor::new(Vec::new()));
        archive.start_file(DESCRIPTION, options)?;
        archive.write_all(description)?;
        for (name, bytes) in files {
            archive.start_file(name.as_str(), options)?;
            archive.write_all(bytes)?;
        }
        Ok(archive.finish()?.into_inner())
    };
    packed().map_err(|error| error.to_string())
}

/// A bundle, read.
struct Bundle {
    /// The description's text.
    text: Vec<u8>,
    description: ProgramDescription,
    files: Vec<BundledFile>,
}

/// Judges a bundle: the description, as its text and as what that says.
///
/// # Errors
/// The first thing that is wrong with it.
pub(crate) fn judge(
    path: &Path,
    bytes: &[u8],
) -> Result<(Vec<u8>, ProgramDescription), PluginError> {
    let bundle = read(path, bytes)?;
    Ok((bundle.text, bundle.description))
}

fn read(path: &Path, bytes: &[u8]) -> Result<Bundle, PluginError> {
    let wrong = |what: String| PluginError::Bundle {
        path: path.to_owned(),
        what,
    };
    // What is missing may still be written; what is there and wrong stays so.
    let unread = |error: &ZipError, is_short: bool| {
        let what = format!("it begins as a ZIP archive and cannot be read as one ({error})");
        match is_short {
            true => PluginError::Incomplete {
                path: path.to_owned(),
                what,
            },
            false => wrong(what),
        }
    };
    let is_end = |error: &std::io::Error| error.kind() == std::io::ErrorKind::UnexpectedEof;
    let spoilt = |error: ZipError| {
        let is_short = matches!(&error, ZipError::Io(error) if is_end(error));
        unread(&error, is_short)
    };
    // Its end has the list of its files.
    let mut archive = ZipArchive::new(Cursor::new(bytes)).map_err(|error| {
        let is_short = !matches!(error, ZipError::UnsupportedArchive(_));
        unread(&error, is_short)
    })?;
    if archive.len() > MOST_FILES {
        return Err(wrong(format!(
            "it holds {} files, and a plugin has at most {MOST_FILES}",
            archive.len()
        )));
    }
    let mut text = None;
    let mut files: Vec<BundledFile> = Vec::new();
    let mut left = FILE_LIMIT;
    for index in 0..archive.len() {
        let mut member = archive.by_index(index).map_err(spoilt)?;
        let name = member.name().map_err(spoilt)?.into_owned();
        if member.is_dir() {
            continue;
        }
        if member.is_symlink() {
            return Err(wrong(not_plain(&name)));
        }
        let mut content = Vec::new();
        let most = (&mut member).take(left + 1).read_to_end(&mut content);
        most.map_err(|error| spoilt(error.into()))?;
        left = left
            .checked_sub(content.len() as u64)
            .ok_or_else(|| wrong(format!("its files have more than {FILE_LIMIT} bytes")))?;
        let is_own = !name.contains('/') && is_description(Path::new(&name));
        if !is_own {
            files.push((name, content));
        } else if text.replace(content).is_some() {
            return Err(wrong("it holds two descriptions".to_owned()));
        }
    }
    let text = text.ok_or_else(|| wrong(format!("it holds no `{DESCRIPTION}`")))?;
    let description = parse(path, &text)?;
    agree(&description, &files).map_err(wrong)?;
    Ok(Bundle {
        text,
        description,
        files,
    })
}

/// Judges whether a description and the files of a bundle say the same, and whether the files can all
/// be there at once.
///
/// # Errors
/// The first that does not fit.
pub(super) fn agree(description: &ProgramDescription, files: &[BundledFile]) -> Result<(), String> {
    if files.len() >= MOST_FILES {
        return Err(format!(
            "it holds {} files beside its description, and a plugin has at most {MOST_FILES} with that",
            files.len()
        ));
    }
    let mut names = HashSet::new();
    for (name, _) in files {
        if !is_plain(name) || name.ends_with('/') {
            return Err(not_plain(name));
        }
        if !description.names(name) {
            return Err(format!(
                "it holds `{name}`, which its description does not name"
            ));
        }
        if !names.insert(name.as_str()) {
            return Err(format!("it holds `{name}` twice"));
        }
    }
    let mut dirs = HashSet::new();
    for name in &names {
        for dir in dirs_above(name) {
            if names.contains(dir) {
                return Err(format!(
                    "it holds `{dir}` as a file and `{name}`, which is below that"
                ));
            }
            dirs.insert(dir);
        }
    }
    let holds = |named: &String| match named.strip_suffix('/') {
        Some(dir) => dirs.contains(dir),
        None => names.contains(named.as_str()),
    };
    if let Some(name) = description.files.iter().find(|name| !holds(name)) {
        return Err(format!(
            "its description names `{name}`, which it does not hold"
        ));
    }
    match description.own_program() {
        Some(program) if !names.contains(program) => Err(format!(
            "its command begins with `{program}`, which it does not hold"
        )),
        _ => Ok(()),
    }
}

fn not_plain(name: &str) -> String {
    format!("it holds `{name}`, which is not a plain file below its own directory")
}

/// Makes a directory hold the files of a bundle and nothing else, where it does not yet; gives its path
/// without links.
///
/// # Errors
/// What is wrong with the bundle, or the system's.
pub(crate) fn unpack(path: &Path, bytes: &[u8], dir: &Path) -> Result<PathBuf, String> {
    let files = read(path, bytes).map_err(|error| error.to_string())?.files;
    let unpacked = || -> std::io::Result<PathBuf> {
        if !is_whole(dir, &files) {
            replace(dir, &files)?;
        }
        dir.canonicalize()
    };
    unpacked().map_err(|error| error.to_string())
}

/// Whether a directory holds these files and nothing else.
fn is_whole(dir: &Path, files: &[BundledFile]) -> bool {
    let is_same = |(name, content): &BundledFile| {
        let path = dir.join(name);
        std::fs::symlink_metadata(&path).is_ok_and(|there| there.is_file())
            && fs::read(&path).is_ok_and(|there| there == *content)
    };
    files.iter().all(is_same) && count(dir) == Some(files.len())
}

/// How many files are below a directory. A link counts as one.
fn count(dir: &Path) -> Option<usize> {
    let mut number = 0;
    for entry in fs::entries(dir).ok()? {
        let is_dir = std::fs::symlink_metadata(&entry).ok()?.is_dir();
        number += if is_dir { count(&entry)? } else { 1 };
    }
    Some(number)
}

/// Puts a directory with these files in the place of what is there, in one step for whoever looks.
fn replace(dir: &Path, files: &[BundledFile]) -> std::io::Result<()> {
    let beside = |what: &str| {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        dir.with_extension(format!("{what}-{}-{number}", std::process::id()))
    };
    let (new, old) = (beside("new"), beside("old"));
    let moved = write_all(&new, files).and_then(|()| {
        // Where there is one already this fails: another process was quicker, or it was altered.
        let moved = fs::rename(&new, dir);
        if moved.is_ok() || is_whole(dir, files) {
            return Ok(());
        }
        let _ = fs::rename(dir, &old);
        fs::rename(&new, dir)
    });
    for left in [&new, &old] {
        let _ = fs::remove_dir_all(left);
    }
    match is_whole(dir, files) {
        true => Ok(()),
        false => moved,
    }
}

fn write_all(dir: &Path, files: &[BundledFile]) -> std::io::Result<()> {
    fs::create_private_dir(dir)?;
    for (name, content) in files {
        let path = dir.join(name);
        fs::create_private_dir(path.parent().unwrap_or(dir))?;
        fs::write_new_private(&path, content)?;
        fs::make_executable(&path)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "plugin = 1\nprotocol = 1\nkind = \"skill\"\nname = \"a\"\nversion = \"1.0.0\"\n\
         command = [\"python3\", \"a.py\"]\nfiles = [\"a.py\", \"lib/\"]\n";

    fn whole() -> Vec<BundledFile> {
        vec![
            ("a.py".to_owned(), b"print()".to_vec()),
            ("lib/deep/b.py".to_owned(), b"b = 1".to_vec()),
        ]
    }

    fn refused(bytes: &[u8]) -> String {
        judge(Path::new("a.plugin"), bytes).unwrap_err().to_string()
    }

    #[test]
    fn the_same_files_are_the_same_bytes_and_come_back() {
        let bytes = pack(TEXT.as_bytes(), &whole()).unwrap();
        assert_eq!(pack(TEXT.as_bytes(), &whole()).unwrap(), bytes);
        assert!(is_bundle(&bytes));
        let path = Path::new("a.plugin");
        let (text, description) = judge(path, &bytes).unwrap();
        assert_eq!(
            (text, description.name.as_str()),
            (TEXT.as_bytes().to_vec(), "a")
        );
        let scratch = tempfile::tempdir().unwrap();
        let dir = unpack(path, &bytes, &scratch.path().join("files")).unwrap();
        // What was altered there is put right.
        std::fs::write(dir.join("a.py"), "import os").unwrap();
        std::fs::remove_file(dir.join("lib/deep/b.py")).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", dir.join("lib/deep/b.py")).unwrap();
        unpack(path, &bytes, &dir).unwrap();
        std::fs::create_dir(dir.join("__pycache__")).unwrap();
        std::fs::write(dir.join("__pycache__/a.pyc"), "other code").unwrap();
        unpack(path, &bytes, &dir).unwrap();
        assert_eq!(count(scratch.path()), Some(2));
        for (name, content) in whole() {
            let there = dir.join(name);
            assert!(std::fs::symlink_metadata(&there).unwrap().is_file());
            assert_eq!(std::fs::read(there).unwrap(), content);
        }
    }

    #[test]
    fn a_bundle_holds_what_its_description_names_and_nothing_else() {
        let with = |change: &dyn Fn(&mut Vec<BundledFile>)| {
            let mut files = whole();
            change(&mut files);
            pack(TEXT.as_bytes(), &files).unwrap()
        };
        for (bytes, expected) in [
            (with(&|files| drop(files.pop())), "names `lib/`"),
            (
                with(&|files| files.swap_remove(0).0.clear()),
                "names `a.py`",
            ),
            (
                with(&|files| files.push(("c.py".to_owned(), Vec::new()))),
                "`c.py`",
            ),
            (
                with(&|files| files.push(("../up".to_owned(), Vec::new()))),
                "`../up`",
            ),
            (
                with(&|files| files.push(("/up".to_owned(), Vec::new()))),
                "`/up`",
            ),
            (
                with(&|files| files.push(("b.plugin.toml".to_owned(), Vec::new()))),
                "two descriptions",
            ),
            (
                with(&|files| files.push(("lib/deep".to_owned(), Vec::new()))),
                "`lib/deep` as a file",
            ),
            (
                with(&|files| files.push(("lib/a\\b".to_owned(), Vec::new()))),
                "not a plain file",
            ),
            (pack(b"", &[]).unwrap(), "missing field"),
            (
                pack(TEXT.replace("python3", "lib/run").as_bytes(), &whole()).unwrap(),
                "begins with `lib/run`, which it does not hold",
            ),
        ] {
            let said = refused(&bytes);
            assert!(said.contains(expected), "{expected}: {said}");
        }
        let bytes = pack(TEXT.as_bytes(), &whole()).unwrap();
        for length in [5, bytes.len() / 2, bytes.len() - 1] {
            let cut = judge(Path::new("a.plugin"), &bytes[..length]).unwrap_err();
            assert!(cut.is_transient(), "{cut}");
        }
        // What is all there and does not fit its sum does not get better by waiting.
        let at = bytes.windows(7).position(|there| there == b"print()");
        let mut spoilt = bytes.clone();
        spoilt[at.unwrap()] = b'P';
        let spoilt = judge(Path::new("a.plugin"), &spoilt).unwrap_err();
        assert!(
            !spoilt.is_transient() && spoilt.to_string().contains("cannot be read"),
            "{spoilt}"
        );
    }
}
