//! OpenAI's Responses API (`POST /v1/responses`), as of 2026-08, without state on their side.
//!
//! Nothing is stored there: each request carries the whole conversation, and what the model
//! thought travels encrypted. Ids, phases and encrypted thoughts are sidecars; items of the
//! provider's own tools are opaque server items.

mod decode;
mod encode;
mod errors;
mod item;
mod messages;
mod usage;

pub(super) use decode::{decode_body, decoder};
pub(super) use encode::encode;
pub(super) use errors::error;

/// How a person calls the provider.
const PROVIDER_NAME: &str = "OpenAI";

/// The longest call id that the API takes.
pub(super) const MAX_ID_LENGTH: usize = 64;

#[cfg(test)]
mod tests;
