//! What a plugin started that got away from its worker: it has another parent, session and group, and only
//! SIGKILL ends it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use conjure_host::plugin::Instance;
use conjure_kit::conjure_bin;
use conjure_plugin_tests::Bench;
use serde_json::json;

use super::calls::until;
use super::confined::{bench, instance, library_that_starts_programs};

/// A daemon of a plugin, by its entry among the system's processes.
struct Daemon(PathBuf);

impl Daemon {
    /// The one that wrote its number to a file.
    async fn of(file: &Path) -> Self {
        until(|| file.exists()).await;
        let number = std::fs::read_to_string(file).unwrap();
        let daemon = Self(Path::new("/proc").join(number.trim()));
        assert!(daemon.0.exists(), "it runs");
        daemon
    }

    async fn ends(&self) {
        until(|| !self.0.exists()).await;
    }
}

/// A plugin with a daemon.
async fn with_daemon(confined: bool) -> (Bench, tempfile::TempDir, Arc<Instance>, Daemon) {
    let bench = bench(confined);
    let plugin = bench.load(&library_that_starts_programs());
    let work = tempfile::tempdir().unwrap();
    let instance = instance(&plugin, work.path()).await;
    let file = work.path().join("daemon");
    let started = Bench::execute(&instance, &format!("daemon {}", file.display())).await;
    assert_eq!(started.unwrap(), "done");
    let daemon = Daemon::of(&file).await;
    (bench, work, instance, daemon)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_plugin_left_behind_ends_with_its_worker_that_crashes() {
    for confined in [true, false] {
        let (_bench, _work, instance, daemon) = with_daemon(confined).await;
        let failure = Bench::execute(&instance, "abort").await.unwrap_err();
        assert!(failure.to_string().contains("SIGABRT"), "{failure}");
        daemon.ends().await;
        // The next worker is none of its business.
        let ran = Bench::execute(&instance, "run /bin/true").await;
        assert_eq!(ran.unwrap(), "done");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_plugin_left_behind_ends_with_its_instance() {
    let (_bench, _work, instance, daemon) = with_daemon(true).await;
    drop(instance);
    daemon.ends().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_plugin_left_behind_ends_with_the_host_that_is_killed() {
    let scratch = tempfile::tempdir().unwrap();
    let data = tempfile::tempdir().unwrap();
    let file = scratch.path().canonicalize().unwrap().join("daemon");
    let command = json!({ "command": format!("daemon-and-hang {}", file.display()) });
    let mut host = std::process::Command::new(conjure_bin().unwrap())
        .args(["call", "prober_execute", "--isolation", "process"])
        .args(["--args", &command.to_string(), "--plugin"])
        .arg(library_that_starts_programs())
        .env("CONJURE_DATA_DIR", data.path())
        .current_dir(scratch.path())
        .spawn()
        .unwrap();
    let daemon = Daemon::of(&file).await;
    host.kill().unwrap();
    host.wait().unwrap();
    daemon.ends().await;
}
