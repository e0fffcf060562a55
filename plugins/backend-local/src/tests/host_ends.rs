//! What a command started is gone after the host, however the host ended.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde_json::json;

use crate::testing::{LocalTestHost, TestCall, is_gone, pids, wait_until_gone};

/// The directory of a host that is to be killed, for the process that is to be that host.
const DIR: &str = "CONJURE_TEST_KILLED_HOST";
/// One of each kind: in the group, in a session of its own, in the group without an environment, in
/// a session of its own without one, and one that ignores SIGTERM.
const FAMILY: &str = "echo $$ > pids
    sleep 300 & echo $! >> pids
    setsid sleep 300 & echo $! >> pids
    env -i sleep 300 & echo $! >> pids
    env -i setsid sleep 300 & echo $! >> pids
    (trap '' TERM; exec sleep 300) & echo $! >> pids
    echo ready; wait";

/// Not a test by itself: the host that the others kill.
#[test]
fn a_host_that_is_killed() {
    let Some(dir) = std::env::var_os(DIR) else {
        return;
    };
    let host = LocalTestHost::new();
    let call = TestCall::new();
    let _pending = host.start("executor.bash", &json!({ "command": FAMILY }), &call);
    call.wait_for("ready");
    fs::copy(host.work("pids"), Path::new(&dir).join("pids")).unwrap();
    println!("\nthe family lives");
    call.wait_for("what is never said");
}

#[test]
fn a_killed_host_leaves_no_process_behind() {
    ends_with_its_host(|host| host.kill().unwrap());
}

#[test]
fn a_terminated_host_leaves_no_process_behind() {
    ends_with_its_host(|host| kill(number(host), Signal::TERM));
}

#[test]
fn a_signal_to_the_whole_group_of_the_host_leaves_no_process_behind() {
    for signal in [Signal::INT, Signal::KILL] {
        ends_with_its_host(|host| {
            kill_process_group(Pid::from_raw(number(host)).unwrap(), signal).unwrap();
        });
    }
}

#[test]
fn a_host_and_its_agent_that_are_killed_leave_no_process_behind() {
    ends_with_its_host(|host| {
        let all = fs::read_dir("/proc").unwrap().flatten();
        let numbers = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let agent = numbers.into_iter().find(|pid| parent(*pid) == number(host));
        kill(agent.unwrap(), Signal::KILL);
        host.kill().unwrap();
    });
}

#[test]
fn an_instance_that_is_dropped_leaves_no_agent_behind() {
    let host = LocalTestHost::new();
    let agent = agent(&host);
    assert!(!is_gone(agent));
    drop(host);
    wait_until_gone(agent);
}

#[test]
fn an_instance_has_one_agent_for_all_commands() {
    let host = LocalTestHost::new();
    let first = agent(&host);
    assert_eq!(agent(&host), first);
}

#[test]
fn commands_run_when_the_agent_was_killed() {
    let host = LocalTestHost::new();
    let first = agent(&host);
    kill(first, Signal::KILL);
    wait_until_gone(first);
    let call = TestCall::new();
    let body = json!({ "command": "echo on" });
    // The plugin may hear of it a moment later.
    let _ = host.call_with("executor.bash", &body, &json!({}), &call);
    let second = agent(&host);
    assert_ne!(second, first);
}

#[test]
fn a_command_whose_agent_is_killed_says_so_and_ends() {
    let host = LocalTestHost::new();
    let first = agent(&host);
    let call = TestCall::new();
    let error = std::thread::scope(|scope| {
        let body = json!({ "command": "echo $$ >pid; echo ready; sleep 1000" });
        let (host, call) = (&host, &call);
        let running = scope.spawn(move || host.call_with("executor.bash", &body, &json!({}), call));
        call.wait_for("ready");
        kill(first, Signal::KILL);
        running.join().unwrap().unwrap_err()
    });
    assert!(
        error.contains("the process that runs commands has ended"),
        "{error}"
    );
    wait_until_gone(pids(&host.work("pid"))[0]);
}

#[test]
fn an_agent_that_stands_still_is_replaced() {
    let host = LocalTestHost::new();
    let first = agent(&host);
    kill(first, Signal::STOP);
    let body = json!({ "command": "echo on" });
    let more = json!({ "deadline_ms": 1_000 });
    let stuck = host.call_with("executor.bash", &body, &more, &TestCall::new());
    assert!(stuck.unwrap_err().contains("does not answer"));
    wait_until_gone(first);
    assert_eq!(host.bash("echo on").stdout, "on\n");
}

/// Starts a host with a family of commands, ends it, and waits until all of them are gone.
fn ends_with_its_host(end: impl FnOnce(&mut Child)) {
    let dir = tempfile::tempdir().unwrap();
    let mut host = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "tests::host_ends::a_host_that_is_killed"])
        .arg("--nocapture")
        .env(DIR, dir.path())
        // What it cannot remove any more is removed with this directory.
        .env("TMPDIR", dir.path())
        .stdout(Stdio::piped())
        .process_group(0)
        .spawn()
        .unwrap();
    let said = BufReader::new(host.stdout.take().unwrap());
    let mut said = said.lines().map_while(Result::ok);
    assert!(said.any(|line| line == "the family lives"));
    let pids = pids(&dir.path().join("pids"));
    assert_eq!(pids.len(), 6);
    for pid in &pids {
        assert!(!is_gone(*pid), "otherwise this test shows nothing");
    }
    end(&mut host);
    host.wait().unwrap();
    for pid in pids {
        wait_until_gone(pid);
    }
}

/// The agent of the host's instance: the parent of the supervisor that each command has.
fn agent(host: &LocalTestHost) -> i32 {
    let supervisor = host.bash("echo $PPID").stdout;
    let status = host
        .bash("sed -n 's/^PPid:\\s*//p' /proc/$PPID/status")
        .stdout;
    assert!(!supervisor.is_empty());
    status.trim().parse().unwrap()
}

fn parent(pid: i32) -> i32 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let rest = stat.rsplit(')').next().unwrap_or_default();
    let parent = rest.split_whitespace().nth(1);
    parent.map_or(0, |parent| parent.parse().unwrap())
}

fn number(host: &Child) -> i32 {
    i32::try_from(host.id()).unwrap()
}

fn kill(pid: i32, signal: Signal) {
    kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
}
