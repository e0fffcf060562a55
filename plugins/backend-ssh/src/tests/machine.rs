//! What the remote machine does: its server's processes die, its disk is full, and the user may not
//! go everywhere.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;

use conjure_kit::Sshd;
use conjure_skill_sdk::protocol::BashOutput;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use super::failures::Mounted;
use super::{World, notices, world, world_in};

/// The parent of a process.
fn parent(pid: i32) -> i32 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let (_, behind) = stat.rsplit_once(") ").unwrap();
    behind.split(' ').nth(1).unwrap().parse().unwrap()
}

/// Kills a process in the middle of a command that notices nothing.
fn loses_nothing(world: &World, whom: impl Fn() -> i32) {
    let running = world.start("echo $$ >pid; echo begun; sleep 1; echo ended");
    assert!(running.until(|seen| seen.stdout == b"begun\n"));
    kill_process(Pid::from_raw(whom()).unwrap(), Signal::KILL).unwrap();
    let outcome = running.wait();
    let ran: BashOutput = outcome.parse().unwrap();
    assert_eq!(
        (ran.stdout.as_str(), ran.exit_code),
        ("begun\nended\n", Some(0))
    );
    let told = notices(&outcome);
    assert!(told.iter().any(|text| text.contains("is back")), "{told:?}");
}

#[test]
fn an_ssh_or_a_process_of_the_server_or_of_the_agents_way_that_is_killed_loses_nothing() {
    let Some(world) = world(&json!({})) else {
        return;
    };
    world.bash("true");
    let way = || {
        let first = world.agents("open");
        *first.iter().chain(&world.agents("attach")).next().unwrap()
    };
    // That which brought the connection to the relay, the server's process above it, and the client.
    loses_nothing(&world, way);
    loses_nothing(&world, || parent(way()));
    let known = world.sshd.path("known_hosts").display().to_string();
    loses_nothing(&world, || {
        let all = fs::read_dir("/proc").unwrap().flatten();
        let mut numbers = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let is_client = |pid: &i32| {
            let words = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            words.contains("ssh\0-T\0") && words.contains(&known)
        };
        numbers.find(is_client).unwrap()
    });
    assert_eq!(world.agents("relay").len(), 1);
}

#[test]
fn a_disk_that_a_command_fills_is_told_and_the_session_goes_on_and_goes() {
    let dir = tempfile::tempdir().unwrap();
    let small = dir.path().join("small");
    fs::create_dir(&small).unwrap();
    let Some(_mounted) = Mounted::new(&small, "size=1m") else {
        return;
    };
    let Some(world) = world(&json!({ "scratch_dir": small })) else {
        return;
    };
    let filled = world.bash("head -c 4000000 /dev/zero >zeros; echo $?; echo on >&2");
    assert!(filled.stderr.contains("No space left"), "{}", filled.stderr);
    let create = json!({ "path": "a.txt", "file_text": "x".repeat(100_000) });
    let error = world.error("executor.create_file", create);
    assert!(error.contains("the disk is full"), "{error}");
    // Also a connection is made again there.
    let running = world.start("echo begun; sleep 1; echo ended");
    assert!(running.until(|seen| seen.stdout == b"begun\n"));
    world.network.refuse();
    world.network.restore();
    let ran: BashOutput = running.wait().parse().unwrap();
    assert_eq!(ran.stdout, "begun\nended\n");
    // Another session finds no room, says so, and leaves nothing.
    let calls = world
        .plugin
        .with(|envelope| envelope.session = Some("other".to_owned()));
    let skill = world.path("large");
    fs::create_dir(&skill).unwrap();
    fs::write(skill.join("SKILL.md"), "x".repeat(200_000)).unwrap();
    let init = json!({ "skills": [{ "name": "large", "dir": skill }], "env": {} });
    calls.call("executor.init", init).reply.unwrap();
    let outcome = calls.call("executor.bash", json!({ "command": "true" }));
    let text = outcome.text();
    assert!(
        text.contains("No space left") && text.contains("`scratch_dir`"),
        "{text}"
    );
    let before = fs::read_dir(&small).unwrap().count();
    calls.call("executor.cleanup", json!({})).reply.unwrap();
    assert_eq!(before, 1, "something is left of it");
    assert_eq!(world.bash("rm zeros; echo room >a; cat a").stdout, "room\n");
    world.call("executor.cleanup", json!({})).reply.unwrap();
    assert_eq!(fs::read_dir(&small).unwrap().count(), 0);
}

/// A machine where commands run as somebody who is not the owner of its files.
fn as_somebody_else(config: &serde_json::Value) -> Option<World> {
    let sshd = Sshd::find().unwrap()?;
    if !rustix::process::geteuid().is_root() {
        println!("LEFT OUT: root: the test logs in as somebody else");
        return None;
    }
    let server = sshd.path("sshd_config");
    let text = fs::read_to_string(&server).unwrap();
    let change = "ForceCommand exec setpriv --reuid 65534 --regid 65534 --clear-groups sh -c \
                  \"$SSH_ORIGINAL_COMMAND\"\n";
    fs::write(&server, text + change).unwrap();
    sshd.reload().unwrap();
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), Permissions::from_mode(0o777)).unwrap();
    let world = world_in(sshd, dir, config);
    fs::set_permissions(world.path("scratch"), Permissions::from_mode(0o777)).unwrap();
    Some(world)
}

#[test]
fn a_directory_of_somebody_else_is_told_and_the_users_own_is_fine() {
    let Some(world) = as_somebody_else(&json!({})) else {
        return;
    };
    assert_eq!(
        world.bash("id -u; pwd").stdout,
        format!("65534\n{}\n", world.ready.working_dir)
    );
    let private = world.path("private");
    fs::create_dir(&private).unwrap();
    fs::set_permissions(&private, Permissions::from_mode(0o700)).unwrap();
    for (config, words) in [
        (
            json!({ "working_dir": private }),
            ["Permission denied", "`working_dir`"],
        ),
        (
            json!({ "scratch_dir": private }),
            ["Permission denied", "`scratch_dir`"],
        ),
        (
            json!({ "agent_dir": private }),
            ["Permission denied", "`agent_dir`"],
        ),
    ] {
        let host = super::host(&world.sshd, &world.network, &world.dir, &config);
        let plugin = host.link(crate::plugin).unwrap();
        let init = json!({ "skills": [], "env": {} });
        plugin.call("executor.init", init).reply.unwrap();
        let text = plugin
            .call("executor.bash", json!({ "command": "true" }))
            .text();
        for word in words {
            assert!(text.contains(word), "`{word}` is not in: {text}");
        }
        plugin.call("executor.cleanup", json!({})).reply.unwrap();
    }
    assert_eq!(world.sessions().len(), 1);
}
