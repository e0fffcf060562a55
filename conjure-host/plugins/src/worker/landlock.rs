//! Files, TCP ports, abstract sockets and signals of a worker: its Landlock domain.

use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, PathBeneath, PathFd, PathFdError, Ruleset,
    RulesetAttr as _, RulesetCreated, RulesetCreatedAttr as _, RulesetError, RulesetStatus, Scope,
};

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

/// Why there is no domain.
#[derive(Debug, thiserror::Error)]
pub(super) enum DomainError {
    #[error(transparent)]
    Refused(#[from] RulesetError),
    #[error("{}: {source}", path.display())]
    Path { path: PathBuf, source: PathFdError },
}

/// Confines this process; whether all of it holds.
pub(super) fn restrict(confinement: &Confinement, copy: &Path) -> Result<bool, DomainError> {
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
    for path in READABLE {
        created = allow(created, Path::new(path), read)?;
    }
    for path in DEVICES {
        created = allow(
            created,
            Path::new(path),
            AccessFs::ReadFile | AccessFs::WriteFile,
        )?;
    }
    created = allow(created, copy, AccessFs::ReadFile.into())?;
    for path in &confinement.read {
        created = allow(created, path, read)?;
    }
    for path in &confinement.write {
        created = allow(created, path, write)?;
    }
    let status = created.restrict_self()?;
    Ok(status.ruleset == RulesetStatus::FullyEnforced && status.no_new_privs)
}

/// Allows these at a path and below; what is not there is left out.
fn allow(
    ruleset: RulesetCreated,
    path: &Path,
    access: BitFlags<AccessFs>,
) -> Result<RulesetCreated, DomainError> {
    let Ok(metadata) = std::fs::metadata(path) else {
        return Ok(ruleset);
    };
    let access = match metadata.is_dir() {
        true => access,
        false => access & AccessFs::from_file(VERSION),
    };
    let opened = PathFd::new(path).map_err(|source| DomainError::Path {
        path: path.to_owned(),
        source,
    })?;
    Ok(ruleset.add_rule(PathBeneath::new(opened, access))?)
}
