//! Commands: what they see, how they end, and what is left of them.

use std::fs;
use std::time::{Duration, Instant};

use conjure_exec_agent::files::{FileChange, file_state};
use conjure_exec_agent::frame::AgentFrame;
use conjure_exec_agent::message::{AgentRequest, ShellCommand};

use crate::client::{Agent, LIMIT};

/// Whether a process with this number runs; a zombie does not.
pub(crate) fn runs(pid: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
    let state = stat.rsplit_once(") ").map(|(_, rest)| rest.as_bytes()[0]);
    state.is_some_and(|state| state != b'Z')
}

/// Waits until a process runs no more.
pub(crate) fn gone(pid: &str) {
    let begun = Instant::now();
    while runs(pid) {
        assert!(begun.elapsed() < LIMIT, "{pid} does not end");
        std::thread::yield_now();
    }
}

/// Waits until a command wrote a file with this text and a line's end.
fn said(agent: &Agent, name: &str) -> String {
    let begun = Instant::now();
    loop {
        match fs::read_to_string(agent.work(name)) {
            Ok(text) if text.ends_with('\n') => return text,
            _ => assert!(begun.elapsed() < LIMIT, "the command says nothing"),
        }
        std::thread::yield_now();
    }
}

#[test]
fn p6_a_command_has_output_exit_code_and_working_directory() {
    let mut agent = Agent::new();
    let ran = agent.bash("pwd; echo $GIVEN; echo no >&2; exit 3");
    let place = agent.work("").canonicalize().unwrap();
    assert_eq!(ran.out(), format!("{}\nyes\n", place.display()));
    assert_eq!((ran.err().as_str(), ran.ended.exit_code), ("no\n", Some(3)));
    assert_eq!((ran.ended.signal, ran.ended.timed_out), (None, false));
    let killed = agent.bash("kill -9 $$");
    assert_eq!(
        (killed.ended.exit_code, killed.ended.signal),
        (None, Some(9))
    );
}

#[test]
fn output_comes_while_the_command_runs() {
    let mut agent = Agent::new();
    let call = agent.start(
        "echo first; while [ ! -e go ]; do sleep 0.01; done; echo last",
        15_000,
    );
    assert_eq!(agent.frame(call), AgentFrame::Stdout(b"first\n".to_vec()));
    fs::write(agent.work("go"), "").unwrap();
    assert_eq!(agent.ran(call).unwrap().out(), "last\n");
}

#[test]
fn without_credit_no_more_output_comes_and_nothing_is_lost() {
    let mut agent = Agent::new();
    agent.pays = false;
    let call = agent.start("head -c 1000000 /dev/zero; echo end >&2", 15_000);
    let mut came = 0;
    while came < 256 * 1024 {
        match agent.frame(call) {
            AgentFrame::Stdout(bytes) => came += bytes.len(),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(came, 256 * 1024);
    assert_eq!(agent.frame_within(call, Duration::from_millis(200)), None);
    // Others are not held up by it.
    assert_eq!(agent.bash("echo other").out(), "other\n");
    agent.pays = true;
    agent.send(call, &AgentFrame::Credit(256 * 1024));
    let ran = agent.ran(call).unwrap();
    assert_eq!(came + ran.stdout.len(), 1_000_000);
    assert_eq!(ran.err(), "end\n");
}

#[test]
fn b4_a_time_out_ends_the_whole_process_tree() {
    let mut agent = Agent::new();
    let command = "echo out; trap '' TERM; (setsid sh -c 'trap \"\" TERM; echo $$ >>pids; \
                   env -i sleep 60' &) ; sleep 60 & echo $! >>pids; echo $$ >>pids; wait";
    let begun = Instant::now();
    let call = agent.start(command, 700);
    let ran = agent.ran(call).unwrap();
    assert!(ran.ended.timed_out);
    assert_eq!(ran.out(), "out\n");
    assert!(begun.elapsed() < Duration::from_secs(5));
    let pids = fs::read_to_string(agent.work("pids")).unwrap();
    assert_eq!(pids.lines().count(), 3);
    for pid in pids.lines() {
        assert!(!runs(pid), "{pid} is still there");
    }
}

#[test]
fn what_a_command_leaves_running_ends_with_it() {
    let mut agent = Agent::new();
    let ran = agent.bash("sleep 60 & echo $!; (setsid env -i sleep 61 >/dev/null 2>&1 & echo $!)");
    for pid in ran.out().lines() {
        assert!(!runs(pid), "{pid} is still there");
    }
    assert_eq!(ran.ended.exit_code, Some(0));
}

#[test]
fn of_two_commands_one_ends_alone() {
    let mut agent = Agent::new();
    let long = agent.start(
        "sleep 60 & echo $! >pid; while [ ! -e go ]; do sleep 0.01; done",
        15_000,
    );
    let pid = said(&agent, "pid");
    let other = agent.bash("sleep 62 & echo $!");
    assert!(!runs(&other.out()));
    assert!(runs(&pid), "the other command's own is ended");
    fs::write(agent.work("go"), "").unwrap();
    assert_eq!(agent.ran(long).unwrap().ended.exit_code, Some(0));
    assert!(!runs(&pid));
}

#[test]
fn a_cancelled_command_may_clean_up_and_is_gone() {
    let mut agent = Agent::new();
    // A child that a shell has just made can run its traps too, so this one makes no more of them.
    let command = "trap 'echo cleaned; exit 5' TERM; sleep 1000 & echo $$ >pid; wait";
    let call = agent.start(command, 15_000);
    let pid = said(&agent, "pid");
    agent.send(call, &AgentFrame::Cancel);
    let ran = agent.ran(call).unwrap();
    assert_eq!(
        (ran.out().as_str(), ran.ended.exit_code),
        ("cleaned\n", Some(5))
    );
    assert!(!ran.ended.timed_out && !runs(&pid));
}

#[test]
fn b24_files_that_a_command_made_or_changed_are_told() {
    let mut agent = Agent::new();
    for name in ["old", "same"] {
        fs::write(agent.work(name), "1").unwrap();
    }
    let ran = agent.bash("mkdir sub; echo 12 >sub/new; echo 22 >>old; ln -s /etc/passwd link");
    let change = |path: &str, size| FileChange {
        path: path.into(),
        size,
        state: file_state(&agent.work(path)).unwrap(),
    };
    assert_eq!(ran.ended.files, [change("old", 4), change("sub/new", 3)]);
}

/// The shells below an agent that wait for a command.
fn waiting(agent: &Agent) -> Vec<String> {
    // A shell that runs its command has nothing to read.
    let waits = |pid: &String| {
        let input = fs::read_link(format!("/proc/{pid}/fd/0"));
        input.is_ok_and(|input| input.to_string_lossy().starts_with("pipe:"))
    };
    shells(agent).into_iter().filter(waits).collect()
}

/// The children of an agent's supervisors: the shells, and what they adopted.
pub(crate) fn shells(agent: &Agent) -> Vec<String> {
    let supervisors = below(&agent.process.id().to_string());
    supervisors.iter().flat_map(|pid| below(pid)).collect()
}

/// The children of a process.
fn below(parent: &str) -> Vec<String> {
    let parent = format!(" {parent} ");
    let all = fs::read_dir("/proc").unwrap().flatten();
    all.filter_map(|entry| {
        let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
        let (_, rest) = stat.rsplit_once(") ")?;
        let child = rest.get(1..)?.starts_with(&parent) && !rest.starts_with('Z');
        let pid = entry.file_name().into_string().ok()?;
        child.then_some(pid)
    })
    .collect()
}

/// The one that waits, once it does.
fn one_waiting(agent: &Agent) -> String {
    let begun = Instant::now();
    loop {
        let all = waiting(agent);
        assert!(all.len() <= 1, "{all:?}");
        match all.into_iter().next() {
            Some(pid) => return pid,
            None => assert!(begun.elapsed() < LIMIT, "no shell waits"),
        }
        std::thread::yield_now();
    }
}

#[test]
fn a_shell_waits_for_the_next_command_and_no_command_meets_it() {
    let mut agent = Agent::new();
    assert_eq!(waiting(&agent), [""; 0]);
    // With nobody before it, a command has a shell of its own.
    let own = agent.bash("x=1; export x; ls /proc/self/fd; cd /");
    let first = one_waiting(&agent);
    // The next one runs in the one that waits, and finds nothing of that or of the one before.
    let ran = agent.bash("echo $$ ${x-none} $GIVEN; pwd; ls /proc/self/fd");
    let place = agent.work("").canonicalize().unwrap();
    let expected = format!("{first} none yes\n{}\n{}", place.display(), own.out());
    assert_eq!(ran.out(), expected);
    // While a command runs none waits, also when another one ends meanwhile.
    let long = agent.start("echo begun; while [ ! -e go ]; do sleep 0.01; done", 15_000);
    assert_eq!(agent.frame(long), AgentFrame::Stdout(b"begun\n".to_vec()));
    assert_eq!(agent.bash("true").ended.exit_code, Some(0));
    let no_shell = agent.begin(&AgentRequest::Bash(ShellCommand {
        shell: "/no/shell".into(),
        ..ShellCommand::default()
    }));
    agent.ran(no_shell).unwrap_err();
    assert_eq!(waiting(&agent), [""; 0]);
    fs::write(agent.work("go"), "").unwrap();
    assert_eq!(agent.ran(long).unwrap().ended.exit_code, Some(0));
    // One that was killed is missed by nobody.
    let killed = one_waiting(&agent);
    let pid = rustix::process::Pid::from_raw(killed.parse().unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    gone(&killed);
    assert_eq!(agent.bash("echo on").out(), "on\n");
    let last = one_waiting(&agent);
    assert_ne!(last, killed);
    agent.hang_up();
    assert!(agent.process.wait().unwrap().success());
    gone(&last);
}

/// The supervisor below an agent that waits beside a command, once it does.
fn one_spare(agent: &Agent) -> String {
    let begun = Instant::now();
    loop {
        let all = below(&agent.process.id().to_string());
        if let Some(pid) = all.into_iter().find(|pid| below(pid).is_empty()) {
            return pid;
        }
        assert!(begun.elapsed() < LIMIT, "no supervisor waits");
        std::thread::yield_now();
    }
}

#[test]
fn the_next_supervisor_waits_beside_a_command_whatever_that_does_to_it() {
    use rustix::process::Signal;

    let mut agent = Agent::new();
    for signal in [None, Some(Signal::STOP), Some(Signal::KILL)] {
        let _ = fs::remove_file(agent.work("go"));
        let long = agent.start("echo begun; while [ ! -e go ]; do sleep 0.01; done", 15_000);
        assert_eq!(agent.frame(long), AgentFrame::Stdout(b"begun\n".to_vec()));
        let spare = one_spare(&agent);
        if let Some(signal) = signal {
            let pid = rustix::process::Pid::from_raw(spare.parse().unwrap()).unwrap();
            rustix::process::kill_process(pid, signal).unwrap();
        }
        if signal == Some(Signal::KILL) {
            gone(&spare);
        }
        fs::write(agent.work("go"), "").unwrap();
        assert_eq!(agent.ran(long).unwrap().ended.exit_code, Some(0));
        let shell = one_waiting(&agent);
        let used = below(&spare) == [shell.clone()];
        assert_eq!(used, signal != Some(Signal::KILL), "{signal:?}");
        assert_eq!(agent.bash("echo $$").out(), format!("{shell}\n"));
        // Then the supervisor of that one is gone.
        one_waiting(&agent);
    }
    agent.hang_up();
    assert!(agent.process.wait().unwrap().success());
}

#[test]
fn what_a_lost_supervisor_left_is_gone_before_the_next_shell_waits() {
    use rustix::process::Signal;

    let mut agent = Agent::new();
    agent.bash("true");
    for _ in 0..20 {
        one_waiting(&agent);
        // Its supervisor, which is the shell's parent.
        let command = "trap '' TERM; sleep 1000 & echo $!; kill -9 $PPID; wait";
        let call = agent.start(command, 15_000);
        let ran = agent.ran(call).unwrap();
        assert_eq!(ran.ended.signal, Some(Signal::KILL.as_raw()));
        assert!(!runs(&ran.out()));
        let shell = one_waiting(&agent);
        assert_eq!(agent.bash("echo $$").out(), format!("{shell}\n"));
    }
}

#[test]
fn a_command_with_another_environment_or_shell_gets_its_own() {
    let mut agent = Agent::new();
    agent.bash("true");
    let before = one_waiting(&agent);
    let mut other = |shell: &str, value: &str| {
        let call = agent.begin(&AgentRequest::Bash(ShellCommand {
            shell: shell.into(),
            command: "echo $GIVEN; exec 2>&1; echo $0".into(),
            env: vec![("GIVEN".into(), value.into())],
            time_ms: 15_000,
            grace_ms: 200,
            ..ShellCommand::default()
        }));
        agent.ran(call).unwrap().out()
    };
    assert_eq!(other("/bin/sh", "no"), "no\n/bin/sh\n");
    assert_eq!(other("/usr/bin/sh", "no"), "no\n/usr/bin/sh\n");
    assert!(!runs(&before));
    assert_eq!(agent.bash("echo $GIVEN").out(), "yes\n");
}

#[test]
fn a_time_out_ends_a_command_in_a_shell_that_waited() {
    let mut agent = Agent::new();
    agent.bash("true");
    let shell = one_waiting(&agent);
    let call = agent.start("trap '' TERM; sleep 60 & echo $!; wait; sleep 60", 500);
    let ran = agent.ran(call).unwrap();
    assert!(ran.ended.timed_out);
    assert!(!runs(&ran.out()) && !runs(&shell));
}

/// The shell that waits for the next command is there as soon as nothing of the last one is, and
/// whatever was about to end that must not end the shell.
#[test]
fn what_ends_a_command_at_its_very_end_never_reaches_the_next() {
    let mut agent = Agent::new();
    for round in 0..200 {
        let call = agent.begin(&AgentRequest::Bash(ShellCommand {
            shell: "/bin/sh".into(),
            command: "true & true".into(),
            env: vec![("GIVEN".into(), "yes".into())],
            time_ms: round % 5,
            grace_ms: 0,
            ..ShellCommand::default()
        }));
        if round % 2 == 0 {
            agent.send(call, &AgentFrame::Cancel);
        }
        // It came to its end or not.
        let _ = agent.ran(call);
        let next = agent.bash("echo on");
        assert_eq!(
            (next.out().as_str(), next.ended.exit_code),
            ("on\n", Some(0)),
            "{round}"
        );
    }
}

#[test]
fn what_cannot_be_run_says_why() {
    let mut agent = Agent::new();
    let call = agent.start(&"x".repeat(128 * 1024), 1_000);
    let error = agent.ran(call).unwrap_err();
    assert!(
        error.message().contains("write it to a file first"),
        "{error}"
    );
    let call = agent.start("a\0b", 1_000);
    assert!(agent.ran(call).unwrap_err().message().contains("NUL"));
}

#[test]
fn the_end_of_the_stream_ends_everything() {
    let mut agent = Agent::new();
    agent.start(
        "trap '' TERM; setsid env -i sleep 60 & echo $! >pid; wait",
        15_000,
    );
    let pid = said(&agent, "pid");
    agent.hang_up();
    assert!(agent.process.wait().unwrap().success());
    assert!(!runs(&pid));
}

#[test]
fn who_hears_nothing_for_too_long_ends() {
    let mut agent = Agent::quiet(1);
    agent.send(0, &AgentFrame::Ping);
    assert!(agent.process.wait().unwrap().success());
}
