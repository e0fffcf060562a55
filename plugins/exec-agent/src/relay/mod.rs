//! A stream to an agent that outlives the connection which carries it.
//!
//! Where an executor reaches an agent over a network, a process beside the agent, the relay, keeps
//! the stream: it numbers the bytes in both directions and keeps what was not confirmed. Whoever
//! comes back says how far he has read, and gets what follows; so each byte arrives once, and the
//! agent sees one stream without an end. When nobody comes for long enough the relay ends the
//! agent, with all that it runs, and removes its directory.
//!
//! Each connection is made by [`attach`], which gives the relay its standard streams. Knows nothing of
//! calls.

mod agent;
mod attach;
mod connection;
mod folders;
mod frame;
mod programs;
mod refusal;
mod removal;
mod server;
mod session_dir;
mod state;
mod stream;

pub use attach::{EXIT_NO_RELAY, EXIT_NO_SESSION_DIR, EXIT_NO_SPACE, attach, open};
pub use frame::RelayFrame;
pub use refusal::{RefusalReason, RelayRefusal};
pub use server::relay;
pub use stream::SentStream;

/// The version of what an executor and a relay say to each other.
pub const RELAY_VERSION: u32 = 2;

/// The most bytes of the stream in one frame.
pub const RELAY_PIECE: usize = 64 * 1024;

/// The most bytes that wait for somebody to come back; then the agent waits.
const MAX_WAITING_BYTES: usize = 16 * 1024 * 1024;

/// Number of bytes after which what came is confirmed.
pub const CONFIRM_BYTES: u64 = 64 * 1024;

/// Below a relay's directory, where commands work when nothing else is named.
pub const WORK: &str = "work";
/// Below a relay's directory, where skills are.
pub const SKILLS: &str = "skills";
