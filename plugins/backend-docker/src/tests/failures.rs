//! What goes wrong around a container, and that the next call goes on.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use conjure_skill_sdk::protocol::BashOutput;
use serde_json::{Value, json};

use super::world;

#[test]
fn a_missing_engine_is_an_error_that_says_what_to_do() {
    let Some(world) = world(&json!({ "engine": "unix:///nowhere/docker.sock" })) else {
        return;
    };
    for _ in 0..2 {
        let error = world.error("executor.bash", json!({ "command": "true" }));
        assert!(error.contains("unix:///nowhere/docker.sock"), "{error}");
        assert!(error.contains("start the engine"), "{error}");
    }
}

#[test]
fn a_missing_image_is_an_error_that_says_what_to_do() {
    let Some(world) = world(&json!({ "image": "conjure-no-such-image" })) else {
        return;
    };
    let error = world.error("executor.bash", json!({ "command": "true" }));
    assert!(error.contains("`conjure-no-such-image`"), "{error}");
    assert!(error.contains("conjure docker build"), "{error}");
}

#[test]
fn a_missing_network_and_a_missing_shell_are_named() {
    let Some(world) = world(&json!({ "network": "conjure-no-such-network" })) else {
        return;
    };
    let error = world.error("executor.bash", json!({ "command": "true" }));
    assert!(error.contains("conjure-no-such-network"), "{error}");
    assert_eq!(world.containers(), [""; 0]);
    let Some(world) = super::world(&json!({ "shell": "/bin/no-such-shell" })) else {
        return;
    };
    let error = world.error("executor.bash", json!({ "command": "true" }));
    assert!(error.contains("no shell `/bin/no-such-shell`"), "{error}");
}

#[test]
fn a_container_that_is_killed_in_the_middle_is_told_and_the_next_call_has_a_new_one() {
    let Some(world) = world(&json!({})) else {
        return;
    };
    let command = "echo 1 >a; echo begun; sleep 60";
    let running = world
        .plugin
        .start("executor.bash", json!({ "command": command }));
    assert!(running.until(|seen| seen.stdout == b"begun\n"));
    let before = world.container();
    world.engine.docker(["kill", &before]).unwrap();
    let outcome = running.wait();
    assert!(outcome.code().is_some());
    let text = outcome.text();
    assert!(
        text.contains("was killed") && text.contains("Call again"),
        "{text}"
    );
    assert!(text.contains("begun"), "what it had said is lost: {text}");
    assert_eq!(world.bash("cat a").stdout, "1\n");
    assert_ne!(world.container(), before);
}

#[test]
fn a_container_in_which_nobody_answers_is_removed_also_by_a_file_call() {
    let Some(world) = world(&json!({})) else {
        return;
    };
    world.bash("echo 1 >a");
    let before = world.container();
    world.engine.docker(["pause", &before]).unwrap();
    let soon = world.plugin.with(|envelope| envelope.deadline_ms = 300);
    let viewed = soon.call("executor.view", json!({ "path": "a" }));
    assert!(viewed.code().is_some(), "{}", viewed.text());
    let text = viewed.text();
    assert!(text.contains("did not answer in time"), "{text}");
    assert_eq!(world.bash("cat a").stdout, "1\n");
    assert_ne!(world.container(), before);
}

#[test]
fn a_working_directory_that_is_gone_is_said_and_does_not_make_the_engine_a_far_one() {
    let Some(world) = world(&json!({})) else {
        return;
    };
    let (work, aside) = (world.path("work"), world.path("aside"));
    fs::rename(&work, &aside).unwrap();
    let error = world.error("executor.bash", json!({ "command": "true" }));
    assert!(
        error.contains("cannot be used") || error.contains("is not there"),
        "{error}"
    );
    fs::rename(&aside, &work).unwrap();
    world.bash("echo 1 >a");
    assert_eq!(fs::read(world.work("a")).unwrap(), b"1\n");
}

#[test]
fn a_container_that_was_killed_between_calls_is_replaced_unseen() {
    let Some(world) = world(&json!({})) else {
        return;
    };
    world.bash("echo 1 >a");
    world
        .engine
        .docker(["rm", "-f", &world.container()])
        .unwrap();
    assert_eq!(world.bash("cat a").stdout, "1\n");
}

#[test]
fn an_engine_that_cannot_attach_runs_the_agent_by_one_exec_and_says_so() {
    let Some(world) = world(&json!({ "stream": "exec" })) else {
        return;
    };
    let first = world.bash_within("echo hello; sleep 60 & exit 4", 30_000);
    assert!(String::from_utf8_lossy(&first.stderr).is_empty());
    assert!(
        format!("{:?}", first.events).contains("one exec"),
        "{first:?}"
    );
    let ran: BashOutput = first.parse().unwrap();
    assert_eq!((ran.stdout.as_str(), ran.exit_code), ("hello\n", Some(4)));
    assert_eq!(world.bash("ps | grep -c '[s]leep 60'").stdout, "0\n");
    let container = world.container();
    assert_eq!(world.inspect("{{len .ExecIDs}}"), "1", "{container}");
    world.call("executor.cleanup", json!({})).reply.unwrap();
    assert_eq!(world.containers(), [""; 0]);
}

#[test]
fn an_engine_that_refuses_to_attach_is_found_out_and_spoken_to_by_one_exec() {
    let Some(world) = world(&json!({})) else {
        return;
    };
    let Some(engine) = Attaching::Refused.start(&world.path("engine.sock")) else {
        return;
    };
    speaks_by_one_exec(&json!({ "engine": engine }));
}

#[test]
fn an_engine_whose_attached_stream_stays_silent_is_spoken_to_by_one_exec() {
    let Some(world) = world(&json!({})) else {
        return;
    };
    let Some(engine) = Attaching::Silent.start(&world.path("engine.sock")) else {
        return;
    };
    // As an engine elsewhere, to whose containers there is no other way.
    speaks_by_one_exec(&json!({ "engine": engine, "files": "copy" }));
}

fn speaks_by_one_exec(config: &Value) {
    let Some(world) = super::world(config) else {
        return;
    };
    let first = world.bash_within("echo hello", 60_000);
    assert!(
        format!("{:?}", first.events).contains("one exec"),
        "{first:?}"
    );
    let ran: BashOutput = first.parse().unwrap();
    assert_eq!(ran.stdout, "hello\n");
    assert_eq!(world.inspect("{{len .ExecIDs}}"), "1");
}

/// Answer to whoever wants to attach; all else the real engine does, at another address.
#[derive(Clone, Copy)]
enum Attaching {
    /// Nobody can attach.
    Refused,
    /// Everybody can attach, and nothing is carried.
    Silent,
}

impl Attaching {
    /// The address. Nothing where the engine is at no local socket.
    fn start(self, at: &Path) -> Option<String> {
        let engine = PathBuf::from("/var/run/docker.sock");
        if !engine.exists() {
            eprintln!("LEFT OUT: the engine is not at {}", engine.display());
            return None;
        }
        let listener = UnixListener::bind(at).unwrap();
        thread::spawn(move || {
            for client in listener.incoming() {
                let (client, engine) = (client.unwrap(), UnixStream::connect(&engine).unwrap());
                let (mut answers, mut back) =
                    (engine.try_clone().unwrap(), client.try_clone().unwrap());
                thread::spawn(move || {
                    let _ = io::copy(&mut answers, &mut back);
                    let _ = back.shutdown(Shutdown::Write);
                });
                thread::spawn(move || self.requests(client, engine));
            }
        });
        Some(format!("unix://{}", at.display()))
    }

    fn requests(self, mut client: UnixStream, mut engine: UnixStream) {
        let mut piece = vec![0; 64 * 1024];
        while let Ok(length @ 1..) = client.read(&mut piece) {
            let request = &piece[..length];
            let line = request.split(|byte| *byte == b'\r').next().unwrap();
            if String::from_utf8_lossy(line).contains("/attach?") {
                let answer: &[u8] = match self {
                    Self::Refused => {
                        b"HTTP/1.1 501 Not Implemented\r\ncontent-type: application/json\r\n\
                          content-length: 31\r\nconnection: close\r\n\r\n\
                          {\"message\":\"nobody may attach\"}"
                    }
                    Self::Silent => {
                        b"HTTP/1.1 101 UPGRADED\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\
                          Content-Type: application/vnd.docker.raw-stream\r\n\r\n"
                    }
                };
                let _ = client.write_all(answer);
                if matches!(self, Self::Silent) {
                    // For as long as the other side has it open.
                    let _ = io::copy(&mut client, &mut io::sink());
                }
                let _ = client.shutdown(Shutdown::Both);
                return;
            }
            if engine.write_all(request).is_err() {
                return;
            }
        }
        let _ = engine.shutdown(Shutdown::Write);
    }
}

#[test]
fn a_full_disk_is_said_and_nothing_is_half_written() {
    let Some(world) = world(&json!({ "tmp_mb": 1 })) else {
        return;
    };
    let ran = world.bash("dd if=/dev/zero of=/tmp/x bs=1M count=3");
    assert_eq!(ran.exit_code, Some(1));
    assert!(ran.stderr.contains("No space left"), "{}", ran.stderr);
    if !rustix::process::geteuid().is_root() {
        eprintln!("LEFT OUT: only root can mount a small disk");
        return;
    }
    let small = Mounted::new(world.work("small"));
    let create = json!({ "path": "small/a", "file_text": "x".repeat(60_000) });
    // The mount came after the container, which has its own view of the directory until it ends.
    world
        .engine
        .docker(["rm", "-f", &world.container()])
        .unwrap();
    let error = world.error("executor.create_file", create);
    assert!(error.contains("the disk is full: remove"), "{error}");
    assert_eq!(fs::read_dir(&small.0).unwrap().count(), 0);
}

/// A directory with room for next to nothing.
struct Mounted(PathBuf);

impl Mounted {
    fn new(dir: PathBuf) -> Self {
        fs::create_dir(&dir).unwrap();
        let options = ["-t", "tmpfs", "-o", "size=16k,mode=777", "none"];
        let mounted = Command::new("mount").args(options).arg(&dir).status();
        assert!(mounted.unwrap().success());
        Self(dir)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn h15_an_instance_that_is_dropped_leaves_no_container() {
    let Some(world) = world(&json!({ "stream": "auto" })) else {
        return;
    };
    let engine = world.engine;
    // As when the host is killed: nobody cleans up, the stream just ends.
    let dropped = world.plugin.host().link(crate::plugin).unwrap();
    let session = dropped.session("t");
    let init = json!({ "skills": [] });
    session.call("executor.init", init).reply.unwrap();
    let command = json!({ "command": "true" });
    session.call("executor.bash", command).reply.unwrap();
    let container = world.container();
    drop(dropped);
    for _ in 0..500 {
        if engine.docker(["inspect", &container]).is_err() {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("{container} is still there");
}

#[test]
fn leftovers_of_a_host_that_is_gone_are_removed_at_the_next_start() {
    let Some(world) = world(&json!({})) else {
        return;
    };
    // From its first call on an instance does not look for leftovers any more.
    world.bash("true");
    let hosts = world.path("data/hosts").canonicalize().unwrap();
    let gone = hosts.join("gone");
    fs::create_dir(&gone).unwrap();
    let label = format!("io.conjure.host={}", gone.display());
    let image = world.engine.image();
    let start = [
        "run",
        "-d",
        "--net",
        "none",
        "--label",
        &label,
        image,
        "/bin/sleep",
        "600",
    ];
    world.engine.docker(start).unwrap();
    world
        .engine
        .docker(["volume", "create", "--label", &label])
        .unwrap();
    let elsewhere = format!("io.conjure.host={}-elsewhere/gone", hosts.display());
    let start = [
        "run",
        "-d",
        "--label",
        &elsewhere,
        image,
        "/bin/sleep",
        "600",
    ];
    let other = world.engine.docker(start).unwrap();
    let next = world.plugin.host().link(crate::plugin).unwrap();
    let init = json!({ "skills": [] });
    next.session("t").call("executor.init", init).reply.unwrap();
    let ran = next
        .session("t")
        .call("executor.bash", json!({ "command": "true" }));
    ran.reply.unwrap();
    let left = world.engine.containers(&label).unwrap();
    let others = world.engine.containers(&elsewhere).unwrap();
    world.engine.docker(["rm", "-f", &other]).unwrap();
    next.session("t").call("executor.cleanup", json!({}));
    assert_eq!(left, [""; 0], "a leftover is still there");
    assert_eq!(others.len(), 1, "somebody else's is gone");
    let filter = format!("label={label}");
    let volumes = ["volume", "ls", "-q", "--filter", &filter];
    assert_eq!(world.engine.docker(volumes).unwrap(), "");
}
