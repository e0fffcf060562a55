//! How the servers behind a backend are, as its catalog tells.

use serde_json::Value;

/// Whether a server has come as far as it does by itself.
pub(crate) fn is_settled(status: &Value) -> bool {
    match status.get("state").and_then(Value::as_str) {
        Some("starting") => false,
        // Tools of an earlier time are there at once.
        Some("ready") => status.get("listing") != Some(&Value::Bool(true)),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_server_has_settled_once_its_own_lists_were_read() {
        for (status, settled) in [
            (json!({ "state": "starting" }), false),
            (
                json!({ "state": "ready", "tools": 2, "listing": true }),
                false,
            ),
            (json!({ "state": "ready", "tools": 2 }), true),
            (
                json!({ "state": "ready", "list_error": "it said so" }),
                true,
            ),
            (json!({ "state": "failed", "tools": 2 }), true),
        ] {
            assert_eq!(is_settled(&status), settled, "{status}");
        }
    }
}
