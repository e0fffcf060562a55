//! The end of the host, of the agent and of its relay, however each comes about.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use conjure_kit::{Network, Sshd};
use conjure_skill_sdk::protocol::BashOutput;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use super::{agents, until, world};

fn kill(pid: i32) {
    kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
}

fn is_gone(pid: &str) -> bool {
    !fs::exists(format!("/proc/{}", pid.trim())).unwrap()
}

#[test]
fn an_agent_that_is_killed_is_told_and_the_next_call_has_a_new_one() {
    let Some(world) = world(&json!({})) else {
        return;
    };
    world.bash("echo 1 >kept");
    let running = world.start("echo $$ >pid; echo begun; sleep 1000");
    assert!(running.until(|seen| seen.stdout == b"begun\n"));
    let agent = world.agents("serve-relayed");
    assert_eq!(agent.len(), 1);
    kill(agent[0]);
    let outcome = running.wait();
    assert!(outcome.code().is_some());
    let text = outcome.text();
    assert!(
        text.contains("signal 9") && text.contains("Call again"),
        "{text}"
    );
    assert!(text.contains("begun"), "what it had said is lost: {text}");
    let pid = fs::read_to_string(world.work("pid")).unwrap();
    until("its command is gone", || is_gone(&pid));
    assert_eq!(world.bash("cat kept").stdout, "1\n");
}

#[test]
fn a_relay_that_is_killed_is_told_and_takes_the_agent_along() {
    let Some(world) = world(&json!({})) else {
        return;
    };
    world.bash("echo 1 >kept");
    let running = world.start("echo $$ >pid; echo begun; sleep 1000");
    assert!(running.until(|seen| seen.stdout == b"begun\n"));
    kill(world.agents("relay")[0]);
    let outcome = running.wait();
    assert!(outcome.code().is_some());
    assert!(outcome.text().contains("no agent"), "{}", outcome.text());
    let pid = fs::read_to_string(world.work("pid")).unwrap();
    until("its command is gone", || is_gone(&pid));
    assert_eq!(world.bash("cat kept").stdout, "1\n");
}

#[test]
fn a_session_that_ends_after_its_agent_or_its_relay_leaves_nothing() {
    for verb in ["serve-relayed", "relay"] {
        let Some(world) = world(&json!({})) else {
            return;
        };
        world.bash("echo 1 >kept");
        kill(world.agents(verb)[0]);
        until("it is noticed", || world.agents("open").is_empty());
        world.call("executor.cleanup", json!({})).reply.unwrap();
        assert_eq!(world.sessions().len(), 0, "{verb}");
        until("nobody is left", || world.agents("relay").is_empty());
    }
}

#[test]
fn an_agent_that_stands_still_is_replaced() {
    let Some(world) = world(&json!({})) else {
        return;
    };
    world.bash("echo 1 >kept");
    let agent = world.agents("serve-relayed")[0];
    kill_process(Pid::from_raw(agent).unwrap(), Signal::STOP).unwrap();
    let begun = Instant::now();
    let outcome = world.bash_within("true", 1_000);
    assert!(
        outcome.text().contains("did not answer"),
        "{}",
        outcome.text()
    );
    // The host waits for three seconds beyond the time of a call.
    assert!(
        begun.elapsed() < Duration::from_secs(4),
        "{:?}",
        begun.elapsed()
    );
    assert_eq!(world.bash("cat kept").stdout, "1\n");
    until("it is gone", || is_gone(&agent.to_string()));
}

#[test]
fn nobody_else_gets_into_a_session() {
    use std::io::{Read as _, Write as _};

    use conjure_exec_agent::relay::{RELAY_VERSION, RelayFrame};

    let Some(world) = world(&json!({})) else {
        return;
    };
    world.bash("true");
    let dir = &world.sessions()[0];
    let mode = fs::metadata(dir).unwrap().permissions();
    assert_eq!(
        std::os::unix::fs::PermissionsExt::mode(&mode) & 0o777,
        0o700
    );
    // Also a command of the same user, who finds the socket, does not know the word.
    let mut socket = std::os::unix::net::UnixStream::connect(dir.join("link")).unwrap();
    let hello = RelayFrame::Hello {
        version: RELAY_VERSION,
        token: "guess".to_owned(),
        stream: 1,
        received: 0,
    };
    socket.write_all(&hello.encode()).unwrap();
    let mut answer = Vec::new();
    socket.read_to_end(&mut answer).unwrap();
    assert!(String::from_utf8_lossy(&answer).contains("somebody else's session"));
    assert_eq!(world.bash("echo on").stdout, "on\n");
}

#[test]
fn a_socket_that_a_command_removes_is_there_again_and_the_relay_stays_the_only_one() {
    let Some(world) = world(&json!({})) else {
        return;
    };
    world.bash("true");
    let dir = world.sessions()[0].clone();
    let relay = world.agents("relay");
    let running = world.start("echo $$ >pid; echo begun; sleep 3; echo ended");
    assert!(running.until(|seen| seen.stdout == b"begun\n"));
    fs::remove_file(dir.join("link")).unwrap();
    // Whoever comes back finds it, and whoever would begin one finds that there is one.
    world.network.refuse();
    world.network.restore();
    let mut other = Command::new(fs::read_link(format!("/proc/{}/exe", relay[0])).unwrap());
    let other = other.args(["open", dir.to_str().unwrap(), "60"]);
    let other = other.stdin(Stdio::null()).output().unwrap();
    assert!(other.status.success(), "{other:?}");
    let ran: BashOutput = running.wait().parse().unwrap();
    assert_eq!(ran.stdout, "begun\nended\n");
    assert_eq!(world.agents("relay"), relay);
    // Another file in its place is no socket either.
    fs::remove_file(dir.join("link")).unwrap();
    fs::write(dir.join("link"), "").unwrap();
    until("it is a socket again", || {
        let found = fs::symlink_metadata(dir.join("link"));
        found.is_ok_and(|found| std::os::unix::fs::FileTypeExt::is_socket(&found.file_type()))
    });
    world.call("executor.cleanup", json!({})).reply.unwrap();
    assert_eq!(world.sessions().len(), 0);
}

#[test]
fn a_session_whose_directory_a_command_removes_goes_on_in_a_new_one_and_the_old_relay_ends() {
    let Some(world) = world(&json!({})) else {
        return;
    };
    world.bash("true");
    let dir = world.sessions()[0].clone();
    let (relay, agent) = (world.agents("relay")[0], world.agents("serve-relayed")[0]);
    fs::remove_dir_all(&dir).unwrap();
    world.network.refuse();
    until("the connection is lost", || world.agents("open").is_empty());
    world.network.restore();
    until("the old relay and its agent are gone", || {
        is_gone(&relay.to_string()) && is_gone(&agent.to_string())
    });
    until("the session goes on", || {
        let ran = world.bash_within("echo on >kept; cat kept", 20_000);
        ran.code().is_none()
    });
    assert_eq!(world.sessions(), [dir]);
    assert_eq!(world.bash("cat kept").stdout, "on\n");
}

/// A connection to a relay of one's own making.
struct Visitor(
    std::os::unix::net::UnixStream,
    conjure_process_tree::frame::Frames,
);

impl Visitor {
    fn new(dir: &Path, stream: u64, received: u64) -> Self {
        use conjure_exec_agent::relay::{RELAY_VERSION, RelayFrame};

        let socket = std::os::unix::net::UnixStream::connect(dir.join("link")).unwrap();
        let limit = Duration::from_secs(20);
        socket.set_read_timeout(Some(limit)).unwrap();
        let mut visitor = Self(socket, Default::default());
        visitor.say(&RelayFrame::Hello {
            version: RELAY_VERSION,
            token: "own".to_owned(),
            stream,
            received,
        });
        visitor
    }

    fn say(&mut self, frame: &conjure_exec_agent::relay::RelayFrame) {
        std::io::Write::write_all(&mut self.0, &frame.encode()).unwrap();
    }

    /// The next frame; nothing at the end.
    fn hear(&mut self) -> Option<conjure_exec_agent::relay::RelayFrame> {
        loop {
            if let Some(frame) = self.1.next_frame().unwrap() {
                return Some(conjure_exec_agent::relay::RelayFrame::decode(frame).unwrap());
            }
            let mut buffer = [0; 4096];
            match std::io::Read::read(&mut self.0, &mut buffer).unwrap() {
                0 => return None,
                length => self.1.push(&buffer[..length]),
            }
        }
    }
}

/// The agent as a program, in a directory.
fn agent_program(dir: &Path) -> PathBuf {
    let program = dir.join("agent");
    fs::write(&program, conjure_exec_agent_program::PROGRAM).unwrap();
    fs::set_permissions(
        &program,
        std::os::unix::fs::PermissionsExt::from_mode(0o700),
    )
    .unwrap();
    program
}

/// A relay of one's own for this directory, and whoever has started it.
fn own_relay(program: &Path, session: &Path) -> std::process::Child {
    let opens = Command::new(program)
        .args(["open", session.to_str().unwrap(), "1"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    until("the relay listens", || session.join("link").exists());
    opens
}

#[test]
fn a_relay_gives_the_reason_of_a_refusal_as_data() {
    use conjure_exec_agent::relay::{RefusalReason, RelayFrame};

    let dir = tempfile::tempdir().unwrap();
    let session = dir.path().join("session");
    let mut opens = own_relay(&agent_program(dir.path()), &session);
    let mut visitor = Visitor::new(&session, 7, 0);
    assert_eq!(visitor.hear(), Some(RelayFrame::NoStream));
    visitor.say(&RelayFrame::Begin(Some("/nowhere/at all".to_owned())));
    let Some(RelayFrame::Refused(refusal)) = visitor.hear() else {
        panic!("nobody can work in a directory that is not there");
    };
    assert_eq!(refusal.reason, RefusalReason::WorkingDir);
    assert!(refusal.text.contains("/nowhere/at all"), "{refusal:?}");
    let mut visitor = Visitor::new(&session, 7, 0);
    assert_eq!(visitor.hear(), Some(RelayFrame::NoStream));
    visitor.say(&RelayFrame::Close);
    assert_eq!(visitor.hear(), Some(RelayFrame::Closed));
    opens.wait().unwrap();
}

#[test]
fn a_session_directory_that_cannot_be_made_is_an_exit_code_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let program = agent_program(dir.path());
    let opens = Command::new(&program)
        .args(["open", program.join("session").to_str().unwrap(), "1"])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let code = i32::from(conjure_exec_agent::relay::EXIT_NO_SESSION_DIR);
    assert_eq!(opens.status.code(), Some(code));
    let complaint = String::from_utf8_lossy(&opens.stderr);
    assert!(complaint.contains("cannot be made"), "{complaint}");
}

#[test]
fn whoever_cannot_go_on_with_a_stream_takes_nothing_from_the_one_that_has_it() {
    use conjure_exec_agent::relay::RelayFrame;

    let dir = tempfile::tempdir().unwrap();
    let session = dir.path().join("session");
    let mut opens = own_relay(&agent_program(dir.path()), &session);
    let mut first = Visitor::new(&session, 7, 0);
    assert_eq!(first.hear(), Some(RelayFrame::NoStream));
    first.say(&RelayFrame::Begin(None));
    assert_eq!(first.hear(), Some(RelayFrame::Welcome(0)));
    assert!(
        matches!(first.hear(), Some(RelayFrame::Stream(_))),
        "the agent says who it is"
    );
    // One that wants what is not kept, and one that asks for a stream and goes.
    let mut other = Visitor::new(&session, 7, 1_000);
    assert!(matches!(other.hear(), Some(RelayFrame::Refused(_))));
    let mut other = Visitor::new(&session, 8, 0);
    assert_eq!(other.hear(), Some(RelayFrame::NoStream));
    drop(other);
    first.say(&RelayFrame::Question(3));
    assert_eq!(first.hear(), Some(RelayFrame::Answer(3)));
    // One that can go on does, and the one before is ended.
    let mut next = Visitor::new(&session, 7, 0);
    assert!(matches!(next.hear(), Some(RelayFrame::Welcome(0))));
    assert_eq!(first.hear(), None);
    next.say(&RelayFrame::Close);
    while next.hear() != Some(RelayFrame::Closed) {}
    assert!(!session.exists());
    opens.wait().unwrap();
}

/// The directory of a host that is to be killed, for the process that is to be that host.
const DIR: &str = "CONJURE_TEST_KILLED_SSH_HOST";

/// Not a test by itself: the host that the next one kills.
#[test]
fn a_host_that_is_killed() {
    let Ok(dir) = std::env::var(DIR) else {
        return;
    };
    let Some(world) = world(&json!({ "reconnect_ms": 1_000, "scratch_dir": &dir })) else {
        return;
    };
    let running = world.start("echo $$ >pid; setsid sleep 1000 & echo $! >>pid; echo ready; wait");
    assert!(running.until(|seen| seen.stdout == b"ready\n"));
    fs::copy(world.work("pid"), Path::new(&dir).join("pids")).unwrap();
    println!("\nthe command runs");
    running.wait();
}

#[test]
fn what_a_killed_host_left_behind_is_gone_after_the_limit() {
    let Some(_sshd) = Sshd::find().unwrap() else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let mut host = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "tests::ends::a_host_that_is_killed",
            "--nocapture",
        ])
        .env(DIR, dir.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let said = BufReader::new(host.stdout.take().unwrap());
    let mut said = said.lines().map_while(Result::ok);
    assert!(said.any(|line| line == "the command runs"));
    let relay = agents(dir.path(), "relay");
    assert_eq!(relay.len(), 1);
    host.kill().unwrap();
    host.wait().unwrap();
    let pids = fs::read_to_string(dir.path().join("pids")).unwrap();
    assert_eq!(pids.lines().count(), 2);
    for pid in pids.lines() {
        until("the command is gone", || is_gone(pid));
    }
    until("the relay is gone", || is_gone(&relay[0].to_string()));
    fs::remove_file(dir.path().join("pids")).unwrap();
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn an_instance_that_is_dropped_ends_its_connection() {
    let Some(sshd) = Sshd::find().unwrap() else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    for name in ["work", "exchange", "data", "scratch"] {
        fs::create_dir(dir.path().join(name)).unwrap();
    }
    let network = Network::to(sshd.address()).unwrap();
    sshd.add_known_host(network.address()).unwrap();
    let config = json!({ "reconnect_ms": 1_000 });
    let plugin = super::host(&sshd, &network, &dir, &config);
    let plugin = plugin.link(crate::plugin).unwrap();
    let init = json!({ "skills": [], "env": {} });
    plugin.call("executor.init", init).reply.unwrap();
    let ran = plugin.call("executor.bash", json!({ "command": "echo $PPID" }));
    let ran: BashOutput = ran.parse().unwrap();
    assert_eq!(ran.exit_code, Some(0));
    let scratch = dir.path().join("scratch");
    assert_eq!(agents(&scratch, "open").len(), 1);
    drop(plugin);
    until("the connection is gone", || {
        agents(&scratch, "open").is_empty()
    });
    until("the agent is gone", || agents(&scratch, "relay").is_empty());
}
