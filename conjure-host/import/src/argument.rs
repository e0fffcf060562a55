//! The arguments of a server's program: which of them are secrets, and what they are called after.

use super::own_env::ServerEnv;
use super::secret::{self, ValueKind};
use super::secret_value::{contains_secret_address, is_connection};
use super::server::{ConfigText, ImportResult};

/// An argument that names itself: `--option=value`, `NAME=value` or `Header: value`.
struct NamedArgument<'a> {
    name: &'a str,
    value: &'a str,
    /// Text before the value, with its white space.
    prefix: &'a str,
}

impl ImportResult {
    /// The arguments of a program. It expands the variables of `own` by itself.
    pub(crate) fn arguments<'a>(
        &mut self,
        server: &str,
        own: &ServerEnv,
        args: impl IntoIterator<Item = &'a str>,
    ) -> Vec<ConfigText> {
        let mut texts = Vec::new();
        let mut before = None;
        for arg in args {
            texts.push(self.argument(server, own, before, arg));
            before = Some(arg);
        }
        texts
    }

    /// An argument of a program; `before` is the one before it.
    pub(crate) fn argument(
        &mut self,
        server: &str,
        own: &ServerEnv,
        before: Option<&str>,
        value: &str,
    ) -> ConfigText {
        let is_option = |word: &&str| word.starts_with('-') && !word.contains(['=', ':']);
        let option = before.filter(is_option).filter(|_| !value.starts_with('-'));
        if own.is_left_to_program(option, value) {
            self.note_unexpanded(server, &own.foreign_variables(value));
            return ConfigText::Plain(value.to_owned());
        }
        if value.contains("://") && (value.contains("${") || contains_secret_address(value)) {
            return self.address(server, value);
        }
        if let Some(named) = parse_named(value) {
            return self.named_argument(server, &named, value);
        }
        match option {
            Some(option) => self.text(server, &format!("the value of `{option}`"), option, value),
            None => self.text(server, "an argument", "ARG", value),
        }
    }

    fn named_argument(
        &mut self,
        server: &str,
        named: &NamedArgument<'_>,
        whole: &str,
    ) -> ConfigText {
        let NamedArgument {
            name,
            value,
            prefix: beginning,
        } = named;
        let what = format!("the value of `{name}`");
        match secret::classify(name, value) {
            ValueKind::Plain => ConfigText::Plain(whole.to_owned()),
            ValueKind::Expand(text) => ConfigText::Expand(format!("{beginning}{text}")),
            ValueKind::Unknown(found) => {
                self.note_unknown_variables(server, &what, &found);
                ConfigText::Plain(whole.to_owned())
            }
            ValueKind::Secret { prefix, from, .. } => {
                self.secret(server, &what, name, format!("{beginning}{prefix}"), from)
            }
        }
    }

    /// Tells of variables that nobody expands, for they stand beside some that the program expands.
    fn note_unexpanded(&mut self, server: &str, others: &[String]) {
        if others.is_empty() {
            return;
        }
        let text = format!(
            "an argument has {} beside variables of its `env`, which the program expands itself; \
             it is written down as it is, so put a value in its place",
            others.join(", "),
        );
        self.note(server, &text);
    }
}

fn parse_named(text: &str) -> Option<NamedArgument<'_>> {
    if is_connection(text) {
        return None;
    }
    ['=', ':'].into_iter().find_map(|sign| {
        let (name, value) = text.split_once(sign)?;
        let is_part = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        let is_name = !name.is_empty() && name.chars().all(is_part);
        let is_value = match sign {
            // `package==1.0` has a version.
            '=' => !value.starts_with('='),
            // `jdbc:` and `https:` are parts of what follows.
            _ => !value.contains("://"),
        };
        let is_named = is_name && is_value && !value.starts_with("//");
        let value = value.trim_start();
        let beginning = text.strip_suffix(value).filter(|_| is_named)?;
        Some(NamedArgument {
            name,
            value,
            prefix: beginning,
        })
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::read;

    #[test]
    fn an_argument_keeps_the_white_space_around_its_name() {
        let text = r#"{ "mcpServers": { "s": { "command": "docker", "args": [
            "-v", "cache:${workspaceFolder}/w", "C:\\x\\${userHome}", "root: ${workspaceFolder}",
            "name= ${userHome}", "Authorization:  Bearer tok_9876543210abcdef", "--key= s3cr3t-s3cr3t-1"
        ] } } }"#;
        let expected = json!([
            "-v",
            { "expand": "cache:${workspaceFolder}/w" },
            { "expand": "C:\\x\\${userHome}" },
            { "expand": "root: ${workspaceFolder}" },
            { "expand": "name= ${userHome}" },
            { "secret": "MCP_S_AUTHORIZATION", "prefix": "Authorization:  Bearer " },
            { "secret": "MCP_S_KEY", "prefix": "--key= " },
        ]);
        assert_eq!(
            read(text).unwrap().settings().unwrap()["s"]["args"],
            expected
        );
    }
}
