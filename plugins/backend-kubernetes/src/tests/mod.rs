//! The executor behind the real ABI object, against a small API server on loopback.

mod api;
mod commands;
mod contract;
mod cuts;
mod exec;
mod failures;
mod keeping;
mod pods;
mod proxies;
mod refusals;

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use conjure_kit::Network;
use conjure_skill_sdk::protocol::{BashOutput, ExecutorReady};
use conjure_skill_sdk::testkit::{Outcome, Plugin, RunningCall, TestHost};
use serde_json::{Value, json};

use api::{Api, NAMESPACE, TOKEN};

/// A backend instance with one session, which has a working directory and a skill, and the network
/// to its cluster.
struct World {
    plugin: Plugin,
    network: Network,
    api: Api,
    dir: tempfile::TempDir,
    ready: ExecutorReady,
}

/// A world, or nothing where this user can make no namespaces.
fn world(config: &Value) -> Option<World> {
    world_as(config, TOKEN)
}

/// A world in which the host says this token.
fn world_as(config: &Value, token: &str) -> Option<World> {
    if !can_have_pods() {
        return None;
    }
    let api = Api::new();
    let network = Network::to(api.address()).unwrap();
    let dir = tempfile::tempdir().unwrap();
    for name in ["work", "exchange", "data", "skills/analyzer/scripts"] {
        fs::create_dir_all(dir.path().join(name)).unwrap();
    }
    fs::write(dir.path().join("skills/analyzer/SKILL.md"), "a skill\n").unwrap();
    let run = dir.path().join("skills/analyzer/scripts/a.sh");
    fs::write(&run, "#!/bin/sh\necho analysed\n").unwrap();
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(run, executable).unwrap();
    kubeconfig(&dir, network.address(), token);
    let plugin = host(&dir, config).link(crate::plugin).unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    let init = json!({
        "skills": [{ "name": "analyzer", "dir": path("skills/analyzer") }],
        "env": { "GIVEN": "yes" },
    });
    let ready = plugin.call("executor.init", init).parse().unwrap();
    Some(World {
        plugin,
        network,
        api,
        dir,
        ready,
    })
}

/// Whether pods can run here; if not, that is said.
fn can_have_pods() -> bool {
    let made = std::process::Command::new("unshare")
        .args(["--pid", "--fork", "--mount", "--mount-proc", "--", "true"])
        .output();
    let can = made.is_ok_and(|made| made.status.success());
    if !can {
        println!("LEFT OUT: namespaces: this user can make none for pods");
    }
    can
}

/// Writes where the cluster is, and who asks.
fn kubeconfig(dir: &tempfile::TempDir, cluster: SocketAddr, token: &str) {
    let text = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "contexts": [{ "name": "here",
            "context": { "cluster": "here", "user": "me", "namespace": NAMESPACE } }],
        "clusters": [{ "name": "here",
            "cluster": { "server": format!("http://{cluster}") } }],
        "users": [{ "name": "me", "user": { "token": token } }],
    });
    fs::write(dir.path().join("kubeconfig"), text.to_string()).unwrap();
}

/// The configuration of the plugin, with what else is given.
fn settings(dir: &tempfile::TempDir, config: &Value) -> Value {
    let path = |name: &str| dir.path().join(name).display().to_string();
    let mut all = json!({
        "kubeconfig": path("kubeconfig"),
        "image": "debian",
        "working_dir": path("pod/work"),
        "agent_dir": path("pod/agent"),
        "alive_ms": 1_000,
        "connect_timeout_ms": 3_000,
    });
    for (name, value) in config.as_object().unwrap() {
        all[name] = value.clone();
    }
    all
}

/// A host with this configuration.
fn host(dir: &tempfile::TempDir, config: &Value) -> TestHost {
    let path = |name: &str| dir.path().join(name).display().to_string();
    TestHost::builder()
        .session("s")
        .config(settings(dir, config))
        .data_dir(&path("data"))
        .working_dir(&path("work"))
        .exchange_dir(&path("exchange"))
        // Nothing of what is shown is left out.
        .capacity(1_000_000)
        .build()
        .unwrap()
}

impl World {
    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Where commands work; the node is this machine.
    fn work(&self, name: &str) -> PathBuf {
        PathBuf::from(&self.ready.working_dir).join(name)
    }

    fn call(&self, op: &str, body: Value) -> Outcome {
        self.plugin.call(op, body)
    }

    /// A command with half a minute.
    fn bash(&self, command: &str) -> BashOutput {
        self.bash_within(command, 30_000).parse().unwrap()
    }

    fn bash_within(&self, command: &str, milliseconds: u64) -> Outcome {
        let calls = self
            .plugin
            .with(|envelope| envelope.deadline_ms = milliseconds);
        calls.call("executor.bash", json!({ "command": command }))
    }

    fn start(&self, command: &str) -> RunningCall {
        let calls = self.plugin.with(|envelope| envelope.deadline_ms = 120_000);
        calls.start("executor.bash", json!({ "command": command }))
    }

    /// What a command that fails says.
    fn bash_error(&self) -> String {
        let outcome = self.bash_within("true", 60_000);
        assert!(
            outcome.code().is_some(),
            "it did not fail: {}",
            outcome.text()
        );
        outcome.text()
    }

    /// The session's pod.
    fn pod(&self) -> String {
        let names = self.api.cluster.names();
        assert_eq!(names.len(), 1, "{names:?}");
        names[0].clone()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.network.restore();
        self.plugin.call("executor.cleanup", json!({}));
    }
}

/// Waits until something is so.
fn until(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(40);
    while !is_so() {
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The notices of a call.
fn notices(outcome: &Outcome) -> Vec<String> {
    let events = outcome.events.iter();
    events
        .filter_map(|event| {
            serde_json::to_value(event).unwrap()["text"]
                .as_str()
                .map(str::to_owned)
        })
        .collect()
}
