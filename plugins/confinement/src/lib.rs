//! Keeps a process, or a thread and what it starts, to what it may reach of this machine.
//!
//! Files by Landlock; what files do not say by seccomp: sockets, other processes, and the kernel's own
//! settings. Two kinds there are: a [`WorkerConfinement`] names all that may be reached, for code of
//! strangers; a [`Sandbox`] lets commands read and keeps them from writing elsewhere and from the
//! network. Neither can be taken back. What is hidden from commands, and who ends them, is no business
//! of this crate. Begin at `files.rs`, then `system_calls.rs`.

#[cfg(target_os = "linux")]
mod capabilities;
#[cfg(target_os = "linux")]
mod files;
mod sandbox;
#[cfg(target_os = "linux")]
mod system_calls;
mod worker;

pub use sandbox::{Sandbox, SandboxGaps, outermost};
pub use worker::{ConfinementGaps, WorkerConfinement, landlock_version};
