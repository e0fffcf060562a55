//! The end of the host, of the agent and of its relay, however each comes about.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use conjure_kit::{Network, Sshd};
use conjure_skill_sdk::protocol::BashOutput;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use super::{agents, until, world};

fn kill(pid: i32) {
    kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
}

fn is_gone(pid: &str) -> bool {
    !fs::exists(format!("/proc/{}", pid.trim())).unwrap()
}

#[test]
fn an_agent_that_is_killed_is_told_and_the_next_call_has_a_new_one() {
    let Some(world) = world(&json!({})) else {
        return;
    };
    world.bash("echo 1 >kept");
    let running = world.start("echo $$ >pid; echo begun; sleep 1000");
    assert!(running.until(|seen| seen.stdout == b"begun\n"));
    let agent = world.agents("serve-relayed");
    assert_eq!(agent.len(), 1);
    kill(agent[0]);
    let outcome = running.wait();
    assert!(outcome.code().is_some());
    let text = outcome.text();
    assert!(
        text.contains("signal 9") && text.contains("Call again"),
        "{text}"
    );
    assert!(text.contains("begun"), "what it had said is lost: {text}");
    let pid = fs::read_to_string(world.work("pid")).unwrap();
    until("its command is gone", || is_gone(&pid));
    assert_eq!(world.bash("cat kept").stdout, "1\n");
}

#[test]
fn a_relay_that_is_killed_is_told_and_takes_the_agent_along() {
    let Some(world) = world(&json!({})) else {
        return;
    };
    world.bash("echo 1 >kept");
    let running = world.start("echo $$ >pid; echo begun; sleep 1000");
    assert!(running.until(|seen| seen.stdout == b"begun\n"));
    kill(world.agents("relay")[0]);
    let outcome = running.wait();
    assert!(outcome.code().is_some());
    assert!(outcome.text().contains("no agent"), "{}", outcome.text());
    let pid = fs::read_to_string(world.work("pid")).unwrap();
    until("its command is gone", || is_gone(&pid));
    assert_eq!(world.bash("cat kept").stdout, "1\n");
}

#[test]
fn a_session_that_ends_after_its_agent_or_its_relay_leaves_nothing() {
    for verb in ["serve-relayed", "relay"] {
        let Some(world) = world(&json!({})) else {
            return;
        };
        world.bash("echo 1 >kept");
        kill(world.agents(verb)[0]);
        until("it is noticed", || world.agents("open").is_empty());
        world.call("executor.cleanup", json!({})).reply.unwrap();
        assert_eq!(world.sessions().len(), 0, "{verb}");
        until("nobody is left", || world.agents("relay").is_empty());
    }
}

#[test]
fn an_agent_that_stands_still_is_replaced() {
    let Some(world) = world(&json!({})) else {
        return;
    };
    world.bash("echo 1 >kept");
    let agent = world.agents("serve-relayed")[0];
    kill_process(Pid::from_raw(agent).unwrap(), Signal::STOP).unwrap();
    let outcome = world.bash_within("true", 1_000);
    assert!(
        outcome.text().contains("did not answer"),
        "{}",
        outcome.text()
    );
    assert_eq!(world.bash("cat kept").stdout, "1\n");
    until("it is gone", || is_gone(&agent.to_string()));
}

#[test]
fn nobody_else_gets_into_a_session() {
    use std::io::{Read as _, Write as _};

    use conjure_exec_agent::relay::{RELAY_VERSION, RelayFrame};

    let Some(world) = world(&json!({})) else {
        return;
    };
    world.bash("true");
    let dir = &world.sessions()[0];
    let mode = fs::metadata(dir).unwrap().permissions();
    assert_eq!(
        std::os::unix::fs::PermissionsExt::mode(&mode) & 0o777,
        0o700
    );
    // Also a command of the same user, who finds the socket, does not know the word.
    let mut socket = std::os::unix::net::UnixStream::connect(dir.join("link")).unwrap();
    let hello = RelayFrame::Hello {
        version: RELAY_VERSION,
        token: "guess".to_owned(),
        stream: 1,
        received: 0,
    };
    socket.write_all(&hello.encode()).unwrap();
    let mut answer = Vec::new();
    socket.read_to_end(&mut answer).unwrap();
    assert!(String::from_utf8_lossy(&answer).contains("somebody else's session"));
    assert_eq!(world.bash("echo on").stdout, "on\n");
}

/// The directory of a host that is to be killed, for the process that is to be that host.
const DIR: &str = "CONJURE_TEST_KILLED_SSH_HOST";

/// Not a test by itself: the host that the next one kills.
#[test]
fn a_host_that_is_killed() {
    let Ok(dir) = std::env::var(DIR) else {
        return;
    };
    let Some(world) = world(&json!({ "reconnect_ms": 1_000, "scratch_dir": &dir })) else {
        return;
    };
    let running = world.start("echo $$ >pid; setsid sleep 1000 & echo $! >>pid; echo ready; wait");
    assert!(running.until(|seen| seen.stdout == b"ready\n"));
    fs::copy(world.work("pid"), Path::new(&dir).join("pids")).unwrap();
    println!("\nthe command runs");
    running.wait();
}

#[test]
fn what_a_killed_host_left_behind_is_gone_after_the_limit() {
    let Some(_sshd) = Sshd::find().unwrap() else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let mut host = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "tests::ends::a_host_that_is_killed",
            "--nocapture",
        ])
        .env(DIR, dir.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let said = BufReader::new(host.stdout.take().unwrap());
    let mut said = said.lines().map_while(Result::ok);
    assert!(said.any(|line| line == "the command runs"));
    let relay = agents(dir.path(), "relay");
    assert_eq!(relay.len(), 1);
    host.kill().unwrap();
    host.wait().unwrap();
    let pids = fs::read_to_string(dir.path().join("pids")).unwrap();
    assert_eq!(pids.lines().count(), 2);
    for pid in pids.lines() {
        until("the command is gone", || is_gone(pid));
    }
    until("the relay is gone", || is_gone(&relay[0].to_string()));
    fs::remove_file(dir.path().join("pids")).unwrap();
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn an_instance_that_is_dropped_ends_its_connection() {
    let Some(sshd) = Sshd::find().unwrap() else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    for name in ["work", "exchange", "data", "scratch"] {
        fs::create_dir(dir.path().join(name)).unwrap();
    }
    let network = Network::to(sshd.address()).unwrap();
    sshd.known_at(network.address()).unwrap();
    let config = json!({ "reconnect_ms": 1_000 });
    let plugin = super::host(&sshd, &network, &dir, &config);
    let plugin = plugin.link(crate::plugin).unwrap();
    let init = json!({ "skills": [], "env": {} });
    plugin.call("executor.init", init).reply.unwrap();
    let ran = plugin.call("executor.bash", json!({ "command": "echo $PPID" }));
    let ran: BashOutput = ran.parse().unwrap();
    assert_eq!(ran.exit_code, Some(0));
    let scratch = dir.path().join("scratch");
    assert_eq!(agents(&scratch, "open").len(), 1);
    drop(plugin);
    until("the connection is gone", || {
        agents(&scratch, "open").is_empty()
    });
    until("the agent is gone", || agents(&scratch, "relay").is_empty());
}
