//! Hides files and directories from a command: in a mount namespace of its own something empty
//! lies over them.
//!
//! Root makes such a namespace as it is. Anybody else needs a user namespace around it, in which
//! the user's number stays what it is; some systems allow none, and some let one be made but
//! nothing be done in it. Since there is no way back out of one, it is tried beforehand in a
//! process that does nothing else.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use conjure_confinement::outermost;
use nix::sched::{CloneFlags, unshare};
use rustix::io::Errno;
use rustix::mount::{
    MountFlags, MountPropagationFlags, mount_bind_recursive, mount_change, mount_remount,
};
use rustix::process::{getgid, getuid};

use super::confine::Privileges;
use super::covers::Covers;
use super::devices::{DEVICES, SHARED_MEMORY, own_devices, own_shared_memory, own_terminals};
use crate::order::Confinement;

/// What was done to what a program sees of the system.
#[derive(Debug, Default)]
pub(super) struct HiddenMounts {
    /// All that was to be hidden is, and of a sandbox the devices of the machine as well.
    pub(super) files: bool,
    /// What a sandbox does not let it change is mounted to be read only, which holds for modes, owners and
    /// times as well; or there is no sandbox.
    pub(super) modes: bool,
    /// Whether the memory, semaphores and queues that it shares by number are its own.
    pub(super) ipc: bool,
    /// Place for shared memory by name, which is the process's own; `None` where there is no such place.
    pub(super) shared_memory: Option<&'static str>,
    /// What is to be covered again when it is replaced.
    pub(super) covers: Option<Covers>,
}

/// Hides what is to be hidden, and says what of that was done and what the process may do since.
pub(super) fn hide(confinement: &Confinement) -> (HiddenMounts, Privileges) {
    let hidden = existing(&confinement.hidden);
    let has_sandbox = confinement.sandbox.is_some();
    // A worker's commands change modes nowhere.
    let out_of_reach = !hidden.is_empty() && hidden.iter().all(|place| is_unreadable(place));
    if out_of_reach || (hidden.is_empty() && !has_sandbox) {
        let hides = HiddenMounts {
            files: true,
            modes: true,
            ..HiddenMounts::default()
        };
        return (hides, privileges());
    }
    let Some(privileges) = own_mounts(confinement.by_user_namespace) else {
        let none = HiddenMounts {
            files: hidden.is_empty(),
            modes: !has_sandbox,
            ..HiddenMounts::default()
        };
        return (none, Privileges::None);
    };
    let covers = Covers::new(hidden, existing(&confinement.visible));
    let covered = stop_propagation().and_then(|()| covers.cover_all());
    let sandbox = confinement.sandbox.as_ref();
    let writable = sandbox.map(|sandbox| outermost(unchanged(&sandbox.write)));
    let held = covered.and_then(|()| pin_parents(&covers, writable.as_deref()));
    let is_hidden = held.is_ok();
    let mut hides = match writable {
        Some(writable) => enclose(&writable, is_hidden),
        None => HiddenMounts {
            files: is_hidden,
            modes: true,
            ..HiddenMounts::default()
        },
    };
    // What could not be covered is told, and nothing ends because of it.
    hides.covers = is_hidden.then_some(covers);
    (hides, privileges)
}

/// Makes everything read only but these, and gives the command devices and memory of its own.
fn enclose(writable: &[PathBuf], is_hidden: bool) -> HiddenMounts {
    let ipc = unshare(CloneFlags::CLONE_NEWIPC).is_ok();
    // Before there are other devices: those that stay are read only since.
    let modes = mount_read_only_except(writable).is_ok();
    let devices = own_devices(writable).is_ok();
    own_terminals();
    let shared_memory = own_shared_memory(writable).then_some(SHARED_MEMORY);
    HiddenMounts {
        files: is_hidden && devices,
        modes,
        ipc,
        shared_memory,
        covers: None,
    }
}

/// Enters a mount namespace, in a user namespace where it takes one; what may be done there, or nothing
/// where there is none.
fn own_mounts(by_user_namespace: bool) -> Option<Privileges> {
    match unshare(CloneFlags::CLONE_NEWNS) {
        Ok(()) => Some(Privileges::System),
        Err(_) if by_user_namespace => own_users().ok().map(|()| Privileges::Own),
        Err(_) => None,
    }
}

/// Lets what is mounted outside later be seen here too, and nothing the other way round.
fn stop_propagation() -> io::Result<()> {
    let alone = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    Ok(mount_change("/", alone)?)
}

/// Holds the directories above what is hidden where a command may rename them, which would take what is
/// hidden to a place that the next command sees. What something is mounted on is not renamed.
/// `writable`: where a sandbox lets it rename; without one that is everywhere.
fn pin_parents(covers: &Covers, writable: Option<&[PathBuf]>) -> io::Result<()> {
    // Outer ones first: the inner ones are in their places once more then.
    for dir in renamable_parents(covers, writable) {
        match mount_bind_recursive(dir, dir) {
            // What is below a hidden place is not to be seen, and not to be renamed either.
            Err(Errno::NOENT) => {}
            held => held?,
        }
    }
    Ok(())
}

/// The directories above hidden places that a command may rename. Nobody renames `/`.
fn renamable_parents<'a>(covers: &'a Covers, writable: Option<&[PathBuf]>) -> BTreeSet<&'a Path> {
    let may_be_renamed = |dir: &Path| match writable {
        None => dir.parent().is_some(),
        Some(writable) => {
            let mut outer = writable.iter();
            outer.any(|outer| dir != outer && dir.starts_with(outer))
        }
    };
    let above = covers.hidden().flat_map(|place| {
        let dirs = place.ancestors().skip(1);
        dirs.take_while(|dir| may_be_renamed(dir))
    });
    above.collect()
}

/// Whether this process cannot read there in any case, as in the worker of a plugin.
fn is_unreadable(place: &Path) -> bool {
    File::open(place).is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
}

/// Finds out whether a user namespace is of use here. For a process of its own.
#[must_use]
pub fn users_probe() -> ExitCode {
    let root = Covers::new([PathBuf::from("/")], []);
    let tried = own_users().and_then(|()| root.cover_all());
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

/// Paths that are there as they are named. One that a link leads to was put there by somebody since:
/// its name was without links before.
fn unchanged(paths: &[PathBuf]) -> Vec<PathBuf> {
    let unchanged = paths
        .iter()
        .filter(|path| fs::canonicalize(path).is_ok_and(|real| real == **path));
    unchanged.cloned().collect()
}

/// The places that are there, without links.
fn existing(paths: &[String]) -> Vec<PathBuf> {
    let found = paths.iter().filter_map(|path| fs::canonicalize(path).ok());
    found.collect()
}

/// Mounts everything to be read only but these, where they are now; devices are of use only where the
/// system has its own.
fn mount_read_only_except(writable: &[PathBuf]) -> io::Result<()> {
    for path in writable {
        mount_bind_recursive(path, path)?;
    }
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    for (place, options) in mounts.lines().filter_map(parse_mount) {
        if writable.iter().any(|outer| place.starts_with(outer)) {
            continue;
        }
        // A file that something lies over is a device itself, the one that is empty.
        let wanted = match place.starts_with(DEVICES) || !place.is_dir() {
            true => MountFlags::RDONLY,
            false => MountFlags::RDONLY | MountFlags::NODEV,
        };
        if !options.contains(wanted) {
            let flags = options | wanted | MountFlags::BIND;
            match mount_remount(&place, flags, c"") {
                // Something else lies over it by now, or it is where this user cannot go.
                Err(Errno::INVAL | Errno::NOENT | Errno::ACCESS) => {}
                done => done?,
            }
        }
    }
    Ok(())
}

/// Where a line of `mountinfo` says that something is mounted, and how.
fn parse_mount(line: &str) -> Option<(PathBuf, MountFlags)> {
    let mut fields = line.split(' ').skip(4);
    let (place, options) = (fields.next()?, fields.next()?);
    let known = |option| match option {
        "ro" => MountFlags::RDONLY,
        "nosuid" => MountFlags::NOSUID,
        "nodev" => MountFlags::NODEV,
        "noexec" => MountFlags::NOEXEC,
        "noatime" => MountFlags::NOATIME,
        "nodiratime" => MountFlags::NODIRATIME,
        "relatime" => MountFlags::RELATIME,
        _ => MountFlags::empty(),
    };
    let options = options.split(',').map(known);
    Some((unescaped(place), options.collect()))
}

/// A path of `mountinfo`, in which blanks and the like are octal numbers.
fn unescaped(text: &str) -> PathBuf {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, more)) = rest.split_first() {
        let octal = more.get(..3).filter(|_| *first == b'\\');
        let number = octal.and_then(|digits| std::str::from_utf8(digits).ok());
        match number.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = more.get(3..).unwrap_or_default();
            }
            None => {
                bytes.push(*first);
                rest = more;
            }
        }
    }
    PathBuf::from(OsString::from_vec(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_is_read_with_its_options_and_its_name_as_it_is() {
        let line =
            "36 35 98:0 /mnt1 /mnt\\040two\\134x rw,noatime,nodev master:1 - ext3 /dev/root rw";
        let options = MountFlags::NOATIME | MountFlags::NODEV;
        assert_eq!(parse_mount(line), Some(("/mnt two\\x".into(), options)));
        assert_eq!(parse_mount("36 35 98:0 /"), None);
    }

    #[test]
    fn every_directory_that_a_command_may_rename_is_held_above_what_is_hidden() {
        let covers = Covers::new([PathBuf::from("/home/me/.local/share/conjure")], []);
        let held = |writable: Option<&[PathBuf]>| -> Vec<String> {
            let dirs = renamable_parents(&covers, writable).into_iter();
            dirs.map(|dir| dir.display().to_string()).collect()
        };
        assert_eq!(held(Some(&["/home/me/work".into()])), [""; 0]);
        assert_eq!(
            held(Some(&["/home/me".into()])),
            ["/home/me/.local", "/home/me/.local/share"]
        );
        // Without a sandbox that is everywhere.
        assert_eq!(
            held(None),
            [
                "/home",
                "/home/me",
                "/home/me/.local",
                "/home/me/.local/share"
            ]
        );
    }
}
