//! What in a configuration is a secret: by the name that it has, by what it holds, or because it
//! stands for a variable.
//!
//! A value that is taken for one by mistake costs a line to set; one that is missed is written
//! down. So this errs on the careful side.

use super::secret_name::is_secret_name;
use super::secret_value::{holds_secret, is_only_plain_word, split_scheme};
use super::variables::{self, TextPiece, Variables};

/// Classification of a value.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ValueKind {
    Plain,
    /// A text with variables that are no secrets, as a session file writes it.
    Expand(String),
    /// A text with variables that mean nothing here.
    Unknown(Variables),
    Secret {
        prefix: String,
        /// The variable that holds it.
        from: Option<String>,
        note: Option<String>,
    },
}

/// Classifies a value by its name and content.
pub(crate) fn classify(name: &str, value: &str) -> ValueKind {
    let (prefix, rest) = split_scheme(value);
    if let Some(text) = rest
        .strip_prefix("${input:")
        .and_then(|rest| rest.strip_suffix('}'))
        .filter(|text| !text.contains('}'))
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
        return classify_variables(name, rest, prefix, found);
    }
    if let Some(from) = variable(rest) {
        return ValueKind::Secret {
            prefix,
            from: Some(from),
            note: None,
        };
    }
    let is_named = is_secret_name(name) && !is_only_plain_word(rest);
    if !rest.is_empty() && (is_named || !prefix.is_empty() || holds_secret(rest)) {
        return ValueKind::Secret {
            prefix,
            from: None,
            note: None,
        };
    }
    ValueKind::Plain
}

/// What a text with variables is: a secret by its name or theirs or by what stands around them, or
/// variables as they are.
fn classify_variables(name: &str, text: &str, prefix: String, found: Variables) -> ValueKind {
    let is_named = is_secret_name(name) || !prefix.is_empty();
    // What stands beside the variables is a part of it.
    let is_part = is_named && !found.is_whole && !is_path(text);
    let holds = is_part || holds_secret(&variables::with_placeholders(text, &|_| false));
    if found.is_untranslatable() && !holds {
        return ValueKind::Unknown(found);
    }
    let is_of_secret = is_named || found.names.iter().any(|name| is_secret_name(name));
    let is_secret = holds || (!found.names.is_empty() && is_of_secret);
    // A variable alone may hold anything.
    let may_be = found.is_whole && !found.has_default && !found.names.is_empty();
    if !is_secret && !may_be {
        return ValueKind::Expand(format!("{prefix}{}", found.expand));
    }
    if !found.is_whole {
        return ValueKind::Secret {
            prefix: String::new(),
            from: None,
            // The text itself may hold a secret, and is not repeated.
            note: Some("it is put together of variables; set the whole of it".to_owned()),
        };
    }
    let note = "where the variable is not set the other program has a default for it";
    ValueKind::Secret {
        prefix,
        from: found.names.into_iter().next(),
        note: found.has_default.then(|| note.to_owned()),
    }
}

/// Whether a text is a path below a directory that a variable names.
fn is_path(text: &str) -> bool {
    let pieces = variables::pieces(text);
    matches!(pieces.as_slice(), [TextPiece::Variable(_), TextPiece::Text(rest), ..]
        if rest.starts_with('/'))
}

/// The name of a secret.
pub(crate) fn name(server: &str, label: &str) -> String {
    format!(
        "MCP_{}_{}",
        to_variable_name(server),
        to_variable_name(label)
    )
}

/// A text as names of variables have it.
pub(crate) fn to_variable_name(text: &str) -> String {
    let part = |c: char| match c.is_ascii_alphanumeric() {
        true => c.to_ascii_uppercase(),
        false => '_',
    };
    let text: String = text.chars().map(part).collect();
    text.trim_matches('_').to_owned()
}

/// The variable that a value stands for without braces: `$NAME`.
pub(crate) fn variable(value: &str) -> Option<String> {
    let inner = value.strip_prefix('$')?;
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    (!inner.is_empty() && inner.chars().all(is_name)).then(|| inner.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_secret(name: &str, value: &str) -> bool {
        matches!(classify(name, value), ValueKind::Secret { .. })
    }

    #[test]
    fn a_variable_that_is_no_secret_stays_one() {
        for (name, value, expand) in [
            ("DIR", "${CACHE_DIR:-/tmp/c}", "${env:CACHE_DIR:-/tmp/c}"),
            ("TOKEN_FILE", "${workspaceFolder}/t", "${workspaceFolder}/t"),
            ("ANY", "a-${VAR}", "a-${env:VAR}"),
        ] {
            assert_eq!(
                classify(name, value),
                ValueKind::Expand(expand.to_owned()),
                "{value}"
            );
        }
        let unknown = classify("ANY", "${file}");
        assert!(matches!(unknown, ValueKind::Unknown(found) if found.unknown == ["${file}"]));
    }

    #[test]
    fn secrets_are_known_by_their_names_or_their_looks() {
        for (name, value) in [
            ("GITHUB_TOKEN", "x"),
            ("DB_PASS", "None shall pass"),
            ("TOKEN", "true;x9!Kd"),
            ("PASSWORD", "null&abc"),
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
            ("DB_PASS", "x"),
            ("DATABASE_URL", "postgresql://u:hunter2@h/db"),
            ("HEADERS", "{\"Authorization\": \"Bearer x\"}"),
        ] {
            assert!(is_secret(name, value), "{name}={value}");
        }
        for (name, value) in [
            ("MODE", "small"),
            ("PATH", "/usr/local/lib/node_modules/x1/bin:/bin"),
            ("KEYBOARD", "de"),
            ("AUTHOR", "me"),
            ("TOKEN", ""),
            ("PWD", "/srv"),
            ("ANY", "@modelcontextprotocol/server-memory"),
            ("ANY", "https://example.org/a/b/c/d/e/f/g"),
        ] {
            assert!(!is_secret(name, value), "{name}={value}");
        }
    }

    #[test]
    fn what_stands_around_variables_is_judged_too() {
        for (name, value) in [
            ("ANY", "postgres://u:hunter2@${HOST}/db"),
            ("ANY", "postgres://u:hunter2@${input:host}/db"),
            ("ANY", "${URL:-postgres://u:hunter2@h/db}"),
            ("ANY", "https://x.example/mcp?token=${T}"),
            ("ANY", "Server=${HOST};Password=hunter2"),
            ("ANY", "Bearer hunter2${file}"),
            ("ANY", "Bearer ${vault:x}hunter2"),
            ("DB_PASS", "hunter2${input:rest}"),
            ("DB_PASS", "${workspaceFolderBasename}hunter2"),
        ] {
            assert!(is_secret(name, value), "{name}={value}");
        }
        for value in ["${workspaceFolder}/private.pem", "${userHome}/.ssh/id"] {
            let kind = classify("KEY_FILE", value);
            assert_eq!(kind, ValueKind::Expand(value.to_owned()));
        }
        let address = classify("ANY", "https://${HOST}:${PORT:-80}/mcp");
        let expand = "https://${env:HOST}:${env:PORT:-80}/mcp";
        assert_eq!(address, ValueKind::Expand(expand.to_owned()));
    }

    #[test]
    fn a_note_does_not_repeat_what_is_secret() {
        let ValueKind::Secret { note, .. } = classify("ANY", "postgres://u:hunter2@${HOST}/db")
        else {
            panic!("it is no secret");
        };
        let note = note.unwrap();
        assert!(!note.contains("hunter2"), "{note}");
    }

    #[test]
    fn names_of_secrets_can_be_set_in_a_shell() {
        assert_eq!(name("my server", "X-Api-Key"), "MCP_MY_SERVER_X_API_KEY");
        assert_eq!(name("s", "--key"), "MCP_S_KEY");
        assert_eq!(variable("$A"), Some("A".to_owned()));
        assert_eq!(variable("a$A"), None);
    }
}
