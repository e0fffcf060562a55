//! Google's errors, whether they come as an HTTP status or inside a stream.

use std::time::Duration;

use serde_json::Value;

use super::PROVIDER_NAME;
use crate::wire::failure::{
    self, RequestTarget, StatusFailure, describe_body, kind_of_status, text_of,
};
use crate::wire::{Endpoint, WireError};

/// What a reply with this status and body means. The body may be JSON, a proxy's HTML or empty.
pub(in crate::wire) fn error(
    endpoint: &Endpoint,
    status: u16,
    headers: &[(String, String)],
    body: &[u8],
) -> WireError {
    let json: Option<Value> = serde_json::from_slice(body).ok();
    let inner = json.as_ref().and_then(of_body);
    let (word, text) = match inner {
        Some(Value::String(text)) => ("", text.clone()),
        Some(inner) => (
            text_of(inner, "status"),
            text_of(inner, "message").to_owned(),
        ),
        None => ("", describe_body(body)),
    };
    let refused = StatusFailure {
        provider: PROVIDER_NAME,
        endpoint,
        status,
        word,
        text: &text,
        is_api_error: inner.is_some(),
        kind: kind_of(word, status, &text),
        request_id: None,
        headers,
    };
    WireError {
        retry_after: inner.and_then(retry_delay),
        ..refused.error()
    }
}

/// The error in a body, which is a list where a stream was asked for without `alt=sse`.
pub(super) fn of_body(body: &Value) -> Option<&Value> {
    let body = body.get(0).unwrap_or(body);
    body.get("error").filter(|error| !error.is_null())
}

/// What an error inside a stream means; `shown`: whether a person has
/// seen something of the reply.
pub(super) fn in_stream(target: RequestTarget<'_>, error: &Value, shown: bool) -> WireError {
    let word = text_of(error, "status");
    let text = text_of(error, "message");
    let status = error.get("code").and_then(Value::as_u64);
    let status = status.and_then(|code| u16::try_from(code).ok());
    let kind = kind_of(word, status.unwrap_or_default(), text);
    let told = if text.is_empty() { word } else { text };
    WireError {
        retry_after: retry_delay(error),
        ..failure::in_stream(PROVIDER_NAME, target, kind, told, shown)
    }
}

/// How long the error asks to wait: the `retryDelay` of the `google.rpc.RetryInfo` among its
/// details. This API sends it instead of a `retry-after` header.
fn retry_delay(error: &Value) -> Option<Duration> {
    let details = error.get("details")?.as_array()?;
    let info = |detail: &&Value| text_of(detail, "@type").ends_with("google.rpc.RetryInfo");
    duration(text_of(details.iter().find(info)?, "retryDelay"))
}

/// A `google.protobuf.Duration` in its JSON form: seconds with up to nine digits of a fraction and
/// an `s` at the end. None for anything else, and for a time that is over.
fn duration(text: &str) -> Option<Duration> {
    let number = text.strip_suffix('s')?;
    let (seconds, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(seconds) || !digits(fraction) || fraction.len() > 9 {
        return None;
    }
    let nanos: u32 = format!("{fraction:0<9}").parse().ok()?;
    Some(Duration::new(seconds.parse().ok()?, nanos))
}

fn kind_of(word: &str, status: u16, text: &str) -> &'static str {
    let lower = text.to_ascii_lowercase();
    let too_long = lower.contains("exceeds the maximum number of tokens")
        || lower.contains("input token count");
    match word {
        "RESOURCE_EXHAUSTED" => "rate_limited",
        "UNAUTHENTICATED" | "PERMISSION_DENIED" => "auth",
        "INVALID_ARGUMENT" if lower.contains("api key") => "auth",
        "INVALID_ARGUMENT" if too_long => "too_large",
        "INVALID_ARGUMENT" | "FAILED_PRECONDITION" | "OUT_OF_RANGE" => "bad_request",
        "NOT_FOUND" => "not_found",
        "UNAVAILABLE" => "overloaded",
        "INTERNAL" | "DEADLINE_EXCEEDED" | "CANCELLED" | "ABORTED" | "UNKNOWN" => "api",
        _ => kind_of_status(status),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn at() -> Endpoint {
        Endpoint::new("gemini").with_model("x")
    }

    fn line(status: u16, body: &str) -> String {
        let error = error(&at(), status, &[], body.as_bytes());
        format!("{} {} | {}", error.kind, error.retryable, error.message)
    }

    /// An error as Google sends it, with other details around the wait.
    fn asks_to_wait(wait: &str) -> String {
        let error = json!({"code": 429, "message": "Quota exceeded.", "status": "RESOURCE_EXHAUSTED",
        "details": [
            {"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": [{}]},
            {"@type": "type.googleapis.com/google.rpc.Help", "links": []},
            {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": wait},
        ]});
        json!({ "error": error }).to_string()
    }

    #[test]
    fn the_wait_that_an_error_asks_for_is_read_wherever_it_comes() {
        let body = asks_to_wait("37s");
        let wait = Some(Duration::from_secs(37));
        let refused = error(&at(), 429, &[], body.as_bytes());
        assert_eq!((refused.retry_after, refused.retryable), (wait, true));
        // Where a stream was asked for without `alt=sse`, and inside a stream.
        let list = format!("[{body}]");
        assert_eq!(error(&at(), 429, &[], list.as_bytes()).retry_after, wait);
        let value: Value = serde_json::from_str(&body).unwrap();
        let inner = of_body(&value).unwrap();
        assert_eq!(in_stream((&at()).into(), inner, false).retry_after, wait);
    }

    #[test]
    fn a_wait_is_seconds_with_a_fraction_and_nothing_else() {
        let asked = |wait: &str| error(&at(), 429, &[], asks_to_wait(wait).as_bytes()).retry_after;
        for (text, seconds, nanos) in [
            ("0s", 0, 0),
            ("0.5s", 0, 500_000_000),
            ("56.847655010s", 56, 847_655_010),
            ("3.000000001s", 3, 1),
            ("315576000000s", 315_576_000_000, 0),
        ] {
            assert_eq!(asked(text), Some(Duration::new(seconds, nanos)), "{text}");
        }
        for text in [
            "",
            "s",
            "37",
            "-1s",
            "+1s",
            "1.s",
            ".5s",
            "1.2.3s",
            "1e3s",
            " 1s",
            "1m",
            "NaNs",
            "1.0000000001s",
            "99999999999999999999s",
        ] {
            assert_eq!(asked(text), None, "{text}");
        }
        for body in [
            r#"{"error":{"details":{"@type":"google.rpc.RetryInfo"}}}"#,
            r#"{"error":{"details":[7,{"@type":"x/google.rpc.RetryInfo","retryDelay":7}]}}"#,
            r#"{"error":"google.rpc.RetryInfo"}"#,
            "",
        ] {
            assert_eq!(
                error(&at(), 429, &[], body.as_bytes()).retry_after,
                None,
                "{body}"
            );
        }
    }

    #[test]
    fn errors_say_what_failed_why_and_what_to_do() {
        let lines = [
            line(
                404,
                r#"{"error":{"code":404,"message":"models/x is not found.","status":"NOT_FOUND"}}"#,
            ),
            line(
                400,
                r#"[{"error":{"code":400,"message":"API key not valid.","status":"INVALID_ARGUMENT"}}]"#,
            ),
            line(
                429,
                r#"{"error":{"code":429,"message":"Quota","status":"RESOURCE_EXHAUSTED"}}"#,
            ),
            line(
                400,
                r#"{"error":{"code":400,"message":"The input token count (9) exceeds the maximum number of tokens allowed (8).","status":"INVALID_ARGUMENT"}}"#,
            ),
            line(
                503,
                r#"{"error":{"code":503,"message":"The model is overloaded.","status":"UNAVAILABLE"}}"#,
            ),
            line(500, "<title>Error</title>"),
        ];
        insta::assert_snapshot!(lines.join("\n"), @r"
        not_found false | Gemini gave no reply (HTTP status 404, NOT_FOUND). models/x is not found. Check that the provider has the model `x` (`conjure models` lists what it has), and that the base URL is its API's.
        auth false | Gemini gave no reply (HTTP status 400, INVALID_ARGUMENT). API key not valid. Check the API key that the session uses, and that its account may use this model.
        rate_limited true | Gemini gave no reply (HTTP status 429, RESOURCE_EXHAUSTED). Quota. The account's rate limit is reached; wait, or send less at a time.
        too_large false | Gemini gave no reply (HTTP status 400, INVALID_ARGUMENT). The input token count (9) exceeds the maximum number of tokens allowed (8). The conversation is too long for the model; compact it or fork it earlier.
        overloaded true | Gemini gave no reply (HTTP status 503, UNAVAILABLE). The model is overloaded. The service is overloaded; try again in a while or use another model.
        api true | Gemini gave no reply (HTTP status 500). What it sent is not this API's error: Error. Something failed on the provider's side; try again.
        ");
    }
}
