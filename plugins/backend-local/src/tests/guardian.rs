//! What a command started is gone after the host, however the host ended.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde_json::json;

use crate::testing::{Call, Host, is_gone, pids, wait_until_gone};

/// The directory of a host that is to be killed, for the process that is to be that host.
const DIR: &str = "CONJURE_TEST_KILLED_HOST";
/// Whether that host loses its guardian first.
const UNGUARDED: &str = "CONJURE_TEST_KILLED_GUARDIAN";

/// One of each kind: in the group, in a session of its own, in the group without the mark, in a
/// session of its own without the mark, and one that ignores SIGTERM.
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
    let host = Host::new();
    let call = Call::new();
    let _pending = host.start("executor.bash", &json!({ "command": FAMILY }), &call);
    call.wait_for("ready");
    if std::env::var_os(UNGUARDED).is_some() {
        let guardian = guardian(&host);
        kill(guardian, Signal::KILL);
        wait_until_gone(guardian);
        host.bash("true");
    }
    fs::copy(host.work("pids"), Path::new(&dir).join("pids")).unwrap();
    println!("\nthe family lives");
    call.wait_for("what is never said");
}

#[test]
fn a_killed_host_leaves_no_process_behind() {
    ends_with_its_host(&[], |host| host.kill().unwrap());
}

#[test]
fn a_terminated_host_leaves_no_process_behind() {
    ends_with_its_host(&[], |host| kill(number(host), Signal::TERM));
}

#[test]
fn a_signal_to_the_whole_group_of_the_host_leaves_no_process_behind() {
    for signal in [Signal::INT, Signal::KILL] {
        ends_with_its_host(&[], |host| {
            kill_process_group(Pid::from_raw(number(host)).unwrap(), signal).unwrap();
        });
    }
}

#[test]
fn another_guardian_knows_the_commands_of_the_one_that_was_killed() {
    ends_with_its_host(&[(UNGUARDED, "1")], |host| host.kill().unwrap());
}

#[test]
fn an_instance_that_is_dropped_leaves_no_guardian_behind() {
    let host = Host::new();
    let guardian = guardian(&host);
    assert!(!is_gone(guardian));
    drop(host);
    wait_until_gone(guardian);
}

#[test]
fn an_instance_has_one_guardian_for_all_commands() {
    let host = Host::new();
    let first = guardian(&host);
    for signal in [Signal::HUP, Signal::INT, Signal::TERM] {
        kill(first, signal);
    }
    assert_eq!(guardian(&host), first);
}

#[test]
fn commands_run_when_the_guardian_was_killed() {
    let host = Host::new();
    let first = guardian(&host);
    kill(first, Signal::KILL);
    wait_until_gone(first);
    let second = guardian(&host);
    assert_ne!(second, first);
    assert!(!is_gone(second));
}

#[test]
fn a_guardian_that_stands_still_holds_no_command() {
    let host = Host::new();
    let guardian = guardian(&host);
    kill(guardian, Signal::STOP);
    assert_eq!(host.bash("echo hello").stdout, "hello\n");
    kill(guardian, Signal::CONT);
}

/// Starts a host with a family of commands, ends it, and waits until all of them are gone.
fn ends_with_its_host(env: &[(&str, &str)], end: impl FnOnce(&mut Child)) {
    let dir = tempfile::tempdir().unwrap();
    let mut host = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "tests::guardian::a_host_that_is_killed"])
        .arg("--nocapture")
        .env(DIR, dir.path())
        // What it cannot remove any more is removed with this directory.
        .env("TMPDIR", dir.path())
        .envs(env.iter().copied())
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

/// The guardian of the host's instance, started if need be.
fn guardian(host: &Host) -> i32 {
    let marks = host.bash("echo $CONJURE_CALL").stdout;
    let (instance, _) = marks.trim().rsplit_once('/').unwrap();
    let instance = format!("{}/", instance.rsplit('/').next().unwrap());
    let processes = fs::read_dir("/proc").unwrap();
    let mut numbers = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let guardian = numbers.find(|pid: &i32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0)
            .any(|argument| argument == instance.as_bytes())
    });
    guardian.unwrap()
}

fn number(host: &Child) -> i32 {
    i32::try_from(host.id()).unwrap()
}

fn kill(pid: i32, signal: Signal) {
    kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
}
