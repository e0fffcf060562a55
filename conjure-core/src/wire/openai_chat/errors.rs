//! Errors of Chat Completions, whether they come as an HTTP status or inside a stream.

use serde_json::Value;

use super::Dialect;
use crate::wire::WireError;
use crate::wire::openai;

/// What a reply with this status and body means. The body may be JSON, a proxy's HTML or empty.
pub(in crate::wire) fn error(
    dialect: &Dialect,
    status: u16,
    headers: &[(String, String)],
    body: &[u8],
) -> WireError {
    openai::error(&dialect.title, status, headers, body)
}

/// What an `error` inside a reply means; `output`: whether something of the reply had come.
pub(super) fn in_stream(title: &str, error: &Value, output: bool) -> WireError {
    openai::in_stream(title, error, output)
}
