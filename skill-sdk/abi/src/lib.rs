//! The binary interface between a Conjure host and its plugins.
//!
//! A frozen transport: byte strings in, byte strings out, and a handful of function tables that
//! carry them. What the bytes mean is the protocol (`skill-sdk/abi/protocol/`), which grows by
//! operation names and JSON fields and never by a function pointer. This crate does not parse,
//! does not load libraries and knows no operation.
//!
//! Only containers that carry their own destructor cross (`RVec`, `RArc`, `RResult`), so memory
//! is freed by whoever allocated it. Text crosses as bytes: a broken plugin cannot hand over an
//! invalid `str`. Begin at `root.rs`, the two functions that a host calls first.

mod context;
mod fault;
mod header;
mod plugin;
mod root;

pub use abi_stable;
pub use async_ffi::{FfiFuture, FutureExt};

pub use abi_stable::sabi_trait::TD_Opaque;
pub use abi_stable::std_types::{RArc, RResult, RSlice, RVec};

pub use context::{CallContext, CallCx, CallCx_TO, EmitKind, EmitStatus, LogLevel};
pub use fault::{Fault, Reply, code};
pub use header::{HEADER_LEN, HEADER_MAGIC, Header, HeaderError, HeaderFields, PluginKind};
pub use plugin::{Plugin, Plugin_TO, PluginObject};
pub use root::{ROOT_SYMBOL, Root, RootRef, erase, export_constructor};

/// Major version of this interface. A host loads only plugins with the same one.
pub const ABI_MAJOR: u16 = 1;

/// Minor version of this interface. Shown, and never a reason to refuse: whether two minors fit
/// is decided by comparing layouts in both directions.
pub const ABI_MINOR: u16 = 0;
