//! Servers that are processes: how they are started, what they print, how they end.

mod group;
mod guardian;
mod input;
mod login_shell;
#[cfg_attr(not(target_os = "linux"), path = "grouped.rs")]
mod process;
mod program;
mod stderr;
mod transport;

pub(crate) use guardian::Guardian;
pub(crate) use input::Input;
pub(crate) use login_shell::LoginShell;
pub(crate) use process::{Process, launch};
pub(crate) use program::{Launch, Program};
pub(crate) use stderr::Tail;
pub(crate) use transport::Pipe;
