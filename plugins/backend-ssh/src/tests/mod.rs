//! The executor behind the real ABI object, against a real sshd on loopback.

mod commands;
mod cuts;
mod ends;
mod failures;
mod keeping;
mod logins;
mod machine;
mod refusals;

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use conjure_kit::{Network, Sshd};
use conjure_skill_sdk::protocol::{BashOutput, ExecutorReady};
use conjure_skill_sdk::testkit::{Outcome, Plugin, RunningCall, TestHost};
use serde_json::{Value, json};

/// A backend instance with one session, which has a working directory and a skill, and the network
/// to its machine.
struct World {
    plugin: Plugin,
    network: Network,
    sshd: Sshd,
    dir: tempfile::TempDir,
    ready: ExecutorReady,
}

/// A world, or nothing where there is no sshd.
fn world(config: &Value) -> Option<World> {
    let sshd = Sshd::find().unwrap()?;
    let dir = tempfile::tempdir().unwrap();
    Some(world_in(sshd, dir, config))
}

fn world_in(sshd: Sshd, dir: tempfile::TempDir, config: &Value) -> World {
    for name in [
        "work",
        "exchange",
        "data",
        "scratch",
        "skills/analyzer/scripts",
    ] {
        fs::create_dir_all(dir.path().join(name)).unwrap();
    }
    let script = "#!/bin/sh\necho analysed\n";
    let run = dir.path().join("skills/analyzer/scripts/a.sh");
    fs::write(dir.path().join("skills/analyzer/SKILL.md"), "a skill\n").unwrap();
    fs::write(&run, script).unwrap();
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(run, executable).unwrap();
    let network = Network::to(sshd.address()).unwrap();
    sshd.add_known_host(network.address()).unwrap();
    let host = host(&sshd, &network, &dir, config);
    let plugin = host.link(crate::plugin).unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    let init = json!({
        "skills": [{ "name": "analyzer", "dir": path("skills/analyzer") }],
        "env": { "GIVEN": "yes" },
    });
    let ready: ExecutorReady = plugin.call("executor.init", init).parse().unwrap();
    World {
        plugin,
        network,
        sshd,
        dir,
        ready,
    }
}

/// A host whose configuration leads to the machine through the network.
fn host(sshd: &Sshd, network: &Network, dir: &tempfile::TempDir, config: &Value) -> TestHost {
    let path = |name: &str| dir.path().join(name).display().to_string();
    let mut all = json!({
        "host": "127.0.0.1",
        "port": network.address().port(),
        "identity_file": sshd.path("user_key"),
        "known_hosts": sshd.path("known_hosts"),
        "config_file": sshd.path("config"),
        "scratch_dir": path("scratch"),
        "agent_dir": path("agent"),
        "alive_ms": 1_000,
        "connect_timeout_ms": 3_000,
    });
    for (name, value) in config.as_object().unwrap() {
        all[name] = value.clone();
    }
    TestHost::builder()
        .session("s")
        .config(all)
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

    /// Where commands work; the remote machine is this one.
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

    /// What a call that fails says.
    fn error(&self, op: &str, body: Value) -> String {
        let outcome = self.call(op, body);
        assert!(
            outcome.code().is_some(),
            "it did not fail: {}",
            outcome.text()
        );
        outcome.text()
    }

    fn bash_error(&self) -> String {
        self.error("executor.bash", json!({ "command": "true" }))
    }

    /// The directories of sessions on the remote machine.
    fn sessions(&self) -> Vec<PathBuf> {
        let found = fs::read_dir(self.path("scratch")).unwrap();
        found.map(|entry| entry.unwrap().path()).collect()
    }

    /// The processes of this world whose command line begins with these words of the agent's.
    fn agents(&self, verb: &str) -> Vec<i32> {
        agents(&self.path("scratch"), verb)
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.network.restore();
        self.plugin.call("executor.cleanup", json!({}));
    }
}

/// The agent's processes that do this and have a directory below one.
fn agents(scratch: &std::path::Path, verb: &str) -> Vec<i32> {
    let below = scratch.display().to_string();
    let all = fs::read_dir("/proc").unwrap().flatten();
    let numbers = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let is_one = |pid: &i32| {
        let words = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let words: Vec<&str> = words.split('\0').collect();
        words.get(1) == Some(&verb) && words.iter().any(|word| word.starts_with(&below))
    };
    let found: Vec<i32> = numbers.into_iter().filter(is_one).collect();
    // One that starts another program is there twice for a moment.
    let parent = |pid: &i32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let (_, behind) = stat.rsplit_once(") ")?;
        behind.split(' ').nth(1)?.parse::<i32>().ok()
    };
    let own = found.iter().copied();
    own.filter(|pid| parent(pid).is_none_or(|parent| !found.contains(&parent)))
        .collect()
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
