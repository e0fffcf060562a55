//! From a log to a request: which part of the log a request is made of, when that is cut, how long
//! it is, and what stands in it in which order.
//!
//! Pure functions from logs, settings and tables to a [`ModelRequest`]. The words in it are made in
//! [`crate::context`], its form at a provider in [`crate::wire`]. Sends nothing and stores nothing.

pub mod compile;
mod conversation;
mod estimate;
mod fit;
mod media;
mod model_request;
#[cfg(test)]
mod prefix_tests;
mod room;
mod size;
mod summary;

pub use compile::{CompileSettings, compile};
pub use conversation::conversation;
pub use estimate::{request_tokens, text_tokens};
pub use media::{MAX_MEDIA_BYTES, MAX_TEXT_BYTES, MAX_TOTAL_BYTES, media};
pub use model_request::{
    Attachment, ModelRequest, OutputFormat, ProviderFragments, ToolChoice, ToolDefinition,
};
pub use room::{Room, cut_point};
pub(crate) use size::counted_tokens;
pub use size::{entry_tokens, message_tokens, next_input_tokens, tool_tokens, view_tokens};
pub use summary::summary_request;
