//! Files, TCP ports, abstract sockets and signals: the Landlock domain of a worker or a sandbox.

use std::iter;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path};

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, LandlockStatus, PathBeneath, PathFd, Ruleset,
    RulesetAttr as _, RulesetCreated, RulesetCreatedAttr as _, RulesetError, RulesetStatus, Scope,
};
use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, fstat, openat, openat2};
use rustix::io::Errno;

use super::{Sandbox, SandboxGaps, WorkerConfinement};

/// The newest version of Landlock that is made use of; an older kernel keeps what it knows.
const VERSION: ABI = ABI::V6;

/// What every program reads: libraries, programs, the names of hosts and users, certificates, time,
/// and what the system says of processors and memory.
const READABLE: [&str; 32] = [
    "/usr",
    "/lib",
    "/lib32",
    "/lib64",
    "/bin",
    "/sbin",
    "/etc/alternatives",
    "/etc/ca-certificates",
    "/etc/gai.conf",
    "/etc/group",
    "/etc/host.conf",
    "/etc/hosts",
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/etc/nsswitch.conf",
    "/etc/os-release",
    "/etc/passwd",
    "/etc/pki/tls/certs",
    "/etc/protocols",
    "/etc/resolv.conf",
    "/etc/services",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
    "/etc/timezone",
    "/proc/cpuinfo",
    "/proc/meminfo",
    "/proc/self",
    "/proc/sys/vm/overcommit_memory",
    "/sys/devices/system/cpu",
    "/sys/fs/cgroup",
    "/sys/kernel/mm/transparent_hugepage",
    "/run/systemd/resolve",
];

/// What the system says of its processes, as `ps` shows it: programs look there for themselves. What is
/// in a process outside the domain stays out of reach.
const PROCESSES: &str = "/proc";

/// Devices that are none.
const DEVICES: [&str; 5] = [
    "/dev/full",
    "/dev/null",
    "/dev/random",
    "/dev/urandom",
    "/dev/zero",
];

/// Where the terminal of a command is, if it makes one.
const TERMINALS: [&str; 3] = ["/dev/tty", "/dev/ptmx", "/dev/pts"];

/// The version of Landlock that this kernel has; nothing where it has none.
pub(crate) fn landlock_version() -> Option<u32> {
    let enter = || {
        let ruleset = Ruleset::default().scope(Scope::Signal).ok()?;
        Some(ruleset.create().ok()?.restrict_self().ok()?.landlock)
    };
    // There is no way back, so a thread enters that ends then.
    let entered = std::thread::Builder::new().spawn(enter).ok()?;
    match entered.join().ok()?? {
        LandlockStatus::Available {
            effective_abi,
            kernel_abi,
        } => u32::try_from(kernel_abi.unwrap_or(effective_abi as i32)).ok(),
        LandlockStatus::NotEnabled | LandlockStatus::NotImplemented => None,
    }
}

/// Confines the calling thread to what a worker reaches; whether all of it holds.
pub(crate) fn restrict_worker(
    confinement: &WorkerConfinement,
    copy: &Path,
) -> Result<bool, RulesetError> {
    let mut ruleset = Ruleset::default()
        .handle_access(AccessFs::from_all(VERSION))?
        .scope(Scope::AbstractUnixSocket | Scope::Signal)?;
    if !confinement.network {
        ruleset = ruleset.handle_access(AccessNet::BindTcp | AccessNet::ConnectTcp)?;
    }
    let mut read = AccessFs::ReadFile | AccessFs::ReadDir;
    if confinement.commands {
        read |= AccessFs::Execute;
    }
    let write = write_access() | read;
    let mut created = ruleset.create()?;
    let device = AccessFs::ReadFile | AccessFs::WriteFile;
    // The program of the system that it becomes, and what loads that.
    let becomes = match confinement.program {
        true => AccessFs::Execute.into(),
        false => BitFlags::EMPTY,
    };
    let system = READABLE.map(|path| (path, read | becomes)).into_iter();
    let processes = confinement.commands.then_some((PROCESSES, read));
    let devices = DEVICES.map(|path| (path, device));
    created = allow_system(created, system.chain(processes).chain(devices))?;
    let own = match confinement.program {
        true => read | becomes,
        false => AccessFs::ReadFile.into(),
    };
    let copy = (copy, own);
    let read = confinement.read.iter().map(|path| (path.as_path(), read));
    let write = confinement.write.iter().map(|path| (path.as_path(), write));
    for (path, access) in iter::once(copy).chain(read).chain(write) {
        created = allow_unlinked(created, path, access)?;
    }
    let status = created.restrict_self()?;
    Ok(status.ruleset == RulesetStatus::FullyEnforced && status.no_new_privs)
}

/// Confines the calling thread to what commands in a sandbox may change; what of that does not hold.
pub(crate) fn restrict_sandbox(sandbox: &Sandbox) -> Result<SandboxGaps, RulesetError> {
    // What devices are told is no writing to files; a terminal would be of no use without.
    let handled = AccessFs::from_write(VERSION) & !AccessFs::IoctlDev;
    let mut ruleset = Ruleset::default()
        .handle_access(handled)?
        .scope(Scope::AbstractUnixSocket | Scope::Signal)?;
    if !sandbox.network {
        ruleset = ruleset.handle_access(AccessNet::BindTcp | AccessNet::ConnectTcp)?;
    }
    let mut created = ruleset.create()?;
    let devices = DEVICES.into_iter().chain(TERMINALS);
    let devices = devices.map(|path| (path, AccessFs::WriteFile.into()));
    created = allow_system(created, devices)?;
    for path in &sandbox.write {
        created = allow_unlinked(created, path, write_access())?;
    }
    let status = created.restrict_self()?;
    Ok(SandboxGaps {
        writes: status.ruleset == RulesetStatus::NotEnforced || !status.no_new_privs,
        signals: status.ruleset != RulesetStatus::FullyEnforced,
        network: false,
    })
}

/// What may be done where files may be changed. No device can be made, which would be a way to everything
/// for root.
fn write_access() -> BitFlags<AccessFs> {
    let devices = AccessFs::MakeBlock | AccessFs::MakeChar | AccessFs::IoctlDev;
    AccessFs::from_write(VERSION) & !devices
}

/// Allows these at places of the system, whose own links, such as that of `/lib`, are followed.
fn allow_system<'a>(
    mut ruleset: RulesetCreated,
    places: impl Iterator<Item = (&'a str, BitFlags<AccessFs>)>,
) -> Result<RulesetCreated, RulesetError> {
    for (path, access) in places {
        if let Ok(opened) = PathFd::new(path) {
            ruleset = allow(ruleset, opened, access)?;
        }
    }
    Ok(ruleset)
}

/// Allows these at a place that was looked at before and had no links then; one that came since leads
/// elsewhere.
fn allow_unlinked(
    ruleset: RulesetCreated,
    path: &Path,
    access: BitFlags<AccessFs>,
) -> Result<RulesetCreated, RulesetError> {
    match without_links(path) {
        Ok(opened) => allow(ruleset, opened, access),
        Err(_) => Ok(ruleset),
    }
}

/// Opens what is at an absolute path, if there is no link on the way to it and it is none itself.
fn without_links(path: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    match openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS) {
        // An old kernel, a container engine that does not know the call, or a worker, which does not have
        // it any more when it confines its commands.
        Err(Errno::NOSYS | Errno::PERM) => open_by_components(path),
        opened => opened,
    }
}

/// Opens a path by going from one directory into the next, each of which is held open until then.
fn open_by_components(path: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut parts = path.components();
    if parts.next() != Some(Component::RootDir) {
        return Err(Errno::INVAL);
    }
    let mut at = openat(CWD, "/", flags, Mode::empty())?;
    for part in parts {
        let Component::Normal(name) = part else {
            return Err(Errno::INVAL);
        };
        // A link can be opened so, and nothing is below it.
        at = openat(&at, name, flags, Mode::empty())?;
    }
    match FileType::from_raw_mode(fstat(&at)?.st_mode).is_symlink() {
        true => Err(Errno::LOOP),
        false => Ok(at),
    }
}

/// Allows these at a file, or a directory and what is below.
fn allow(
    ruleset: RulesetCreated,
    opened: impl AsFd,
    access: BitFlags<AccessFs>,
) -> Result<RulesetCreated, RulesetError> {
    let is_dir = fstat(&opened).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode).is_dir());
    let access = match is_dir {
        true => access,
        false => access & AccessFs::from_file(VERSION),
    };
    ruleset.add_rule(PathBeneath::new(opened, access))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_place_with_a_link_on_the_way_is_none_with_the_newer_call_and_without() {
        let root = std::env::temp_dir().canonicalize().unwrap();
        let root = root.join(format!("conjure-confinement-{}", std::process::id()));
        let work = root.join("outer/work");
        std::fs::create_dir_all(&work).unwrap();
        symlink(root.join("outer"), root.join("link")).unwrap();
        symlink(&work, root.join("outer/last")).unwrap();
        let opens: [fn(&Path) -> rustix::io::Result<OwnedFd>; 2] =
            [without_links, open_by_components];
        for open in opens {
            assert!(open(&work).is_ok());
            for name in ["link/work", "outer/last", "outer/last/x", "gone"] {
                assert!(open(&root.join(name)).is_err(), "{name}");
            }
        }
        assert!(open_by_components(&work.join("..")).is_err());
        std::fs::remove_dir_all(&root).unwrap();
    }
}
