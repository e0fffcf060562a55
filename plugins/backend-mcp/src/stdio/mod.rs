//! Servers that are processes: how they are started, what they print, how they end.

mod input;
mod login_shell;
mod process;
mod program;
mod stderr;
mod supervisors;
mod transport;

pub(crate) use input::Input;
pub(crate) use login_shell::LoginShell;
pub(crate) use process::{Process, launch};
pub(crate) use program::{Launch, Program};
pub(crate) use stderr::Tail;
pub(crate) use supervisors::Supervisors;
pub(crate) use transport::Pipe;
