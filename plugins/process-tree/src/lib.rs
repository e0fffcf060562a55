//! Process trees: a program is started under a supervisor, which ends everything that the program
//! starts when it is told to, when the program has ended, and when whoever started it is gone.
//!
//! Owns the commands, MCP servers and login shells of plugins, and the host's workers that may start
//! programs. A supervisor is a process of its own: the agent's program, which plugins bring along, with
//! the verb `supervise`, or the host's program. Outside it, [`Supervisor`] is what agent and host have
//! of it, and [`SupervisedProgram`] what a plugin has whose program runs for long. On Linux a supervisor
//! adopts what its program starts, so that nothing gets away, and can confine it; elsewhere it has the
//! program's process group. Begin at [`Supervisor`] for the outside, at [`supervise()`] for the inside.
//!
//! Here is also what is spoken with agents and with supervisors: [`frame`], with the only table of its
//! kinds of frames, and [`field`]; and how open files are sent ([`send_descriptors`]). What hosts and agents say to each other about commands and files, and
//! which files are private to a host, is none of this crate's business; nor are the frames of workers,
//! which are the SDK's.

#[cfg(not(unix))]
compile_error!("process trees need a Unix system");

#[cfg(target_os = "linux")]
mod descendants;
mod descriptors;
pub mod field;
pub mod frame;
mod gaps;
#[cfg(any(test, not(target_os = "linux")))]
mod group;
mod handle;
mod order;
mod own_process;
mod program;
mod supervise;
mod supervised;
mod supervisor;
mod usage;
mod wake;

pub use conjure_confinement::{Sandbox, outermost};
#[cfg(target_os = "linux")]
use descendants::Tree;
#[cfg(target_os = "linux")]
pub use descendants::{signal_all, signal_all_but};
pub use descriptors::{receive_descriptors, send_descriptors};
pub use gaps::Gaps;
#[cfg(not(target_os = "linux"))]
use group::Tree;
#[cfg(not(target_os = "linux"))]
pub use group::{signal_all, signal_all_but};
pub use handle::ProcessHandle;
pub use order::{Confinement, Start, StdinSource};
pub use own_process::{adopt_orphans, has_no_child, keep_private, own_program};
pub use program::Program;
pub use supervise::{supervise, user_namespace_helps, users_probe};
pub use supervised::{Outputs, ProgramEnd, ProgramEnds, SupervisedProgram};
pub use supervisor::{Supervisor, SupervisorStatus};
pub use usage::{ProcessorTime, TreeUsage};
pub use wake::Wake;
