//! The outer side of the stream: what an executor uses to reach an agent.
//!
//! Knows neither how the agent was started nor where it runs.

mod command;
mod link;
mod outgoing;
pub mod relayed;
mod transfer;

pub use command::{CommandLost, RemoteCommand, cancelled};
pub use link::{AgentInput, AgentLink, Feed, QUIET, RemoteCall};
pub use transfer::{ByteSource, TransferError, remote_file, remote_path, transfer};
