//! An agent behind a relay, over one connection after another.
//!
//! A backend says how a connection is made; what goes over it, and what is said first, is the same
//! for all of them.

mod agent;
mod program;
mod route;
mod scripts;
mod skills;
mod stream;

pub use agent::RelayedAgent;
pub use program::AgentProgram;
pub use route::{RelayCarrier, RelayRoute, Relayed, RouteFailure, jittered};
pub use scripts::{
    AgentPath, EXIT_INCOMPLETE, EXIT_NO_DIRECTORY, EXIT_NOT_RUNNABLE, EXIT_NOT_WRITTEN,
    attach_script, copy_script, open_script, read_mark,
};
pub use stream::{ResumableStream, StreamInput};
