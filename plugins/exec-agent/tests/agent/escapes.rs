//! Ways out of a command, each tried against every way in which a command ends: nothing survives
//! the end of its call, and nothing of another call ends with it.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, Instant};

use conjure_exec_agent::frame::AgentFrame;

use crate::client::{Agent, LIMIT};
use crate::commands::{gone, runs};

/// What an escaped process does: says who it is, and stays. `$1` is where it says so.
const STAY: &str = "#!/bin/sh
echo $$ >\"$1/.$$\" && mv \"$1/.$$\" \"$1/$$\"
trap '' TERM HUP INT
while :; do sleep 1000; done
";

/// Each starts `stay` in the background, in another way. `$s` is the program, `$d` where it says
/// who it is.
const WAYS: &[(&str, &str)] = &[
    ("in the background", "$s $d &"),
    ("a group of its own", "set -m; $s $d & set +m"),
    ("a session of its own", "setsid $s $d &"),
    ("a parent that is gone", "($s $d &)"),
    ("two parents that are gone", "( ( ($s $d &) ) & )"),
    ("without an environment", "env -i $s $d &"),
    (
        "a daemon without an environment",
        "env -i setsid sh -c \"$s $d &\"",
    ),
    (
        "a daemon of two forks and sessions",
        "(setsid sh -c \"(env -i setsid $s $d &)\" &)",
    ),
    ("deaf to a hang-up", "nohup $s $d >/dev/null 2>&1 &"),
    (
        "without any file",
        "env -i setsid sh -c \"exec 0<&- 1>&- 2>&-; $s $d &\"",
    ),
    ("in another directory", "(cd / && setsid $s $d &)"),
    ("under another name", "(exec -a systemd $s $d) & ($s $d &)"),
    ("disowned", "bash -c \"$s $d & disown -a\""),
    ("out of a pipe", "true | (env -i setsid $s $d &) | cat &"),
    (
        "with an open pipe of its parent",
        "env -i setsid sh -c \"$s $d &\" >&2 &",
    ),
    (
        "an adopter of its own",
        "python3 -c 'import ctypes, os, sys
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)
if os.fork() == 0:
    os.setsid()
    if os.fork(): os._exit(0)
    os.execve(sys.argv[1], sys.argv[1:], {})
os.wait(); os.wait()' $s $d &",
    ),
    (
        "a chain that forks faster than it is seen",
        "python3 -c 'import os, sys
d = sys.argv[1]
first = True
while True:
    if os.fork(): os._exit(0)
    os.setsid()
    if first:
        open(d + \"/.x\", \"w\").close(); os.rename(d + \"/.x\", d + \"/chain\")
        first = False' $d &",
    ),
];

/// Starts all ways but those whose program is not here, and says how many there are. A file in the
/// directory `left` stands for each.
fn all_ways(agent: &Agent) -> (String, usize) {
    let (program, left) = (agent.path("stay"), agent.work("left"));
    fs::write(&program, STAY).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    fs::create_dir(&left).unwrap();
    let mut command = format!("s={} d={}\n", program.display(), left.display());
    let mut count = 0;
    for (name, way) in WAYS {
        command.push_str(&format!("# {name}\n{way}\n"));
        // One way starts two, since not every shell knows how to change a name.
        count += match *name {
            "under another name" => 1,
            _ => way.matches("$s $d").count().max(1),
        };
    }
    (command, count)
}

/// Waits until all of them are out, and says who they are.
fn out(agent: &Agent, count: usize) -> Vec<String> {
    let begun = Instant::now();
    loop {
        let entries = fs::read_dir(agent.work("left")).unwrap().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let names: Vec<String> = names.filter(|name| !name.starts_with('.')).collect();
        if names.len() >= count {
            return names;
        }
        assert!(
            begun.elapsed() < LIMIT,
            "{} of {count} are out",
            names.len()
        );
        std::thread::yield_now();
    }
}

/// Whether any process has this text in its command line.
fn mentions(text: &str) -> Vec<String> {
    let all = fs::read_dir("/proc").unwrap().flatten();
    let lines = all.filter_map(|entry| {
        let line = fs::read(entry.path().join("cmdline")).ok()?;
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        line.contains(text).then_some(line)
    });
    lines.collect()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Itself,
    TimeLimit,
    Cancel,
    Stream,
    KilledAgent,
    KilledSupervisor,
}

fn nothing_survives(end: End) {
    let mut agent = Agent::new();
    // Somebody else's command, which is none of this one's business.
    let other = agent.start(
        "env -i setsid sh -c 'echo $$ >other; exec sleep 1000' & \
         while [ ! -e go ]; do sleep 0.01; done; echo on",
        60_000,
    );
    let begun = Instant::now();
    while !fs::read_to_string(agent.work("other")).is_ok_and(|text| text.ends_with('\n')) {
        assert!(begun.elapsed() < LIMIT, "the other command says nothing");
        std::thread::yield_now();
    }
    let others = fs::read_to_string(agent.work("other")).unwrap();

    let (mut command, count) = all_ways(&agent);
    command.push_str("while [ ! -e over ]; do sleep 0.01; done");
    let time = match end {
        End::TimeLimit => 4_000,
        _ => 60_000,
    };
    let call = agent.start(&command, time);
    let pids = out(&agent, count);
    let marker = agent.work("left").display().to_string();
    assert!(
        !mentions(&marker).is_empty(),
        "otherwise this shows nothing"
    );
    let over = match end {
        End::Itself => {
            fs::write(agent.work("over"), "").unwrap();
            agent.ran(call).is_ok()
        }
        End::TimeLimit => agent.ran(call).unwrap().ended.timed_out,
        End::Cancel => {
            agent.send(call, &AgentFrame::Cancel);
            agent.ran(call).is_ok()
        }
        End::KilledSupervisor => {
            let kill = "kill -9 $(sed -n 's/^PPid:\\s*//p' /proc/$(cat shell)/status)";
            fs::write(agent.work("shell"), shell_of(&agent, &marker)).unwrap();
            let killing = agent.bash(kill);
            assert_eq!(killing.ended.exit_code, Some(0), "{}", killing.err());
            let ran = agent.ran(call).unwrap();
            ran.ended.signal == Some(9)
        }
        End::Stream => {
            agent.hang_up();
            agent.process.wait().is_ok()
        }
        End::KilledAgent => {
            agent.process.kill().unwrap();
            agent.process.wait().is_ok()
        }
    };
    assert!(over);
    let by_itself = matches!(end, End::KilledAgent);
    for pid in pids.iter().filter(|pid| *pid != "chain") {
        match by_itself {
            // Nobody is left who could say when.
            true => gone(pid),
            false => assert!(!runs(pid), "{pid} survived"),
        }
    }
    let begun = Instant::now();
    while !mentions(&marker).is_empty() {
        let patient = by_itself && begun.elapsed() < LIMIT;
        assert!(patient, "{:?}", mentions(&marker));
        std::thread::sleep(Duration::from_millis(1));
    }
    match end {
        End::Stream | End::KilledAgent => gone(&others),
        _ => {
            assert!(runs(&others), "another command's own has ended");
            fs::write(agent.work("go"), "").unwrap();
            assert_eq!(agent.ran(other).unwrap().out(), "on\n");
            assert!(!runs(&others));
        }
    }
}

/// The shell of the command that mentions this and is not below another one that does.
fn shell_of(agent: &Agent, marker: &str) -> String {
    let shells = crate::commands::shells(agent);
    let mentioned = shells.into_iter().find(|pid| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(marker)
    });
    mentioned.expect("the command has a shell")
}

#[test]
fn nothing_survives_the_end_of_its_command() {
    nothing_survives(End::Itself);
}

#[test]
fn nothing_survives_a_time_limit() {
    nothing_survives(End::TimeLimit);
}

#[test]
fn nothing_survives_a_cancel() {
    nothing_survives(End::Cancel);
}

#[test]
fn nothing_survives_the_end_of_the_stream() {
    nothing_survives(End::Stream);
}

#[test]
fn nothing_survives_an_agent_that_is_killed() {
    nothing_survives(End::KilledAgent);
}

#[test]
fn nothing_survives_a_supervisor_that_is_killed() {
    nothing_survives(End::KilledSupervisor);
}
