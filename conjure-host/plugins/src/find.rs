//! Where plugins are, and which files there are plugins at all.
//!
//! Looks at names only: what is in a file is judged by [`super::PluginFile`].

use std::collections::HashSet;
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

use conjure_config::platform::LIBRARY_EXTENSION;

use super::program;

/// Where a host looks for plugins, in this order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SearchPath {
    /// Files that a person named, such as with `--plugin`.
    pub named: Vec<PathBuf>,
    /// Directories. One that does not exist is an empty one.
    pub dirs: Vec<PathBuf>,
}

/// A file that may be a plugin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundLibrary {
    /// Path of the file.
    pub path: PathBuf,
    /// Whether a person named this very file, which pins it.
    pub named: bool,
}

impl SearchPath {
    /// The usual places: the named files, each directory of `plugin_path` (what
    /// `CONJURE_PLUGIN_PATH` holds), `plugins` beside the host's program, and `plugins` in its
    /// data directory. A directory that is there twice is looked at once.
    pub fn new(
        named: Vec<PathBuf>,
        plugin_path: Option<&OsStr>,
        program: Option<&Path>,
        data_dir: Option<&Path>,
    ) -> Self {
        let mut dirs: Vec<PathBuf> = Vec::new();
        let listed = plugin_path
            .into_iter()
            .flat_map(std::env::split_paths)
            .filter(|dir| !dir.as_os_str().is_empty());
        let beside = program
            .and_then(Path::parent)
            .map(|dir| dir.join("plugins"));
        let kept = data_dir.map(|dir| dir.join("plugins"));
        for dir in listed.chain(beside).chain(kept) {
            if !dirs.contains(&dir) {
                dirs.push(dir);
            }
        }
        Self { named, dirs }
    }

    /// The files, named ones first, then each directory's in the order of their names.
    ///
    /// # Errors
    /// A directory that exists and cannot be listed is left out, with the system's error.
    pub fn find(&self) -> (Vec<FoundLibrary>, Vec<io::Error>) {
        let (mut found, mut errors) = (Vec::new(), Vec::new());
        // One file may be found by several spellings of its path.
        let mut seen = HashSet::new();
        let mut add = |path: PathBuf, named| {
            let real = conjure_config::fs::real_path(&path);
            if seen.insert(real) {
                found.push(FoundLibrary { path, named });
            }
        };
        for path in &self.named {
            add(path.clone(), true);
        }
        for dir in &self.dirs {
            match libraries(dir) {
                Ok(paths) => paths.into_iter().for_each(|path| add(path, false)),
                Err(error) => errors.push(error),
            }
        }
        (found, errors)
    }
}

/// The plugins' files of a directory, by name.
///
/// # Errors
/// The system's, when the directory exists and cannot be listed.
pub fn libraries(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let mut paths = conjure_config::fs::entries(dir)?;
    paths.retain(|path| is_library_name(path));
    Ok(paths)
}

/// Whether the name is that of a complete plugin: this platform's extension of a library, that of a
/// program's bundle, or the name of a program's description; no dot in front, and no sign of a download
/// or a copy that still goes on.
pub fn is_library_name(path: &Path) -> bool {
    let Some(name) = path.file_name().and_then(OsStr::to_str) else {
        return false;
    };
    if program::is_description(path) {
        return true;
    }
    let Some((stem, extension)) = name.rsplit_once('.') else {
        return false;
    };
    [LIBRARY_EXTENSION, program::EXTENSION].contains(&extension)
        && !stem.is_empty()
        && !name.starts_with('.')
        && !is_unfinished(stem)
}

/// Whether a name is that of a download or a copy that still goes on.
pub(super) fn is_unfinished(name: &str) -> bool {
    const UNFINISHED: [&str; 6] = [".part", ".tmp", ".temp", ".partial", ".download", "~"];
    UNFINISHED.iter().any(|end| name.ends_with(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_complete_libraries_count() {
        let name = |n: &str| {
            is_library_name(Path::new(
                &n.replace(".so", &format!(".{LIBRARY_EXTENSION}")),
            ))
        };
        assert!(name("libgreeter.so"));
        assert!(name("dir/lib.v1.so"));
        assert!(name("greeter.plugin") && name("greeter.plugin.toml") && name("plugin.toml"));
        for other in [
            ".libgreeter.so",
            "libgreeter.so.part",
            "libgreeter.part.so",
            "libgreeter.tmp.so",
            "libgreeter~.so",
            ".so",
            "so",
            "libgreeter.rlib",
            "libgreeter.so.1",
            ".greeter.plugin",
            "greeter.tmp.plugin",
            "greeter.toml",
            "README",
        ] {
            assert!(!name(other), "{other}");
        }
    }

    #[test]
    fn the_usual_places_in_order_and_once() {
        let path = std::env::join_paths(["/a", "/b", "/a"]).unwrap();
        let search = SearchPath::new(
            vec!["x.so".into()],
            Some(&path),
            Some(Path::new("/opt/conjure/conjure")),
            Some(Path::new("/b/..")),
        );
        assert_eq!(
            search.dirs,
            ["/a", "/b", "/opt/conjure/plugins", "/b/../plugins"].map(PathBuf::from)
        );
    }

    #[test]
    fn named_files_come_first_and_a_missing_directory_is_empty() {
        let dir = tempfile::tempdir().unwrap();
        let library = |name: &str| dir.path().join(format!("{name}.{LIBRARY_EXTENSION}"));
        for name in ["b", "a"] {
            std::fs::write(library(name), b"").unwrap();
        }
        std::fs::write(dir.path().join("notes.txt"), b"").unwrap();
        let search = SearchPath {
            named: vec![library("b")],
            dirs: vec![dir.path().join("missing"), dir.path().to_owned()],
        };
        let (found, errors) = search.find();
        assert!(errors.is_empty());
        assert_eq!(
            found,
            [
                FoundLibrary {
                    path: library("b"),
                    named: true
                },
                FoundLibrary {
                    path: library("a"),
                    named: false
                },
            ]
        );
    }
}
