//! How a connection comes about: jump hosts, servers that refuse many at once, the agent's file, and
//! configurations of `ssh` that would leave no connection.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use conjure_kit::Sshd;
use conjure_skill_sdk::protocol::BashOutput;
use conjure_skill_sdk::testkit::RunningCall;
use serde_json::json;

use super::{World, notices, until, world, world_in};

/// A configuration of `ssh` in which the machine is reached over a jump host, whose key is known or
/// not.
fn over_a_jump_host(sshd: &Sshd, known: bool) {
    let known = match known {
        true => sshd.path("known_hosts"),
        false => sshd.path("none_known"),
    };
    let config = format!(
        "Host jump\nHostName 127.0.0.1\nPort {}\nIdentityFile {}\nUserKnownHostsFile {}\n\
         StrictHostKeyChecking ask\n\nHost 127.0.0.1\nProxyJump jump\n",
        sshd.address().port(),
        sshd.path("user_key").display(),
        known.display(),
    );
    fs::write(sshd.path("config"), config).unwrap();
}

/// The processes of `ssh` whose words have this.
fn processes_with(word: &str) -> usize {
    let all = fs::read_dir("/proc").unwrap().flatten();
    let words = all.filter_map(|entry| fs::read_to_string(entry.path().join("cmdline")).ok());
    let is_one = |words: &String| {
        let program = words.split('\0').next().unwrap_or_default();
        program.ends_with("ssh") && words.contains(word)
    };
    words.filter(is_one).count()
}

#[test]
fn a_machine_behind_a_jump_host_is_reached_and_nothing_is_left_of_the_way_there() {
    let Some(sshd) = Sshd::find().unwrap() else {
        return;
    };
    over_a_jump_host(&sshd, true);
    let config = sshd.path("config").display().to_string();
    let world = world_in(sshd, tempfile::tempdir().unwrap(), &json!({}));
    assert_eq!(world.bash("echo in").stdout, "in\n");
    assert!(
        processes_with(&config) > 0,
        "it was not reached over a jump host"
    );
    world.network.stall();
    let running = world.start("true");
    world.network.restore();
    running.wait().reply.unwrap();
    world.call("executor.cleanup", json!({})).reply.unwrap();
    until("nobody is on the way", || processes_with(&config) == 0);
}

/// The mark of the process that has a terminal.
const TERMINAL: &str = "CONJURE_TEST_HAS_A_TERMINAL";

/// Not a test by itself: what the next one runs at a terminal.
#[test]
fn a_host_at_a_terminal() {
    if std::env::var_os(TERMINAL).is_none() {
        return;
    }
    assert!(fs::File::open("/dev/tty").is_ok(), "there is no terminal");
    let Some(sshd) = Sshd::find().unwrap() else {
        return;
    };
    over_a_jump_host(&sshd, false);
    let world = world_in(sshd, tempfile::tempdir().unwrap(), &json!({}));
    let begun = Instant::now();
    println!("said: {}", world.bash_error());
    assert!(
        begun.elapsed() < Duration::from_secs(15),
        "{:?}",
        begun.elapsed()
    );
}

#[test]
fn a_jump_host_that_is_not_known_asks_nobody_and_is_told_at_once() {
    let Some(_sshd) = Sshd::find().unwrap() else {
        return;
    };
    let own = std::env::current_exe().unwrap();
    let test = "--exact tests::logins::a_host_at_a_terminal --nocapture";
    let at_terminal = format!("'{}' {test}", own.display());
    let host = Command::new("script")
        .args(["-qec", &at_terminal, "/dev/null"])
        .env(TERMINAL, "1")
        .stdin(Stdio::null())
        .output();
    let Ok(host) = host else {
        println!("LEFT OUT: script: there is no program `script` (Debian: bsdutils)");
        return;
    };
    let said = String::from_utf8_lossy(&host.stdout);
    assert!(host.status.success(), "{said}");
    assert!(said.contains("is not known yet"), "{said}");
    assert!(
        !said.contains("continue connecting"),
        "somebody was asked: {said}"
    );
}

#[test]
fn ten_sessions_at_once_come_in_where_a_server_takes_few_logins_and_the_agent_is_copied_once() {
    let Some(sshd) = Sshd::find().unwrap() else {
        return;
    };
    let config = sshd.path("sshd_config");
    let text = fs::read_to_string(&config).unwrap();
    let few = text.replace("MaxStartups 200", "MaxStartups 2:100:2");
    assert_ne!(few, text);
    fs::write(&config, few).unwrap();
    sshd.reload().unwrap();
    let world = world_in(sshd, tempfile::tempdir().unwrap(), &json!({}));
    let sessions: Vec<_> = (0..10).map(|number| format!("session-{number}")).collect();
    let running: Vec<_> = sessions
        .iter()
        .map(|session| {
            let calls = world.plugin.with(|envelope| {
                envelope.session = Some(session.clone());
                envelope.deadline_ms = 60_000;
            });
            let init = json!({ "skills": [], "env": {} });
            calls.call("executor.init", init).reply.unwrap();
            calls.start("executor.bash", json!({ "command": "pwd; sleep 1" }))
        })
        .collect();
    let outcomes: Vec<_> = running.into_iter().map(RunningCall::wait).collect();
    let mut dirs: Vec<String> = Vec::new();
    let mut copied = 0;
    for outcome in &outcomes {
        let told = notices(outcome);
        copied += told
            .iter()
            .filter(|text| text.contains("copying the agent"))
            .count();
        let ran: BashOutput = outcome.parse().unwrap();
        dirs.push(ran.stdout);
    }
    dirs.sort();
    dirs.dedup();
    assert_eq!((dirs.len(), copied), (10, 1));
    let log = fs::read_to_string(world.sshd.path("log")).unwrap();
    assert!(
        log.contains("MaxStartups"),
        "the server refused nobody: {log}"
    );
    // All of them lose their connections together, and all come back.
    let running: Vec<_> = sessions
        .iter()
        .map(|session| {
            let calls = world.plugin.with(|envelope| {
                envelope.session = Some(session.clone());
                envelope.deadline_ms = 60_000;
            });
            calls.start(
                "executor.bash",
                json!({ "command": "echo begun; sleep 2; echo ended" }),
            )
        })
        .collect();
    for call in &running {
        assert!(call.until(|seen| seen.stdout == b"begun\n"));
    }
    world.network.refuse();
    world.network.restore();
    for call in running {
        let ran: BashOutput = call.wait().parse().unwrap();
        assert_eq!(ran.stdout, "begun\nended\n");
    }
    for session in sessions {
        let calls = world
            .plugin
            .with(|envelope| envelope.session = Some(session));
        calls.call("executor.cleanup", json!({})).reply.unwrap();
    }
    assert_eq!(world.sessions().len(), 0);
}

/// The agent's file.
fn program(world: &World) -> PathBuf {
    let mut found = fs::read_dir(world.path("agent")).unwrap();
    found.next().unwrap().unwrap().path()
}

#[test]
fn an_agent_whose_file_is_damaged_or_gone_is_copied_anew_and_a_lost_connection_comes_back() {
    let Some(world) = world(&json!({})) else {
        return;
    };
    world.bash("true");
    let agent = program(&world);
    let whole = fs::read(&agent).unwrap();
    let mut damaged = whole.clone();
    let middle = damaged.len() / 2;
    damaged[middle] ^= 1;
    for content in [None, Some(&damaged), Some(&whole[..1_000].to_vec())] {
        let running = world.start("echo begun; sleep 1; echo ended");
        assert!(running.until(|seen| seen.stdout == b"begun\n"));
        // What runs keeps the file that it has.
        fs::remove_file(&agent).unwrap();
        if let Some(content) = content {
            fs::write(&agent, content).unwrap();
            let executable = std::os::unix::fs::PermissionsExt::from_mode(0o700);
            fs::set_permissions(&agent, executable).unwrap();
        }
        world.network.refuse();
        world.network.restore();
        let outcome = running.wait();
        let ran: BashOutput = outcome.parse().unwrap();
        assert_eq!(ran.stdout, "begun\nended\n");
        let told = notices(&outcome);
        let copies = told
            .iter()
            .filter(|text| text.contains("copying the agent"));
        assert_eq!(copies.count(), 1, "{told:?}");
        assert!(fs::read(&agent).unwrap() == whole);
    }
    assert_eq!(world.agents("relay").len(), 1);
}

#[test]
fn agents_of_other_versions_go_when_nobody_uses_them() {
    let Some(world) = world(&json!({})) else {
        return;
    };
    fs::create_dir(world.path("agent")).unwrap();
    let made = |digit: &str, hours: u64| {
        let path = world
            .path("agent")
            .join(format!("agent-{}", digit.repeat(64)));
        let file = fs::File::create(&path).unwrap();
        let then = std::time::SystemTime::now() - Duration::from_secs(hours * 3_600);
        file.set_times(fs::FileTimes::new().set_modified(then))
            .unwrap();
        path
    };
    let (old, older) = (made("a", 2), made("b", 3));
    let oldest = made("c", 4);
    world.bash("true");
    until("the oldest is gone", || !oldest.exists());
    assert!(old.exists() && older.exists());
    assert_eq!(fs::read_dir(world.path("agent")).unwrap().count(), 3);
}

#[test]
fn a_key_that_is_refused_while_a_connection_is_lost_ends_the_wait_for_it() {
    let Some(world) = world(&json!({})) else {
        return;
    };
    world.bash("true");
    let running = world.start("echo begun; sleep 1000");
    assert!(running.until(|seen| seen.stdout == b"begun\n"));
    let keys = world.sshd.path("authorized_keys");
    let known = fs::read(&keys).unwrap();
    world.network.refuse();
    fs::write(&keys, "").unwrap();
    world.network.restore();
    let begun = Instant::now();
    let outcome = running.wait();
    let text = outcome.text();
    assert!(
        outcome.code().is_some() && text.contains("refuses the key"),
        "{text}"
    );
    assert!(text.contains("begun"), "what it had said is lost: {text}");
    assert!(
        begun.elapsed() < Duration::from_secs(30),
        "{:?}",
        begun.elapsed()
    );
    fs::write(&keys, known).unwrap();
    assert_eq!(world.bash("echo on").stdout, "on\n");
}

#[test]
fn the_end_of_a_session_waits_for_no_connection_that_is_being_made() {
    let Some(world) = world(&json!({ "connect_timeout_ms": 60_000 })) else {
        return;
    };
    world.network.stall();
    let running = world.start("true");
    // It is under way to the machine.
    until("somebody connects", || {
        processes_with(&world.path("scratch").display().to_string()) > 0
    });
    let begun = Instant::now();
    // Nobody says that the session's directory is gone, if there is one.
    let said = world.error("executor.cleanup", json!({}));
    assert!(said.contains("did not say"), "{said}");
    assert!(
        begun.elapsed() < Duration::from_secs(20),
        "{:?}",
        begun.elapsed()
    );
    assert_eq!(
        running.wait().code(),
        Some(conjure_skill_sdk::abi::code::CANCELLED)
    );
    until("nobody is on the way", || {
        processes_with(&world.path("scratch").display().to_string()) == 0
    });
}
