//! What the host reads of files and texts that others made.
//!
//! A library is only judged here, as it is before it is opened; nothing of it runs.

use std::fs;
use std::path::Path;
use std::task::{Context, Poll, Waker};

use conjure_config::{SessionSpec, skill_folders};
use conjure_packages::{Package, PluginIndex};
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

/// A package of a plugin is read or refused; what it names is in it with the bytes that it says, or is
/// refused too.
pub fn plugin_package(input: &[u8]) {
    match Package::read("a package", input.to_vec()) {
        Ok(package) => {
            for file in package.description().all_files() {
                if let Ok(bytes) = package.file(file) {
                    assert_eq!(bytes.len() as u64, file.size);
                }
            }
            let _ = (package.skill(), package.local_library(), package.signer());
            assert!(!package.file_name().contains('/'), "a name is a path");
        }
        Err(why) => assert!(!why.to_string().is_empty(), "refused without a reason"),
    }
}

/// An index is read or refused, and what it names can be looked for.
pub fn plugin_index(input: &[u8]) {
    in_a_file("index.jsonl", input, |path, _| {
        let place = path.display().to_string();
        // An index in a file is read without waiting.
        let mut reading = std::pin::pin!(PluginIndex::read(&place));
        let mut context = Context::from_waker(Waker::noop());
        match reading.as_mut().poll(&mut context) {
            Poll::Ready(Ok(index)) => {
                assert!(index.search(&[]).len() <= input.len());
                let _ = (index.find("x", None), index.left_out());
            }
            Poll::Ready(Err(why)) => assert!(!why.to_string().is_empty()),
            Poll::Pending => panic!("a file is waited for"),
        }
    });
}

/// A program that is one file is a plugin, or is refused.
pub fn program_bundle(input: &[u8]) {
    in_a_file("program.plugin", input, |path, dir| {
        let _ = PluginFile::read(path, true);
        let beside: Vec<_> = fs::read_dir(dir).into_iter().flatten().flatten().collect();
        assert_eq!(beside.len(), 1, "something was written beside: {beside:?}");
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
