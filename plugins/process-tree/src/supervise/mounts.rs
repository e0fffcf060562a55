//! Hides files and directories from a command: in a mount namespace of its own something empty
//! lies over them.
//!
//! Root makes such a namespace as it is. Anybody else needs a user namespace around it, in which
//! the user's number stays what it is; some systems allow none, and some let one be made but
//! nothing be done in it. Since there is no way back out of one, it is tried beforehand in a
//! process that does nothing else.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use conjure_confinement::outermost;
use nix::sched::{CloneFlags, unshare};
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::mount::{
    MountFlags, MountPropagationFlags, mount, mount_bind, mount_bind_recursive, mount_change,
    mount_remount,
};
use rustix::process::{getgid, getuid};

use super::confine::Privileges;
use crate::order::Confinement;

/// What is no file but the system itself; Landlock keeps commands from changing it.
const OF_THE_SYSTEM: [&str; 3] = ["/dev", "/proc", "/sys"];

/// What lies over a hidden directory: nobody finds anything in it, and nobody leaves anything.
const EMPTY: &core::ffi::CStr = c"mode=0755,size=64k";

/// Where programs share memory by name.
const SHARED_MEMORY: &str = "/dev/shm";

/// The limit of what a command shares there: it is memory.
const OWN_SHARED_MEMORY: &core::ffi::CStr = c"mode=1777,size=256m";

/// Where the system has its terminals.
const TERMINALS: &str = "/dev/pts";

/// What was done to the files that a program sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Hides {
    /// All that was to be hidden is.
    pub(super) files: bool,
    /// What a sandbox does not let it change is mounted to be read only, which holds for modes, owners and
    /// times as well; or there is no sandbox.
    pub(super) modes: bool,
    /// Where it may share memory by name, which is its own; nothing where there is no such place.
    pub(super) shared_memory: Option<&'static str>,
}

/// Hides what is to be hidden, and says what of that was done and what the process may do since.
pub(super) fn hide(confinement: &Confinement) -> (Hides, Privileges) {
    let hidden = existing(&confinement.hidden);
    let has_sandbox = confinement.sandbox.is_some();
    // A worker's commands change modes nowhere.
    let out_of_reach = !hidden.is_empty() && hidden.iter().all(|place| is_out_of_reach(place));
    if out_of_reach || (hidden.is_empty() && !has_sandbox) {
        let hides = Hides {
            files: true,
            modes: true,
            shared_memory: None,
        };
        return (hides, privileges());
    }
    let none = Hides {
        files: hidden.is_empty(),
        modes: !has_sandbox,
        shared_memory: None,
    };
    let privileges = match unshare(CloneFlags::CLONE_NEWNS) {
        Ok(()) => Privileges::System,
        Err(_) if confinement.by_user_namespace => match own_users() {
            Ok(()) => Privileges::Own,
            Err(_) => return (none, Privileges::None),
        },
        Err(_) => return (none, Privileges::None),
    };
    let visible = existing(&confinement.visible);
    let covered = cover_all(&hidden, &visible);
    let Some(sandbox) = &confinement.sandbox else {
        let hides = Hides {
            files: covered.is_ok(),
            modes: true,
            shared_memory: None,
        };
        return (hides, privileges);
    };
    let writable = outermost(unchanged(&sandbox.write));
    let held = covered.and_then(|()| hold(&hidden, &writable));
    let own = own_devices(&writable);
    let hides = Hides {
        files: held.is_ok(),
        modes: read_only_but(&writable).is_ok(),
        shared_memory: own.then_some(SHARED_MEMORY),
    };
    (hides, privileges)
}

/// Holds the directories above what is hidden where a command may rename them, which would take what is
/// hidden to a place that the next command sees. What something is mounted on is not renamed.
fn hold(hidden: &[PathBuf], writable: &[PathBuf]) -> io::Result<()> {
    let is_inside = |dir: &Path| {
        let mut outer = writable.iter();
        outer.any(|outer| dir != outer && dir.starts_with(outer))
    };
    let above = hidden
        .iter()
        .flat_map(|place| place.ancestors().skip(1).take_while(|dir| is_inside(dir)));
    // Outer ones first: the inner ones are in their places once more then.
    let above: BTreeSet<&Path> = above.collect();
    for dir in above {
        match mount_bind_recursive(dir, dir) {
            // What is below a hidden place is not to be seen, and not to be renamed either.
            Err(Errno::NOENT) => {}
            held => held?,
        }
    }
    Ok(())
}

/// Gives a command terminals and shared memory of its own in the place of those of the user; whether the
/// memory is its own: not where somebody works in it.
fn own_devices(writable: &[PathBuf]) -> bool {
    let flags = MountFlags::NOSUID | MountFlags::NOEXEC;
    let terminals = c"newinstance,ptmxmode=0666,mode=0620";
    // Where it has none it goes without, as where there is nothing like it.
    if Path::new(TERMINALS).is_dir() {
        let _without = mount("devpts", TERMINALS, "devpts", flags, terminals);
    }
    // A link leads to where others have theirs.
    let is_there = fs::symlink_metadata(SHARED_MEMORY).is_ok_and(|found| found.is_dir());
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    let is_used = writable.iter().any(|dir| dir.starts_with(SHARED_MEMORY));
    is_there && !is_used && mount("tmpfs", SHARED_MEMORY, "tmpfs", flags, OWN_SHARED_MEMORY).is_ok()
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

/// Those that are there as they are named. One that a link leads to was put there by somebody since: its
/// name was without links before.
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

/// Mounts everything to be read only but these, where they are now.
fn read_only_but(writable: &[PathBuf]) -> io::Result<()> {
    for path in writable {
        mount_bind_recursive(path, path)?;
    }
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    for (place, options) in mounts.lines().filter_map(mounted) {
        let is_kept = writable.iter().any(|outer| place.starts_with(outer));
        let is_of_system = OF_THE_SYSTEM.iter().any(|own| place.starts_with(own));
        if !is_kept && !is_of_system && !options.contains(MountFlags::RDONLY) {
            let flags = options | MountFlags::BIND | MountFlags::RDONLY;
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
fn mounted(line: &str) -> Option<(PathBuf, MountFlags)> {
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

fn handle(dir: &Path) -> io::Result<OwnedFd> {
    let flags = (OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC).bits();
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(flags.cast_signed());
    let file: File = options.open(dir)?;
    Ok(file.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_is_read_with_its_options_and_its_name_as_it_is() {
        let line =
            "36 35 98:0 /mnt1 /mnt\\040two\\134x rw,noatime,nodev master:1 - ext3 /dev/root rw";
        let options = MountFlags::NOATIME | MountFlags::NODEV;
        assert_eq!(mounted(line), Some(("/mnt two\\x".into(), options)));
        assert_eq!(mounted("36 35 98:0 /"), None);
    }
}
