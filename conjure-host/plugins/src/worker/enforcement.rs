//! What of a confinement this kernel enforces at all. An older Landlock that leaves single doors open is
//! one that keeps files.

use std::sync::OnceLock;

use conjure_confinement::landlock_version;

use super::confinement::confinement_gaps;

/// What the kernel keeps every confined worker to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EnforcedConfinement {
    /// The files that it was granted: the kernel has Landlock, of any version.
    pub(crate) files: bool,
    /// Programs and connections: the kernel filters system calls.
    pub(crate) calls: bool,
}

impl EnforcedConfinement {
    /// Tries it out once: no kernel learns it later. Where it cannot be tried out, as without a thread to
    /// do it on, calls count as not kept, and the next one tries again.
    pub(crate) fn of_kernel() -> Self {
        static PROBED: OnceLock<EnforcedConfinement> = OnceLock::new();
        if let Some(known) = PROBED.get() {
            return *known;
        }
        let files = landlock_version().is_some();
        match confinement_gaps() {
            Ok(gaps) => *PROBED.get_or_init(|| Self {
                files,
                calls: !gaps.calls,
            }),
            Err(error) => {
                tracing::warn!("what the kernel keeps workers to is not known: {error}");
                Self {
                    files,
                    calls: false,
                }
            }
        }
    }
}
