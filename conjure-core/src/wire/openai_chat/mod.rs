//! OpenAI's Chat Completions API (`POST …/chat/completions`) and its dialects, as of 2026-08.
//!
//! Many servers speak it, each a little differently. What is read is read in every way that one of
//! them writes it; what is written follows the [`Dialect`]. Thoughts travel as sidecars where a
//! server wants them back.

mod assembly;
mod calls;
mod decode;
mod encode;
mod errors;
mod messages;
mod reasoning;
mod usage;

use std::borrow::Cow;

use super::dialect::{AnswerForm, AnyTool, Dialect, Effort, Limit, ThinkingEcho};
use super::ids::{fixed_id, legal_id};

pub(super) use decode::{decode_body, decoder};
pub(super) use encode::encode;
pub(super) use errors::error;

/// The longest call id that OpenAI takes.
const MAX_ID_LENGTH: usize = 40;

/// A call's id as a server of this dialect takes it.
pub(super) fn call_id<'a>(dialect: &Dialect, id: &'a str) -> Cow<'a, str> {
    match dialect.id_length {
        Some(length) => fixed_id(id, length),
        None => legal_id(id, MAX_ID_LENGTH),
    }
}

#[cfg(test)]
mod tests;
