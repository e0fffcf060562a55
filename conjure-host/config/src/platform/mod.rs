//! What differs from one operating system to the next, in one place.
//!
//! Everything else in the host asks here. Only Linux on x86-64 is tested regularly.

pub mod copy_mark;
mod environment;
mod inspection;
mod own_dir;
mod streams;
mod users;

use std::ffi::OsString;
use std::path::PathBuf;

pub use environment::{VariableChange, take as take_environment};
pub use inspection::deny_inspection;
pub use own_dir::{OwnDirError, check_own_dir, check_private_dir};
pub use streams::{InputStream, OutputStream, ProcessStreams, take_streams};
pub use users::{current_user, is_private_group};

/// The extension of a shared library.
pub const LIBRARY_EXTENSION: &str = if cfg!(target_os = "macos") {
    "dylib"
} else if cfg!(windows) {
    "dll"
} else {
    "so"
};

/// What this platform's shared libraries are, with an article.
pub const LIBRARY_FORMAT: &str = if cfg!(target_os = "macos") {
    "a Mach-O dynamic library"
} else if cfg!(windows) {
    "a DLL"
} else {
    "an ELF shared library"
};

/// Where the host keeps its data: `$CONJURE_DATA_DIR`, else the platform's usual place.
///
/// `var` looks up an environment variable. Nothing when there is no home directory either.
pub fn data_dir(var: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let absolute = |name: &str| var(name).map(PathBuf::from).filter(|p| p.is_absolute());
    if let Some(dir) = absolute("CONJURE_DATA_DIR") {
        return Some(dir);
    }
    if cfg!(target_os = "macos") {
        return Some(absolute("HOME")?.join("Library/Application Support/conjure"));
    }
    let share = absolute("XDG_DATA_HOME").or_else(|| Some(absolute("HOME")?.join(".local/share")));
    Some(share?.join("conjure"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_data_directory_comes_from_the_environment() {
        let with = |pairs: &'static [(&str, &str)]| {
            data_dir(move |name| {
                pairs
                    .iter()
                    .find(|(key, _)| *key == name)
                    .map(|(_, value)| OsString::from(value))
            })
        };
        assert_eq!(
            with(&[("CONJURE_DATA_DIR", "/d"), ("HOME", "/h")]),
            Some(PathBuf::from("/d"))
        );
        assert_eq!(with(&[]), None);
        if cfg!(target_os = "linux") {
            assert_eq!(
                with(&[("XDG_DATA_HOME", "relative"), ("HOME", "/h")]),
                Some(PathBuf::from("/h/.local/share/conjure"))
            );
        }
    }
}
