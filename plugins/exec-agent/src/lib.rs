//! Runs commands, and keeps files where an executor cannot reach by itself, such as inside a
//! container, and answers over one stream of bytes.
//!
//! Three layers that know only the one below: [`files`] and the supervisors of commands do the
//! work, [`message`] says what is asked and answered, [`frame`] carries it. The program of this
//! crate is `serve` on its standard input and output, or on a socket, and `supervise` out of
//! `conjure-process-tree`, one process between it and each command. No clock of the outside and no
//! configuration file is needed: everything comes with the call.
//!
//! The executor outside is built on two more, with the feature `executor`: `client` is the other end
//! of the stream, and `executor` makes of it what a host asks of an executor, for whatever backend
//! knows how to get an agent. Begin at `message.rs`, then `serve/mod.rs`.

#[cfg(not(unix))]
compile_error!("commands and files need a Unix system");

#[cfg(feature = "executor")]
pub mod client;
pub mod error;
#[cfg(feature = "executor")]
pub mod executor;
pub mod files;
pub mod frame;
pub mod home_secrets;
pub mod message;
#[cfg(feature = "executor")]
pub mod output;
pub mod private;
pub mod relay;
#[cfg(feature = "executor")]
pub mod sandbox_rules;
pub mod serve;

/// How many bytes of output may be under way in a call before somebody has taken them.
pub const WINDOW: u32 = 256 * 1024;

/// The most bytes in one piece of output or of a file.
pub const PIECE: usize = 32 * 1024;

/// The version of messages and frames. The two sides are always built together; a program that
/// was brought in some other way is refused when it says another number.
pub const VERSION: u32 = 4;
