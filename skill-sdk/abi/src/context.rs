//! What the host gives a plugin for the time of one call.

#![allow(
    unsafe_code,
    non_local_definitions,
    missing_docs,
    clippy::all,
    clippy::undocumented_unsafe_blocks,
    reason = "the items that abi_stable's trait macro generates around the trait below"
)]

use abi_stable::sabi_trait;
use abi_stable::std_types::{RArc, RSlice};
use async_ffi::FfiFuture;

use crate::Reply;

/// The context object as it crosses the boundary. Cloning it is one reference count.
pub type CallContext = CallCx_TO<'static, RArc<()>>;

/// Host to plugin, one a call (and one an instance, for `create` and `backend.watch`).
///
/// Every method may be called from any thread and after the call is over; then `emit` and
/// `cancelled` say cancelled and `host` answers with [`crate::code::GONE`].
#[sabi_trait]
pub trait CallCx: Send + Sync + Clone {
    /// Hands over a piece of output. `kind` is an [`EmitKind`] number, the answer an
    /// [`EmitStatus`] number. Never blocks: `FULL` means that nothing was taken.
    fn emit(&self, kind: u32, bytes: RSlice<'_, u8>) -> u32;

    /// Whether the call was cancelled. Cheap enough for a loop.
    fn cancelled(&self) -> bool;

    /// Asks the host for a host operation. The future is a join handle of a task on the host's
    /// runtime: it may be polled anywhere, and dropping it cancels the operation.
    fn host(&self, op: RSlice<'_, u8>, json: RSlice<'_, u8>) -> FfiFuture<Reply>;

    /// Writes a line to the host's log under the plugin's name. `level` is a [`LogLevel`] number.
    #[sabi(last_prefix_field)]
    fn log(&self, level: u32, target: RSlice<'_, u8>, message: RSlice<'_, u8>);
}

/// What a piece of output is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum EmitKind {
    /// Bytes of standard output.
    Stdout = 0,
    /// Bytes of standard error.
    Stderr = 1,
    /// One JSON event of the protocol.
    Event = 2,
}

impl EmitKind {
    /// The kind with this number, or nothing for one that this version does not know.
    pub fn from_number(number: u32) -> Option<Self> {
        match number {
            0 => Some(Self::Stdout),
            1 => Some(Self::Stderr),
            2 => Some(Self::Event),
            _ => None,
        }
    }
}

/// What became of a piece of output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum EmitStatus {
    /// Taken.
    Ok = 0,
    /// The call is cancelled or over; nothing was taken and nothing more will be.
    Cancelled = 1,
    /// The channel is full; nothing was taken. Wait for the host operation `call.writable`.
    Full = 2,
}

impl EmitStatus {
    /// The status with this number. An unknown one counts as [`EmitStatus::Cancelled`]: a newer
    /// peer that says something else than "taken" or "later" wants no more.
    pub fn from_number(number: u32) -> Self {
        match number {
            0 => Self::Ok,
            2 => Self::Full,
            _ => Self::Cancelled,
        }
    }
}

/// Severity of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u32)]
pub enum LogLevel {
    /// Something is broken.
    Error = 0,
    /// Something is suspicious.
    Warn = 1,
    /// Something that an operator wants to know.
    Info = 2,
    /// For the author.
    Debug = 3,
    /// For the author, and a lot of it.
    Trace = 4,
}

impl LogLevel {
    /// The level with this number; an unknown one counts as [`LogLevel::Trace`].
    pub fn from_number(number: u32) -> Self {
        match number {
            0 => Self::Error,
            1 => Self::Warn,
            2 => Self::Info,
            3 => Self::Debug,
            _ => Self::Trace,
        }
    }
}
