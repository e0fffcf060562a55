//! Errors of Chat Completions, whether they come as an HTTP status or inside a stream.

use serde_json::Value;

use crate::wire::failure::RequestTarget;
use crate::wire::{Endpoint, WireError, openai};

/// What a reply with this status and body means. The body may be JSON, a proxy's HTML or empty.
pub(in crate::wire) fn error(
    endpoint: &Endpoint,
    status: u16,
    headers: &[(String, String)],
    body: &[u8],
) -> WireError {
    openai::error(&endpoint.dialect.title, endpoint, status, headers, body)
}

/// What an `error` inside a reply means; `shown`: whether a person has
/// seen something of the reply.
pub(super) fn in_stream(
    title: &str,
    target: RequestTarget<'_>,
    error: &Value,
    shown: bool,
) -> WireError {
    openai::in_stream(title, target, error, shown)
}
