//! What root may do that is a way around what confines it: other processes' memory, the kernel's, and
//! mounts.

use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

const WAYS_AROUND: [CapabilitySet; 4] = [
    CapabilitySet::SYS_ADMIN,
    CapabilitySet::PERFMON,
    CapabilitySet::SYS_RAWIO,
    CapabilitySet::SYSLOG,
];

/// The calling thread has them no more. What it starts does not get them again where it gains no
/// privileges, as whatever this crate confines.
///
/// # Errors
/// The system's.
pub(crate) fn give_up() -> rustix::io::Result<()> {
    let mut own = capabilities(None)?;
    for capability in WAYS_AROUND {
        own.effective.remove(capability);
        own.permitted.remove(capability);
        own.inheritable.remove(capability);
    }
    set_capabilities(None, own)
}
