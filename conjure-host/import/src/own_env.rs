//! Variables that a server's own `env` defines, where its other settings name them.
//!
//! A program that is started has them in its environment and expands them itself, as `mcp-remote`
//! does with `Authorization:${AUTH_HEADER}`, so its arguments keep them. For a server over HTTP
//! nothing is started, so its address and headers get the values here.

use super::secret;
use super::secret_name::is_secret_name;
use super::secret_value::holds_secret;
use super::server::{ConfigText, ImportResult, ImportedServer};
use super::variables::{self, TextPiece};

/// The names of the variables that a server's `env` defines.
#[derive(Debug, Default)]
pub(crate) struct ServerEnv {
    names: Vec<String>,
}

impl ServerEnv {
    /// Adds a variable, unless its value names itself: that only hands on a variable that is defined
    /// outside.
    pub(crate) fn add(&mut self, name: &str, value: &str) {
        let found = variables::of(value);
        let is_inside = found.is_some_and(|found| found.names.iter().any(|own| own == name));
        if !is_inside && secret::variable(value).as_deref() != Some(name) {
            self.names.push(name.to_owned());
        }
    }

    /// Whether an argument is for the program to expand: it names variables of these, and has no
    /// secret around them. `option` is the option whose value it is.
    pub(crate) fn is_left_to_program(&self, option: Option<&str>, argument: &str) -> bool {
        if secret::variable(argument).is_some_and(|name| self.has(&name)) {
            return true;
        }
        let pieces = variables::pieces(argument);
        if !pieces.iter().any(|piece| self.is_own(piece)) {
            return false;
        }
        let judged = variables::with_placeholders(argument, &|name| self.has(name));
        let judged = match option {
            Some(option) => format!("{option}={judged}"),
            None => judged,
        };
        !holds_secret(&judged)
    }

    /// The variables of an argument that are none of these, as they are written.
    pub(crate) fn foreign_variables(&self, argument: &str) -> Vec<String> {
        let pieces = variables::pieces(argument);
        let others = pieces.iter().filter(|piece| !self.is_own(piece));
        let others = others.filter_map(|piece| match piece {
            TextPiece::Text(_) => None,
            TextPiece::Variable(inner) => Some(format!("`${{{inner}}}`")),
        });
        others.collect()
    }

    fn has(&self, name: &str) -> bool {
        self.names.iter().any(|own| own == name)
    }

    fn is_own(&self, piece: &TextPiece<'_>) -> bool {
        matches!(piece, TextPiece::Variable(inner) if self.has(variables::name_and_default(inner).0))
    }
}

impl ImportResult {
    /// A header of a server, with values of its `env` in place of their variables. One that ends
    /// with a secret of `env` names that same secret.
    pub(crate) fn header(
        &mut self,
        server: &ImportedServer,
        header: &str,
        value: &str,
    ) -> ConfigText {
        let what = format!("header {header}");
        match substitute(&server.env, value) {
            SubstitutedText::Unchanged => self.text(&server.name, &what, header, value),
            SubstitutedText::Substituted(text) => self.text(&server.name, &what, header, &text),
            SubstitutedText::Secret(ConfigText::Secret { prefix, .. })
                if is_half(header, &prefix) =>
            {
                self.composed_secret(&server.name, &what, header)
            }
            SubstitutedText::Secret(secret) => secret,
            SubstitutedText::Composed => self.composed_secret(&server.name, &what, header),
        }
    }

    /// The address of a server over HTTP, with values of its `env` in place of their variables.
    pub(crate) fn remote_address(&mut self, server: &ImportedServer, url: &str) -> ConfigText {
        match substitute(&server.env, url) {
            SubstitutedText::Unchanged => self.address(&server.name, url),
            SubstitutedText::Substituted(url) => self.address(&server.name, &url),
            SubstitutedText::Secret(secret) => secret,
            SubstitutedText::Composed => {
                self.composed_secret(&server.name, "the whole address", "URL")
            }
        }
    }

    /// A text with a secret of `env` inside: all of it is another secret, for a session file has
    /// only what stands before one.
    fn composed_secret(&mut self, server: &str, what: &str, label: &str) -> ConfigText {
        let told =
            format!("{what} is put together of a secret of its `env` and more: set all of it");
        self.note(server, &told);
        self.secret(server, what, label, String::new(), None)
    }
}

/// Whether what stands before a secret in a header is a part of it, and no scheme such as `Bearer `.
fn is_half(header: &str, prefix: &str) -> bool {
    is_secret_name(header) && !prefix.is_empty() && !prefix.ends_with(char::is_whitespace)
}

/// A text after values of `env` were put in place of their variables.
#[derive(Debug, PartialEq, Eq)]
enum SubstitutedText {
    /// The text names no variable of `env`.
    Unchanged,
    Substituted(String),
    /// The text ends with a secret of `env`, and has no other.
    Secret(ConfigText),
    /// The text has a secret of `env`, and more that is secret or follows it.
    Composed,
}

fn substitute(env: &[(String, ConfigText)], text: &str) -> SubstitutedText {
    let alone = secret::variable(text);
    let pieces = match alone.as_deref() {
        Some(name) => vec![TextPiece::Variable(name)],
        None => variables::pieces(text),
    };
    if !pieces.iter().any(|piece| value_of(env, piece).is_some()) {
        return SubstitutedText::Unchanged;
    }
    let mut out = String::new();
    let mut secret = None;
    for piece in &pieces {
        if secret.is_some() {
            return SubstitutedText::Composed;
        }
        match (value_of(env, piece), piece) {
            (Some(ConfigText::Plain(value) | ConfigText::Expand(value)), _) => out.push_str(value),
            (Some(ConfigText::Secret { name, prefix }), _) => {
                out.push_str(prefix);
                secret = Some(name.clone());
            }
            (None, TextPiece::Text(text)) => out.push_str(text),
            (None, TextPiece::Variable(inner)) => out.push_str(&format!("${{{inner}}}")),
        }
    }
    match secret {
        None => SubstitutedText::Substituted(out),
        Some(_) if holds_secret(&out) || variables::of(&out).is_some() => SubstitutedText::Composed,
        Some(name) => SubstitutedText::Secret(ConfigText::Secret { name, prefix: out }),
    }
}

/// The value of `env` that a piece of a text names.
fn value_of<'a>(env: &'a [(String, ConfigText)], piece: &TextPiece<'_>) -> Option<&'a ConfigText> {
    let TextPiece::Variable(inner) = piece else {
        return None;
    };
    let (name, _) = variables::name_and_default(inner);
    let found = env.iter().find(|(own, _)| own == name);
    found.map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn env(pairs: &[(&str, &str)]) -> ServerEnv {
        let mut env = ServerEnv::default();
        for (name, value) in pairs {
            env.add(name, value);
        }
        env
    }

    #[test]
    fn a_program_expands_what_its_own_env_defines() {
        let own = env(&[("A", "x"), ("KEY", "${KEY}"), ("B", "$B"), ("C", "${KEY}")]);
        for text in ["${A}", "$A", "H:${A}", "H: Bearer ${A}", "${C}/x"] {
            assert!(own.is_left_to_program(None, text), "{text}");
        }
        for text in [
            "A",
            "${KEY}",
            "$B",
            "${env:A}",
            "postgres://u:hunter2@${A}/db",
            "--password=x${A}",
        ] {
            assert!(!own.is_left_to_program(None, text), "{text}");
        }
        assert!(own.is_left_to_program(Some("--password"), "${A}"));
        assert!(!own.is_left_to_program(Some("--password"), "x${A}"));
        assert_eq!(own.foreign_variables("${A}/${file}"), ["`${file}`"]);
    }

    #[test]
    fn over_http_values_are_put_in() {
        let secret = |name: &str, prefix: &str| ConfigText::Secret {
            name: name.to_owned(),
            prefix: prefix.to_owned(),
        };
        let env = [
            ("HOST".to_owned(), ConfigText::Plain("h".to_owned())),
            ("T".to_owned(), secret("MCP_S_T", "")),
            ("AUTH".to_owned(), secret("MCP_S_AUTH", "Bearer ")),
        ];
        for (text, filled) in [
            ("plain", SubstitutedText::Unchanged),
            ("${OTHER}", SubstitutedText::Unchanged),
            ("$OTHER", SubstitutedText::Unchanged),
            ("a${HOST}b", SubstitutedText::Substituted("ahb".to_owned())),
            (
                "${HOST}${X}",
                SubstitutedText::Substituted("h${X}".to_owned()),
            ),
            (
                "${AUTH}",
                SubstitutedText::Secret(secret("MCP_S_AUTH", "Bearer ")),
            ),
            ("$T", SubstitutedText::Secret(secret("MCP_S_T", ""))),
            (
                "Bearer ${T}",
                SubstitutedText::Secret(secret("MCP_S_T", "Bearer ")),
            ),
            ("${T}/mcp", SubstitutedText::Composed),
            ("${X}${T}", SubstitutedText::Composed),
        ] {
            assert_eq!(substitute(&env, text), filled, "{text}");
        }
    }
}
