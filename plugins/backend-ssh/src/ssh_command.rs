//! How `ssh` is told what to do.
//!
//! Nobody is asked anything, nothing of a person's is forwarded, and no other connection of his is
//! shared: one that is dead would hold this one.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;
use tokio::sync::OnceCell;

use crate::config::SshSettings;

/// How many unanswered questions make a connection a lost one.
const ALIVE_COUNT_MAX: u32 = 3;
/// The first version of OpenSSH that has the options of [`MODERN_OPTIONS`].
const MODERN_SINCE: (u32, u32) = (8, 7);
/// What a configuration could say that would leave no command, or no way to it.
const MODERN_OPTIONS: [&str; 3] = [
    "StdinNull=no",
    "ForkAfterAuthentication=no",
    "SessionType=default",
];

/// How much `ssh` says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verbosity {
    /// Errors only.
    Errors,
    /// Also what the server says before the login, and how a connection ended.
    Details,
}

impl Verbosity {
    /// The value of ssh's option.
    fn ssh_value(self) -> &'static str {
        match self {
            Self::Errors => "ERROR",
            Self::Details => "INFO",
        }
    }
}

/// `ssh`, to run a script. The script holds no single quote: whatever shell a user has over there
/// reads it as one word.
///
/// # Errors
/// When there is no `ssh`.
pub(crate) async fn command(
    settings: &SshSettings,
    script: &str,
    verbosity: Verbosity,
) -> io::Result<Command> {
    let ssh = in_path("ssh").ok_or(io::ErrorKind::NotFound)?;
    let is_modern = is_modern(&ssh).await;
    let command = base(&ssh);
    Ok(with_options(
        command, is_modern, settings, script, verbosity,
    ))
}

/// The program, in a session of its own. There no program that it starts can ask at the host's
/// terminal, and none is stopped for trying: a jump host's `ssh` is not told to ask nothing.
fn base(ssh: &Path) -> Command {
    let mut command = match in_path("setsid") {
        Some(setsid) => {
            let mut command = Command::new(setsid);
            command.arg(ssh);
            command
        }
        None => {
            let mut command = Command::new(ssh);
            // What a terminal sends to the host's group is not for it.
            command.process_group(0);
            command
        }
    };
    // Nor in a window.
    command
        .env("SSH_ASKPASS_REQUIRE", "never")
        .env("SSH_ASKPASS", "/bin/false");
    command
}

/// Whether this `ssh` has the options of newer versions; an older one would refuse them.
async fn is_modern(ssh: &Path) -> bool {
    static IS_MODERN: OnceCell<bool> = OnceCell::const_new();
    let asked = async {
        let mut version = Command::new(ssh);
        let version = version.arg("-V").stdin(Stdio::null()).kill_on_drop(true);
        let said = version.output().await;
        said.is_ok_and(|said| version_of(&said.stderr) >= Some(MODERN_SINCE))
    };
    *IS_MODERN.get_or_init(|| asked).await
}

/// The version in what `ssh -V` says, such as `OpenSSH_9.2p1 Debian-2, OpenSSL 3.0.19`.
fn version_of(said: &[u8]) -> Option<(u32, u32)> {
    let said = String::from_utf8_lossy(said);
    let (_, version) = said.split_once("OpenSSH_")?;
    let mut numbers = version.split(|c: char| !c.is_ascii_digit());
    let mut number = || numbers.next()?.parse().ok();
    Some((number()?, number()?))
}

/// A program on the `PATH`.
fn in_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let places = std::env::split_paths(&path);
    let mut programs = places.map(|place| place.join(OsStr::new(name)));
    programs.find(|program| program.is_absolute() && program.is_file())
}

fn with_options(
    mut command: Command,
    is_modern: bool,
    settings: &SshSettings,
    script: &str,
    verbosity: Verbosity,
) -> Command {
    let seconds = |time: Duration| time.as_millis().div_ceil(1_000).max(1);
    let alive = seconds(Duration::from_millis(settings.alive_ms));
    let connect = seconds(settings.connect_timeout());
    command.args(["-T", "-a", "-x"]);
    if let Some(file) = &settings.config_file {
        command.arg("-F").arg(file);
    }
    let mut options = vec![
        "BatchMode=yes".to_owned(),
        format!("LogLevel={}", verbosity.ssh_value()),
        "ClearAllForwardings=yes".to_owned(),
        "PermitLocalCommand=no".to_owned(),
        "RemoteCommand=none".to_owned(),
        "ControlMaster=no".to_owned(),
        "ControlPath=none".to_owned(),
        "EscapeChar=none".to_owned(),
        "Tunnel=no".to_owned(),
        "AddKeysToAgent=no".to_owned(),
        "VisualHostKey=no".to_owned(),
        "ConnectionAttempts=1".to_owned(),
        format!("ConnectTimeout={connect}"),
        format!("ServerAliveInterval={alive}"),
        format!("ServerAliveCountMax={ALIVE_COUNT_MAX}"),
    ];
    if is_modern {
        options.extend(MODERN_OPTIONS.map(str::to_owned));
    }
    if let Some(keys) = settings.strict_host_key_checking {
        options.push(format!("StrictHostKeyChecking={}", keys.ssh_value()));
    }
    if let Some(file) = &settings.known_hosts {
        options.push(known_hosts_option(file));
    }
    if let Some(file) = &settings.identity_file {
        options.push(format!("IdentityFile=\"{}\"", escape_percent(file)));
        // Else all keys of ssh-agent go first, and a server takes few in one login.
        options.push("IdentitiesOnly=yes".to_owned());
    }
    if let Some(port) = settings.port {
        options.push(format!("Port={port}"));
    }
    for option in options {
        command.arg("-o").arg(option);
    }
    if let Some(user) = &settings.user {
        command.args(["-l", user]);
    }
    command
        .args(["--", &settings.host])
        .arg(format!("exec /bin/sh -c '{script}'"));
    command
}

/// The option that names the file with the keys of hosts.
pub(crate) fn known_hosts_option(file: &Path) -> String {
    format!("UserKnownHostsFile=\"{}\"", escape_percent(file))
}

/// A path in which `ssh` replaces nothing.
pub(crate) fn escape_percent(path: &Path) -> String {
    path.to_string_lossy().replace('%', "%%")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The words after the program's name.
    fn told(is_modern: bool, settings: &SshSettings, verbosity: Verbosity) -> Vec<String> {
        let ssh = Command::new("ssh");
        let command = with_options(ssh, is_modern, settings, "true", verbosity);
        let words = command.as_std().get_args();
        words
            .map(|word| word.to_string_lossy().into_owned())
            .collect()
    }

    #[test]
    fn what_is_configured_is_told_and_the_host_is_no_option() {
        let settings = SshSettings {
            host: "build".to_owned(),
            port: Some(22),
            user: Some("me".to_owned()),
            identity_file: Some("/k/100% mine".into()),
            known_hosts: Some("/k/known hosts".into()),
            config_file: Some("/k/config".into()),
            alive_ms: 1_500,
            ..SshSettings::default()
        };
        let words = told(true, &settings, Verbosity::Errors);
        for option in [
            "IdentityFile=\"/k/100%% mine\"",
            "UserKnownHostsFile=\"/k/known hosts\"",
            "ServerAliveInterval=2",
            "BatchMode=yes",
            "SessionType=default",
            "Port=22",
            "IdentitiesOnly=yes",
            "LogLevel=ERROR",
        ] {
            let at = words.iter().position(|word| word == option).unwrap();
            assert_eq!(words[at - 1], "-o");
        }
        assert_eq!(
            words[words.len() - 3..],
            ["--", "build", "exec /bin/sh -c 'true'"]
        );
    }

    #[test]
    fn the_keys_of_an_agent_are_shown_where_no_key_is_named() {
        let settings = SshSettings::default();
        let words = told(true, &settings, Verbosity::Details);
        assert!(!words.iter().any(|word| word.contains("IdentitiesOnly")));
        assert!(words.contains(&"LogLevel=INFO".to_owned()));
    }

    #[test]
    fn the_version_is_read_and_an_old_one_gets_no_new_options() {
        let of = |said: &str| version_of(said.as_bytes());
        assert_eq!(of("OpenSSH_9.2p1 Debian-2, OpenSSL 3.0.19"), Some((9, 2)));
        assert_eq!(of("OpenSSH_for_Windows_9.5p1, LibreSSL"), None);
        assert_eq!(of("OpenSSH_10.0p2, OpenSSL"), Some((10, 0)));
        assert_eq!(of("dropbear"), None);
        let settings = SshSettings::default();
        let words = told(false, &settings, Verbosity::Errors);
        let is_modern = |word: &String| MODERN_OPTIONS.contains(&word.as_str());
        assert!(!words.iter().any(is_modern));
    }
}
