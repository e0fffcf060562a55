//! The outer side of the stream: what an executor uses to reach an agent.
//!
//! Knows neither how the agent was started nor where it runs.

mod command;
mod link;
mod outgoing;

pub use command::{Lost, Running};
pub use link::{Call, Feed, Input, Link, QUIET};
