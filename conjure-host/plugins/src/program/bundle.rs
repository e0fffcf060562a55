//! A description and its files as one: a ZIP archive, which anybody can make and look into.

use std::collections::{BTreeSet, HashSet};
use std::io::{Cursor, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

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
pub(super) const MAX_FILES: usize = 10_000;
/// The description's name in a bundle that a host makes.
const DESCRIPTION: &str = "plugin.toml";

/// What describes a package, which is another archive with a plugin in it.
const PACKAGE: &str = "package.json";

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
struct ProgramBundle {
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

/// Judges a bundle, and gives what it holds.
///
/// # Errors
/// The first thing that is wrong with it.
pub(crate) fn open_bundle(
    path: &Path,
    bytes: &[u8],
) -> Result<(ProgramDescription, Vec<BundledFile>), PluginError> {
    let bundle = read(path, bytes)?;
    Ok((bundle.description, bundle.files))
}

fn read(path: &Path, bytes: &[u8]) -> Result<ProgramBundle, PluginError> {
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
    if archive.len() > MAX_FILES {
        return Err(wrong(format!(
            "it holds {} files, and a plugin has at most {MAX_FILES}",
            archive.len()
        )));
    }
    if archive.has_duplicate_names() {
        return Err(wrong("it holds two files with the same name".to_owned()));
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
            return Err(wrong(not_plain_error(&name)));
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
    let is_package = || files.iter().any(|(name, _)| name == PACKAGE);
    let text = text.ok_or_else(|| match is_package() {
        true => PluginError::Package {
            path: path.to_owned(),
        },
        false => wrong(format!("it holds no `{DESCRIPTION}`")),
    })?;
    let description = parse(path, &text)?;
    check_files(&description, &files).map_err(wrong)?;
    Ok(ProgramBundle {
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
pub(super) fn check_files(
    description: &ProgramDescription,
    files: &[BundledFile],
) -> Result<(), String> {
    if files.len() >= MAX_FILES {
        return Err(format!(
            "it holds {} files beside its description, and a plugin has at most {MAX_FILES} with that",
            files.len()
        ));
    }
    let mut names = HashSet::new();
    for (name, _) in files {
        if !is_plain(name) || name.ends_with('/') {
            return Err(not_plain_error(name));
        }
        if !description.includes(name) {
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

fn not_plain_error(name: &str) -> String {
    format!("it holds `{name}`, which is not a plain file below its own directory")
}

/// The extension of a directory with the files of a bundle.
pub(crate) const FILES_EXTENSION: &str = "files";
/// How often it is said that a directory is in use.
const TOUCH_INTERVAL: Duration = Duration::from_secs(12 * 60 * 60);

/// Gives a directory in the store that holds the files of a bundle and nothing else: one that is there,
/// or a new one. Its name begins with `name`, it has no links in its path, and it is said to be in use.
///
/// One that was altered is never touched, since programs may run in it.
///
/// # Errors
/// What is wrong with the bundle, or the system's.
pub(crate) fn unpack(
    path: &Path,
    bytes: &[u8],
    store: &Path,
    name: &str,
) -> Result<PathBuf, String> {
    /// So that those that start at once do not each make one.
    static MAKING: Mutex<()> = Mutex::new(());
    let files = read(path, bytes).map_err(|error| error.to_string())?.files;
    let unpacked = || -> std::io::Result<PathBuf> {
        let dir = match find_intact(store, name, &files)? {
            Some(dir) => dir,
            None => {
                let _making = MAKING.lock().unwrap_or_else(PoisonError::into_inner);
                match find_intact(store, name, &files)? {
                    Some(dir) => dir,
                    None => create(store, name, &files)?,
                }
            }
        };
        touch(&dir);
        dir.canonicalize()
    };
    unpacked().map_err(|error| error.to_string())
}

/// A directory of a bundle that is as it was made.
fn find_intact(
    store: &Path,
    name: &str,
    files: &[BundledFile],
) -> std::io::Result<Option<PathBuf>> {
    let mut dirs = fs::entries(store)?;
    dirs.retain(|dir| {
        let own = dir.file_name().and_then(|own| own.to_str());
        let rest = own.and_then(|own| own.strip_prefix(name));
        rest.is_some_and(|rest| rest.starts_with('.'))
            && dir.extension() == Some(FILES_EXTENSION.as_ref())
    });
    Ok(dirs.into_iter().find(|dir| is_intact(dir, files)))
}

/// Whether a directory holds these files and nothing else, none of it through a link.
fn is_intact(dir: &Path, files: &[BundledFile]) -> bool {
    let mut there = DirListing::default();
    if !is_real_dir(dir) || list_below(dir, "", &mut there).is_none() {
        return false;
    }
    let names: BTreeSet<&str> = files.iter().map(|(name, _)| name.as_str()).collect();
    let dirs: BTreeSet<&str> = names.iter().flat_map(|name| dirs_above(name)).collect();
    let is_same = |(name, content): &BundledFile| {
        fs::read(dir.join(name)).is_ok_and(|there| there == *content)
    };
    there.files.iter().eq(&names) && there.dirs.iter().eq(&dirs) && files.iter().all(is_same)
}

/// The names of what is below a directory.
#[derive(Default)]
struct DirListing {
    files: BTreeSet<String>,
    dirs: BTreeSet<String>,
}

/// Finds what is below a directory, if all of it is regular files and directories.
fn list_below(dir: &Path, before: &str, found: &mut DirListing) -> Option<()> {
    for entry in fs::entries(dir).ok()? {
        let name = format!("{before}{}", entry.file_name()?.to_str()?);
        let kind = std::fs::symlink_metadata(&entry).ok()?.file_type();
        if kind.is_dir() {
            list_below(&entry, &format!("{name}/"), found)?;
            found.dirs.insert(name);
        } else if kind.is_file() {
            found.files.insert(name);
        } else {
            return None;
        }
    }
    Some(())
}

fn is_real_dir(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok_and(|there| there.is_dir())
}

/// Makes a directory with these files, which is there in one step for whoever looks.
fn create(store: &Path, name: &str, files: &[BundledFile]) -> std::io::Result<PathBuf> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let unique = format!(
        "{}-{}-{}",
        std::process::id(),
        since.unwrap_or_default().as_nanos(),
        NEXT.fetch_add(1, Ordering::Relaxed)
    );
    let part = store.join(format!("{name}.new-{unique}"));
    let first = store.join(format!("{name}.{FILES_EXTENSION}"));
    let made = write_all(&part, files).and_then(|()| {
        // Where something is there this fails, and what is there stays.
        if std::fs::symlink_metadata(&first).is_err() && fs::rename(&part, &first).is_ok() {
            return Ok(first);
        }
        let other = store.join(format!("{name}.{unique}.{FILES_EXTENSION}"));
        fs::rename(&part, &other).map(|()| other)
    });
    if made.is_err() {
        let _ = fs::remove_dir_all(&part);
    }
    made
}

/// Says that a directory is in use, by its time. If it cannot be said, it is made again one day.
fn touch(dir: &Path) {
    let modified = std::fs::metadata(dir).and_then(|there| there.modified());
    if !modified.is_ok_and(|at| at.elapsed().is_ok_and(|age| age < TOUCH_INTERVAL)) {
        let _ = std::fs::File::open(dir).and_then(|dir| dir.set_modified(SystemTime::now()));
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
    fn a_package_is_called_one() {
        let mut archive = ZipWriter::new(Cursor::new(Vec::new()));
        archive
            .start_file("package.json", SimpleFileOptions::default())
            .unwrap();
        let bytes = archive.finish().unwrap().into_inner();
        let error = refused(&bytes);
        assert!(error.contains("conjure plugin install"), "{error}");
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
        let store = scratch.path();
        let unpacked = || unpack(path, &bytes, store, "hash").unwrap();
        let dir = unpacked();
        let own = |dir: &Path| dir.file_name().unwrap().to_owned();
        assert_eq!(own(&dir), "hash.files");
        assert_eq!(unpacked(), dir);
        // What was altered is left to what runs in it, and there is another one.
        let elsewhere = store.join("elsewhere");
        write_all(&elsewhere, &whole()).unwrap();
        let altering: [&dyn Fn(&Path); 6] = [
            &|dir| std::fs::write(dir.join("a.py"), "import os").unwrap(),
            &|dir| {
                std::fs::remove_file(dir.join("lib/deep/b.py")).unwrap();
                let target = elsewhere.join("lib/deep/b.py");
                std::os::unix::fs::symlink(target, dir.join("lib/deep/b.py")).unwrap();
            },
            &|dir| {
                std::fs::remove_dir_all(dir.join("lib")).unwrap();
                std::os::unix::fs::symlink(elsewhere.join("lib"), dir.join("lib")).unwrap();
            },
            &|dir| {
                std::fs::remove_dir_all(dir).unwrap();
                std::os::unix::fs::symlink(&elsewhere, dir).unwrap();
            },
            &|dir| std::os::unix::fs::symlink("/etc/passwd", dir.join("more")).unwrap(),
            &|dir| std::fs::create_dir(dir.join("__pycache__")).unwrap(),
        ];
        let mut dir = dir;
        for alter in altering {
            alter(&dir);
            let altered = dir.clone();
            dir = unpacked();
            assert!(dir != altered && is_intact(&dir, &whole()));
            assert!(std::fs::symlink_metadata(&altered).is_ok());
            assert_eq!(unpacked(), dir);
        }
        assert_eq!(fs::entries(store).unwrap().len(), 8);
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
