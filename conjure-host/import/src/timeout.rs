//! The unit of a server's `timeout` in JSON, which programs do not agree on: Cline and Roo Code
//! count seconds, Gemini, Claude and others milliseconds, and none of them writes the unit down.

use serde_json::{Map, Value};

/// Fields that Cline and what came from it write beside a `timeout`.
const CLINE_FIELDS: [&str; 3] = ["autoApprove", "alwaysAllow", "disabled"];
/// The most seconds that they offer. Others write these fields too, with milliseconds.
const MAX_SECONDS: i64 = 3_600;
/// Fewer milliseconds than this are no time for a call.
const MIN_MS: i64 = 1_000;

/// The milliseconds of a `timeout`, and what it was taken for. `fields` are the server's.
pub(crate) fn milliseconds(timeout: i64, fields: &Map<String, Value>) -> (i64, String) {
    let is_of_cline = CLINE_FIELDS.iter().any(|field| fields.contains_key(*field));
    if is_of_cline && timeout <= MAX_SECONDS {
        let told = format!(
            "its `timeout` is taken for {timeout} seconds without an answer, as Cline counts it"
        );
        return (timeout * 1_000, told);
    }
    if timeout < MIN_MS {
        let told = format!(
            "its `timeout` is taken for {timeout} seconds without an answer, for it is short for \
             milliseconds; `request_timeout_ms` says it otherwise"
        );
        return (timeout * 1_000, told);
    }
    let told = format!("its `timeout` is taken for {timeout} ms without an answer");
    (timeout, told)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(timeout: i64, fields: &Value) -> i64 {
        milliseconds(timeout, fields.as_object().unwrap()).0
    }

    #[test]
    fn the_form_decides_and_else_the_size() {
        let cline = serde_json::json!({ "autoApprove": [], "disabled": false });
        let other = serde_json::json!({ "trust": true });
        assert_eq!(ms(60, &cline), 60_000);
        assert_eq!(ms(3_600, &cline), 3_600_000);
        assert_eq!(ms(60_000, &cline), 60_000);
        assert_eq!(ms(60, &other), 60_000);
        assert_eq!(ms(999, &other), 999_000);
        assert_eq!(ms(1_000, &other), 1_000);
        assert_eq!(ms(30_000, &other), 30_000);
    }
}
