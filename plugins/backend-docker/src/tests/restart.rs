//! An engine of the test's own that goes away and comes back.

use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::json;

use super::world_in;

/// How long an engine may take to begin and to end.
const LIMIT: Duration = Duration::from_secs(40);

/// An engine with everything of its own below a directory.
struct Own<'a> {
    dir: &'a Path,
    process: Child,
}

impl<'a> Own<'a> {
    /// Nothing where there is no `dockerd`, or it does not run here.
    fn start(dir: &'a Path) -> Option<Self> {
        let at = |name: &str| dir.join(name).display().to_string();
        let said = File::create(dir.join("dockerd.log")).unwrap();
        // In a network of its own: an engine without a bridge removes the one that it finds, which
        // would be that of the machine's engine.
        let process = Command::new("unshare")
            .args([
                "--net",
                "dockerd",
                "--bridge",
                "none",
                "--iptables=false",
                "--ip-forward=false",
            ])
            .args(["--host", &address(dir), "--pidfile", &at("pid")])
            .args(["--data-root", &at("root"), "--exec-root", &at("exec")])
            .stdin(Stdio::null())
            .stdout(said.try_clone().unwrap())
            .stderr(said)
            .spawn()
            .ok()?;
        let mut own = Self { dir, process };
        let begun = Instant::now();
        while own.docker(&["version"]).is_none() {
            let ended = own.process.try_wait().unwrap().is_some();
            if ended || begun.elapsed() > LIMIT {
                return None;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Some(own)
    }

    fn docker(&self, arguments: &[&str]) -> Option<String> {
        let output = Command::new("docker")
            .args(["--host", &address(self.dir)])
            .args(arguments)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        output.status.success().then_some(said)
    }
}

impl Drop for Own<'_> {
    fn drop(&mut self) {
        let pid = i32::try_from(self.process.id()).unwrap();
        let pid = rustix::process::Pid::from_raw(pid).unwrap();
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let _ = self.process.wait();
    }
}

fn address(dir: &Path) -> String {
    format!("unix://{}", dir.join("docker.sock").display())
}

#[test]
fn an_engine_that_restarts_is_told_and_the_next_call_has_a_new_container() {
    let Some(engine) = conjure_kit::Engine::find().unwrap() else {
        return;
    };
    let place = tempfile::tempdir().unwrap();
    let Some(own) = Own::start(place.path()) else {
        eprintln!("LEFT OUT: docker of the test's own: dockerd does not run here");
        return;
    };
    let image = place.path().join("image.tar").display().to_string();
    engine
        .docker(["save", "--output", &image, engine.image()])
        .unwrap();
    own.docker(&["load", "--input", &image]).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let config = json!({ "engine": address(place.path()) });
    let world = world_in(engine, dir, &config);
    assert_eq!(world.bash("echo 1 >a; cat a").stdout, "1\n");
    let running = world.plugin.start(
        "executor.bash",
        json!({ "command": "echo begun; sleep 60" }),
    );
    assert!(running.until(|seen| seen.stdout == b"begun\n"));

    drop(own);
    let lost = running.wait();
    assert!(lost.code().is_some(), "{}", lost.text());
    assert!(lost.text().contains("Call again"), "{}", lost.text());
    let error = world.error("executor.bash", json!({ "command": "true" }));
    assert!(error.contains("docker.sock"), "{error}");

    let own = Own::start(place.path()).unwrap();
    assert_eq!(world.bash("cat a").stdout, "1\n");
    world.call("executor.cleanup", json!({})).reply.unwrap();
    assert_eq!(own.docker(&["ps", "-aq"]).unwrap(), "");
}
