//! What in a configuration is a secret: by the name that it has, by how it looks, or because it
//! stands for a variable.
//!
//! A value that is taken for one by mistake costs a line to set; one that is missed is written
//! down. So this errs on the careful side.

use super::variables::{self, Variables};

/// Parts of names that secrets have.
const NAMES: &[&str] = &[
    "token",
    "key",
    "secret",
    "password",
    "passwd",
    "passphrase",
    "credential",
    "auth",
    "cookie",
    "bearer",
    "dsn",
    "private",
    "session",
    "pat",
];
/// How tokens begin that are known by that.
const BEGINNINGS: &[&str] = &[
    "sk-",
    "sk_",
    "pk_",
    "rk_",
    "ghp_",
    "gho_",
    "ghs_",
    "ghu_",
    "github_pat_",
    "glpat-",
    "xoxb-",
    "xoxp-",
    "xapp-",
    "AKIA",
    "ASIA",
    "AIza",
    "eyJ",
    "ya29.",
    "npm_",
    "hf_",
    "lin_api_",
    "ntn_",
    "figd_",
    "secret_",
];
/// A text of so many letters and digits without a space is no word.
const LONG: usize = 24;

/// What a value is.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ValueKind {
    Plain,
    /// It has variables that are no secrets, and is this in a session file.
    Expand(String),
    /// It has variables that mean nothing here.
    Unknown(Variables),
    Secret {
        prefix: String,
        /// The variable that holds it.
        from: Option<String>,
        note: Option<String>,
    },
}

/// What a value of this name is.
pub(crate) fn find(name: &str, value: &str) -> ValueKind {
    let (prefix, rest) = prefixed(value);
    if let Some(text) = rest
        .strip_prefix("${input:")
        .and_then(|rest| rest.strip_suffix('}'))
    {
        return ValueKind::Secret {
            prefix,
            from: None,
            note: Some(format!(
                "the other program asks for `{text}`; here it is set once"
            )),
        };
    }
    // Continue keeps these itself.
    if let Some(inner) = rest
        .strip_prefix("${{")
        .and_then(|rest| rest.strip_suffix("}}"))
    {
        return ValueKind::Secret {
            prefix,
            from: None,
            note: Some(format!(
                "the other program keeps `{}`; here it is set once",
                inner.trim()
            )),
        };
    }
    if let Some(found) = variables::of(rest) {
        return with_variables(name, value, prefix, found);
    }
    if let Some(from) = variable(rest) {
        return ValueKind::Secret {
            prefix,
            from: Some(from),
            note: None,
        };
    }
    if !rest.is_empty() && (is_name(name) || !prefix.is_empty() || looks_like_one(rest)) {
        return ValueKind::Secret {
            prefix,
            from: None,
            note: None,
        };
    }
    ValueKind::Plain
}

/// What a value with variables is: a secret by its name or theirs, or a variable as it is.
fn with_variables(name: &str, value: &str, prefix: String, found: Variables) -> ValueKind {
    if !found.unknown.is_empty() {
        return ValueKind::Unknown(found);
    }
    let is_named = is_name(name) || found.names.iter().any(|name| is_name(name));
    let is_secret = !found.names.is_empty() && (is_named || !prefix.is_empty());
    // A variable alone may hold anything.
    let may_be = found.is_whole && !found.has_default && !found.names.is_empty();
    if !is_secret && !may_be {
        return ValueKind::Expand(format!("{prefix}{}", found.expand));
    }
    if !found.is_whole {
        return ValueKind::Secret {
            prefix: String::new(),
            from: None,
            note: Some(format!(
                "`{value}` is put together of variables; set the whole of it"
            )),
        };
    }
    let note = "where the variable is not set the other program has a default for it";
    ValueKind::Secret {
        prefix,
        from: found.names.into_iter().next(),
        note: found.has_default.then(|| note.to_owned()),
    }
}

/// An address without its variables.
pub(crate) fn without_variables(url: &str) -> String {
    let mut out = String::new();
    let mut rest = url;
    while let Some((before, after)) = rest.split_once("${") {
        out.push_str(before);
        rest = after.split_once('}').map_or("", |(_, after)| after);
    }
    out.push_str(rest);
    out
}

/// The name of a secret.
pub(crate) fn name(server: &str, label: &str) -> String {
    let part = |text: &str| {
        let text: String = text
            .chars()
            .map(|c| {
                if c.is_ascii_alphanumeric() {
                    c.to_ascii_uppercase()
                } else {
                    '_'
                }
            })
            .collect();
        text.trim_matches('_').to_owned()
    };
    format!("MCP_{}_{}", part(server), part(label))
}

/// The variable that a value stands for without braces: `$NAME`.
fn variable(value: &str) -> Option<String> {
    let inner = value.strip_prefix('$')?;
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    (!inner.is_empty() && inner.chars().all(is_name)).then(|| inner.to_owned())
}

/// Whether an address has a secret in it.
pub(crate) fn is_in_address(url: &str) -> bool {
    if url.contains("${") {
        return true;
    }
    let (before, query) = url.split_once('?').unwrap_or((url, ""));
    let authority = before.split_once("://").map_or(before, |(_, rest)| rest);
    let authority = authority.split('/').next().unwrap_or_default();
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let in_query = pairs
        .into_iter()
        .any(|(name, value)| !value.is_empty() && (is_name(name) || looks_like_one(value)));
    let in_path = before.split('/').skip(3).any(looks_like_one);
    authority.contains('@') || in_query || in_path
}

/// A value without the scheme that stands before it, such as `Bearer `.
pub(crate) fn prefixed(value: &str) -> (String, &str) {
    for scheme in ["Bearer ", "bearer ", "Basic ", "Token ", "token "] {
        if let Some(rest) = value.strip_prefix(scheme) {
            return (scheme.to_owned(), rest);
        }
    }
    (String::new(), value)
}

/// Whether a name is one that secrets have.
pub(crate) fn is_name(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    let mut parts = lower.split(|c: char| !c.is_ascii_alphanumeric());
    parts.any(|part| {
        NAMES.iter().any(|known| match *known {
            // Within other words these mean something else.
            "key" | "pat" | "auth" | "session" => {
                part == *known || (part.ends_with(known) && *known == "key" && part.len() > 3)
            }
            known => part.contains(known),
        })
    }) || lower.contains("authorization")
}

fn looks_like_one(value: &str) -> bool {
    if BEGINNINGS.iter().any(|begin| value.starts_with(begin)) && value.len() >= 12 {
        return true;
    }
    let is_part = |c: char| c.is_ascii_alphanumeric() || "-_.+=".contains(c);
    let has = |test: fn(char) -> bool| value.chars().any(test);
    value.len() >= LONG
        && value.chars().all(is_part)
        && has(|c| c.is_ascii_digit())
        && has(|c| c.is_ascii_alphabetic())
        && !value.contains("..")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_secret(name: &str, value: &str) -> bool {
        matches!(find(name, value), ValueKind::Secret { .. })
    }

    #[test]
    fn a_variable_that_is_no_secret_stays_one() {
        for (name, value, expand) in [
            ("DIR", "${CACHE_DIR:-/tmp/c}", "${env:CACHE_DIR:-/tmp/c}"),
            ("TOKEN_FILE", "${workspaceFolder}/t", "${workspaceFolder}/t"),
            ("ANY", "a-${VAR}", "a-${env:VAR}"),
        ] {
            assert_eq!(
                find(name, value),
                ValueKind::Expand(expand.to_owned()),
                "{value}"
            );
        }
        let unknown = find("ANY", "${file}");
        assert!(matches!(unknown, ValueKind::Unknown(found) if found.unknown == ["${file}"]));
    }

    #[test]
    fn secrets_are_known_by_their_names_or_their_looks() {
        for (name, value) in [
            ("GITHUB_TOKEN", "x"),
            ("X-Api-Key", "x"),
            ("APIKEY", "x"),
            ("Authorization", "whatever"),
            ("ANY", "sk-abcdefghijkl"),
            ("ANY", "0123456789abcdef0123456789abcdef"),
            ("ANY", "Bearer x"),
            ("ANY", "${VAR}"),
            ("TOKEN", "a-${VAR}"),
            ("ANY", "a-${API_KEY}"),
            ("ANY", "${SECRET:-none}"),
            ("ANY", "${{ secrets.X }}"),
        ] {
            assert!(is_secret(name, value), "{name}={value}");
        }
        for (name, value) in [
            ("MODE", "small"),
            ("PATH", "/usr/local/lib/node_modules/x1/bin:/bin"),
            ("KEYBOARD", "de"),
            ("AUTHOR", "me"),
            ("TOKEN", ""),
            ("ANY", "@modelcontextprotocol/server-memory"),
            ("ANY", "https://example.org/a/b/c/d/e/f/g"),
        ] {
            assert!(!is_secret(name, value), "{name}={value}");
        }
    }

    #[test]
    fn an_address_may_hold_one() {
        assert!(is_in_address("https://u:p@x.example/mcp"));
        assert!(is_in_address("https://x.example/mcp?api_key=1"));
        assert!(is_in_address(
            "https://x.example/s/0123456789abcdef0123456789/mcp"
        ));
        assert!(!is_in_address("https://x.example/mcp?region=eu"));
    }

    #[test]
    fn names_of_secrets_can_be_set_in_a_shell() {
        assert_eq!(name("my server", "X-Api-Key"), "MCP_MY_SERVER_X_API_KEY");
        assert_eq!(name("s", "--key"), "MCP_S_KEY");
        assert_eq!(variable("$A"), Some("A".to_owned()));
        assert_eq!(variable("a$A"), None);
    }
}
