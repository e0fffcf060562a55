//! Programs that run for long, each under a supervisor of its own, as plugins start them.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::Command;

use conjure_process_tree::{Outputs, Program, ProgramEnd, ProgramEnds, Start, SupervisedProgram};
use rustix::process::{Pid, Signal, kill_process};

use crate::client::Agent;
use crate::commands::{gone, runs};

/// Starts a shell that runs this.
fn start(agent: &str, script: &str) -> std::io::Result<(SupervisedProgram, Outputs, ProgramEnds)> {
    let program = Program::new(&fs::read(agent).unwrap()).unwrap();
    let start = Start {
        program: "/bin/sh".into(),
        arguments: vec!["-c".into(), script.into()],
        ..Start::default()
    };
    let env = std::env::vars_os().filter(|(name, _)| name == "PATH");
    SupervisedProgram::start(&program, start, env, None)
}

fn agent() -> &'static str {
    env!("CARGO_BIN_EXE_conjure-exec-agent")
}

/// The children of this process that have ended and were not collected.
fn zombies() -> Vec<String> {
    let own = format!(" Z {} ", std::process::id());
    let all = fs::read_dir("/proc").unwrap().flatten();
    let stats = all.filter_map(|entry| fs::read_to_string(entry.path().join("stat")).ok());
    stats
        .filter(|stat| stat.contains(&own) && stat.contains("(conjure-"))
        .collect()
}

#[test]
fn a_program_whose_supervisor_is_killed_is_killed_with_its_group() {
    let script = "trap '' TERM HUP; sleep 1000 & echo $!; while :; do wait; done";
    let (program, outputs, mut ends) = start(agent(), script).unwrap();
    let mut child = String::new();
    let mut output = BufReader::new(outputs.stdout);
    output.read_line(&mut child).unwrap();
    let pid = program.id().to_string();
    assert!(runs(&pid) && runs(&child));
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let (_, rest) = stat.rsplit_once(") ").unwrap();
    let supervisor = rest.split(' ').nth(1).unwrap().parse().unwrap();
    kill_process(Pid::from_raw(supervisor).unwrap(), Signal::KILL).unwrap();
    assert_eq!(ends.wait(), ProgramEnd::AllExited);
    gone(&pid);
    gone(&child);
}

#[test]
fn what_is_not_started_says_why_and_leaves_no_process() {
    let program = Program::new(&fs::read(agent()).unwrap()).unwrap();
    let absent = Start {
        program: "/no/such/program".into(),
        ..Start::default()
    };
    let env: [(&str, &str); 0] = [];
    let error = SupervisedProgram::start(&program, absent, env, None).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
    assert_eq!(error.to_string(), "No such file or directory (os error 2)");
    // Another program in the place of the supervisor's ends before it began anything.
    let error = start("/bin/cat", "").unwrap_err().to_string();
    assert!(
        error.starts_with("its supervisor ended before it began (exit status: 1: "),
        "{error}"
    );
    assert!(error.contains("supervise: No such file"), "{error}");
    assert_eq!(zombies(), [""; 0]);
}

#[test]
fn a_program_nobody_waits_for_is_ended_and_collected() {
    let (program, outputs, ends) = start(agent(), "sleep 1000 & echo $!; wait").unwrap();
    let mut child = String::new();
    let mut output = BufReader::new(outputs.stdout);
    output.read_line(&mut child).unwrap();
    drop(ends);
    assert!(!runs(&child) && !runs(&program.id().to_string()));
    assert_eq!(zombies(), [""; 0]);
}

/// The user of an agent that may have few processes, who has none besides.
const SOMEBODY: u32 = 54_321;

#[test]
fn a_limit_on_processes_is_told_as_one() {
    use std::os::unix::process::CommandExt as _;

    // Only root can be somebody else, and to root itself no such limit applies.
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let mut ran = 0;
    let mut told = 0;
    for limit in 4..=9 {
        let mut command = Command::new("prlimit");
        command
            .arg(format!("--nproc={limit}"))
            .arg(agent())
            .uid(SOMEBODY);
        let mut agent = Agent::started(command, 600, Some(SOMEBODY));
        let call = agent.start("true", 15_000);
        match agent.ran(call) {
            Ok(done) => {
                assert_eq!(done.ended.signal, None, "{limit}");
                assert_eq!(done.ended.exit_code, Some(0), "{limit}");
                ran += 1;
            }
            Err(error) => {
                let said = error.message();
                assert!(said.contains("too many processes"), "{limit}: {said}");
                told += 1;
            }
        }
        agent.hang_up();
        agent.process.wait().unwrap();
    }
    assert!(ran > 0 && told > 1, "{ran} ran, {told} were told");
}
