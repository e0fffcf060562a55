//! Anthropic's Messages API (`POST /v1/messages`), as of 2026-08.
//!
//! What only this provider understands stays in this folder: thinking signatures and citations
//! travel as sidecars, its own tools' blocks as opaque server items. The `beta` features that are
//! not named here are reached through a backend's contribution.

mod block;
mod cache;
mod decode;
mod encode;
mod errors;
mod messages;
mod output;
mod thinking;
mod usage;

pub use decode::{decode_body, decoder};
pub(super) use decode::{decode_body_of, decoder_of};
pub use encode::encode;
pub use errors::error;
pub(super) use errors::error_at;

/// The provider, as sidecars and server items name it.
pub const PROVIDER: &str = "anthropic";

/// The version of the API that this wire speaks, sent as `anthropic-version`.
pub const API_VERSION: &str = "2023-06-01";

/// How a person calls the provider.
const PROVIDER_NAME: &str = "Anthropic";

/// Ids may be of any length here.
pub(super) const MAX_ID_LENGTH: usize = usize::MAX;

#[cfg(test)]
mod tests;
