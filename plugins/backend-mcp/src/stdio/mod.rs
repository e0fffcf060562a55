//! Servers that are processes: how they are started, what they print, how they end.

mod input;
mod login_shell;
mod process;
mod program;
mod stderr;
mod supervisors;
mod transport;

pub(crate) use input::ServerInput;
pub(crate) use login_shell::LoginShell;
pub(crate) use process::{ServerProcess, launch};
pub(crate) use program::{Launch, ServerProgram};
pub(crate) use stderr::StderrTail;
pub(crate) use supervisors::Supervisors;
pub(crate) use transport::StdioTransport;
