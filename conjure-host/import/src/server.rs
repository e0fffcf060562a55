//! What an import finds: servers as a session file has them, secrets by name, and what is to be
//! told.

use super::secret::{self, ValueKind};
use super::secret_name::is_secret_name;
use super::secret_value::is_secret_address;
use super::variables::{self, Variables};

/// A value as it is written down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ConfigText {
    Plain(String),
    /// With variables, which have their values when a session opens.
    Expand(String),
    Secret {
        name: String,
        prefix: String,
    },
}

/// A server.
#[derive(Debug, Default)]
pub(crate) struct ImportedServer {
    pub(crate) name: String,
    pub(crate) command: Option<ConfigText>,
    pub(crate) args: Vec<ConfigText>,
    pub(crate) cwd: Option<ConfigText>,
    pub(crate) url: Option<ConfigText>,
    pub(crate) env: Vec<(String, ConfigText)>,
    pub(crate) pass_env: Vec<String>,
    pub(crate) headers: Vec<(String, ConfigText)>,
    pub(crate) oauth: Vec<(&'static str, toml::Value)>,
    pub(crate) oauth_secret: Option<ConfigText>,
    /// Settings that are written as they are.
    pub(crate) settings: Vec<(&'static str, toml::Value)>,
}

/// A secret that somebody must set.
#[derive(Debug, PartialEq, Eq)]
pub struct RequiredSecret {
    /// Name of the secret, as the settings have it.
    pub name: String,
    /// Where the secret was found.
    pub location: String,
    /// The variable that holds it already, if the source says so.
    pub from: Option<String>,
}

/// Everything that was found in a configuration.
#[derive(Debug, Default)]
pub struct ImportResult {
    pub(crate) servers: Vec<ImportedServer>,
    /// Secrets that somebody must set.
    pub secrets: Vec<RequiredSecret>,
    /// Notes about what was not understood or left out.
    pub notes: Vec<String>,
}

impl ImportResult {
    /// Tells something.
    pub(crate) fn note(&mut self, server: &str, text: &str) {
        self.notes.push(format!("`{server}`: {text}"));
    }

    /// A value of a server, as it may be written down. `label` is what a secret is called after.
    pub(crate) fn text(
        &mut self,
        server: &str,
        what: &str,
        label: &str,
        value: &str,
    ) -> ConfigText {
        match secret::classify(label, value) {
            ValueKind::Plain => ConfigText::Plain(value.to_owned()),
            ValueKind::Expand(text) => ConfigText::Expand(text),
            ValueKind::Unknown(found) => {
                self.note_unknown_variables(server, what, &found);
                ConfigText::Plain(value.to_owned())
            }
            ValueKind::Secret { prefix, from, note } => {
                if let Some(note) = note {
                    self.note(server, &format!("{what}: {note}"));
                }
                self.secret(server, what, label, prefix, from)
            }
        }
    }

    /// A value that is a secret whatever it looks like.
    pub(crate) fn secret(
        &mut self,
        server: &str,
        what: &str,
        label: &str,
        prefix: String,
        from: Option<String>,
    ) -> ConfigText {
        let first = secret::name(server, label);
        // Two values are two secrets, also under one label.
        let taken = |name: &str| self.secrets.iter().any(|secret| secret.name == name);
        let name = (2..)
            .map(|number| format!("{first}_{number}"))
            .take(self.secrets.len() + 1)
            .fold(
                first.clone(),
                |name, next| if taken(&name) { next } else { name },
            );
        self.secrets.push(RequiredSecret {
            name: name.clone(),
            location: format!("{what} of `{server}`"),
            from,
        });
        ConfigText::Secret { name, prefix }
    }

    /// Variables that mean nothing here, or are none, so that all of a text's stay as they are.
    pub(crate) fn note_unknown_variables(&mut self, server: &str, what: &str, found: &Variables) {
        let listed = |names: &[String]| {
            let names = names.iter().map(|name| format!("`{name}`"));
            names.collect::<Vec<_>>().join(", ")
        };
        let beside = match found.known.as_slice() {
            [] => String::new(),
            known => format!(", {} beside it too", listed(known)),
        };
        let mut odd = Vec::new();
        if !found.unknown.is_empty() {
            let unknown = listed(&found.unknown);
            odd.push(format!("{unknown}, which only the other program knows"));
        }
        if found.is_open {
            odd.push("a `${` that no brace closes".to_owned());
        }
        let text = format!(
            "{what} has {}; it is written down as it is{beside}, so put a value in its place",
            odd.join(", and "),
        );
        self.note(server, &text);
    }

    /// The program of a server, or a directory: no secret, and maybe with variables.
    pub(crate) fn path(&mut self, server: &str, what: &str, value: &str) -> ConfigText {
        match variables::of(value) {
            Some(found) if !found.is_untranslatable() => ConfigText::Expand(found.expand),
            Some(found) => {
                self.note_unknown_variables(server, what, &found);
                ConfigText::Plain(value.to_owned())
            }
            None => ConfigText::Plain(value.to_owned()),
        }
    }

    /// The program of a server.
    pub(crate) fn program(&mut self, server: &str, value: &str) -> ConfigText {
        self.path(server, "its command", value)
    }

    /// The address of a server: all of it is the secret when it has one in it.
    pub(crate) fn address(&mut self, server: &str, url: &str) -> ConfigText {
        let is_secret = match variables::of(url) {
            Some(found) => {
                let around = variables::with_placeholders(url, &|_| false);
                found.names.iter().any(|name| is_secret_name(name)) || is_secret_address(&around)
            }
            None => is_secret_address(url),
        };
        if is_secret {
            let what = "the whole address, which has a secret in it,";
            return self.secret(server, what, "URL", String::new(), None);
        }
        self.path(server, "its address", url)
    }

    /// The servers as tables of the last backend.
    pub fn to_toml(&self) -> String {
        let tables: Vec<String> = self.servers.iter().map(ImportedServer::to_toml).collect();
        tables.join("\n")
    }
}

impl ImportedServer {
    fn to_toml(&self) -> String {
        let mut out = format!("[backend.config.servers.{}]\n", key(&self.name));
        let mut line = |name: &str, value: String| {
            out.push_str(&format!("{name} = {value}\n"));
        };
        if let Some(command) = &self.command {
            line("command", command.to_toml());
        }
        if !self.args.is_empty() {
            line("args", list(self.args.iter().map(ConfigText::to_toml)));
        }
        if let Some(cwd) = &self.cwd {
            line("cwd", cwd.to_toml());
        }
        if let Some(url) = &self.url {
            line("url", url.to_toml());
        }
        if !self.headers.is_empty() {
            line(
                "headers",
                table(self.headers.iter().map(|(k, v)| (k.as_str(), v.to_toml()))),
            );
        }
        if !self.env.is_empty() {
            line(
                "env",
                table(self.env.iter().map(|(k, v)| (k.as_str(), v.to_toml()))),
            );
        }
        if !self.pass_env.is_empty() {
            line(
                "pass_env",
                list(self.pass_env.iter().map(|name| quote(name))),
            );
        }
        let own = self.oauth.iter().map(|(k, v)| (*k, v.to_string()));
        let secret = self
            .oauth_secret
            .iter()
            .map(|text| ("client_secret", text.to_toml()));
        let oauth: Vec<_> = own.chain(secret).collect();
        if !oauth.is_empty() {
            line("oauth", table(oauth.into_iter()));
        }
        for (name, value) in &self.settings {
            line(name, value.to_string());
        }
        out
    }
}

impl ConfigText {
    fn to_toml(&self) -> String {
        match self {
            Self::Plain(text) => quote(text),
            Self::Expand(text) => format!("{{ expand = {} }}", quote(text)),
            Self::Secret { name, prefix } if prefix.is_empty() => {
                format!("{{ secret = {} }}", quote(name))
            }
            Self::Secret { name, prefix } => {
                format!("{{ secret = {}, prefix = {} }}", quote(name), quote(prefix))
            }
        }
    }
}

fn list(values: impl Iterator<Item = String>) -> String {
    format!("[{}]", values.collect::<Vec<_>>().join(", "))
}

fn table<'a>(fields: impl Iterator<Item = (&'a str, String)>) -> String {
    let fields = fields.map(|(name, value)| format!("{} = {value}", key(name)));
    format!("{{ {} }}", fields.collect::<Vec<_>>().join(", "))
}

fn quote(text: &str) -> String {
    toml::Value::from(text).to_string()
}

fn key(name: &str) -> String {
    let is_bare = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if !name.is_empty() && name.chars().all(is_bare) {
        name.to_owned()
    } else {
        quote(name)
    }
}
