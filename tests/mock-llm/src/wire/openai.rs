//! What both wires of `OpenAI` share: errors, headers, the words for a usage.
//!
//! The messages themselves are in `responses` and `chat`.

use serde_json::{Value, json};

use super::Wire;
use crate::delivery::RenderedAnswer;
use crate::message::Usage;
use crate::reply::ErrorReply;
use crate::request::Request;

/// An error with its JSON body, and `retry-after` where the script says so.
pub(super) fn error(error: &ErrorReply, request: &Request) -> RenderedAnswer {
    let (kind, code) = error_type_and_code(error.status);
    let kind = error.kind.as_deref().map_or(kind, error_type);
    let code = error.code.as_deref().or(code);
    let text = error
        .message
        .clone()
        .unwrap_or_else(|| format!("The script answers with status {}.", error.status));
    let body = json!({"error": {"message": text, "type": kind, "param": null, "code": code}});
    let mut headers = headers("application/json", request);
    headers.extend(error.extra_headers());
    RenderedAnswer {
        status: error.status,
        headers,
        body: vec![body.to_string().into_bytes().into()],
        stream: false,
    }
}

/// The usual type and code of a status.
fn error_type_and_code(status: u16) -> (&'static str, Option<&'static str>) {
    match status {
        401 => ("invalid_request_error", Some("invalid_api_key")),
        404 => ("invalid_request_error", Some("model_not_found")),
        413 => ("invalid_request_error", Some("request_too_large")),
        429 => ("requests", Some("rate_limit_exceeded")),
        400..=499 => ("invalid_request_error", None),
        _ => ("server_error", Some("server_error")),
    }
}

/// `OpenAI`'s word for one of Anthropic's error types.
pub(super) fn error_type(kind: &str) -> &str {
    match kind {
        "overloaded_error" | "api_error" | "timeout_error" => "server_error",
        "rate_limit_error" => "rate_limit_exceeded",
        other => other,
    }
}

/// The headers of every answer.
pub(super) fn headers(content_type: &str, request: &Request) -> Vec<(String, String)> {
    vec![
        ("content-type".to_owned(), content_type.to_owned()),
        (
            "x-request-id".to_owned(),
            format!("req_mock_{}", request.index),
        ),
    ]
}

/// The usage of a message. `OpenAI` counts what the cache gave as input.
pub(super) fn usage(usage: &Usage, wire: Wire) -> Value {
    let input = usage.input_tokens + usage.cache_read + usage.cache_write();
    let output = usage.output_tokens;
    let (input_key, output_key) = match wire {
        Wire::Chat => ("prompt_tokens", "completion_tokens"),
        _ => ("input_tokens", "output_tokens"),
    };
    let mut object = serde_json::Map::new();
    object.insert(input_key.to_owned(), json!(input));
    object.insert(
        format!("{input_key}_details"),
        json!({"cached_tokens": usage.cache_read, "cache_write_tokens": usage.cache_write()}),
    );
    object.insert(output_key.to_owned(), json!(output));
    object.insert(
        format!("{output_key}_details"),
        json!({"reasoning_tokens": usage.thinking_tokens.unwrap_or(0)}),
    );
    object.insert("total_tokens".to_owned(), json!(input + output));
    object.extend(usage.extra.clone());
    Value::Object(object)
}
