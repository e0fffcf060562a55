//! Settings of an MCP server that somebody typed: what is secret in them is taken out, to be saved
//! apart, and named in its place.
//!
//! Every value of `env`, of `headers` and of `oauth.client_secret` is taken for a secret; arguments
//! and the address where they look like one. What stands there in plain already stays: it was
//! looked at when it came.

use secrecy::SecretString;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use super::json;
use super::secret;
use super::secret_value::{is_secret_address, split_scheme};
use super::server::{ConfigText, ImportResult};

/// The longest name of a saved secret, less room for a number.
const MAX_NAME_CHARS: usize = 45;

/// A secret that was taken out.
pub struct TypedSecret {
    /// Name under which the secret is saved.
    pub name: String,
    /// Value of the secret.
    pub secret: SecretString,
    /// Position in the settings, as a JSON pointer.
    pointer: String,
    /// Text before the secret, such as `Bearer `.
    prefix: String,
}

impl TypedSecret {
    /// Names the secret where it was.
    pub fn insert_reference(&self, settings: &mut Value, name: &str) {
        if let Some(place) = settings.pointer_mut(&self.pointer) {
            *place = if self.prefix.is_empty() {
                json!({ "secret": name })
            } else {
                json!({ "secret": name, "prefix": self.prefix })
            };
        }
    }
}

/// The secrets in the settings of a server. `before` are settings whose plain values are known.
pub fn secrets(server: &str, settings: &Value, before: &[&Value]) -> Vec<TypedSecret> {
    let mut found = Vec::new();
    let mut take = |place: String, label: &str, prefix: &str, secret: &str| {
        let is_known = |before: &&Value| before.pointer(&place) == settings.pointer(&place);
        if secret.is_empty() || before.iter().any(is_known) {
            return;
        }
        found.push(TypedSecret {
            name: name(server, label),
            secret: SecretString::from(secret),
            pointer: place,
            prefix: prefix.to_owned(),
        });
    };
    for (value, place) in texts(settings.get("env"), "/env") {
        take(place.pointer, &place.name, "", value);
    }
    for (value, place) in texts(settings.get("headers"), "/headers") {
        let (prefix, rest) = split_scheme(value);
        take(place.pointer, &place.name, &prefix, rest);
    }
    if let Some(value) = settings
        .pointer("/oauth/client_secret")
        .and_then(Value::as_str)
    {
        take(
            "/oauth/client_secret".to_owned(),
            "CLIENT_SECRET",
            "",
            value,
        );
    }
    if let Some(url) = settings.get("url").and_then(Value::as_str)
        && (url.contains("${") || is_secret_address(url))
    {
        take("/url".to_owned(), "URL", "", url);
    }
    let own = json::own_env([settings.get("env")]);
    let args = settings.get("args").and_then(Value::as_array);
    let mut before_it: Option<&str> = None;
    for (at, arg) in args.into_iter().flatten().enumerate() {
        let arg = arg.as_str();
        if let Some(arg) = arg
            && let ConfigText::Secret { prefix, .. } =
                ImportResult::default().argument(server, &own, before_it, arg)
        {
            // What is written in another way than the prefix has it is a secret as a whole.
            let (prefix, secret) = match arg.strip_prefix(&prefix) {
                Some(secret) => (prefix.as_str(), secret),
                None => ("", arg),
            };
            take(format!("/args/{at}"), "ARG", prefix, secret);
        }
        before_it = arg;
    }
    found
}

struct InputLocation {
    name: String,
    pointer: String,
}

/// The texts of an object.
fn texts<'a>(object: Option<&'a Value>, at: &str) -> Vec<(&'a str, InputLocation)> {
    let members = object.and_then(Value::as_object).into_iter();
    let members = members.flat_map(Map::iter);
    let texts = members.filter_map(|(name, value)| {
        let escaped = name.replace('~', "~0").replace('/', "~1");
        let place = InputLocation {
            name: name.clone(),
            pointer: format!("{at}/{escaped}"),
        };
        Some((value.as_str()?, place))
    });
    texts.collect()
}

/// The name of a secret; one that is too long is cut, and told from others by a hash.
fn name(server: &str, label: &str) -> String {
    let whole = secret::name(server, label);
    if whole.len() <= MAX_NAME_CHARS {
        return whole;
    }
    let hash = Sha256::digest(whole.as_bytes());
    let hash: String = hash
        .iter()
        .take(4)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let begin = whole.get(..MAX_NAME_CHARS - 9).unwrap_or_default();
    format!("{begin}_{hash}")
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret as _;

    use super::*;

    fn sealed(settings: &Value, before: &[&Value]) -> (Value, Vec<String>) {
        let mut settings = settings.clone();
        let found = secrets("my notes", &settings, before);
        let mut taken = Vec::new();
        for typed in &found {
            typed.insert_reference(&mut settings, &typed.name);
            taken.push(typed.secret.expose_secret().to_owned());
        }
        (settings, taken)
    }

    #[test]
    fn what_is_typed_is_taken_out_and_named() {
        let settings = json!({
            "command": "notes", "cwd": "/srv",
            "args": ["--quiet", "--token", "abc", "--key=def", "plain", { "secret": "MCP_X" }],
            "env": { "MODE": "small", "A/B": "x", "NONE": "", "KEPT": { "secret": "MCP_KEPT" } },
            "headers": { "Authorization": "Bearer ghi" },
            "oauth": { "client_id": "me", "client_secret": "jkl" },
        });
        let (settings, mut taken) = sealed(&settings, &[]);
        taken.sort();
        assert_eq!(taken, ["abc", "def", "ghi", "jkl", "small", "x"]);
        assert_eq!(
            settings,
            json!({
                "command": "notes", "cwd": "/srv",
                "args": [
                    "--quiet", "--token", { "secret": "MCP_MY_NOTES_ARG" },
                    { "secret": "MCP_MY_NOTES_ARG", "prefix": "--key=" }, "plain",
                    { "secret": "MCP_X" },
                ],
                "env": {
                    "MODE": { "secret": "MCP_MY_NOTES_MODE" },
                    "A/B": { "secret": "MCP_MY_NOTES_A_B" },
                    "NONE": "", "KEPT": { "secret": "MCP_KEPT" },
                },
                "headers": {
                    "Authorization": { "secret": "MCP_MY_NOTES_AUTHORIZATION", "prefix": "Bearer " },
                },
                "oauth": { "client_id": "me", "client_secret": { "secret": "MCP_MY_NOTES_CLIENT_SECRET" } },
            })
        );
        // Once more changes nothing.
        assert_eq!(sealed(&settings, &[]), (settings, Vec::new()));
    }

    #[test]
    fn an_address_is_a_secret_where_it_has_one() {
        let typed = |url: &str| sealed(&json!({ "url": url }), &[]).1;
        assert_eq!(typed("https://x.example/mcp"), Vec::<String>::new());
        let with = "https://x.example/mcp?api_key=1";
        assert_eq!(typed(with), [with]);
    }

    #[test]
    fn a_secret_in_an_argument_is_found_however_it_is_written() {
        let typed = |args: Value| sealed(&json!({ "args": args }), &[]).1;
        for space in ["", " ", "  "] {
            let header = format!("Authorization:{space}Bearer abc");
            assert_eq!(typed(json!(["--header", header])), ["abc"]);
        }
        for address in [
            "postgresql://me:pw@db/x",
            "https://x.example/sse?api_key=abc",
        ] {
            assert_eq!(typed(json!([address])), [address]);
            assert_eq!(typed(json!(["--url", address])), [address]);
        }
        let plain = json!([
            "mcp-remote",
            "https://x.example/sse",
            "http://127.0.0.1:80",
            "a:b"
        ]);
        assert_eq!(typed(plain), Vec::<String>::new());
    }

    #[test]
    fn an_argument_that_names_a_variable_of_env_stays() {
        let settings = json!({
            "args": ["--header", "Authorization:${AUTH}"], "env": { "AUTH": "Bearer abc" },
        });
        let (settings, taken) = sealed(&settings, &[]);
        assert_eq!(taken, ["Bearer abc"]);
        assert_eq!(settings["args"][1], "Authorization:${AUTH}");
    }

    #[test]
    fn what_was_plain_before_stays() {
        let before = json!({ "env": { "MODE": "small", "LEVEL": "1" } });
        let settings = json!({ "env": { "MODE": "small", "LEVEL": "2" } });
        assert_eq!(sealed(&settings, &[&before]).1, ["2"]);
        assert_eq!(sealed(&settings, &[&Value::Null]).1.len(), 2);
    }

    #[test]
    fn names_are_short_enough_to_be_saved() {
        let (one, two) = (name("s", &"a".repeat(60)), name("s", &"a".repeat(61)));
        assert!(one.len() == MAX_NAME_CHARS && two.len() == MAX_NAME_CHARS && one != two);
    }
}
