//! OpenAI's Chat Completions API (`POST …/chat/completions`) and its dialects, as of 2026-08.
//!
//! Many servers speak it, each a little differently. What is read is read in every way that one of
//! them writes it; what is written follows the [`Dialect`]. Thoughts travel as sidecars where a
//! server wants them back.

mod assembly;
mod calls;
mod decode;
mod dialect;
mod encode;
mod errors;
mod messages;
mod reasoning;
mod usage;

pub(super) use decode::{decode_body, decoder};
pub use dialect::{AnyTool, Dialect, Echo, Effort, Form, Limit};
pub(super) use encode::encode;
pub(super) use errors::error;

/// The longest call id that OpenAI takes.
const MOST_ID: usize = 40;

#[cfg(test)]
mod tests;
