//! What the host reads of files and texts that others made.
//!
//! A library is only judged here, as it is before it is opened; nothing of it runs.

use std::fs;
use std::path::Path;

use conjure_config::{SessionSpec, skill_folders};
use conjure_plugins::PluginFile;

/// A session file is read and checked, or refused.
pub fn session_file(input: &[u8]) {
    if let Ok(text) = std::str::from_utf8(input)
        && let Ok(spec) = SessionSpec::from_toml(text)
    {
        let _ = spec.check();
    }
}

/// A file is a plugin or is refused.
pub fn plugin_file(input: &[u8]) {
    in_a_file("plugin.so", input, |path, _| {
        let _ = PluginFile::read(path, true);
    });
}

/// A package is unpacked into its own directory, or refused.
pub fn package(input: &[u8]) {
    in_a_file("package.skill", input, |path, dir| {
        let unpacked = dir.join("unpacked");
        let made = fs::create_dir(&unpacked);
        assert!(made.is_ok(), "no directory to unpack into");
        let _ = skill_folders::load(path, &unpacked);
        let beside: Vec<_> = fs::read_dir(dir).into_iter().flatten().flatten().collect();
        assert_eq!(beside.len(), 2, "something was written beside: {beside:?}");
    });
}

/// Puts the input into a file of a directory of its own.
fn in_a_file(name: &str, input: &[u8], read: impl FnOnce(&Path, &Path)) {
    let Ok(dir) = tempfile::tempdir() else {
        panic!("no directory for the input");
    };
    let path = dir.path().join(name);
    let written = fs::write(&path, input);
    assert!(written.is_ok(), "the input could not be written");
    read(&path, dir.path());
}
