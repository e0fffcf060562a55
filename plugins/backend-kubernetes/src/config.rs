//! What a person can configure, and what stands without it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use conjure_exec_agent::executor::check_env;
use conjure_skill_sdk::{Error, Result, Setup};
use serde::Deserialize;
use serde_json::{Value, json};

/// The settings of one backend instance.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct KubernetesSettings {
    /// Nothing: `KUBECONFIG`, `~/.kube/config`, or the cluster that the host runs in.
    pub(crate) kubeconfig: Option<PathBuf>,
    pub(crate) context: Option<String>,
    /// Namespace of the pods; without one, that of the context.
    pub(crate) namespace: Option<String>,
    pub(crate) image: String,
    pub(crate) image_pull_policy: Option<PullPolicy>,
    pub(crate) image_pull_secrets: Vec<String>,
    pub(crate) service_account: Option<String>,
    pub(crate) node_selector: BTreeMap<String, String>,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) name_prefix: String,
    pub(crate) memory_mb: u64,
    pub(crate) cpus: f64,
    pub(crate) disk_mb: u64,
    pub(crate) user: u32,
    pub(crate) read_only_root: bool,
    /// A claim for the working directory, in place of a volume that goes with the pod.
    pub(crate) volume_claim: Option<String>,
    pub(crate) working_dir: String,
    pub(crate) agent_dir: String,
    pub(crate) shell: String,
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) timeout_ms: u64,
    pub(crate) connect_timeout_ms: u64,
    pub(crate) ready_timeout_ms: u64,
    /// How often the relay in the pod is asked whether it is there, when nothing else comes.
    pub(crate) alive_ms: u64,
    pub(crate) reconnect_ms: u64,
    pub(crate) active_deadline_s: u64,
    /// A program to use in place of the one that the plugin brings along.
    pub(crate) agent: Option<PathBuf>,
}

/// When a node pulls the image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub(crate) enum PullPolicy {
    Always,
    IfNotPresent,
    Never,
}

impl PullPolicy {
    /// The value of Kubernetes' `imagePullPolicy`.
    pub(crate) fn kubernetes_value(self) -> &'static str {
        match self {
            Self::Always => "Always",
            Self::IfNotPresent => "IfNotPresent",
            Self::Never => "Never",
        }
    }
}

impl Default for KubernetesSettings {
    fn default() -> Self {
        Self {
            kubeconfig: None,
            context: None,
            namespace: None,
            image: "debian:stable-slim".to_owned(),
            image_pull_policy: None,
            image_pull_secrets: Vec::new(),
            service_account: None,
            node_selector: BTreeMap::new(),
            labels: BTreeMap::new(),
            name_prefix: "conjure".to_owned(),
            memory_mb: 512,
            cpus: 1.0,
            disk_mb: 2_048,
            user: 65_534,
            read_only_root: true,
            volume_claim: None,
            working_dir: "/workspace".to_owned(),
            agent_dir: "/mnt/conjure".to_owned(),
            shell: "/bin/sh".to_owned(),
            env: BTreeMap::new(),
            timeout_ms: 30_000,
            connect_timeout_ms: 10_000,
            ready_timeout_ms: 120_000,
            alive_ms: 5_000,
            reconnect_ms: 600_000,
            active_deadline_s: 86_400,
            agent: None,
        }
    }
}

/// JSON Schema of the configuration.
pub(crate) fn schema() -> Value {
    let text = |description: &str| json!({ "type": "string", "description": description });
    let number =
        |description: &str| json!({ "type": "integer", "minimum": 1, "description": description });
    let texts = |description: &str| {
        json!({
            "type": "object",
            "additionalProperties": { "type": "string" },
            "description": description
        })
    };
    json!({
        "type": "object",
        "properties": {
            "kubeconfig": text("The file that says where the cluster is. Default: KUBECONFIG, else \
                                ~/.kube/config, else the cluster that the host runs in"),
            "context": text("A context of that file. Default: its current one"),
            "namespace": text("The namespace of pods. Default: that of the context"),
            "image": text("The image; any with a shell, cat, head, mkdir, mv, chmod, wc and sleep \
                           will do. Default: debian:stable-slim"),
            "image_pull_policy": {
                "enum": ["Always", "IfNotPresent", "Never"],
                "description": "When a node fetches the image. Default: as Kubernetes has it"
            },
            "image_pull_secrets": {
                "type": "array",
                "items": { "type": "string" },
                "description": "Secrets of the namespace to fetch the image with"
            },
            "service_account": text("The service account of pods; its token is never in them. \
                                     Default: that of the namespace"),
            "node_selector": texts("Labels of the nodes that pods may run on"),
            "labels": texts("Labels of pods, besides those that say whose they are"),
            "name_prefix": text("How the names of pods begin. Default: conjure"),
            "memory_mb": number("Memory of a pod, in MiB. Default: 512"),
            "cpus": {
                "type": "number",
                "exclusiveMinimum": 0,
                "description": "Processors of a pod. Default: 1"
            },
            "disk_mb": number("Size of the working directory and of /tmp, each, in MiB. Default: \
                               2048"),
            "user": {
                "type": "integer",
                "minimum": 0,
                "description": "The number of the user and the group in the pod; 0 is root, for \
                                images that need it. Default: 65534"
            },
            "read_only_root": {
                "type": "boolean",
                "description": "Whether the image's own files cannot be changed. Default: true"
            },
            "volume_claim": text("A PersistentVolumeClaim of the namespace for the working \
                                  directory. Default: a volume that goes with the pod"),
            "working_dir": text("Where commands work in the pod, absolute. Default: /workspace"),
            "agent_dir": text("Where the agent is in the pod, absolute. Default: /mnt/conjure"),
            "shell": text("Absolute path of the shell in the image. Default: /bin/sh"),
            "env": texts("Environment variables of commands, besides those of the image; nothing \
                          of the host's is passed on"),
            "timeout_ms": number("How long a command may take when the host sets no deadline, in \
                                  milliseconds. Default: 30000"),
            "connect_timeout_ms": number("How long connecting to the cluster may take, in \
                                          milliseconds. Default: 10000"),
            "ready_timeout_ms": number("How long a pod may take to run, in milliseconds. Default: \
                                        120000"),
            "alive_ms": number("How often the pod is asked whether it is there when nothing else \
                                comes, in milliseconds; a connection is lost when three are not \
                                answered. Default: 5000"),
            "reconnect_ms": number("How long a lost connection is tried again, in milliseconds; \
                                    then calls fail, and what runs there ends. Default: 600000"),
            "active_deadline_s": number("How long a pod may run at all, in seconds; the cluster \
                                         ends it then. Default: 86400"),
            "agent": text("A Linux program to use in place of the agent that this plugin brings, \
                           such as one for another processor")
        },
        "additionalProperties": false
    })
}

impl KubernetesSettings {
    /// Reads the configuration.
    pub(crate) fn from_setup(setup: &Setup) -> Result<Self> {
        let mut settings: Self = setup.config()?;
        settings.check()?;
        if let Some(below) = settings.kubeconfig.as_deref().and_then(below_home) {
            let home = std::env::home_dir().ok_or_else(|| {
                Error::invalid("`kubeconfig` is below a home directory, and this user has none")
            })?;
            settings.kubeconfig = Some(home.join(below));
        }
        Ok(settings)
    }

    fn check(&self) -> Result<()> {
        let positive = [
            ("memory_mb", self.memory_mb > 0),
            ("cpus", self.cpus > 0.0 && self.cpus.is_finite()),
            ("disk_mb", self.disk_mb > 0),
            ("timeout_ms", self.timeout_ms > 0),
            ("connect_timeout_ms", self.connect_timeout_ms > 0),
            ("ready_timeout_ms", self.ready_timeout_ms > 0),
            ("alive_ms", self.alive_ms > 0),
            ("reconnect_ms", self.reconnect_ms > 0),
            ("active_deadline_s", self.active_deadline_s > 0),
        ];
        if let Some((name, _)) = positive.iter().find(|(_, fine)| !fine) {
            return Err(Error::invalid(format!("`{name}` must be more than 0")));
        }
        if self.image.is_empty() {
            return Err(Error::invalid(
                "`image` is empty; leave it out for the default",
            ));
        }
        self.check_paths()?;
        self.check_labels()?;
        check_env(&self.env)
    }

    fn check_paths(&self) -> Result<()> {
        if let Some(path) = &self.kubeconfig
            && !path.is_absolute()
            && below_home(path).is_none()
        {
            return Err(Error::invalid(format!(
                "`kubeconfig` is `{}`; it must be a path of this machine, absolute or below ~/",
                path.display()
            )));
        }
        for (name, path) in [
            ("working_dir", &self.working_dir),
            ("agent_dir", &self.agent_dir),
            ("shell", &self.shell),
        ] {
            // A shell over there sees them.
            let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+@,=".contains(c);
            let inner = path.strip_prefix('/').unwrap_or_default();
            if inner.is_empty() || !path.chars().all(plain) {
                return Err(Error::invalid(format!(
                    "`{name}` is `{}`; it must be an absolute path in the pod, of letters, digits \
                     and / . _ - + @ , =",
                    path.escape_debug()
                )));
            }
        }
        if overlap(&self.working_dir, &self.agent_dir) {
            return Err(Error::invalid(
                "`agent_dir` and `working_dir` must not lie in each other",
            ));
        }
        Ok(())
    }

    fn check_labels(&self) -> Result<()> {
        let first = self.name_prefix.chars().next();
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        let fits = self.name_prefix.len() <= 30 && self.name_prefix.chars().all(plain);
        if !fits || !first.is_some_and(|c| c.is_ascii_lowercase()) {
            return Err(Error::invalid(format!(
                "`name_prefix` is `{}`; it must begin with a small letter and have small letters, \
                 digits and - only, 30 at most",
                self.name_prefix.escape_debug()
            )));
        }
        if let Some(name) = self
            .labels
            .keys()
            .find(|name| crate::owner::is_owner_label(name))
        {
            return Err(Error::invalid(format!(
                "`labels` has `{name}`, which says whose a pod is: leave it out"
            )));
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

    /// Time limit for a pod to run.
    pub(crate) fn ready_timeout(&self) -> Duration {
        Duration::from_millis(self.ready_timeout_ms)
    }

    /// How long a lost connection is tried again.
    pub(crate) fn reconnect(&self) -> Duration {
        Duration::from_millis(self.reconnect_ms)
    }

    /// How long the relay in the pod waits for somebody to come back. It may have heard that a
    /// connection is lost before this side finds out.
    pub(crate) fn waits_seconds(&self) -> u64 {
        self.reconnect_ms.div_ceil(1_000) + 5 * self.alive_ms.div_ceil(1_000)
    }

    /// The session's own directory in the pod.
    pub(crate) fn session_dir(&self) -> String {
        format!("{}/session", self.agent_dir.trim_end_matches('/'))
    }
}

/// Whether one of two paths lies in the other.
fn overlap(one: &str, other: &str) -> bool {
    let (one, other) = (std::path::Path::new(one), std::path::Path::new(other));
    one.starts_with(other) || other.starts_with(one)
}

fn below_home(path: &std::path::Path) -> Option<&std::path::Path> {
    path.strip_prefix("~").ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(value: Value) -> Result<KubernetesSettings> {
        let settings: KubernetesSettings = serde_json::from_value(value)?;
        settings.check().map(|()| settings)
    }

    #[test]
    fn what_is_not_configured_has_its_default() {
        let settings = read(json!({ "namespace": "agents" })).unwrap();
        assert_eq!(
            (settings.working_dir.as_str(), settings.user),
            ("/workspace", 65_534)
        );
        assert_eq!(settings.session_dir(), "/mnt/conjure/session");
    }

    #[test]
    fn what_does_not_fit_is_refused_by_name() {
        for (config, name) in [
            (json!({ "memory_mb": 0 }), "memory_mb"),
            (json!({ "cpus": 0.0 }), "cpus"),
            (json!({ "shell": "sh" }), "shell"),
            (json!({ "working_dir": "/" }), "working_dir"),
            (json!({ "working_dir": "/a b" }), "working_dir"),
            (json!({ "agent_dir": "/a;x" }), "agent_dir"),
            (json!({ "agent_dir": "/workspace/a" }), "agent_dir"),
            (json!({ "name_prefix": "Me" }), "name_prefix"),
            (json!({ "name_prefix": "1" }), "name_prefix"),
            (json!({ "image": "" }), "image"),
            (json!({ "image_pull_policy": "Once" }), "Once"),
            (json!({ "kubeconfig": "config" }), "kubeconfig"),
            (json!({ "labels": { "io.conjure/host": "x" } }), "labels"),
            (json!({ "env": { "A B": "x" } }), "env"),
            (json!({ "imgae": "x" }), "imgae"),
        ] {
            let error = read(config).unwrap_err();
            assert!(error.message().contains(name), "{error}");
        }
    }
}
