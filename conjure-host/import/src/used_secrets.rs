//! Names of secrets that other servers use already: an import leaves those names to them.
//!
//! The value behind a name is one. Two servers that were imported one after the other would get each
//! other's credentials under a shared name.

use std::collections::{BTreeSet, HashMap};

use serde_json::Value;

use super::server::{ConfigText, ImportResult, ImportedServer};

/// Adds the names of the secrets that settings name, wherever in them.
pub fn used_secrets(settings: &Value, names: &mut BTreeSet<String>) {
    match settings {
        Value::Object(members) => {
            if let Some(name) = members.get("secret").and_then(Value::as_str) {
                names.insert(name.to_owned());
            }
            for value in members.values() {
                used_secrets(value, names);
            }
        }
        Value::Array(values) => {
            for value in values {
                used_secrets(value, names);
            }
        }
        _ => {}
    }
}

impl ImportResult {
    /// Gives each secret whose name others use the first number from 2 on that makes it another.
    pub fn rename_secrets(&mut self, used: &BTreeSet<String>) {
        let mut taken = used.clone();
        taken.extend(self.secrets.iter().map(|secret| secret.name.clone()));
        let mut renamed = HashMap::new();
        for secret in &mut self.secrets {
            if !used.contains(&secret.name) {
                continue;
            }
            let mut numbered = (2_u64..).map(|number| format!("{}_{number}", secret.name));
            if let Some(name) = numbered.find(|name| !taken.contains(name)) {
                taken.insert(name.clone());
                let old = std::mem::replace(&mut secret.name, name.clone());
                renamed.insert(old, name);
            }
        }
        for text in self.servers.iter_mut().flat_map(texts) {
            if let ConfigText::Secret { name, .. } = text
                && let Some(new) = renamed.get(name)
            {
                name.clone_from(new);
            }
        }
    }
}

/// Everything in a server that may be a secret.
fn texts(server: &mut ImportedServer) -> impl Iterator<Item = &mut ConfigText> {
    let single = [
        server.command.as_mut(),
        server.cwd.as_mut(),
        server.url.as_mut(),
        server.oauth_secret.as_mut(),
    ];
    let named = server.env.iter_mut().chain(&mut server.headers);
    let named = named.map(|(_, text)| text);
    let single = single.into_iter().flatten();
    single.chain(&mut server.args).chain(named)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::read;

    #[test]
    fn a_secret_gets_no_name_that_another_server_uses() {
        let first = Value::Object(
            read("claude mcp add google -e MAPS_API_KEY=abc123def456 -- maps")
                .unwrap()
                .settings()
                .unwrap(),
        );
        let mut used = BTreeSet::new();
        used_secrets(&first, &mut used);
        used_secrets(
            &json!([{ "secret": "MCP_GOOGLE_MAPS_API_KEY_2" }]),
            &mut used,
        );
        assert_eq!(used.len(), 2, "{used:?}");
        let line =
            "claude mcp add google-maps -e API_KEY=uvw987xyz654 -- maps --token t0k3n-t0k3n-9";
        let mut second = read(line).unwrap();
        second.rename_secrets(&used);
        let expected = json!({ "google-maps": {
            "command": "maps",
            "args": ["--token", { "secret": "MCP_GOOGLE_MAPS_TOKEN" }],
            "env": { "API_KEY": { "secret": "MCP_GOOGLE_MAPS_API_KEY_3" } },
        } });
        assert_eq!(Value::Object(second.settings().unwrap()), expected);
        let mut names: Vec<&str> = second.secrets.iter().map(|it| it.name.as_str()).collect();
        names.sort_unstable();
        assert_eq!(
            names,
            ["MCP_GOOGLE_MAPS_API_KEY_3", "MCP_GOOGLE_MAPS_TOKEN"]
        );
    }
}
