//! What goes wrong around a connection says what to do.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use conjure_kit::Sshd;
use serde_json::{Value, json};

use super::{World, world, world_in};

/// What a command says with this configuration.
fn said(config: &Value, words: &[&str]) {
    let Some(world) = world(config) else {
        return;
    };
    says(&world, words);
}

fn says(world: &World, words: &[&str]) {
    let error = world.bash_error();
    for word in words {
        assert!(error.contains(word), "`{word}` is not in: {error}");
    }
}

#[test]
fn a_host_that_is_not_known_a_port_without_sshd_and_a_key_that_is_refused_are_told() {
    said(
        &json!({ "host": "conjure-no-such-host.invalid" }),
        &["conjure-no-such-host.invalid", "correct `host`"],
    );
    said(&json!({ "port": 1 }), &["127.0.0.1", "sshd runs there"]);
    let Some(sshd) = Sshd::find().unwrap() else {
        return;
    };
    let config = json!({ "identity_file": sshd.path("other_key") });
    let world = world_in(sshd, tempfile::tempdir().unwrap(), &config);
    says(
        &world,
        &["refuses the key", "`identity_file`", "authorized_keys"],
    );
}

#[test]
fn a_host_key_that_changed_or_is_not_known_is_told_and_nothing_is_sent() {
    let Some(world) = world(&json!({})) else {
        return;
    };
    let other = fs::read_to_string(world.sshd.path("other_key.pub")).unwrap();
    let port = world.network.address().port();
    let changed = format!("[127.0.0.1]:{port} {other}");
    fs::write(world.sshd.path("known_hosts"), changed).unwrap();
    says(&world, &["shows another key"]);
    // What is advised works as it is said.
    shell(&advised(&world, "ssh-keygen "));
    says(&world, &["is not known yet", "accept-new"]);
    assert!(!world.path("agent").exists() && world.sessions().is_empty());
    let login = advised(&world, "ssh ");
    shell(&format!(
        "{login} -o BatchMode=yes -o StrictHostKeyChecking=accept-new true"
    ));
    assert_eq!(world.bash("echo in").stdout, "in\n");
}

/// The command of this program that an error advises.
fn advised(world: &World, program: &str) -> String {
    let error = world.bash_error();
    let mut words = error.split('`');
    let command = words.find(|word| word.starts_with(program));
    command
        .unwrap_or_else(|| panic!("no `{program}` in: {error}"))
        .to_owned()
}

fn shell(command: &str) {
    let mut shell = std::process::Command::new("sh");
    let ran = shell.args(["-c", command]).output().unwrap();
    assert!(ran.status.success(), "{command}: {ran:?}");
}

#[test]
fn a_host_key_that_changes_while_a_connection_is_lost_ends_the_wait_for_it() {
    let Some(world) = world(&json!({})) else {
        return;
    };
    world.bash("true");
    let running = world.start("echo begun; sleep 1000");
    assert!(running.until(|seen| seen.stdout == b"begun\n"));
    world.network.refuse();
    let other = fs::read_to_string(world.sshd.path("other_key.pub")).unwrap();
    let port = world.network.address().port();
    let changed = format!("[127.0.0.1]:{port} {other}");
    let known = fs::read_to_string(world.sshd.path("known_hosts")).unwrap();
    fs::write(world.sshd.path("known_hosts"), changed).unwrap();
    world.network.restore();
    let outcome = running.wait();
    assert!(
        outcome.text().contains("shows another key"),
        "{}",
        outcome.text()
    );
    fs::write(world.sshd.path("known_hosts"), known).unwrap();
    assert_eq!(world.bash("echo on").stdout, "on\n");
}

#[test]
fn a_new_host_is_accepted_where_that_is_configured() {
    let Some(sshd) = Sshd::find().unwrap() else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let known = dir.path().join("known 100%");
    let config = json!({ "known_hosts": known, "strict_host_key_checking": "accept-new" });
    let world = world_in(sshd, dir, &config);
    assert_eq!(world.bash("echo in").stdout, "in\n");
    assert!(fs::read_to_string(known).unwrap().contains("127.0.0.1"));
}

#[test]
fn an_alias_of_sshs_configuration_is_a_host_and_none_of_its_forwarding_is_done() {
    let Some(sshd) = Sshd::find().unwrap() else {
        return;
    };
    let config = format!(
        "Host build\nHostName 127.0.0.1\nPort {}\nIdentityFile {}\nUserKnownHostsFile {}\n\
         ForwardAgent yes\nLocalForward 1 127.0.0.1:1\nExitOnForwardFailure yes\n\
         ControlMaster auto\nControlPath /nowhere/%C\nRemoteCommand false\nRequestTTY force\n\
         StdinNull yes\nForkAfterAuthentication yes\nSessionType none\nTunnel yes\n\
         VisualHostKey yes\nBatchMode no\nServerAliveInterval 0\n",
        sshd.address().port(),
        sshd.path("user_key").display(),
        sshd.path("known_hosts").display(),
    );
    fs::write(sshd.path("config"), config).unwrap();
    let nothing = json!({
        "host": "build", "port": null, "identity_file": null, "known_hosts": null,
    });
    let world = world_in(sshd, tempfile::tempdir().unwrap(), &nothing);
    let ran = world.bash("echo in $SSH_AUTH_SOCK; tty");
    assert_eq!(ran.stdout, "in\nnot a tty\n");
}

#[test]
fn a_shell_that_talks_is_not_minded_and_no_shell_is_told() {
    let Some(sshd) = Sshd::find().unwrap() else {
        return;
    };
    let config = sshd.path("sshd_config");
    let force = |command: &str| {
        let text = fs::read_to_string(&config).unwrap();
        let lines = text
            .lines()
            .filter(|line| !line.starts_with("ForceCommand"));
        let text: String = lines.map(|line| format!("{line}\n")).collect();
        fs::write(&config, format!("{text}ForceCommand {command}\n")).unwrap();
    };
    // One that shows what it is about to run, too.
    force(
        "echo Welcome; echo \"$SSH_ORIGINAL_COMMAND\"; printf 'no end of line '; \
         eval \"$SSH_ORIGINAL_COMMAND\"",
    );
    sshd.reload().unwrap();
    let world = world_in(sshd, tempfile::tempdir().unwrap(), &json!({}));
    assert_eq!(world.bash("echo in").stdout, "in\n");
    world.call("executor.cleanup", json!({})).reply.unwrap();

    let Some(sshd) = Sshd::find().unwrap() else {
        return;
    };
    let config = sshd.path("sshd_config");
    let text = fs::read_to_string(&config).unwrap();
    let no_shell = "ForceCommand echo This account is currently not available.; exit 1\n";
    fs::write(&config, text + no_shell).unwrap();
    sshd.reload().unwrap();
    let world = world_in(sshd, tempfile::tempdir().unwrap(), &json!({}));
    says(&world, &["no shell", "not available", "chsh"]);
}

#[test]
fn a_directory_that_is_missing_or_cannot_be_written_is_told() {
    let Some(world) = world(&json!({ "working_dir": "/nowhere/at all" })) else {
        return;
    };
    says(
        &world,
        &["/nowhere/at all", "make it there", "`working_dir`"],
    );
    assert_eq!(world.sessions().len(), 0);
    said(
        &json!({ "scratch_dir": "/proc" }),
        &["/proc/conjure-", "`scratch_dir`"],
    );
    said(&json!({ "agent_dir": "/proc/agent" }), &["`agent_dir`"]);
}

#[test]
fn an_agent_for_another_processor_is_told() {
    let Some(sshd) = Sshd::find().unwrap() else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let foreign = dir.path().join("foreign");
    fs::write(&foreign, b"\x7fELF not for this machine").unwrap();
    let world = world_in(sshd, dir, &json!({ "agent": foreign }));
    says(&world, &["runs no program", "`agent`"]);
    let left = fs::read_dir(world.path("agent")).unwrap().count();
    assert_eq!(left, 0, "half an agent is left");
}

#[test]
fn a_file_system_that_runs_no_programs_and_a_full_one_are_told() {
    let dir = tempfile::tempdir().unwrap();
    let small = dir.path().join("small");
    fs::create_dir(&small).unwrap();
    let Some(mounted) = Mounted::new(&small, "noexec,size=8m") else {
        return;
    };
    let Some(sshd) = Sshd::find().unwrap() else {
        return;
    };
    let config = json!({ "agent_dir": small.join("agent") });
    let world = world_in(sshd, tempfile::tempdir().unwrap(), &config);
    says(&world, &["noexec", "`agent_dir`"]);
    drop(mounted);
    let Some(_mounted) = Mounted::new(&small, "size=64k") else {
        return;
    };
    says(&world, &["No space left", "`agent_dir`"]);
    let left: Vec<_> = fs::read_dir(small.join("agent")).unwrap().collect();
    assert!(left.is_empty(), "half an agent is left: {left:?}");
}

/// A small file system of its own, where this user may mount one.
pub(super) struct Mounted<'a>(&'a Path);

impl<'a> Mounted<'a> {
    pub(super) fn new(at: &'a Path, options: &str) -> Option<Self> {
        let mut mount = std::process::Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", options, "none"]).arg(at);
        let mounted = mount.output().is_ok_and(|done| done.status.success());
        if !mounted {
            println!("LEFT OUT: root: the test mounts a file system");
            return None;
        }
        fs::set_permissions(at, Permissions::from_mode(0o755)).unwrap();
        Some(Self(at))
    }
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        let mut unmount = std::process::Command::new("umount");
        let _ = unmount.arg("-l").arg(self.0).status();
    }
}

#[test]
fn what_would_inject_an_option_never_gets_to_ssh() {
    let Some(world) = world(&json!({})) else {
        return;
    };
    let mark = world.path("injected");
    let touch = format!("-oProxyCommand=touch {}", mark.display());
    for config in [
        json!({ "host": touch }),
        json!({ "user": touch }),
        json!({ "host": format!("me@{touch}") }),
        json!({ "identity_file": touch }),
        json!({ "config_file": touch }),
        json!({ "known_hosts": format!("/x\" -oProxyCommand=\"touch {}", mark.display()) }),
        json!({ "scratch_dir": format!("/tmp/$(touch {})", mark.display()) }),
        json!({ "agent_dir": format!("'; touch {}; '", mark.display()) }),
    ] {
        let host = super::host(&world.sshd, &world.network, &world.dir, &config);
        let refused = host.link(crate::plugin).unwrap_err();
        let name = config.as_object().unwrap().keys().next().unwrap();
        assert!(
            refused.message().contains(name) || refused.message().contains("host"),
            "{refused}"
        );
    }
    // What a shell over there would understand is a path and an environment there.
    let odd = format!("$(touch {0})`touch {0}`; 'x\" &", mark.display());
    let named = world.path("odd $(x) 'dir\"");
    fs::create_dir(&named).unwrap();
    let config = json!({ "working_dir": named, "env": { "ODD": odd } });
    let host = super::host(&world.sshd, &world.network, &world.dir, &config);
    let plugin = host.link(crate::plugin).unwrap();
    let init = json!({ "skills": [], "env": {} });
    plugin.call("executor.init", init).reply.unwrap();
    let ran = plugin.call("executor.bash", json!({ "command": "pwd; echo \"$ODD\"" }));
    let ran: conjure_skill_sdk::protocol::BashOutput = ran.parse().unwrap();
    assert_eq!(ran.stdout, format!("{}\n{odd}\n", named.display()));
    plugin.call("executor.cleanup", json!({})).reply.unwrap();
    assert!(!mark.exists());
}
