//! Files, TCP ports, abstract sockets and signals of a worker: its Landlock domain.

use std::iter;
use std::os::fd::AsFd;
use std::path::Path;

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, PathBeneath, PathFd, Ruleset,
    RulesetAttr as _, RulesetCreated, RulesetCreatedAttr as _, RulesetError, RulesetStatus, Scope,
};
use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, fstat, openat2};

use super::Confinement;

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

/// Devices that are none.
const DEVICES: [&str; 5] = [
    "/dev/full",
    "/dev/null",
    "/dev/random",
    "/dev/urandom",
    "/dev/zero",
];

/// Confines this process; whether all of it holds.
pub(super) fn restrict(confinement: &Confinement, copy: &Path) -> Result<bool, RulesetError> {
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
    // No device can be made, which would be a way to everything for root.
    let write = (AccessFs::from_write(VERSION) & !(AccessFs::MakeBlock | AccessFs::MakeChar))
        & !AccessFs::IoctlDev
        | read;
    let mut created = ruleset.create()?;
    let device = AccessFs::ReadFile | AccessFs::WriteFile;
    // The program of the system that it becomes, and what loads that.
    let becomes = match confinement.program {
        true => AccessFs::Execute.into(),
        false => BitFlags::EMPTY,
    };
    let system = READABLE.map(|path| (path, read | becomes));
    for (path, access) in system.into_iter().chain(DEVICES.map(|path| (path, device))) {
        // The system's own links, such as that of `/lib`, are followed.
        if let Ok(opened) = PathFd::new(path) {
            created = allow(created, opened, access)?;
        }
    }
    let own = match confinement.program {
        true => read | becomes,
        false => AccessFs::ReadFile.into(),
    };
    let copy = (copy, own);
    let read = confinement.read.iter().map(|path| (path.as_path(), read));
    let write = confinement.write.iter().map(|path| (path.as_path(), write));
    for (path, access) in iter::once(copy).chain(read).chain(write) {
        // What was looked at has no links; one that came since leads elsewhere.
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let resolve = ResolveFlags::NO_SYMLINKS;
        if let Ok(opened) = openat2(CWD, path, flags, Mode::empty(), resolve) {
            created = allow(created, opened, access)?;
        }
    }
    let status = created.restrict_self()?;
    Ok(status.ruleset == RulesetStatus::FullyEnforced && status.no_new_privs)
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
