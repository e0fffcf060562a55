//! Plugins in processes of their own.
//!
//! What ends a process (a segmentation fault, `abort`, `exit`, a stack that overflows, memory without
//! end) or cannot be stopped in one (a loop, a thread that never returns) ends a plugin's worker and
//! not the host. A worker opens the same copy of the same library, and speaks the operations as
//! frames over its standard input and output ([`conjure_skill_sdk::frames`]).
//!
//! There is one worker for all instances of a plugin ([`PluginWorker`]), started when the first is
//! made and ended with the last. When it ends before that, calls that ran in it fail with the cause,
//! and the next request makes the instance anew in another. `program` is the worker's own side,
//! `process` one process as the host sees it, `link` an instance in it.

mod end;
mod link;
mod options;
mod plugin_worker;
mod process;
mod program;
mod restarts;

pub use options::{Isolation, WorkerLimits, WorkerOptions};
pub use program::worker_main;

pub(super) use link::WorkerLink;
pub(super) use plugin_worker::{PluginWorker, WorkerFile};
