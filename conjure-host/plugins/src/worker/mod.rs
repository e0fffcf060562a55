//! Plugins in processes of their own.
//!
//! What ends a process (a segmentation fault, `abort`, `exit`, a stack that overflows, memory without
//! end) or cannot be stopped in one (a loop, a thread that never returns) ends a plugin's worker and
//! not the host. A worker opens the same copy of the same library, and speaks the operations as
//! frames over its standard input and output ([`conjure_skill_sdk::frames`]).
//!
//! A program that is a plugin speaks these frames itself: there the worker becomes that program, when
//! its limits are set and it is confined.
//!
//! Each instance has a worker ([`InstanceWorker`]), so a session's
//! directories are reached by that session's plugins only. When the worker ends before its instance,
//! calls that ran in it fail with the cause, and the next request makes the instance anew in another.
//! `program` is the worker's own side, `readers` its threads, `confinement` what it may reach,
//! `process` one process as the host sees it, `child` how that is started and ended with all that it
//! starts, `link` an instance in it.

mod child;
mod command;
mod confinement;
mod end;
mod enforcement;
mod excess;
mod instance_worker;
mod link;
mod machine_memory;
mod options;
mod process;
mod processor_budget;
mod program;
#[cfg(target_os = "linux")]
mod readers;
mod reason;
mod restarts;
mod session_openings;
mod trust;

pub use confinement::{DEMO_WORK_DIR, confinement_gaps};
pub use conjure_confinement::{ConfinementGaps, landlock_version};
pub use instance_worker::InstanceDirs;
pub use options::{Isolation, WorkerLimits, WorkerOptions};
pub use program::worker_main;
pub use reason::IsolationReason;
pub use trust::{PluginTrust, TrustedLibrary};

pub(super) use enforcement::EnforcedConfinement;
pub(super) use instance_worker::{InstanceWorker, PluginWorkers, WorkerFile, WorkerGrants};
pub(super) use link::WorkerLink;
