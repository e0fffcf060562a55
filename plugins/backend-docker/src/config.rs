//! What a person can configure, and what stands without it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use conjure_skill_sdk::{Error, Result, Setup};
use serde::Deserialize;
use serde_json::{Value, json};

/// The image that `conjure docker build` makes.
const DEFAULT_IMAGE: &str = "conjure-workspace";

/// The settings of one backend instance.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct DockerSettings {
    /// The image of every container.
    pub(crate) image: String,
    /// Where the engine is; nothing: where it usually is.
    pub(crate) engine: Option<String>,
    pub(crate) network: String,
    pub(crate) memory_mb: u64,
    pub(crate) cpus: f64,
    pub(crate) pids: u32,
    pub(crate) tmp_mb: u64,
    /// `uid` or `uid:gid`.
    pub(crate) user: Option<String>,
    pub(crate) shell: String,
    pub(crate) timeout_ms: u64,
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) files: Sharing,
    pub(crate) stream: AgentTransport,
    pub(crate) selinux: bool,
    /// A program to use in place of the one that the plugin brings along.
    pub(crate) agent: Option<PathBuf>,
}

/// How files get into a container and out of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Sharing {
    /// As `mount` where the engine sees this machine's files, else as `copy`.
    #[default]
    Auto,
    /// The session's directories are mounted.
    Mount,
    /// The session has a volume on the engine, and files are copied.
    Copy,
}

/// Transport between host and agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum AgentTransport {
    /// Over a socket of the host's where the agent can reach it, else as `attach` where that is
    /// possible, else as `exec`.
    #[default]
    Auto,
    /// Over the stream of the container's first process, which is the agent.
    Attach,
    /// The agent is started in a container that waits.
    Exec,
}

impl Default for DockerSettings {
    fn default() -> Self {
        Self {
            image: DEFAULT_IMAGE.to_owned(),
            engine: None,
            network: "none".to_owned(),
            memory_mb: 512,
            cpus: 1.0,
            pids: 256,
            tmp_mb: 100,
            user: None,
            shell: "/bin/sh".to_owned(),
            timeout_ms: 30_000,
            env: BTreeMap::new(),
            files: Sharing::Auto,
            stream: AgentTransport::Auto,
            selinux: false,
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
            "image": text("The image; any with a shell will do. Default: conjure-workspace, which \
                           `conjure docker build` makes"),
            "engine": text("Where Docker or Podman listens: unix:///path or tcp://host:port. \
                            Default: DOCKER_HOST, else the usual sockets"),
            "network": text("The network of containers. Default: none"),
            "memory_mb": number("Memory of a container, in MiB. Default: 512"),
            "cpus": {
                "type": "number",
                "exclusiveMinimum": 0,
                "description": "Processors of a container. Default: 1"
            },
            "pids": number("Processes and threads in a container. Default: 256"),
            "tmp_mb": number("Size of /tmp, in MiB. Default: 100"),
            "user": text("The user in the container, as uid or uid:gid. Default: the host's own \
                          user; when that is root, the owner of the working directory, or 65534, \
                          to whom it is given"),
            "shell": text("Absolute path of the shell in the image. Default: /bin/sh"),
            "timeout_ms": number("How long a command may take when the host sets no deadline, in \
                                  milliseconds. Default: 30000"),
            "env": {
                "type": "object",
                "additionalProperties": { "type": "string" },
                "description": "Environment variables of commands, besides those of the image; \
                                nothing of the host's is passed on"
            },
            "files": {
                "enum": ["auto", "mount", "copy"],
                "description": "Whether the session's directories are mounted, or the session \
                                works in a volume and files are copied. Default: auto, which \
                                mounts where the engine sees this machine's files"
            },
            "stream": {
                "enum": ["auto", "attach", "exec"],
                "description": "Whether the container is spoken to by attaching to it or by one \
                                exec in it. Default: auto, a socket of the host's where the \
                                container reaches it, else attaching, else exec"
            },
            "selinux": {
                "type": "boolean",
                "description": "Relabel mounted directories for SELinux, as `:z` does. Default: \
                                false"
            },
            "agent": text("A Linux program to use in place of the agent that this plugin brings, \
                           such as one for another processor")
        },
        "additionalProperties": false
    })
}

impl DockerSettings {
    /// Reads the configuration.
    pub(crate) fn from_setup(setup: &Setup) -> Result<Self> {
        let settings: Self = setup.config()?;
        settings.check()?;
        Ok(settings)
    }

    fn check(&self) -> Result<()> {
        let positive = [
            ("memory_mb", self.memory_mb > 0),
            ("cpus", self.cpus > 0.0 && self.cpus.is_finite()),
            ("pids", self.pids > 0),
            ("tmp_mb", self.tmp_mb > 0),
            ("timeout_ms", self.timeout_ms > 0),
        ];
        if let Some((name, _)) = positive.iter().find(|(_, fine)| !fine) {
            return Err(Error::invalid(format!("`{name}` must be more than 0")));
        }
        if !self.shell.starts_with('/') {
            return Err(Error::invalid(format!(
                "`shell` is `{}`; it must be an absolute path, such as /bin/sh",
                self.shell
            )));
        }
        if self.image.is_empty() {
            return Err(Error::invalid(
                "`image` is empty; leave it out for the default",
            ));
        }
        if let Some(user) = &self.user {
            let numbers = user.split(':').map(|part| part.parse::<u32>().ok());
            let numbers: Option<Vec<u32>> = numbers.collect();
            match numbers.as_deref() {
                Some([0, ..]) => {
                    return Err(Error::invalid(
                        "`user` is root; containers do not run as root",
                    ));
                }
                Some([_] | [_, _]) => {}
                _ => {
                    return Err(Error::invalid(format!(
                        "`user` is `{user}`; it must be numbers, as uid or uid:gid"
                    )));
                }
            }
        }
        Ok(())
    }

    /// How long a command may take when nobody says.
    pub(crate) fn timeout(&self) -> Duration {
        Duration::from_millis(self.timeout_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(value: Value) -> Result<DockerSettings> {
        let settings: DockerSettings = serde_json::from_value(value)?;
        settings.check().map(|()| settings)
    }

    #[test]
    fn what_is_not_configured_has_its_default() {
        let settings = read(json!({ "network": "mine" })).unwrap();
        assert_eq!(
            (settings.network.as_str(), settings.memory_mb, settings.pids),
            ("mine", 512, 256)
        );
    }

    #[test]
    fn what_does_not_fit_is_refused_by_name() {
        for (config, name) in [
            (json!({ "memory_mb": 0 }), "memory_mb"),
            (json!({ "cpus": -1.0 }), "cpus"),
            (json!({ "shell": "sh" }), "shell"),
            (json!({ "user": "0" }), "root"),
            (json!({ "user": "0:5" }), "root"),
            (json!({ "user": "me" }), "user"),
            (json!({ "user": "1:2:3" }), "user"),
            (json!({ "image": "" }), "image"),
            (json!({ "imgae": "x" }), "imgae"),
        ] {
            let error = read(config).unwrap_err();
            assert!(error.message().contains(name), "{error}");
        }
    }
}
