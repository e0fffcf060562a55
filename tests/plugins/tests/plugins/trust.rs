//! The people who may have written a plugin's file.

use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::Path;

use conjure_host::platform::{current_user, is_private_group};
use conjure_host::plugin::{Pin, PluginError, PluginFile};
use conjure_plugin_tests::{Bench, report_left_out};

use super::sources::marked;

/// Why a case is left out.
const NOT_ROOT: &str = "only root can give a file to others";

fn mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

fn plugin(bench: &Bench) -> std::path::PathBuf {
    let path = bench.put("libmarked.so", &std::fs::read(marked()).unwrap());
    mode(&path, 0o644);
    path
}

#[test]
fn a_file_that_others_can_write_is_refused() {
    let bench = Bench::new();
    let path = plugin(&bench);
    assert!(PluginFile::read(&path, false).is_ok());
    mode(&path, 0o646);
    let error = PluginFile::read(&path, true).unwrap_err();
    assert!(
        matches!(
            error,
            PluginError::Writable {
                by: "everyone",
                what: "the file",
                ..
            }
        ),
        "{error}"
    );
}

#[test]
fn a_file_that_a_shared_group_can_write_is_refused() {
    use std::os::unix::fs::MetadataExt as _;
    let bench = Bench::new();
    let path = plugin(&bench);
    mode(&path, 0o664);
    let own = std::fs::metadata(&path).unwrap().gid();
    assert_eq!(
        PluginFile::read(&path, false).is_ok(),
        is_private_group(own)
    );
    if current_user() != 0 {
        report_left_out("a plugin of another group", NOT_ROOT);
        return;
    }
    chown(&path, None, Some(1)).unwrap();
    let error = PluginFile::read(&path, false).unwrap_err();
    assert!(
        matches!(
            error,
            PluginError::Writable {
                by: "its group",
                ..
            }
        ),
        "{error}"
    );
}

#[test]
fn a_file_of_somebody_else_is_refused() {
    if current_user() != 0 {
        report_left_out("a plugin of another user", NOT_ROOT);
        return;
    }
    let bench = Bench::new();
    let path = plugin(&bench);
    chown(&path, Some(12_345), None).unwrap();
    let error = PluginFile::read(&path, false).unwrap_err();
    assert!(
        matches!(error, PluginError::Owner { owner: 12_345, .. }),
        "{error}"
    );
    chown(&path, Some(0), None).unwrap();
    chown(&bench.dir, Some(12_345), None).unwrap();
    let error = PluginFile::read(&path, false).unwrap_err();
    assert!(
        matches!(
            error,
            PluginError::Owner {
                what: "its directory",
                ..
            }
        ),
        "{error}"
    );
}

#[test]
fn a_directory_that_others_can_write_is_refused() {
    let bench = Bench::new();
    let path = plugin(&bench);
    mode(&bench.dir, 0o777);
    let error = PluginFile::read(&path, true).unwrap_err();
    assert!(
        matches!(
            error,
            PluginError::Writable {
                what: "its directory",
                ..
            }
        ),
        "{error}"
    );
}

#[test]
fn a_place_that_others_can_change_further_up_pins_nothing_unless_named() {
    let bench = Bench::new();
    let path = plugin(&bench);
    mode(bench.root.path(), 0o777);
    assert!(matches!(
        PluginFile::read(&path, false).unwrap().pin,
        Pin::Unpinned { .. }
    ));
    let error = bench.loader.load(&path, false).unwrap_err();
    assert!(matches!(error, PluginError::NotPinned { .. }), "{error}");
    let loaded = bench.loader.load(&path, true).unwrap();
    assert_eq!(*loaded.source().pin(), Pin::Named);
    mode(bench.root.path(), 0o1777);
    assert_eq!(
        PluginFile::read(&path, false).unwrap().pin,
        Pin::OwnDirectory
    );
}

#[test]
fn a_link_is_refused_and_its_target_named() {
    let bench = Bench::new();
    let path = plugin(&bench);
    let link = bench.dir.join("liblink.so");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    let error = PluginFile::read(&link, true).unwrap_err().to_string();
    assert!(error.contains("is a symbolic link"), "{error}");
    assert!(error.contains(path.to_str().unwrap()), "{error}");
}

#[test]
fn a_pipe_a_socket_and_a_directory_are_refused_without_waiting() {
    let bench = Bench::new();
    let pipe = bench.dir.join("libpipe.so");
    assert!(
        std::process::Command::new("mkfifo")
            .arg(&pipe)
            .status()
            .unwrap()
            .success()
    );
    let socket = bench.dir.join("libsocket.so");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let directory = bench.dir.join("libdirectory.so");
    std::fs::create_dir(&directory).unwrap();
    for path in [pipe, socket, directory, "/dev/null".into(), "/".into()] {
        let error = PluginFile::read(&path, true).unwrap_err();
        assert!(
            matches!(
                error,
                PluginError::NotRegular { .. } | PluginError::Writable { .. }
            ),
            "{error}"
        );
    }
    let error = PluginFile::read(&bench.dir.join("missing.so"), true).unwrap_err();
    assert!(matches!(error, PluginError::Read { .. }), "{error}");
}
