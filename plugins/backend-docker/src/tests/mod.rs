//! The executor behind the real ABI object, against a real engine.

mod commands;
mod failures;
mod keeping;
mod limits;
mod restart;

use std::fs;
use std::path::PathBuf;

use conjure_kit::Engine;
use conjure_skill_sdk::protocol::{BashOutput, ExecutorReady};
use conjure_skill_sdk::testkit::{Outcome, Plugin, TestHost};
use serde_json::{Value, json};

/// A backend instance with one session, which has a working directory and a skill.
struct World {
    engine: Engine,
    plugin: Plugin,
    dir: tempfile::TempDir,
}

/// A world, or nothing where there is no engine.
fn world(config: &Value) -> Option<World> {
    let engine = Engine::find().unwrap()?;
    let dir = tempfile::tempdir().unwrap();
    Some(world_in(engine, dir, config))
}

fn world_in(engine: Engine, dir: tempfile::TempDir, config: &Value) -> World {
    for name in ["work", "exchange", "data", "skills/analyzer/scripts"] {
        fs::create_dir_all(dir.path().join(name)).unwrap();
    }
    let script = "#!/bin/sh\necho analysed\n";
    fs::write(dir.path().join("skills/analyzer/SKILL.md"), "a skill\n").unwrap();
    fs::write(dir.path().join("skills/analyzer/scripts/a.sh"), script).unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    let mut all = json!({ "image": engine.image() });
    for (name, value) in config.as_object().unwrap() {
        all[name] = value.clone();
    }
    let host = TestHost::builder()
        .session("s")
        .config(all)
        .data_dir(&path("data"))
        .working_dir(&path("work"))
        .exchange_dir(&path("exchange"))
        .build()
        .unwrap();
    let plugin = host.link(crate::plugin).unwrap();
    let init = json!({
        "skills": [{ "name": "analyzer", "dir": path("skills/analyzer") }],
        "env": { "GIVEN": "yes" },
    });
    let ready: ExecutorReady = plugin.call("executor.init", init).parse().unwrap();
    assert_eq!(ready.working_dir, "/workspace");
    assert_eq!(ready.skills[0].dir, "/mnt/skills/analyzer");
    World {
        engine,
        plugin,
        dir,
    }
}

impl World {
    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn work(&self, name: &str) -> PathBuf {
        self.path("work").join(name)
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

    /// The containers of this instance.
    fn containers(&self) -> Vec<String> {
        let hosts = self.path("data/hosts").canonicalize().unwrap();
        let hosts = fs::read_dir(hosts).unwrap();
        hosts
            .flat_map(|host| {
                let label = format!("io.conjure.host={}", host.unwrap().path().display());
                self.engine.containers(&label).unwrap()
            })
            .collect()
    }

    /// The one container that there is.
    fn container(&self) -> String {
        let containers = self.containers();
        assert_eq!(containers.len(), 1, "{containers:?}");
        containers[0].clone()
    }

    fn inspect(&self, format: &str) -> String {
        let container = self.container();
        self.engine
            .docker(["inspect", "--format", format, &container])
            .unwrap()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.plugin.call("executor.cleanup", json!({}));
    }
}
