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
    AgentPath, CUT, DOES_NOT_RUN, NO_DIRECTORY, NOT_WRITTEN, attach_script, copy_script, marked,
    open_script,
};
pub use stream::{KeptStream, StreamInput};
