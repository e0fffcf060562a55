//! What root may do in a worker and in a sandbox: what files' owners and groups would forbid, and what an
//! ordinary program may want. Nothing that is a way around what confines it, or a change of the machine.

use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

/// What a worker keeps. Which files it reaches says Landlock, which calls it makes says seccomp.
const WORKER_CAPABILITIES: [CapabilitySet; 9] = [
    CapabilitySet::CHOWN,
    CapabilitySet::DAC_OVERRIDE,
    CapabilitySet::DAC_READ_SEARCH,
    CapabilitySet::FOWNER,
    CapabilitySet::KILL,
    CapabilitySet::SETGID,
    CapabilitySet::SETUID,
    CapabilitySet::NET_BIND_SERVICE,
    CapabilitySet::IPC_LOCK,
];

/// What the commands of a sandbox keep besides: what builds and package managers need, which is what
/// engines leave to root in a container. Not `NET_RAW`, which shows what others send on this machine, nor
/// `MKNOD`: a sandbox makes no devices.
const COMMAND_CAPABILITIES: [CapabilitySet; 5] = [
    CapabilitySet::FSETID,
    CapabilitySet::SETPCAP,
    CapabilitySet::SETFCAP,
    CapabilitySet::SYS_CHROOT,
    CapabilitySet::AUDIT_WRITE,
];

/// The calling thread has what a worker keeps and nothing else. What it starts does not get the rest
/// again where it gains no privileges, as whatever this crate confines.
///
/// # Errors
/// The system's.
pub(crate) fn keep_worker_capabilities() -> rustix::io::Result<()> {
    restrict_to(WORKER_CAPABILITIES.into_iter().collect())
}

/// Like [`keep_worker_capabilities`], with what the commands of a sandbox keep.
///
/// # Errors
/// The system's.
pub(crate) fn keep_command_capabilities() -> rustix::io::Result<()> {
    restrict_to(
        WORKER_CAPABILITIES
            .into_iter()
            .chain(COMMAND_CAPABILITIES)
            .collect(),
    )
}

fn restrict_to(kept: CapabilitySet) -> rustix::io::Result<()> {
    let mut own = capabilities(None)?;
    own.effective &= kept;
    own.permitted &= kept;
    own.inheritable &= kept;
    set_capabilities(None, own)
}
