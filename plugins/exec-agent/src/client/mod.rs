//! The outer side of the stream: what an executor uses to reach an agent.
//!
//! Knows neither how the agent was started nor where it runs.

mod command;
#[cfg(target_os = "linux")]
mod in_memory;
mod link;
mod outgoing;
#[cfg(target_os = "linux")]
mod supervised;

pub use command::{Lost, Running};
#[cfg(target_os = "linux")]
pub use in_memory::in_memory;
pub use link::{Call, Feed, Input, Link, QUIET};
#[cfg(target_os = "linux")]
pub use supervised::{End, Ends, Launch, Streams, Supervised, supervise};
