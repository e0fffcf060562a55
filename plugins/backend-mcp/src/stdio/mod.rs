//! Servers that are processes: how they are started, what they print, how they end.

mod guardian;
mod input;
mod process;
mod stderr;
mod transport;

pub(crate) use guardian::Guardian;
pub(crate) use input::Input;
pub(crate) use process::{Launch, Process, launch};
pub(crate) use stderr::Tail;
pub(crate) use transport::Pipe;
