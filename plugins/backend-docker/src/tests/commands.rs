//! Commands in a container: output, ends, limits of time, files.

use std::fs;
use std::time::{Duration, Instant};

use conjure_skill_sdk::abi::code;
use conjure_skill_sdk::protocol::BashOutput;
use serde_json::json;

use super::world;

#[test]
fn p6_a_command_has_output_exit_code_and_the_containers_paths() {
    let Some(world) = world(&json!({})) else {
        return;
    };
    let ran = world.bash("pwd; echo $GIVEN; echo no >&2; exit 3");
    assert_eq!(ran.stdout, "/workspace\nyes\n");
    assert_eq!((ran.stderr.as_str(), ran.exit_code), ("no\n", Some(3)));
    let killed = world.bash("kill -9 $$");
    assert_eq!((killed.exit_code, killed.signal), (None, Some(9)));
}

#[test]
fn b26_one_container_serves_the_whole_session() {
    let Some(world) = world(&json!({})) else {
        return;
    };
    let first = world.bash("echo kept >/tmp/mark; cat /proc/sys/kernel/hostname");
    let second = world.bash("cat /tmp/mark /proc/sys/kernel/hostname");
    assert_eq!(second.stdout, format!("kept\n{}", first.stdout));
    assert_eq!(world.containers().len(), 1);
}

#[test]
fn b8_the_script_of_a_skill_runs_and_its_folder_is_read_only() {
    let Some(world) = world(&json!({})) else {
        return;
    };
    let ran = world.bash("sh /mnt/skills/analyzer/scripts/a.sh && touch /mnt/skills/analyzer/x");
    assert_eq!(ran.stdout, "analysed\n");
    assert!(ran.stderr.contains("Read-only"), "{}", ran.stderr);
}

#[test]
fn output_comes_while_the_command_runs() {
    let Some(world) = world(&json!({})) else {
        return;
    };
    let command = "echo first; while [ ! -e go ]; do sleep 0.02; done; echo last";
    let running = world
        .plugin
        .start("executor.bash", json!({ "command": command }));
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
    let command = "echo out; trap '' TERM; setsid sh -c 'trap \"\" TERM; env -i sleep 77' & \
                   sleep 77 & wait";
    let begun = Instant::now();
    let ran: BashOutput = world.bash_within(command, 1_500).parse().unwrap();
    assert!(ran.timed_out && begun.elapsed() < Duration::from_secs(5));
    assert_eq!(ran.stdout, "out\n");
    assert_eq!(world.bash("ps | grep -c '[s]leep 77'").stdout, "0\n");
}

#[test]
fn what_forks_on_and_on_is_held_and_ended() {
    let Some(world) = world(&json!({ "pids": 60 })) else {
        return;
    };
    world.bash("true");
    let command = "f() { f & f & }; trap '' TERM; f; sleep 60";
    let ran: BashOutput = world.bash_within(command, 2_000).parse().unwrap();
    assert!(ran.exit_code != Some(0) || ran.timed_out);
    // A line of names, the agent, a supervisor for this command and one for the next, three of its own.
    let left = world.bash("ps | wc -l").stdout;
    assert!(left.trim().parse::<u32>().unwrap() <= 7, "{left}");
}

#[test]
fn a_cancelled_command_is_gone_and_its_output_is_not() {
    let Some(world) = world(&json!({})) else {
        return;
    };
    // A child that a shell has just made can run its traps too, so this one makes no more of them.
    let command = "trap 'echo cleaned; exit 5' TERM; sleep 1000 & echo begun; wait";
    let running = world
        .plugin
        .start("executor.bash", json!({ "command": command }));
    assert!(running.until(|seen| seen.stdout == b"begun\n"));
    running.cancel();
    let ran: BashOutput = running.wait().parse().unwrap();
    assert_eq!(
        (ran.stdout.as_str(), ran.exit_code),
        ("begun\ncleaned\n", Some(5))
    );
    assert_eq!(world.bash("ps | grep -c '[s]leep 1000'").stdout, "0\n");
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
fn b24_files_that_a_command_made_are_told_with_the_hosts_paths() {
    let Some(world) = world(&json!({})) else {
        return;
    };
    let ran = world.bash("mkdir sub; echo 12 >sub/new; echo 1 >/tmp/elsewhere");
    assert_eq!(ran.files.len(), 1);
    let path = ran.files[0].path.clone().unwrap();
    assert_eq!(path, world.work("sub/new").display().to_string());
    assert_eq!(fs::read(path).unwrap(), b"12\n");
}

#[test]
fn calls_at_the_same_time_do_not_disturb_each_other() {
    let Some(world) = world(&json!({})) else {
        return;
    };
    world.bash("true");
    let commands: Vec<_> = (0..6)
        .map(|number| {
            let command = format!("sleep 0.2; seq {number}000 {number}999; exit {number}");
            world
                .plugin
                .start("executor.bash", json!({ "command": command }))
        })
        .collect();
    for (number, running) in commands.into_iter().enumerate() {
        let ran: BashOutput = running.wait().parse().unwrap();
        assert_eq!(ran.exit_code, Some(number as i32));
        assert_eq!(ran.stdout.lines().count(), 1_000);
        assert!(ran.stdout.starts_with(&format!("{}\n", number * 1_000)));
    }
}

#[test]
fn a_session_that_ended_has_nothing_left() {
    let Some(world) = world(&json!({})) else {
        return;
    };
    let running = world.plugin.start(
        "executor.bash",
        json!({ "command": "echo begun; sleep 60" }),
    );
    assert!(running.until(|seen| seen.stdout == b"begun\n"));
    world.call("executor.cleanup", json!({})).reply.unwrap();
    assert_ne!(running.wait().code(), Some(code::PANIC));
    assert_eq!(world.containers(), [""; 0]);
}
