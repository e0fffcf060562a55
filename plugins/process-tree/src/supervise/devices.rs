//! The devices of a command in a sandbox: a `/dev` of its own with those that are none, a terminal if it
//! makes one, and shared memory.
//!
//! Others are the machine itself: root would read disks there, and what is attached to it. A device that
//! the sandbox names is there as well.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use rustix::mount::{
    MountFlags, UnmountFlags, mount, mount_bind_recursive, mount_remount, unmount,
};

use super::covers::{EMPTY, descriptor, handle};

/// Where devices are.
pub(super) const DEVICES: &str = "/dev";

/// Devices that every command has.
const STANDARD_DEVICES: [&str; 6] = [
    "/dev/full",
    "/dev/null",
    "/dev/random",
    "/dev/tty",
    "/dev/urandom",
    "/dev/zero",
];

/// Names of what is elsewhere, and where that is.
const LINKS: [(&str, &str); 5] = [
    ("/dev/fd", "/proc/self/fd"),
    ("/dev/ptmx", "pts/ptmx"),
    ("/dev/stderr", "/proc/self/fd/2"),
    ("/dev/stdin", "/proc/self/fd/0"),
    ("/dev/stdout", "/proc/self/fd/1"),
];

/// Where the system has its terminals.
const TERMINALS: &str = "/dev/pts";

/// Where programs share memory by name.
pub(super) const SHARED_MEMORY: &str = "/dev/shm";

/// The limit of what a command shares there: it is memory.
const OWN_SHARED_MEMORY: &core::ffi::CStr = c"mode=1777,size=256m";

/// Puts devices of its own in the place of those of the system, unless a command may change all of them.
/// Where that fails the system's stay.
pub(super) fn own_devices(writable: &[PathBuf]) -> io::Result<()> {
    if writable
        .iter()
        .any(|dir| Path::new(DEVICES).starts_with(dir))
    {
        return Ok(());
    }
    let kept = open_devices(writable)?;
    let flags = MountFlags::NOSUID | MountFlags::NOEXEC;
    mount("tmpfs", DEVICES, "tmpfs", flags, EMPTY)?;
    let filled = fill(&kept).and_then(|()| {
        let flags = flags | MountFlags::BIND | MountFlags::RDONLY;
        Ok(mount_remount(DEVICES, flags, c"")?)
    });
    if filled.is_err() {
        // Nothing else is left to be done where this fails too.
        let _ = unmount(DEVICES, UnmountFlags::DETACH);
    }
    filled
}

/// Gives a command terminals of its own in the place of those of the user.
pub(super) fn own_terminals() {
    let flags = MountFlags::NOSUID | MountFlags::NOEXEC;
    let terminals = c"newinstance,ptmxmode=0666,mode=0620";
    // Where it has none it goes without, as where there is nothing like it.
    if Path::new(TERMINALS).is_dir() {
        let _without = mount("devpts", TERMINALS, "devpts", flags, terminals);
    }
}

/// Gives the command shared memory of its own. False where that cannot be or somebody works in it.
pub(super) fn own_shared_memory(writable: &[PathBuf]) -> bool {
    // A link leads to where others have theirs.
    let is_there = fs::symlink_metadata(SHARED_MEMORY).is_ok_and(|found| found.is_dir());
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    let is_used = writable.iter().any(|dir| dir.starts_with(SHARED_MEMORY));
    is_there && !is_used && mount("tmpfs", SHARED_MEMORY, "tmpfs", flags, OWN_SHARED_MEMORY).is_ok()
}

/// What stays of the system's devices: the usual ones, and those that are named.
fn open_devices(writable: &[PathBuf]) -> io::Result<Vec<(PathBuf, OwnedFd)>> {
    let named = writable.iter().filter(|path| path.starts_with(DEVICES));
    let named = named.map(|path| match path.starts_with(SHARED_MEMORY) {
        // What lies beside it may be read, as anywhere else.
        true => Path::new(SHARED_MEMORY),
        false => path.as_path(),
    });
    let all: BTreeSet<&Path> = named.chain(STANDARD_DEVICES.map(Path::new)).collect();
    let mut kept = Vec::new();
    for path in all {
        match handle(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            opened => kept.push((path.to_owned(), opened?)),
        }
    }
    Ok(kept)
}

/// Fills the place of the devices with these.
fn fill(kept: &[(PathBuf, OwnedFd)]) -> io::Result<()> {
    for (path, handle) in kept {
        let device = descriptor(handle);
        if fs::metadata(&device)?.is_dir() {
            fs::create_dir_all(path)?;
        } else {
            path.parent().map_or(Ok(()), fs::create_dir_all)?;
            File::create(path)?;
        }
        mount_bind_recursive(&device, path)?;
    }
    for (name, to) in LINKS {
        symlink(to, name)?;
    }
    for dir in [TERMINALS, SHARED_MEMORY] {
        fs::create_dir_all(dir)?;
    }
    Ok(())
}
