//! Errors of OpenAI's APIs and of servers that are compatible with them.
//!
//! The servers agree on an `error` object, not on what is in it: the word stands in `code` or
//! `type`, the code may be a number, the whole may be a text, or have no `error` around it.

use serde_json::Value;

use crate::wire::failure::{
    self, RequestTarget, StatusFailure, describe_body, kind_of_status, text_of,
};
use crate::wire::{Endpoint, WireError};

/// An error as a server told it.
#[derive(Debug, Default, PartialEq)]
struct ErrorText {
    /// The server's word for it; may be empty.
    word: String,
    /// The number that it used as a code; 0 for none.
    number: u16,
    /// The server's sentence; may be empty.
    text: String,
}

impl ErrorText {
    /// Reads an error object, or a text that stands in its place.
    fn of(error: &Value) -> Self {
        if let Value::String(text) = error {
            return Self {
                text: text.clone(),
                ..Self::default()
            };
        }
        let code = error.get("code").filter(|code| !code.is_null());
        let number = code.and_then(Value::as_u64);
        let word = match code {
            Some(Value::String(code)) if !code.is_empty() => code,
            _ => text_of(error, "type"),
        };
        let mut text = text_of(error, "message").to_owned();
        // Routers put the words of the server behind them beside their own.
        if let Some(raw) = error.pointer("/metadata/raw").and_then(Value::as_str) {
            text = format!("{text}: {}", describe_body(raw.as_bytes()));
        }
        Self {
            word: word.to_owned(),
            number: number
                .and_then(|number| u16::try_from(number).ok())
                .unwrap_or_default(),
            text,
        }
    }

    fn kind(&self, status: u16) -> &'static str {
        let text = self.text.to_ascii_lowercase();
        let too_long = [
            "maximum context length",
            "context window",
            "context size",
            "too many tokens",
        ]
        .iter()
        .any(|words| text.contains(words));
        match self.word.as_str() {
            "insufficient_quota"
            | "invalid_api_key"
            | "billing_hard_limit_reached"
            | "authentication_error"
            | "permission_error" => "auth",
            "rate_limit_exceeded" | "rate_limit_error" | "rate_limit_reached" => "rate_limited",
            "context_length_exceeded" | "string_above_max_length" | "exceed_context_size_error" => {
                "too_large"
            }
            "model_not_found" | "not_found_error" => "not_found",
            "server_is_overloaded"
            | "slow_down"
            | "overloaded_error"
            | "service_unavailable"
            | "engine_overloaded" => "overloaded",
            "server_error" | "api_error" if status < 400 => "api",
            "invalid_request_error" | "invalid_prompt" | "invalid_value" if too_long => "too_large",
            "invalid_request_error" if matches!(status, 0 | 400) => "bad_request",
            "invalid_prompt" | "invalid_value" => "bad_request",
            _ if too_long && matches!(status, 0 | 400 | 413 | 422 | 500) => "too_large",
            _ if status == 0 => kind_of_status(self.number),
            _ => kind_of_status(status),
        }
    }
}

/// What a reply with this status and body means. The body may be JSON, a proxy's HTML or empty.
pub(in crate::wire) fn error(
    who: &str,
    endpoint: &Endpoint,
    status: u16,
    headers: &[(String, String)],
    body: &[u8],
) -> WireError {
    let json: Option<Value> = serde_json::from_slice(body).ok();
    // Some servers answer with a list of one.
    let json = match json {
        Some(Value::Array(mut list)) if !list.is_empty() => Some(list.swap_remove(0)),
        json => json,
    };
    let told = json.as_ref().and_then(|json| {
        if let Some(error) = json.get("error").filter(|error| !error.is_null()) {
            return Some(ErrorText::of(error));
        }
        if json.get("message").is_some_and(Value::is_string) {
            return Some(ErrorText::of(json));
        }
        let detail = json.get("detail")?;
        let text = match detail {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        Some(ErrorText {
            text,
            ..ErrorText::default()
        })
    });
    let own_form = told.is_some();
    let told = told.unwrap_or_else(|| ErrorText {
        text: describe_body(body),
        ..ErrorText::default()
    });
    StatusFailure {
        provider: who,
        endpoint,
        status,
        word: &told.word,
        text: &told.text,
        is_api_error: own_form,
        kind: told.kind(status),
        request_id: None,
        headers,
    }
    .error()
}

/// What an error inside the reply to a request means; `shown`: whether a person has seen something of
/// the reply.
pub(in crate::wire) fn in_stream(
    who: &str,
    target: RequestTarget<'_>,
    error: &Value,
    shown: bool,
) -> WireError {
    let told = ErrorText::of(error);
    let text = if told.text.is_empty() {
        &told.word
    } else {
        &told.text
    };
    let text = if text.is_empty() {
        "it gave no reason"
    } else {
        text
    };
    failure::in_stream(who, target, told.kind(0), text, shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at() -> Endpoint {
        Endpoint::new("openai").with_model("x")
    }

    fn line(status: u16, body: &str) -> String {
        let error = error("OpenAI", &at(), status, &[], body.as_bytes());
        format!("{} {} | {}", error.kind, error.retryable, error.message)
    }

    #[test]
    fn errors_say_what_failed_why_and_what_to_do_in_every_form() {
        let lines = [
            line(
                401,
                r#"{"error":{"code":"invalid_api_key","message":"Incorrect API key provided: sk-…","param":null,"type":"invalid_request_error"}}"#,
            ),
            line(
                400,
                r#"{"error":{"code":"model_not_found","message":"No such model","type":"invalid_request_error"}}"#,
            ),
            line(
                429,
                r#"{"error":{"code":"insufficient_quota","type":"insufficient_quota","message":"You exceeded your quota."}}"#,
            ),
            line(
                429,
                r#"{"error":{"code":"rate_limit_exceeded","message":"Slow"}}"#,
            ),
            line(
                400,
                r#"{"error":{"code":"context_length_exceeded","message":"maximum context length is 8192"}}"#,
            ),
            line(
                502,
                r#"{"error":{"code":502,"message":"Provider returned error","metadata":{"raw":"no upstream"}}}"#,
            ),
            line(
                422,
                r#"{"object":"error","message":"x: bad","type":"invalid_request_error"}"#,
            ),
            line(422, r#"{"detail":[{"msg":"Field required"}]}"#),
            line(404, r#"{"error":"model 'x' not found"}"#),
            line(500, "<html><title>Oh no</title></html>"),
            line(503, ""),
        ];
        insta::assert_snapshot!(lines.join("\n"), @r#"
        auth false | OpenAI gave no reply (HTTP status 401, invalid_api_key). Incorrect API key provided: sk-… Check the API key that the session uses, and that its account may use this model.
        not_found false | OpenAI gave no reply (HTTP status 400, model_not_found). No such model. Check that the provider has the model `x` (`conjure models` lists what it has), and that the base URL is its API's.
        auth false | OpenAI gave no reply (HTTP status 429, insufficient_quota). You exceeded your quota. Check the API key that the session uses, and that its account may use this model.
        rate_limited true | OpenAI gave no reply (HTTP status 429, rate_limit_exceeded). Slow. The account's rate limit is reached; wait, or send less at a time.
        too_large false | OpenAI gave no reply (HTTP status 400, context_length_exceeded). maximum context length is 8192. The conversation is too long for the model; compact it or fork it earlier.
        api true | OpenAI gave no reply (HTTP status 502). Provider returned error: no upstream. Something failed on the provider's side; try again.
        bad_request false | OpenAI gave no reply (HTTP status 422, invalid_request_error). x: bad. The request is wrong as it is, so sending it again will not help.
        bad_request false | OpenAI gave no reply (HTTP status 422). [{"msg":"Field required"}]. The request is wrong as it is, so sending it again will not help.
        not_found false | OpenAI gave no reply (HTTP status 404). model 'x' not found. Check that the provider has the model `x` (`conjure models` lists what it has), and that the base URL is its API's.
        api true | OpenAI gave no reply (HTTP status 500). What it sent is not this API's error: Oh no. Something failed on the provider's side; try again.
        overloaded true | OpenAI gave no reply (HTTP status 503). It gave no reason. The service is overloaded; try again in a while or use another model.
        "#);
    }

    #[test]
    fn the_servers_word_on_trying_again_counts() {
        let headers = |value: &str| {
            vec![
                ("X-Should-Retry".to_owned(), value.to_owned()),
                ("x-request-id".to_owned(), "req_7".to_owned()),
            ]
        };
        assert!(error("OpenAI", &at(), 400, &headers("true"), b"").retryable);
        let error = error("OpenAI", &at(), 503, &headers("false"), b"");
        assert!(!error.retryable && error.message.ends_with("(request req_7)"));
    }
}
