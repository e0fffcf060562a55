//! What a call gives back across the boundary.

use abi_stable::StableAbi;
use abi_stable::std_types::{RResult, RVec};

/// The answer to an operation: JSON bytes of its reply schema, or a [`Fault`].
pub type Reply = RResult<RVec<u8>, Fault>;

/// An operation that could not be carried out at all.
///
/// Not the same as a tool result with `is_error`: that one is an answer for the model. The code
/// is open (see [`code`]) so that a new one never breaks an old reader.
#[repr(C)]
#[derive(StableAbi, Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// One of [`code`], or a code that a newer peer knows.
    pub code: u32,
    /// UTF-8 by intent, unchecked by contract: the reader replaces what is not.
    pub message: RVec<u8>,
}

impl Fault {
    /// A fault with a message for people.
    pub fn new(code: u32, message: impl AsRef<str>) -> Self {
        Self {
            code,
            message: RVec::from(message.as_ref().as_bytes().to_vec()),
        }
    }

    /// The message, with invalid UTF-8 replaced.
    pub fn text(&self) -> std::borrow::Cow<'_, str> {
        String::from_utf8_lossy(&self.message)
    }
}

/// The fault codes that this version gives a meaning to.
pub mod code {
    /// The other side does not know the operation.
    pub const UNSUPPORTED: u32 = 1;
    /// The request is not what the operation's schema says.
    pub const INVALID: u32 = 2;
    /// Author code panicked; the panic was caught inside the plugin.
    pub const PANIC: u32 = 3;
    /// The call was cancelled.
    pub const CANCELLED: u32 = 4;
    /// The deadline passed.
    pub const TIMEOUT: u32 = 5;
    /// The operation exists and failed.
    pub const FAILED: u32 = 6;
    /// Policy does not let this plugin do that.
    pub const DENIED: u32 = 7;
    /// A thing that was named does not exist.
    pub const NOT_FOUND: u32 = 8;
    /// The other side is gone: the call or the instance is over.
    pub const GONE: u32 = 9;
    /// Too much at once; later it may work.
    pub const BUSY: u32 = 10;
}
