//! What OpenAI's two APIs have in common, and servers that are compatible with them.

mod effort;
mod errors;
mod parallel;

pub(super) use effort::{effort, reasons};
pub(super) use errors::{error, in_stream};
pub(super) use parallel::unwrapped;
