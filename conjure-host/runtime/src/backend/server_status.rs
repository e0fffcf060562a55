//! How the servers behind a backend are, as its catalog tells.

use conjure_plugins::LoadedPlugin;
use conjure_skill_sdk::protocol::CatalogReply;
use serde_json::Value;

/// What a catalog says of the servers behind its backend. One that fails has in `remedy` what the
/// plugin's owner can do, where the plugin runs in a process of its own for want of trust: what the
/// server misses there does not show.
pub(crate) fn servers(catalog: &CatalogReply, plugin: &LoadedPlugin) -> Vec<Value> {
    let meta = catalog.meta.as_ref();
    let servers = meta.and_then(|meta| meta.get("servers")?.as_array());
    let mut servers = servers.cloned().unwrap_or_default();
    if let Some(remedy) = plugin.trust_remedy() {
        servers
            .iter_mut()
            .for_each(|server| put_remedy(server, &remedy));
    }
    servers
}

fn put_remedy(server: &mut Value, remedy: &str) {
    let fails = matches!(
        server.get("state").and_then(Value::as_str),
        Some("failed" | "backoff")
    );
    if let Some(server) = server.as_object_mut().filter(|_| fails) {
        server.insert("remedy".to_owned(), remedy.into());
    }
}

/// Whether a server has come as far as it does by itself.
pub(crate) fn is_settled(status: &Value) -> bool {
    match status.get("state").and_then(Value::as_str) {
        Some("starting") => false,
        // Tools of an earlier time are there at once.
        Some("ready") => status.get("listing") != Some(&Value::Bool(true)),
        _ => true,
    }
}

/// Whether a server starts, or is being listed, for the first time, and nothing of what it has is
/// known.
pub(crate) fn is_unlisted(status: &Value) -> bool {
    let is_known = ["tools", "failed_as"]
        .iter()
        .any(|member| status.get(member).is_some());
    !is_settled(status) && !is_known
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_server_of_which_nothing_is_known_yet_is_unlisted() {
        for (status, expected) in [
            (json!({ "state": "starting" }), true),
            (json!({ "state": "ready", "listing": true }), true),
            (json!({ "state": "starting", "tools": 3 }), false),
            (
                json!({ "state": "starting", "failed_as": "backoff" }),
                false,
            ),
            (json!({ "state": "ready", "tools": 3 }), false),
            (json!({ "state": "backoff" }), false),
        ] {
            assert_eq!(is_unlisted(&status), expected, "{status}");
        }
    }

    #[test]
    fn only_a_server_that_fails_has_a_remedy() {
        for (state, has_one) in [
            ("failed", true),
            ("backoff", true),
            ("ready", false),
            ("needs_auth", false),
        ] {
            let mut server = json!({ "server": "s", "state": state });
            put_remedy(&mut server, "trust it");
            assert_eq!(server.get("remedy").is_some(), has_one, "{state}");
        }
    }

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
