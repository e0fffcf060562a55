//! Errors of the Responses API, whether they come as an HTTP status or inside a stream.

use serde_json::Value;

use super::PROVIDER_NAME;
use crate::wire::failure::RequestTarget;
use crate::wire::{Endpoint, WireError, openai};

/// What a reply with this status and body means. The body may be JSON, a proxy's HTML or empty.
pub(in crate::wire) fn error(
    endpoint: &Endpoint,
    status: u16,
    headers: &[(String, String)],
    body: &[u8],
) -> WireError {
    openai::error(PROVIDER_NAME, endpoint, status, headers, body)
}

/// What an `error` event or a failed response means; `shown`: whether a person has seen something
/// of the reply.
pub(super) fn in_stream(target: RequestTarget<'_>, error: &Value, shown: bool) -> WireError {
    openai::in_stream(PROVIDER_NAME, target, error, shown)
}
