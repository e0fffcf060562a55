//! Commands on a remote machine: output, ends, limits of time, files, skills.

use std::fs;
use std::time::{Duration, Instant};

use conjure_skill_sdk::abi::code;
use conjure_skill_sdk::protocol::{BashOutput, ExecutorReady};
use serde_json::json;

use super::{notices, until, world};

#[test]
fn p6_a_command_has_output_exit_code_and_the_remote_machines_paths() {
    let Some(world) = world(&json!({ "env": { "SET": "so" } })) else {
        return;
    };
    let ran = world.bash("pwd; echo $GIVEN $SET; echo no >&2; exit 3");
    assert_eq!(ran.stdout, format!("{}\nyes so\n", world.ready.working_dir));
    assert_eq!((ran.stderr.as_str(), ran.exit_code), ("no\n", Some(3)));
    let killed = world.bash("kill -9 $$");
    assert_eq!((killed.exit_code, killed.signal), (None, Some(9)));
}

#[test]
fn the_agent_is_copied_once_and_one_connection_carries_the_whole_session() {
    let Some(world) = world(&json!({})) else {
        return;
    };
    let first = world.bash_within("cat /proc/sys/kernel/hostname", 30_000);
    assert!(
        notices(&first)
            .iter()
            .any(|text| text.contains("copying the agent")),
        "{:?}",
        notices(&first)
    );
    for _ in 0..5 {
        assert_eq!(notices(&world.bash_within("true", 30_000)), [""; 0]);
    }
    let log = fs::read_to_string(world.sshd.path("log")).unwrap_or_default();
    let programs = fs::read_dir(world.path("agent")).unwrap().count();
    assert_eq!(programs, 1, "{log}");
    assert_eq!(world.agents("attach").len() + world.agents("open").len(), 1);
    // Another instance finds the program there.
    let other = super::host(&world.sshd, &world.network, &world.dir, &json!({}));
    let other = other.link(crate::plugin).unwrap();
    let init = json!({ "skills": [], "env": {} });
    let ready: ExecutorReady = other.call("executor.init", init).parse().unwrap();
    assert_ne!(ready.working_dir, world.ready.working_dir);
    let ran = other.call("executor.bash", json!({ "command": "pwd" }));
    assert_eq!(notices(&ran), [""; 0]);
    let ran: BashOutput = ran.parse().unwrap();
    assert_eq!(ran.stdout, format!("{}\n", ready.working_dir));
    other.call("executor.cleanup", json!({})).reply.unwrap();
    assert_eq!(world.sessions().len(), 1);
}

#[test]
fn b8_the_script_of_a_skill_runs_over_there() {
    let Some(world) = world(&json!({})) else {
        return;
    };
    let skill = &world.ready.skills[0].dir;
    assert!(skill.starts_with(&world.path("scratch").display().to_string()));
    assert_eq!(
        world.bash(&format!("{skill}/scripts/a.sh")).stdout,
        "analysed\n"
    );
}

#[test]
fn output_comes_while_the_command_runs() {
    let Some(world) = world(&json!({})) else {
        return;
    };
    let running = world.start("echo first; while [ ! -e go ]; do sleep 0.02; done; echo last");
    assert!(running.until(|seen| seen.stdout == b"first\n"));
    fs::write(world.work("go"), "").unwrap();
    let ran: BashOutput = running.wait().parse().unwrap();
    assert_eq!(ran.stdout, "first\nlast\n");
}

#[test]
fn b4_a_time_out_ends_the_whole_process_tree() {
    let Some(world) = world(&json!({})) else {
        return;
    };
    world.bash("true");
    let command = "echo out; echo $$ >pids; trap '' TERM; \
                   setsid sh -c 'echo $$ >>pids; trap \"\" TERM; env -i sleep 77' & sleep 77 & wait";
    let begun = Instant::now();
    let ran: BashOutput = world.bash_within(command, 2_500).parse().unwrap();
    assert!(ran.timed_out && begun.elapsed() < Duration::from_secs(8));
    assert_eq!(ran.stdout, "out\n");
    let pids = fs::read_to_string(world.work("pids")).unwrap();
    assert_eq!(pids.lines().count(), 2);
    for pid in pids.lines() {
        until("the process is gone", || {
            !fs::exists(format!("/proc/{pid}")).unwrap()
        });
    }
}

#[test]
fn a_cancelled_command_is_gone_and_its_output_is_not() {
    let Some(world) = world(&json!({})) else {
        return;
    };
    let running = world.start("trap 'echo cleaned; exit 5' TERM; sleep 1000 & echo begun; wait");
    assert!(running.until(|seen| seen.stdout == b"begun\n"));
    running.cancel();
    let ran: BashOutput = running.wait().parse().unwrap();
    assert_eq!(
        (ran.stdout.as_str(), ran.exit_code),
        ("begun\ncleaned\n", Some(5))
    );
}

#[test]
fn much_output_is_kept_whole_in_a_file() {
    let Some(world) = world(&json!({})) else {
        return;
    };
    let ran = world.bash("yes 0123456789 | head -c 3000000");
    assert_eq!(ran.stdout_bytes, 3_000_000);
    let full = ran.full_output.unwrap().path.unwrap();
    assert_eq!(fs::metadata(full).unwrap().len(), 3_000_000);
}

#[test]
fn b24_files_that_a_command_made_are_told_and_can_be_fetched() {
    let Some(world) = world(&json!({})) else {
        return;
    };
    let ran = world.bash("mkdir sub; echo 12 >sub/new");
    assert_eq!(ran.files.len(), 1);
    let file = &ran.files[0];
    assert_eq!((file.path.as_ref(), file.size), (None, Some(3)));
    let to = world.path("exchange/fetched");
    let get = json!({ "id": file.id, "to": to });
    world.call("files.get", get).reply.unwrap();
    assert_eq!(fs::read(to).unwrap(), b"12\n");
}

#[test]
fn ten_calls_at_the_same_time_do_not_disturb_each_other() {
    let Some(world) = world(&json!({})) else {
        return;
    };
    world.bash("true");
    let commands: Vec<_> = (0..10)
        .map(|number| {
            world.start(&format!(
                "sleep 0.2; seq {number}000 {number}999; exit {number}"
            ))
        })
        .collect();
    for (number, running) in commands.into_iter().enumerate() {
        let ran: BashOutput = running.wait().parse().unwrap();
        assert_eq!(ran.exit_code, Some(number as i32));
        assert_eq!(ran.stdout.lines().count(), 1_000);
        assert!(ran.stdout.starts_with(&format!("{}", number * 1_000)));
    }
}

#[test]
fn a_session_that_ended_has_nothing_left_and_another_one_goes_on() {
    let Some(world) = world(&json!({})) else {
        return;
    };
    let other = world.plugin.session("t");
    let init = json!({ "skills": [], "env": {} });
    other.call("executor.init", init).reply.unwrap();
    let goes_on = other.call("executor.bash", json!({ "command": "echo 1 >mine" }));
    goes_on.reply.unwrap();
    let running = world.start("echo begun; sleep 60");
    assert!(running.until(|seen| seen.stdout == b"begun\n"));
    assert_eq!(world.sessions().len(), 2);
    world.call("executor.cleanup", json!({})).reply.unwrap();
    assert_ne!(running.wait().code(), Some(code::PANIC));
    assert_eq!(world.sessions().len(), 1);
    let ran = other.call("executor.bash", json!({ "command": "cat mine" }));
    let ran: BashOutput = ran.parse().unwrap();
    assert_eq!(ran.stdout, "1\n");
    other.call("executor.cleanup", json!({})).reply.unwrap();
    assert_eq!(world.sessions().len(), 0);
    until("no agent is left", || world.agents("relay").is_empty());
}

#[test]
fn a_named_directory_is_worked_in_and_stays() {
    let Some(sshd) = conjure_kit::Sshd::find().unwrap() else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let named = dir.path().join("my project");
    fs::create_dir(&named).unwrap();
    let config = json!({ "working_dir": named });
    let world = super::world_in(sshd, dir, &config);
    assert_eq!(
        world.bash("pwd; echo 1 >a").stdout,
        format!("{}\n", named.display())
    );
    world.call("executor.cleanup", json!({})).reply.unwrap();
    assert_eq!(fs::read(named.join("a")).unwrap(), b"1\n");
    assert_eq!(world.sessions().len(), 0);
}
