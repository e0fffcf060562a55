//! Hides files and directories from a command: in a mount namespace of its own something empty
//! lies over them.
//!
//! Root makes such a namespace as it is. Anybody else needs a user namespace around it, in which
//! the user's number stays what it is; some systems allow none, and some let one be made but
//! nothing be done in it. Since there is no way back out of one, it is tried beforehand in a
//! process that does nothing else.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use nix::sched::{CloneFlags, unshare};
use rustix::fs::OFlags;
use rustix::mount::{
    MountFlags, MountPropagationFlags, mount, mount_bind, mount_bind_recursive, mount_change,
    mount_remount,
};
use rustix::process::{getgid, getuid};

use super::confine::Privileges;
use crate::order::Confinement;

/// What lies over a hidden directory: nobody finds anything in it, and nobody leaves anything.
const EMPTY: &core::ffi::CStr = c"mode=0755,size=64k";

/// Hides what is to be hidden, and says whether all of it is and what the process may do since.
pub(super) fn hide(confinement: &Confinement) -> (bool, Privileges) {
    let hidden = existing(&confinement.hidden);
    if hidden.is_empty() {
        return (true, privileges());
    }
    if hidden.iter().all(|place| is_out_of_reach(place)) {
        return (true, privileges());
    }
    let privileges = match unshare(CloneFlags::CLONE_NEWNS) {
        Ok(()) => Privileges::System,
        Err(_) if confinement.by_user_namespace => match own_users() {
            Ok(()) => Privileges::Own,
            Err(_) => return (false, Privileges::None),
        },
        Err(_) => return (false, Privileges::None),
    };
    let visible = existing(&confinement.visible);
    (cover_all(&hidden, &visible).is_ok(), privileges)
}

/// Whether this process cannot read there in any case, as in the worker of a plugin.
fn is_out_of_reach(place: &Path) -> bool {
    File::open(place).is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
}

/// Finds out whether a user namespace is of use here. For a process of its own.
#[must_use]
pub fn users_probe() -> ExitCode {
    let tried = own_users().and_then(|()| cover(Path::new("/"), &[]));
    match tried {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// What a process may do that has hidden nothing.
fn privileges() -> Privileges {
    use rustix::thread::{CapabilitySet, capabilities};
    let may_mount = capabilities(None)
        .is_ok_and(|capabilities| capabilities.effective.contains(CapabilitySet::SYS_ADMIN));
    match may_mount {
        true => Privileges::System,
        false => Privileges::None,
    }
}

/// Enters a user namespace in which the user and the group stay the same.
fn own_users() -> io::Result<()> {
    let (user, group) = (getuid().as_raw(), getgid().as_raw());
    unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNS)?;
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("{user} {user} 1"))?;
    fs::write("/proc/self/gid_map", format!("{group} {group} 1"))
}

/// The places that are there, without links.
fn existing(paths: &[String]) -> Vec<PathBuf> {
    let found = paths.iter().filter_map(|path| fs::canonicalize(path).ok());
    found.collect()
}

fn cover_all(hidden: &[PathBuf], visible: &[PathBuf]) -> io::Result<()> {
    // What is mounted outside later is seen here too, and nothing the other way round.
    let alone = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    mount_change("/", alone)?;
    let below = |inner: &Path, outer: &Path| inner != outer && inner.starts_with(outer);
    let mut hidden = hidden.to_vec();
    // The outer one first: what is below it and not shown is covered by that.
    hidden.sort();
    hidden.dedup();
    let mut covered: Vec<PathBuf> = Vec::new();
    for place in hidden {
        let shown = visible.iter().any(|shown| place.starts_with(shown));
        if covered.iter().any(|outer| below(&place, outer)) && !shown {
            continue;
        }
        let inside = visible.iter().filter(|shown| below(shown, &place));
        cover(&place, &inside.cloned().collect::<Vec<_>>())?;
        covered.push(place);
    }
    Ok(())
}

/// Puts something empty over a place, with what is to be seen below it.
fn cover(place: &Path, visible: &[PathBuf]) -> io::Result<()> {
    if !fs::metadata(place)?.is_dir() {
        return Ok(mount_bind("/dev/null", place)?);
    }
    // Through these they are found again once they are covered.
    let mut kept: Vec<(&PathBuf, OwnedFd)> = Vec::new();
    let mut outermost: Vec<&PathBuf> = visible.iter().collect();
    outermost.sort();
    for shown in outermost {
        if !kept.iter().any(|(outer, _)| shown.starts_with(outer)) {
            kept.push((shown, handle(shown)?));
        }
    }
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    mount("tmpfs", place, "tmpfs", flags, EMPTY)?;
    for (shown, handle) in kept {
        fs::create_dir_all(shown)?;
        mount_bind_recursive(format!("/proc/self/fd/{}", handle.as_raw_fd()), shown)?;
    }
    let flags = flags | MountFlags::BIND | MountFlags::RDONLY;
    Ok(mount_remount(place, flags, c"")?)
}

fn handle(dir: &Path) -> io::Result<OwnedFd> {
    let flags = (OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC).bits();
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(flags.cast_signed());
    let file: File = options.open(dir)?;
    Ok(file.into())
}
