//! What a plugin gives the host.

#![allow(
    unsafe_code,
    non_local_definitions,
    missing_docs,
    clippy::all,
    clippy::undocumented_unsafe_blocks,
    reason = "the items that abi_stable's trait macro generates around the trait below"
)]

use abi_stable::sabi_trait;
use abi_stable::std_types::{RBox, RSlice};
use async_ffi::FfiFuture;

use crate::{CallContext, Reply};

/// A plugin instance as it crosses the boundary.
pub type PluginObject = Plugin_TO<'static, RBox<()>>;

/// Plugin to host: one instance, made by [`crate::Root::create`].
#[sabi_trait]
pub trait Plugin: Send + Sync {
    /// Runs an operation on the calling thread and may block it.
    fn call(&self, op: RSlice<'_, u8>, json: RSlice<'_, u8>, cx: CallContext) -> Reply;

    /// Starts an operation. The future is a join handle of a task on the plugin's own runtime:
    /// it may be polled anywhere, and dropping it runs no author code on the dropping thread.
    #[sabi(last_prefix_field)]
    fn start(&self, op: RSlice<'_, u8>, json: RSlice<'_, u8>, cx: CallContext) -> FfiFuture<Reply>;
}
