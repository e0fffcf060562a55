//! Anthropic's errors, whether they come as an HTTP status or inside a stream.
//!
//! Turns type, status and text into a kind that programs can act on. The sentences are those of
//! all wires; waiting and trying again is the caller's.

use serde_json::Value;

use super::{PROVIDER, PROVIDER_NAME};
use crate::wire::failure::{
    self, RequestTarget, StatusFailure, describe_body, kind_of_status, text_of,
};
use crate::wire::{Endpoint, WireError};

/// What a reply with this status and body means. The body may be JSON, a proxy's HTML or empty.
#[must_use]
pub fn error(status: u16, body: &[u8]) -> WireError {
    error_at(&Endpoint::new(PROVIDER), status, &[], body)
}

/// Like [`error`](fn@error), with where the request went and what the headers say.
pub(in crate::wire) fn error_at(
    endpoint: &Endpoint,
    status: u16,
    headers: &[(String, String)],
    body: &[u8],
) -> WireError {
    let json: Option<Value> = serde_json::from_slice(body).ok();
    let inner = json.as_ref().and_then(|json| json.get("error"));
    let (word, text) = match inner {
        // Some gateways put the text where the object should be.
        Some(Value::String(text)) => ("", text.clone()),
        Some(inner) => (text_of(inner, "type"), text_of(inner, "message").to_owned()),
        None => ("", describe_body(body)),
    };
    StatusFailure {
        provider: PROVIDER_NAME,
        endpoint,
        status,
        word,
        text: &text,
        is_api_error: inner.is_some(),
        kind: kind_of(word, status, &text),
        request_id: json
            .as_ref()
            .and_then(|json| json.get("request_id"))
            .and_then(Value::as_str),
        headers,
    }
    .error()
}

/// What an `error` event inside a stream means; `shown`: whether a person has
/// seen something of the reply.
pub(super) fn in_stream(target: RequestTarget<'_>, error: &Value, shown: bool) -> WireError {
    let word = text_of(error, "type");
    let text = text_of(error, "message");
    let told = if text.is_empty() { word } else { text };
    failure::in_stream(PROVIDER_NAME, target, kind_of(word, 0, text), told, shown)
}

fn kind_of(word: &str, status: u16, text: &str) -> &'static str {
    let too_long = text.contains("prompt is too long") || text.contains("exceed context limit");
    match word {
        "overloaded_error" => "overloaded",
        "rate_limit_error" => "rate_limited",
        "authentication_error" | "permission_error" | "billing_error" => "auth",
        "not_found_error" => "not_found",
        "request_too_large" => "too_large",
        "invalid_request_error" if too_long => "too_large",
        "invalid_request_error" => "bad_request",
        _ => kind_of_status(status),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(status: u16, body: &str) -> String {
        let error = error(status, body.as_bytes());
        format!("{} {} | {}", error.kind, error.retryable, error.message)
    }

    #[test]
    fn errors_say_what_failed_why_and_what_to_do() {
        let lines = [
            line(
                401,
                r#"{"type":"error","error":{"type":"authentication_error","message":"key is invalid"},"request_id":"req_1"}"#,
            ),
            line(429, ""),
            line(
                529,
                r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#,
            ),
            line(
                502,
                "<html><head><title>502 Bad\nGateway</title></head></html>",
            ),
            line(404, r#"{"error":"no such route"}"#),
            line(
                400,
                r#"{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 3 tokens > 2 maximum"}}"#,
            ),
            line(
                400,
                r#"{"type":"error","error":{"type":"invalid_request_error","message":"x: bad"}}"#,
            ),
        ];
        insta::assert_snapshot!(lines.join("\n"), @r#"
        auth false | Anthropic gave no reply (HTTP status 401, authentication_error). key is invalid. Check the API key that the session uses, and that its account may use this model. (request req_1)
        rate_limited true | Anthropic gave no reply (HTTP status 429). It gave no reason. The account's rate limit is reached; wait, or send less at a time.
        overloaded true | Anthropic gave no reply (HTTP status 529, overloaded_error). Overloaded. The service is overloaded; try again in a while or use another model.
        api true | Anthropic gave no reply (HTTP status 502). What it sent is not this API's error: 502 Bad Gateway. Something failed on the provider's side; try again.
        not_found false | Anthropic gave no reply (HTTP status 404). no such route. Check the name or id that was asked for, and the base URL.
        too_large false | Anthropic gave no reply (HTTP status 400, invalid_request_error). prompt is too long: 3 tokens > 2 maximum. The conversation is too long for the model; compact it or fork it earlier.
        bad_request false | Anthropic gave no reply (HTTP status 400, invalid_request_error). x: bad. The request is wrong as it is, so sending it again will not help.
        "#);
    }

    #[test]
    fn every_status_has_a_kind_and_only_what_passes_is_retried() {
        let kinds: Vec<(u16, String, bool)> = [
            301, 400, 401, 402, 403, 404, 408, 409, 413, 422, 429, 500, 501, 502, 503, 504, 529,
        ]
        .map(|status| {
            let error = error(status, b"");
            (status, error.kind, error.retryable)
        })
        .into();
        let expected = [
            (301, "api", false),
            (400, "bad_request", false),
            (401, "auth", false),
            (402, "auth", false),
            (403, "auth", false),
            (404, "not_found", false),
            (408, "api", true),
            (409, "api", true),
            (413, "too_large", false),
            (422, "bad_request", false),
            (429, "rate_limited", true),
            (500, "api", true),
            (501, "api", false),
            (502, "api", true),
            (503, "overloaded", true),
            (504, "api", true),
            (529, "overloaded", true),
        ]
        .map(|(status, kind, retry)| (status, kind.to_owned(), retry));
        assert_eq!(kinds, expected);
    }
}
