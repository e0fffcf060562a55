//! Google's `generateContent` and `streamGenerateContent`, as of 2026-08.
//!
//! The model and whether the reply streams stand in the URL, not in the body:
//! `POST …/models/{model}:generateContent`, or `…:streamGenerateContent?alt=sse`. Thought
//! signatures may sit on any part and travel as sidecars; code that the provider runs itself is a
//! row of opaque server items.

mod contents;
mod decode;
mod encode;
mod errors;
mod partial;
mod pieces;
mod schema;
mod thinking;
mod usage;

pub(super) use decode::{decode_body, decoder};
pub(super) use encode::{encode, resource};
pub(super) use errors::error;

/// How a person calls the provider.
const PROVIDER_NAME: &str = "Gemini";

#[cfg(test)]
mod tests;
