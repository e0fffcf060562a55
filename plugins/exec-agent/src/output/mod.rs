//! The output of a command on its way to a host: shown while it runs, kept as far as a reply has
//! room, and all of it in a file once it is too much.
//!
//! For executors, which have a plugin's context; the agent inside a container has none and does
//! without.

mod capture;
mod files;
mod limits;
mod live;

pub use capture::{Capture, CommandOutput};
pub use files::{first_files, report_missing};
pub use limits::Limits;
pub use live::OutputRelay;
