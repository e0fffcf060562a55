//! What root may do in a worker: what files' owners and groups would forbid, and what an ordinary
//! program may want. Nothing that is a way around what confines it, or a change of the machine.

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

/// The calling thread has no other one any more. What it starts does not get them again where it
/// gains no privileges, as whatever this crate confines.
///
/// # Errors
/// The system's.
pub(crate) fn give_up() -> rustix::io::Result<()> {
    let kept = KEPT.into_iter().collect::<CapabilitySet>();
    let mut own = capabilities(None)?;
    own.effective &= kept;
    own.permitted &= kept;
    own.inheritable &= kept;
    set_capabilities(None, own)
}
