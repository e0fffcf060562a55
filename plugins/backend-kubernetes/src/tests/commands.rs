//! Commands in a pod: output, ends, limits of time, files, skills.

use std::fs;

use conjure_skill_sdk::abi::code;
use conjure_skill_sdk::protocol::BashOutput;
use serde_json::json;

use super::{notices, until, world};

#[test]
fn p6_a_command_has_output_exit_code_and_the_pods_paths() {
    let Some(world) = world(&json!({ "env": { "SET": "so" } })) else {
        return;
    };
    // No call, no pod.
    assert_eq!(world.api.cluster.made(), 0);
    let ran = world.bash("pwd; echo $GIVEN $SET $HOME; echo no >&2; exit 3");
    let dir = &world.ready.working_dir;
    assert_eq!(ran.stdout, format!("{dir}\nyes so /tmp\n"));
    assert_eq!((ran.stderr.as_str(), ran.exit_code), ("no\n", Some(3)));
    let killed = world.bash("kill -9 $$");
    assert_eq!((killed.exit_code, killed.signal), (None, Some(9)));
    let pod = world.api.cluster.pod(&world.pod());
    assert_eq!(pod["metadata"]["annotations"]["io.conjure/session"], "s");
}

#[test]
fn the_agent_is_copied_once_and_one_connection_carries_the_whole_session() {
    for old in [false, true] {
        let Some(world) = world(&json!({})) else {
            return;
        };
        if old {
            world.api.cluster.speak_old_protocol();
        }
        for _ in 0..5 {
            assert_eq!(notices(&world.bash_within("true", 30_000)), [""; 0]);
        }
        // It is looked for, copied, and gone to.
        assert_eq!(world.api.cluster.programs().len(), 3);
        assert_eq!(world.api.cluster.made(), 1);
    }
}

#[test]
fn b8_the_script_of_a_skill_runs_in_the_pod() {
    let Some(world) = world(&json!({})) else {
        return;
    };
    let skill = &world.ready.skills[0].dir;
    assert!(skill.starts_with(&world.path("pod/agent").display().to_string()));
    let ran = world.bash(&format!("{skill}/scripts/a.sh"));
    assert_eq!(ran.stdout, "analysed\n", "{}", ran.stderr);
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
    let command = "echo out; trap '' TERM; \
                   setsid sh -c 'trap \"\" TERM; env -i sleep 77' & sleep 77 & wait";
    let ran: BashOutput = world.bash_within(command, 2_500).parse().unwrap();
    assert!(ran.timed_out);
    assert_eq!(ran.stdout, "out\n");
    let pod = world.api.cluster.running(&world.pod()).unwrap();
    until("the processes are gone", || pod.processes("77").is_empty());
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
fn files_are_made_changed_viewed_and_go_both_ways() {
    let Some(world) = world(&json!({})) else {
        return;
    };
    let create = json!({ "path": "a.txt", "file_text": "one\ntwo\n" });
    world.call("executor.create_file", create).reply.unwrap();
    let replace = json!({ "path": "a.txt", "old_str": "two", "new_str": "three" });
    world.call("executor.str_replace", replace).reply.unwrap();
    assert_eq!(world.bash("cat a.txt").stdout, "one\nthree\n");
    let viewed = world.call("executor.view", json!({ "path": "a.txt" }));
    assert!(viewed.text().contains("three"), "{}", viewed.text());
    let missing = world.call("executor.view", json!({ "path": "b.txt" }));
    assert_eq!(missing.code(), Some(code::FAILED), "{}", missing.text());

    let bytes: Vec<u8> = (0..2_000_000_u32).map(|n| (n % 251) as u8).collect();
    let from = world.path("exchange/in");
    fs::write(&from, &bytes).unwrap();
    let put = json!({ "file": { "name": "data.bin", "path": from } });
    world.call("files.put", put).reply.unwrap();
    assert!(fs::read(world.work("data.bin")).unwrap() == bytes);
    let ran = world.bash("cp data.bin back.bin");
    let made: Vec<_> = ran
        .files
        .iter()
        .filter(|file| file.name == "back.bin")
        .collect();
    assert_eq!(made.len(), 1, "{:?}", ran.files);
    let to = world.path("exchange/out");
    let get = json!({ "id": made[0].id, "to": to });
    world.call("files.get", get).reply.unwrap();
    assert!(fs::read(to).unwrap() == bytes);
}
