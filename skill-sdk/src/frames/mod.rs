//! The plugin contract as frames on a byte stream: the same operations, in another process.
//!
//! [`serve`] runs a plugin behind a stream, [`Client`] is the host's end of it and looks like a
//! plugin in the host's own process. What a frame holds is in [`Message`], its bytes are in
//! [`Frame`]. Nothing here starts a process or opens a stream.
//!
//! ```text
//! len: u32 | kind: u8 | call_id: u64 | bytes          little-endian; len counts what follows it
//! ```
//!
//! Both ends are bounded: output by credits, host requests and calls by a number, log lines by
//! a number behind which they are dropped.

mod client;
mod codec;
mod line;
mod message;
mod pending;
mod serve;
mod stream;

use conjure_abi::{CallContext, Fault, PluginObject, RResult, RSlice, RootRef};

pub use client::{Client, RemoteInstance};
pub use codec::{Decoder, Frame, FrameError, HEAD_LEN, Kind, MAX_BYTES};
pub use message::{Cancel, Message, Verb};
pub use serve::{FrameRequest, FrameServer, serve};

/// Calls and instances that one stream carries at the same time. One more is answered with
/// [`conjure_abi::code::BUSY`].
pub const MAX_CALLS: usize = 4096;

/// Host requests of one call that may be under way at the same time. One more is answered with
/// [`conjure_abi::code::BUSY`].
pub const MAX_HOST_REQUESTS: usize = 256;

/// The most bytes of a host request, 1 MiB. One with more is answered with
/// [`conjure_abi::code::INVALID`] and does not reach the call's context.
pub const MAX_HOST_REQUEST_BYTES: usize = 1024 * 1024;

/// The root of a plugin, wherever the plugin runs: in this process or behind a [`Client`].
pub trait PluginRoot: Send + Sync + 'static {
    /// The manifest, as JSON.
    ///
    /// # Errors
    /// A fault when the other side is gone.
    fn manifest(&self) -> Result<Vec<u8>, Fault>;

    /// Makes an instance. May block.
    ///
    /// # Errors
    /// The plugin's fault, or one that says that the other side is gone.
    fn create(&self, create: &[u8], cx: CallContext) -> Result<PluginObject, Fault>;
}

impl PluginRoot for RootRef {
    fn manifest(&self) -> Result<Vec<u8>, Fault> {
        Ok(RootRef::manifest(self)().into_vec())
    }

    fn create(&self, create: &[u8], cx: CallContext) -> Result<PluginObject, Fault> {
        match RootRef::create(self)(RSlice::from_slice(create), cx) {
            RResult::ROk(object) => Ok(object),
            RResult::RErr(fault) => Err(fault),
        }
    }
}

impl<P: PluginRoot + ?Sized> PluginRoot for Box<P> {
    fn manifest(&self) -> Result<Vec<u8>, Fault> {
        (**self).manifest()
    }

    fn create(&self, create: &[u8], cx: CallContext) -> Result<PluginObject, Fault> {
        (**self).create(create, cx)
    }
}
