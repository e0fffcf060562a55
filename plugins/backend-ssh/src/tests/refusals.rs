//! Logins that a server or `ssh` itself refuses: each says why, and waiting for nothing is not advised.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use conjure_kit::Sshd;
use serde_json::{Value, json};

use super::{World, until, world_in};

/// Lets a server do something else besides.
fn change(sshd: &Sshd, lines: &str) {
    let config = sshd.path("sshd_config");
    let text = fs::read_to_string(&config).unwrap();
    fs::write(&config, format!("{text}{lines}\n")).unwrap();
    sshd.reload().unwrap();
}

/// What a command says on this machine.
fn says(sshd: Sshd, config: &Value, words: &[&str]) -> String {
    let world = world_in(sshd, tempfile::tempdir().unwrap(), config);
    let error = world.bash_error();
    for word in words {
        assert!(error.contains(word), "`{word}` is not in: {error}");
    }
    error
}

#[test]
fn what_a_server_says_before_it_ends_a_login_is_told() {
    let Some(sshd) = Sshd::find().unwrap() else {
        return;
    };
    // As PAM does for an account whose time is over: a message, and the end of the connection.
    let banner = sshd.path("banner");
    fs::write(
        &banner,
        "Your account has expired; please contact your administrator\n",
    )
    .unwrap();
    fs::write(sshd.path("authorized_keys"), "").unwrap();
    let lines = format!(
        "Banner {}\nAuthorizedKeysCommand /bin/sh -c \"kill $PPID\"\nAuthorizedKeysCommandUser %u",
        banner.display()
    );
    change(&sshd, &lines);
    let words = [
        "account has expired",
        "contact your administrator",
        "`user`",
    ];
    says(sshd, &json!({}), &words);
}

#[test]
fn a_password_that_expired_and_a_restricted_shell_are_told() {
    let Some(sshd) = Sshd::find().unwrap() else {
        return;
    };
    let message = "ForceCommand echo \"WARNING: Your password has expired.\" >&2; \
                   echo \"Password change required but no TTY available.\" >&2; exit 1";
    change(&sshd, message);
    let words = ["a new password", "log in once by hand (`ssh ", "`user`"];
    says(sshd, &json!({}), &words);
    let Some(sshd) = Sshd::find().unwrap() else {
        return;
    };
    change(&sshd, "ForceCommand bash -r -c \"$SSH_ORIGINAL_COMMAND\"");
    says(sshd, &json!({}), &["a restricted shell", "chsh"]);
}

#[test]
fn a_login_that_prints_without_end_is_told_and_not_shown_in_whole() {
    let Some(sshd) = Sshd::find().unwrap() else {
        return;
    };
    let flood = "ForceCommand head -c 200000 /dev/zero | tr \"\\0\" x; \
                 eval \"$SSH_ORIGINAL_COMMAND\"";
    change(&sshd, flood);
    let error = says(sshd, &json!({}), &["prints too much", "~/.bashrc", "xxx"]);
    assert!(error.chars().count() < 1_500, "{error}");
}

#[test]
fn a_key_that_is_not_there_or_that_ssh_does_not_load_is_told() {
    let Some(sshd) = Sshd::find().unwrap() else {
        return;
    };
    let missing = sshd.path("missing");
    let path = missing.display().to_string();
    let words = ["`identity_file`", path.as_str(), "Correct"];
    says(sshd, &json!({ "identity_file": missing }), &words);
    let Some(sshd) = Sshd::find().unwrap() else {
        return;
    };
    fs::set_permissions(sshd.path("user_key"), Permissions::from_mode(0o644)).unwrap();
    says(sshd, &json!({}), &["could not load a key", "chmod 600"]);
}

/// An `ssh-agent` of the test's own.
struct KeyAgent {
    process: Child,
    socket: PathBuf,
}

impl KeyAgent {
    /// One with these keys; nothing where there is no such program.
    fn with(keys: &[PathBuf], dir: &Path) -> Option<Self> {
        let socket = dir.join("agent.sock");
        let mut program = Command::new("ssh-agent");
        let process = program
            .arg("-D")
            .arg("-a")
            .arg(&socket)
            .stdout(Stdio::null())
            .spawn();
        let Ok(process) = process else {
            println!("LEFT OUT: ssh-agent: there is no such program (Debian: openssh-client)");
            return None;
        };
        let agent = Self { process, socket };
        until("ssh-agent is there", || agent.socket.exists());
        let added = Command::new("ssh-add")
            .args(keys)
            .env("SSH_AUTH_SOCK", &agent.socket)
            .output()
            .unwrap();
        assert!(added.status.success(), "{added:?}");
        Some(agent)
    }
}

impl Drop for KeyAgent {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A world whose `ssh` has an agent with keys that the server does not take, and which takes two.
fn with_many_keys(config: &Value) -> Option<(World, KeyAgent)> {
    let sshd = Sshd::find().unwrap()?;
    change(&sshd, "MaxAuthTries 2");
    let dir = tempfile::tempdir().unwrap();
    let keys = [sshd.path("host_key"), sshd.path("other_key")];
    let agent = KeyAgent::with(&keys, dir.path())?;
    let lines = format!(
        "IdentityAgent {}\nIdentityFile {}\n",
        agent.socket.display(),
        sshd.path("user_key").display()
    );
    fs::write(sshd.path("config"), lines).unwrap();
    Some((world_in(sshd, dir, config), agent))
}

#[test]
fn the_key_that_is_named_goes_before_those_of_an_agent() {
    let Some((world, _agent)) = with_many_keys(&json!({})) else {
        return;
    };
    assert_eq!(world.bash("echo in").stdout, "in\n");
}

#[test]
fn too_many_keys_before_the_right_one_are_told() {
    let nothing = json!({ "identity_file": null });
    let Some((world, _agent)) = with_many_keys(&nothing) else {
        return;
    };
    let error = world.bash_error();
    for word in ["too many keys", "`identity_file`"] {
        assert!(error.contains(word), "`{word}` is not in: {error}");
    }
}
