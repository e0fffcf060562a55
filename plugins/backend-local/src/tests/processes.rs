//! What a command started is gone when its call is over.

use std::fs;
use std::thread;

use rustix::process::{Resource, getrlimit, setrlimit};
use serde_json::json;

use crate::testing::{LocalTestHost, TestCall, is_gone, pids, wait_until_gone};

/// Starts a process in the group, one in a session of its own and one that also dropped its
/// environment, and writes their numbers to the file `pids`.
const FAMILY: &str = "sleep 1000 & echo $! > pids
    setsid sleep 1000 > /dev/null 2>&1 & echo $! >> pids
    env -i setsid sleep 1000 & echo $! >> pids
    echo ready; ";

#[test]
fn b4_a_time_out_ends_the_whole_tree_and_keeps_the_output() {
    let host = LocalTestHost::new();
    let command = format!("{FAMILY} wait");
    let output = host.bash_with(&command, &json!({ "deadline_ms": 1_000 }), &TestCall::new());
    assert!(output.timed_out);
    assert_eq!((output.exit_code, output.signal), (None, Some(15)));
    assert_eq!(output.stdout, "ready\n");
    let pids = pids(&host.work("pids"));
    assert_eq!(pids.len(), 3);
    for pid in pids {
        assert!(is_gone(pid), "{pid}");
    }
}

#[test]
fn b4_what_ignores_sigterm_is_killed() {
    let host = LocalTestHost::new();
    let command = "trap '' TERM; (sh -c 'trap \"\" TERM; echo $$ > pids; sleep 1000'; :)";
    let output = host.bash_with(command, &json!({ "deadline_ms": 1_000 }), &TestCall::new());
    assert_eq!((output.timed_out, output.signal), (true, Some(9)));
    assert!(is_gone(pids(&host.work("pids"))[0]));
}

#[test]
fn what_left_its_parent_and_ignores_sigterm_is_killed() {
    let host = LocalTestHost::new();
    let command = "env -i setsid sh -c 'trap \"\" TERM; echo $$ > pids; sleep 1000 & \
                   echo $! >> pids; echo ready; wait' & wait";
    let call = TestCall::new();
    thread::scope(|scope| {
        let (host, call) = (&host, &call);
        let running = scope.spawn(move || host.bash_with(command, &json!({}), call));
        call.wait_for("ready\n");
        call.cancel();
        running.join().unwrap()
    });
    let pids = pids(&host.work("pids"));
    assert_eq!(pids.len(), 2);
    for pid in pids {
        assert!(is_gone(pid), "{pid}");
    }
}

/// Set for the process of the next test that has hardly a descriptor free.
const FEW_DESCRIPTORS: &str = "CONJURE_TEST_FEW_DESCRIPTORS";

#[test]
fn b4_the_tree_ends_also_when_descriptors_run_out() {
    if std::env::var_os(FEW_DESCRIPTORS).is_none() {
        let name = "tests::processes::b4_the_tree_ends_also_when_descriptors_run_out";
        let status = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name])
            .env(FEW_DESCRIPTORS, "1")
            .status()
            .unwrap();
        assert!(status.success());
        return;
    }
    let host = LocalTestHost::new();
    host.bash("true");
    let open = fs::read_dir("/proc/self/fd").unwrap().count();
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = Some(open as u64 + 12);
    setrlimit(Resource::Nofile, limit).unwrap();
    let command = "ulimit -n 256; i=0; while [ $i -lt 60 ]; do sleep 1000 & \
                   echo $! >> pids; i=$((i + 1)); done";
    let output = host.bash(command);
    assert_eq!(output.exit_code, Some(0), "{output:?}");
    let pids = pids(&host.work("pids"));
    assert_eq!(pids.len(), 60);
    for pid in pids {
        assert!(is_gone(pid), "{pid}");
    }
}

#[test]
fn a_command_that_ends_on_sigterm_may_say_how() {
    let host = LocalTestHost::new();
    // Starts nothing after the signal: what is forked in that moment would say it too.
    let command = "trap 'echo bye; exit 7' TERM; sleep 1000 & while :; do wait $!; done";
    let output = host.bash_with(command, &json!({ "deadline_ms": 1_000 }), &TestCall::new());
    assert_eq!((output.timed_out, output.exit_code), (true, Some(7)));
    assert_eq!(output.stdout, "bye\n");
}

#[test]
fn background_processes_end_with_their_command() {
    let host = LocalTestHost::new();
    let output = host.bash("sleep 1000 & echo $! > pids; setsid sleep 1000 & echo $! >> pids");
    assert_eq!((output.exit_code, output.timed_out), (Some(0), false));
    for pid in pids(&host.work("pids")) {
        assert!(is_gone(pid), "{pid}");
    }
}

#[test]
fn what_is_about_to_finish_may_finish() {
    let host = LocalTestHost::configured(&json!({ "shell": "/bin/bash" })).unwrap();
    let output = host.bash("echo text > >(cat > copy; echo copied >> copy)");
    assert_eq!(output.exit_code, Some(0));
    assert_eq!(
        fs::read_to_string(host.work("copy")).unwrap(),
        "text\ncopied\n"
    );
}

#[test]
fn a_process_that_hides_and_keeps_the_pipes_ends_with_its_command() {
    let host = LocalTestHost::new();
    // It leaves the group, its parent and its environment, and keeps the pipes.
    let output = host.bash(
        "mkfifo go; env -i setsid sh -c 'echo $$ > pid; exec cat go > /dev/stdout' & \
         while ! test -s pid; do :; done; echo done",
    );
    assert_eq!(output.stdout, "done\n");
    assert!(is_gone(pids(&host.work("pid"))[0]));
}

#[test]
fn of_two_commands_at_once_each_ends_with_its_own_processes() {
    let host = LocalTestHost::new();
    let (one, two) = (TestCall::new(), TestCall::new());
    let hides = |file: &str| {
        format!(
            "env -i setsid sh -c '(sleep 1000 & echo $! >{file}) ' & \
             while ! test -s {file}; do :; done; echo ready; while ! test -e {file}.go; do :; done"
        )
    };
    thread::scope(|scope| {
        let (host, one, two) = (&host, &one, &two);
        let first = scope.spawn(|| host.bash_with(&hides("one"), &json!({}), one));
        let second = scope.spawn(|| host.bash_with(&hides("two"), &json!({}), two));
        one.wait_for("ready");
        two.wait_for("ready");
        fs::write(host.work("one.go"), "").unwrap();
        assert_eq!(first.join().unwrap().exit_code, Some(0));
        assert!(is_gone(pids(&host.work("one"))[0]));
        assert!(!is_gone(pids(&host.work("two"))[0]));
        fs::write(host.work("two.go"), "").unwrap();
        assert_eq!(second.join().unwrap().exit_code, Some(0));
        assert!(is_gone(pids(&host.work("two"))[0]));
    });
}

#[test]
fn a_cancel_ends_the_tree_and_keeps_the_output() {
    let host = LocalTestHost::new();
    let call = TestCall::new();
    let output = thread::scope(|scope| {
        let command = format!("{FAMILY} wait");
        let (host, call) = (&host, &call);
        let running = scope.spawn(move || host.bash_with(&command, &json!({}), call));
        call.wait_for("ready\n");
        call.cancel();
        running.join().unwrap()
    });
    assert_eq!((output.signal, output.timed_out), (Some(15), false));
    assert_eq!(output.stdout, "ready\n");
    for pid in pids(&host.work("pids")) {
        assert!(is_gone(pid), "{pid}");
    }
}

#[test]
fn the_end_of_a_session_ends_its_commands_and_no_others() {
    let host = LocalTestHost::new();
    let (one, two) = (TestCall::new(), TestCall::new());
    let command = |file: &str| format!("echo $$ > {file}; echo ready; sleep 1000");
    thread::scope(|scope| {
        let (host, one, two) = (&host, &one, &two);
        let first = scope.spawn(|| host.bash_with(&command("one"), &json!({}), one));
        let more = json!({ "session": "t" });
        let second = scope.spawn(move || host.bash_with(&command("two"), &more, two));
        one.wait_for("ready");
        two.wait_for("ready");
        host.call("executor.cleanup", &json!({})).unwrap();
        assert!(is_gone(pids(&host.work("one"))[0]));
        assert_eq!(first.join().unwrap().signal, Some(15));
        assert!(!is_gone(pids(&host.work("two"))[0]));
        two.cancel();
        assert_eq!(second.join().unwrap().signal, Some(15));
    });
}

#[test]
fn commands_do_not_keep_the_session_of_the_hosts_terminal() {
    let host = LocalTestHost::new();
    let own = session_of(&fs::read_to_string("/proc/self/stat").unwrap());
    let commands = session_of(&host.bash("cat /proc/self/stat").stdout);
    assert_ne!(commands, own);
    assert_ne!(
        commands, 0,
        "led by a process outside of the test's PID namespace"
    );
}

/// The session in a line of `/proc/PID/stat`, 0 where its leader is in
/// another PID namespace, as it may be for a test in a container.
fn session_of(stat: &str) -> i32 {
    let (_, after_name) = stat.rsplit_once(") ").unwrap();
    after_name.split(' ').nth(3).unwrap().parse().unwrap()
}

#[test]
fn a_call_that_nobody_waits_for_any_more_is_killed() {
    let host = LocalTestHost::new();
    let call = TestCall::new();
    let body =
        json!({ "command": "echo $$ > pid; setsid sleep 1000 & echo $! >> pid; echo ready; wait" });
    let pending = host.start("executor.bash", &body, &call);
    call.wait_for("ready");
    let pids = pids(&host.work("pid"));
    drop(pending);
    for pid in pids {
        wait_until_gone(pid);
    }
}

#[test]
fn an_instance_that_is_dropped_leaves_nothing_running() {
    let host = LocalTestHost::new();
    let call = TestCall::new();
    let body = json!({ "command": "echo $$ > pid; echo ready; sleep 1000" });
    let pending = host.start("executor.bash", &body, &call);
    call.wait_for("ready");
    let pid = pids(&host.work("pid"))[0];
    drop(host);
    wait_until_gone(pid);
    drop(pending);
}
