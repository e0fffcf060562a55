//! What a person can configure, and what every command starts from.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::time::Duration;

use conjure_skill_sdk::{Error, Result, Setup};
use serde::Deserialize;
use serde_json::{Value, json};

/// Variables of the host's that commands see, besides everything that begins with `LC_`.
const PASSED_VARIABLES: &[&str] = &[
    "PATH", "HOME", "LOGNAME", "USER", "SHELL", "LANG", "TERM", "TMPDIR", "TZ",
];

/// The search path of commands when the host has none.
const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// The settings of one backend instance.
#[derive(Debug)]
pub(crate) struct LocalSettings {
    /// The shell that commands run in.
    pub(crate) shell: PathBuf,
    /// How long a command may take when the host sets no deadline.
    pub(crate) timeout: Duration,
    /// The environment that every command begins with.
    pub(crate) env: Vec<(OsString, OsString)>,
    /// Names of more variables of the host's that commands see.
    pub(crate) pass_env: Vec<String>,
    /// Whether commands are kept from other processes and from the host's own files.
    pub(crate) confine: bool,
    /// More files and directories that they are kept from.
    pub(crate) hidden_paths: Vec<PathBuf>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LocalConfig {
    #[serde(default = "default_shell")]
    shell: PathBuf,
    #[serde(default = "default_timeout_ms")]
    timeout_ms: u64,
    #[serde(default)]
    pass_env: Vec<String>,
    #[serde(default = "default_confine")]
    confine: bool,
    #[serde(default)]
    hide: Vec<PathBuf>,
}

fn default_shell() -> PathBuf {
    PathBuf::from("/bin/sh")
}

fn default_timeout_ms() -> u64 {
    30_000
}

fn default_confine() -> bool {
    true
}

/// JSON Schema of the configuration.
pub(crate) fn schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "shell": {
                "type": "string",
                "description": "Absolute path of the shell that runs commands. Default: /bin/sh"
            },
            "timeout_ms": {
                "type": "integer",
                "minimum": 1,
                "description": "How long a command may take when the host sets no deadline, in \
                                milliseconds. Default: 30000"
            },
            "pass_env": {
                "type": "array",
                "items": { "type": "string" },
                "description": "Names of more environment variables of the host's that commands \
                                see, besides PATH, HOME, LOGNAME, USER, SHELL, LANG, LC_*, TERM, \
                                TMPDIR and TZ"
            },
            "confine": {
                "type": "boolean",
                "description": "Whether commands are kept from the host's own files and from \
                                looking into or signalling processes that they did not start. A \
                                confined command gains no privileges, such as by sudo; as root it \
                                mounts nothing. Linux only. Default: true"
            },
            "hide": {
                "type": "array",
                "items": { "type": "string" },
                "description": "Absolute paths of more files and directories that a confined \
                                command does not see, besides the host's data directory and key \
                                file"
            }
        },
        "additionalProperties": false
    })
}

impl LocalSettings {
    /// Reads the configuration and the host's environment, once an instance.
    pub(crate) fn from_setup(setup: &Setup) -> Result<Self> {
        let config: LocalConfig = setup.config()?;
        if !config.shell.is_absolute() {
            return Err(Error::invalid(format!(
                "`shell` is `{}`; it must be an absolute path, such as /bin/sh",
                config.shell.display()
            )));
        }
        if config.timeout_ms == 0 {
            return Err(Error::invalid("`timeout_ms` is 0; it must be at least 1"));
        }
        if let Some(path) = config.hide.iter().find(|path| !path.is_absolute()) {
            return Err(Error::invalid(format!(
                "`hide` has the path `{}`; it must be absolute",
                path.display()
            )));
        }
        Ok(Self {
            confine: config.confine,
            hidden_paths: config.hide,
            shell: config.shell,
            timeout: Duration::from_millis(config.timeout_ms),
            env: clean(std::env::vars_os(), &config.pass_env),
            pass_env: config.pass_env,
        })
    }
}

/// What is left of the host's environment: an allowlist, so that no key of the host's is in it.
fn clean(
    host: impl Iterator<Item = (OsString, OsString)>,
    more: &[String],
) -> Vec<(OsString, OsString)> {
    let passed = |name: &OsStr| {
        PASSED_VARIABLES.iter().any(|allowed| name == *allowed)
            || more.iter().any(|allowed| name == allowed.as_str())
            || name.as_encoded_bytes().starts_with(b"LC_")
    };
    let mut env: Vec<_> = host.filter(|(name, _)| passed(name)).collect();
    if !env.iter().any(|(name, _)| name == "PATH") {
        env.push(("PATH".into(), DEFAULT_PATH.into()));
    }
    env
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_the_host_are_not_passed_on() {
        let host = [
            ("ANTHROPIC_API_KEY", "secret"),
            ("LC_ALL", "C"),
            ("HOME", "/home/me"),
            ("LD_PRELOAD", "/x.so"),
            ("MY_TOOL", "yes"),
        ];
        let host = host.map(|(name, value)| (name.into(), value.into()));
        let expected: Vec<(OsString, OsString)> = [
            ("LC_ALL", "C"),
            ("HOME", "/home/me"),
            ("MY_TOOL", "yes"),
            ("PATH", DEFAULT_PATH),
        ]
        .map(|(name, value)| (name.into(), value.into()))
        .into();
        assert_eq!(clean(host.into_iter(), &["MY_TOOL".to_owned()]), expected);
    }
}
