//! What a person can configure, and what stands without it.
//!
//! Nothing of it can become an option of `ssh` or a word of the remote shell: names are checked
//! against what such a name can be, and paths that a shell sees hold nothing that it understands.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use conjure_exec_agent::executor::check_env;
use conjure_skill_sdk::{Error, Result, Setup};
use serde::Deserialize;
use serde_json::{Value, json};

/// The settings of one backend instance.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct SshSettings {
    /// An alias of ssh's configuration, a name or an address; `user@` may stand before it.
    pub(crate) host: String,
    pub(crate) port: Option<u16>,
    pub(crate) user: Option<String>,
    pub(crate) identity_file: Option<PathBuf>,
    pub(crate) config_file: Option<PathBuf>,
    pub(crate) known_hosts: Option<PathBuf>,
    pub(crate) strict_host_key_checking: Option<HostKeys>,
    pub(crate) connect_timeout_ms: u64,
    /// How often the other side is asked whether it is there, when nothing else comes.
    pub(crate) alive_ms: u64,
    /// How long a connection that is lost is tried again.
    pub(crate) reconnect_ms: u64,
    /// On the remote machine; nothing: a directory of the session's own.
    pub(crate) working_dir: Option<String>,
    /// On the remote machine, where sessions have directories of their own.
    pub(crate) scratch_dir: String,
    /// On the remote machine, where the agent is; relative to the home directory.
    pub(crate) agent_dir: String,
    pub(crate) shell: String,
    pub(crate) timeout_ms: u64,
    pub(crate) env: BTreeMap<String, String>,
    /// A program to use in place of the one that the plugin brings along.
    pub(crate) agent: Option<PathBuf>,
}

/// What is done about the key of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum HostKeys {
    /// The machine's key must be known.
    Yes,
    /// One that is new is taken, one that changed is not.
    AcceptNew,
    /// Any key is taken.
    No,
}

impl HostKeys {
    /// The value of ssh's option.
    pub(crate) fn ssh_value(self) -> &'static str {
        match self {
            Self::Yes => "yes",
            Self::AcceptNew => "accept-new",
            Self::No => "no",
        }
    }
}

impl Default for SshSettings {
    fn default() -> Self {
        Self {
            host: String::new(),
            port: None,
            user: None,
            identity_file: None,
            config_file: None,
            known_hosts: None,
            strict_host_key_checking: None,
            connect_timeout_ms: 10_000,
            alive_ms: 5_000,
            reconnect_ms: 600_000,
            working_dir: None,
            scratch_dir: "/tmp".to_owned(),
            agent_dir: ".cache/conjure".to_owned(),
            shell: "/bin/sh".to_owned(),
            timeout_ms: 30_000,
            env: BTreeMap::new(),
            agent: None,
        }
    }
}

/// JSON Schema of the configuration.
pub(crate) fn schema() -> Value {
    let text = |description: &str| json!({ "type": "string", "description": description });
    let number =
        |description: &str| json!({ "type": "integer", "minimum": 1, "description": description });
    json!({
        "type": "object",
        "properties": {
            "host": text("The remote machine: an alias of ssh's configuration, a name or an \
                          address; user@ may stand before it"),
            "port": {
                "type": "integer",
                "minimum": 1,
                "maximum": 65535,
                "description": "Its port. Default: as ssh has it"
            },
            "user": text("The user there. Default: as ssh has it"),
            "identity_file": text("A private key on this machine, absolute or below ~/. Default: \
                                   as ssh has it, with the keys of its agent"),
            "config_file": text("A configuration of ssh's in place of ~/.ssh/config and the \
                                 system's, absolute or below ~/"),
            "known_hosts": text("The file with the keys of hosts, absolute or below ~/. Default: \
                                 as ssh has it"),
            "strict_host_key_checking": {
                "enum": ["yes", "accept-new", "no"],
                "description": "Whether the key of a host that is not known is taken. Default: as \
                                ssh has it; nobody is asked, so it must be known"
            },
            "connect_timeout_ms": number("How long connecting may take, in milliseconds. \
                                          Default: 10000"),
            "alive_ms": number("How often the remote machine is asked whether it is there when \
                                nothing else comes, in milliseconds, rounded up to seconds; a \
                                connection is lost when three are not answered. Default: 5000"),
            "reconnect_ms": number("How long a lost connection is tried again, in milliseconds; \
                                    then calls fail, and what runs there ends. Default: 600000"),
            "working_dir": text("The directory there to work in, absolute; it must exist, and \
                                 stays. Default: one of the session's own, which is removed with \
                                 the session"),
            "scratch_dir": text("The directory there in which sessions have a directory of their \
                                 own, absolute. Default: /tmp"),
            "agent_dir": text("The directory there that the agent is copied to, which must allow \
                               programs; relative to the home directory. Default: .cache/conjure"),
            "shell": text("Absolute path of the shell there. Default: /bin/sh"),
            "timeout_ms": number("How long a command may take when the host sets no deadline, in \
                                  milliseconds. Default: 30000"),
            "env": {
                "type": "object",
                "additionalProperties": { "type": "string" },
                "description": "Environment variables of commands, besides those of a login \
                                there; nothing of the host's is passed on"
            },
            "agent": text("A Linux program to use in place of the agent that this plugin brings, \
                           such as one for another processor")
        },
        "required": ["host"],
        "additionalProperties": false
    })
}

impl SshSettings {
    /// Reads the configuration.
    pub(crate) fn from_setup(setup: &Setup) -> Result<Self> {
        let mut settings: Self = setup.config()?;
        settings.check()?;
        for path in [
            &mut settings.identity_file,
            &mut settings.config_file,
            &mut settings.known_hosts,
        ] {
            *path = path.take().map(|path| below_home(&path)).transpose()?;
        }
        Ok(settings)
    }

    fn check(&self) -> Result<()> {
        if self.host.is_empty() {
            return Err(Error::invalid(
                "`host` is missing: name the remote machine in the configuration of this backend, \
                 as `ssh` would be told",
            ));
        }
        let (user, host) = match self.host.rsplit_once('@') {
            Some((user, host)) => (Some(user), host),
            None => (None, self.host.as_str()),
        };
        check_name("host", host, &['.', '_', '-', ':', '%'])?;
        for user in user.into_iter().chain(self.user.as_deref()) {
            check_name("user", user, &['.', '_', '-', '+', '@'])?;
        }
        let positive = [
            ("port", self.port != Some(0)),
            ("connect_timeout_ms", self.connect_timeout_ms > 0),
            ("alive_ms", self.alive_ms > 0),
            ("reconnect_ms", self.reconnect_ms > 0),
            ("timeout_ms", self.timeout_ms > 0),
        ];
        if let Some((name, _)) = positive.iter().find(|(_, fine)| !fine) {
            return Err(Error::invalid(format!("`{name}` must be more than 0")));
        }
        self.check_paths()?;
        check_env(&self.env)
    }

    fn check_paths(&self) -> Result<()> {
        let paths = [
            ("identity_file", &self.identity_file),
            ("config_file", &self.config_file),
            ("known_hosts", &self.known_hosts),
        ];
        for (name, path) in paths {
            path.as_deref()
                .map_or(Ok(()), |path| check_local(name, path))?;
        }
        let absolute = [
            ("working_dir", self.working_dir.as_deref()),
            ("scratch_dir", Some(self.scratch_dir.as_str())),
            ("shell", Some(self.shell.as_str())),
        ];
        for (name, path) in absolute {
            if let Some(path) = path.filter(|path| !path.starts_with('/') || path.contains('\0')) {
                return Err(Error::invalid(format!(
                    "`{name}` is `{}`; it must be an absolute path of the remote machine",
                    path.escape_debug()
                )));
            }
        }
        // These two the remote shell sees.
        for (name, path) in [
            ("scratch_dir", &self.scratch_dir),
            ("agent_dir", &self.agent_dir),
        ] {
            let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+@:,=".contains(c);
            if path.is_empty() || path.starts_with('-') || !path.chars().all(plain) {
                return Err(Error::invalid(format!(
                    "`{name}` is `{}`; it may have letters, digits and / . _ - + @ : , = only",
                    path.escape_debug()
                )));
            }
        }
        Ok(())
    }

    /// How long a command may take when nobody says.
    pub(crate) fn timeout(&self) -> Duration {
        Duration::from_millis(self.timeout_ms)
    }

    /// Time limit for connecting.
    pub(crate) fn connect_timeout(&self) -> Duration {
        Duration::from_millis(self.connect_timeout_ms)
    }

    /// How long the remote machine waits for somebody to come back. It may have heard that a
    /// connection is lost before this side finds out.
    pub(crate) fn waits_seconds(&self) -> u64 {
        self.reconnect_ms.div_ceil(1_000) + 4 * self.alive_ms.div_ceil(1_000)
    }

    /// How long a lost connection is tried again.
    pub(crate) fn reconnect(&self) -> Duration {
        Duration::from_millis(self.reconnect_ms)
    }
}

/// A name that `ssh` hands on to others, also to shells, where a configuration says so.
fn check_name(setting: &str, name: &str, more: &[char]) -> Result<()> {
    let plain = |c: char| c.is_ascii_alphanumeric() || more.contains(&c);
    let inner = name
        .strip_prefix('[')
        .and_then(|name| name.strip_suffix(']'));
    let inner = inner.filter(|_| setting == "host").unwrap_or(name);
    if inner.is_empty() || name.starts_with('-') || !inner.chars().all(plain) {
        return Err(Error::invalid(format!(
            "`{setting}` is `{}`, which is no name of a {setting}; options of ssh belong into its \
             configuration (`config_file`)",
            name.escape_debug()
        )));
    }
    Ok(())
}

/// A path on this machine that `ssh` is told.
fn check_local(setting: &str, path: &Path) -> Result<()> {
    let text = path.to_string_lossy();
    let rooted = text.starts_with('/') || text.starts_with("~/");
    let odd = |c: char| c.is_control() || c == '"' || c == '\\';
    if !rooted || text.chars().any(odd) || text.contains("${") {
        return Err(Error::invalid(format!(
            "`{setting}` is `{}`; it must be a path of this machine, absolute or below ~/, without \
             quotes, backslashes and ${{",
            text.escape_debug()
        )));
    }
    Ok(())
}

fn below_home(path: &Path) -> Result<PathBuf> {
    let Ok(below) = path.strip_prefix("~") else {
        return Ok(path.to_owned());
    };
    let home = std::env::home_dir().ok_or_else(|| {
        Error::invalid(format!(
            "{} is below a home directory, and this user has none: name an absolute path",
            path.display()
        ))
    })?;
    Ok(home.join(below))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(value: Value) -> Result<SshSettings> {
        let settings: SshSettings = serde_json::from_value(value)?;
        settings.check().map(|()| settings)
    }

    #[test]
    fn what_is_not_configured_has_its_default() {
        let settings = read(json!({ "host": "me@build-1.example.org", "port": 2222 })).unwrap();
        assert_eq!(
            (settings.scratch_dir.as_str(), settings.reconnect_ms),
            ("/tmp", 600_000)
        );
        for host in ["build", "10.0.0.7", "::1", "[fe80::1%eth0]", "a_b", "me@b"] {
            read(json!({ "host": host })).unwrap();
        }
        for user in ["me", "me+x", "me@example.org", "a.b-c_d"] {
            read(json!({ "host": "build", "user": user })).unwrap();
        }
    }

    #[test]
    fn what_does_not_fit_is_refused_by_name() {
        for (config, name) in [
            (json!({}), "host"),
            (json!({ "host": "b", "port": 0 }), "port"),
            (json!({ "host": "b", "reconnect_ms": 0 }), "reconnect_ms"),
            (json!({ "host": "b", "working_dir": "work" }), "working_dir"),
            (json!({ "host": "b", "shell": "sh" }), "shell"),
            (
                json!({ "host": "b", "strict_host_key_checking": "ask" }),
                "ask",
            ),
            (json!({ "host": "b", "hsot": "x" }), "hsot"),
        ] {
            let error = read(config).unwrap_err();
            assert!(error.message().contains(name), "{error}");
        }
    }

    #[test]
    fn no_value_becomes_an_option_or_a_word_of_a_shell() {
        for host in [
            "-oProxyCommand=touch x",
            "-v",
            "me@-oProxyCommand=x",
            "-l@b",
            "a b",
            "a;b",
            "$(x)",
            "`x`",
            "a\nb",
            "a'b",
            "",
            "me@",
            "ssh://b",
            "a/b",
        ] {
            let error = read(json!({ "host": host })).unwrap_err();
            assert!(error.message().contains("host") || error.message().contains("user"));
        }
        for user in ["-oX=y", "a b", "$(x)", "a;b", "a'b", "", "a\"b"] {
            read(json!({ "host": "b", "user": user })).unwrap_err();
        }
        for (name, value) in [
            ("identity_file", "-oProxyCommand=x"),
            ("identity_file", "key"),
            ("known_hosts", "/x\" \"/y"),
            ("known_hosts", "/${HOME}/x"),
            ("config_file", "none"),
            ("config_file", "/a\nProxyCommand x"),
            ("scratch_dir", "/tmp; x"),
            ("scratch_dir", "/tmp/$(x)"),
            ("scratch_dir", "/tmp/a b"),
            ("agent_dir", "-p"),
            ("agent_dir", "a'b"),
            ("agent_dir", ""),
        ] {
            let error = read(json!({ "host": "b", name: value })).unwrap_err();
            assert!(error.message().contains(name), "{error}");
        }
        let error = read(json!({ "host": "b", "env": { "A B": "x" } })).unwrap_err();
        assert!(error.message().contains("env"));
    }
}
