//! What root may do in a worker and in a sandbox. A worker keeps what files' owners and groups would
//! forbid, and what an ordinary program may want: nothing that is a way around what confines it, or a
//! change of the machine.

use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

/// What stays. Which files it reaches says Landlock, which calls it makes says seccomp.
const KEPT: [CapabilitySet; 10] = [
    CapabilitySet::CHOWN,
    CapabilitySet::DAC_OVERRIDE,
    CapabilitySet::DAC_READ_SEARCH,
    CapabilitySet::FOWNER,
    CapabilitySet::KILL,
    CapabilitySet::SETGID,
    CapabilitySet::SETUID,
    CapabilitySet::NET_BIND_SERVICE,
    CapabilitySet::IPC_LOCK,
    CapabilitySet::LEASE,
];

/// What the commands of a sandbox lose: ways around what confines them. They are the person's, who may
/// want to change what they own.
const WAYS_AROUND: [CapabilitySet; 4] = [
    CapabilitySet::SYS_ADMIN,
    CapabilitySet::PERFMON,
    CapabilitySet::SYS_RAWIO,
    CapabilitySet::SYSLOG,
];

/// The calling thread has what a worker keeps and nothing else. What it starts does not get the rest
/// again where it gains no privileges, as whatever this crate confines.
///
/// # Errors
/// The system's.
pub(crate) fn keep_worker_capabilities() -> rustix::io::Result<()> {
    keep(KEPT.into_iter().collect())
}

/// The same for the commands of a sandbox.
///
/// # Errors
/// The system's.
pub(crate) fn give_up_ways_around() -> rustix::io::Result<()> {
    keep(!WAYS_AROUND.into_iter().collect::<CapabilitySet>())
}

fn keep(kept: CapabilitySet) -> rustix::io::Result<()> {
    let mut own = capabilities(None)?;
    own.effective &= kept;
    own.permitted &= kept;
    own.inheritable &= kept;
    set_capabilities(None, own)
}
