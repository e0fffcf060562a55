//! What a failed connection says to whoever reads it: what failed, why, and what to do.

use std::io::ErrorKind;

use conjure_exec_agent::client::relayed::{
    EXIT_INCOMPLETE, EXIT_NO_DIRECTORY, EXIT_NOT_RUNNABLE, EXIT_NOT_WRITTEN, RouteFailure,
};
use conjure_exec_agent::relay::{EXIT_NO_RELAY, EXIT_NO_SESSION_DIR, EXIT_NO_SPACE};
use conjure_skill_sdk::Error;

use crate::config::SshSettings;
use crate::local_files::in_worker;
use crate::manual_commands;
use crate::reason::{self, SSH_EXIT_CODE};
use crate::ssh::SshFailure;

/// What a shell ends with that finds no program, and one that may not run it.
const NO_PROGRAM_CODES: [i32; 2] = [126, 127];
/// What a shell ends with in which a script failed, and `ssh`.
const FAILED_CODES: [i32; 2] = [1, SSH_EXIT_CODE];
/// How much of what a login says in place of the agent is shown, from its beginning, and how much of
/// what is complained about, from its end; in characters.
const MAX_PREAMBLE_CHARS: usize = 300;
const MAX_STDERR_CHARS: usize = 1_500;
/// How `ssh` begins a line about a key that it cannot load from this machine.
const LOAD_KEY: &str = "Load key \"";

/// Consequence of a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FailureKind {
    /// The machine may be reached in a moment.
    Unreachable,
    /// The machine is another one than it was, or not known.
    HostKey,
    /// The failure stays, however long one waits.
    Permanent,
    /// There is a relay, and it does not take the session.
    Refused,
    /// The relay does not exist any more.
    NoRelay,
}

/// A failure with its meaning and its words.
#[derive(Debug, Clone)]
pub(crate) struct ExplainedFailure {
    pub(crate) kind: FailureKind,
    pub(crate) text: String,
}

impl ExplainedFailure {
    /// A failure that stays, however long one waits.
    pub(crate) fn permanent(settings: &SshSettings, text: &str) -> Self {
        Self {
            kind: FailureKind::Permanent,
            text: format!("the machine {} {text}", settings.host),
        }
    }

    /// One whose relay does not take the session.
    pub(crate) fn refused(settings: &SshSettings, text: &str) -> Self {
        Self {
            kind: FailureKind::Refused,
            ..Self::permanent(settings, text)
        }
    }

    /// One whose relay does not know the session.
    pub(crate) fn no_relay(settings: &SshSettings) -> Self {
        let failure = SshFailure {
            code: Some(EXIT_NO_RELAY.into()),
            ..SshFailure::default()
        };
        explain(settings, &failure)
    }
}

impl From<ExplainedFailure> for Error {
    fn from(explained: ExplainedFailure) -> Self {
        Self::new(explained.text)
    }
}

impl From<ExplainedFailure> for RouteFailure {
    fn from(ExplainedFailure { kind, text }: ExplainedFailure) -> Self {
        let may_pass = kind.is_transient();
        Self {
            text,
            is_transient: may_pass,
        }
    }
}

impl FailureKind {
    /// Whether somebody who comes again may find it better.
    pub(crate) fn is_transient(self) -> bool {
        self == Self::Unreachable
    }
}

/// Whether a server has ended the connection before anybody could say who he is, which it does when
/// too many log in at once.
pub(crate) fn is_crowded(failure: &SshFailure) -> bool {
    let ends = ["kex_exchange_identification", "Exceeded MaxStartups"];
    failure.code == Some(SSH_EXIT_CODE) && ends.iter().any(|end| failure.stderr.contains(end))
}

/// Whether `ssh` ended without a word: it may know a reason that is no error to it.
pub(crate) fn is_silent(failure: &SshFailure) -> bool {
    failure.code == Some(SSH_EXIT_CODE)
        && !failure.floods
        && failure.stderr.is_empty()
        && failure.preamble.is_empty()
}

/// Explains a failure: its kind and a text with what to do.
pub(crate) fn explain(settings: &SshSettings, failure: &SshFailure) -> ExplainedFailure {
    let (kind, what) = diagnose(settings, failure, in_worker());
    let why = match (failure.stderr.as_str(), failure.preamble.as_str()) {
        ("", "") => String::new(),
        ("", said) => format!(" (it says: {})", beginning(said)),
        // What it says beside that is what it is about.
        (_, said) if failure.floods => format!(" (it says: {})", beginning(said)),
        (complaint, _) => format!(" ({})", tail(complaint)),
    };
    ExplainedFailure {
        kind,
        text: format!("the machine {} {what}{why}", settings.host),
    }
}

fn beginning(text: &str) -> String {
    match text.char_indices().nth(MAX_PREAMBLE_CHARS) {
        Some((at, _)) => format!("{}…", text.get(..at).unwrap_or_default()),
        None => text.to_owned(),
    }
}

fn tail(text: &str) -> String {
    let surplus = text.chars().count().saturating_sub(MAX_STDERR_CHARS);
    match surplus {
        0 => text.to_owned(),
        surplus => format!("…{}", text.chars().skip(surplus).collect::<String>()),
    }
}

type Diagnosis = (FailureKind, String);

fn permanent(text: &str) -> Diagnosis {
    (FailureKind::Permanent, text.to_owned())
}

fn unreachable(text: &str) -> Diagnosis {
    (FailureKind::Unreachable, text.to_owned())
}

/// What a failure means; in a worker of the host's there is less to be had on this machine.
fn diagnose(settings: &SshSettings, failure: &SshFailure, in_worker: bool) -> Diagnosis {
    if failure.timed_out {
        return unreachable(
            "does not answer in time: see that it is up and that `connect_timeout_ms` is long \
             enough",
        );
    }
    if failure.floods {
        return permanent(
            "prints too much at the login, before the agent can start: let the login scripts of \
             the user there (such as ~/.bashrc) say nothing in shells that are not interactive",
        );
    }
    match failure.start_error {
        Some(ErrorKind::NotFound) => {
            return permanent(
                "cannot be reached: install OpenSSH's client, so that `ssh` is found on the PATH \
                 of the host",
            );
        }
        Some(_) => {
            return unreachable(
                "cannot be reached, since `ssh` could not be started: see what the host's \
                 machine is short of",
            );
        }
        None => {}
    }
    let of_agent = |code: i32| diagnose_agent(settings, code).filter(|_| code != SSH_EXIT_CODE);
    failure
        .code
        .and_then(of_agent)
        .or_else(|| diagnose_account(settings, failure))
        .or_else(|| {
            let of_ssh = || diagnose_ssh(settings, &failure.stderr, in_worker);
            (failure.code == Some(SSH_EXIT_CODE)).then(of_ssh).flatten()
        })
        .unwrap_or_else(|| diagnose_code(failure))
}

/// What is the matter with the user's account over there, which waiting does not change.
fn diagnose_account(settings: &SshSettings, failure: &SshFailure) -> Option<Diagnosis> {
    if failure.code.is_none_or(|code| code == 0) {
        return None;
    }
    // A shell that is restricted ends with various codes.
    if failure.code != Some(SSH_EXIT_CODE) && reason::is_restricted(&failure.stderr) {
        return Some(permanent(
            "gives the user a restricted shell, in which no agent can be started: give the user \
             another one (`chsh`), or name another `user`",
        ));
    }
    if !failure
        .code
        .is_some_and(|code| FAILED_CODES.contains(&code))
    {
        return None;
    }
    if reason::account_expired(&failure.stderr) {
        return Some(permanent(
            "does not let the user in, whose account has expired: ask whoever runs it for more \
             time (`chage -E`), or name another `user`",
        ));
    }
    reason::password_expired(&failure.stderr).then(|| {
        permanent(&format!(
            "wants a new password of the user first: log in once by hand (`{}`) and set one, or \
             name another `user`",
            manual_commands::login(settings)
        ))
    })
}

/// What `ssh` says of itself.
fn diagnose_ssh(settings: &SshSettings, complaint: &str, in_worker: bool) -> Option<Diagnosis> {
    let has = |words: &[&str]| words.iter().any(|word| complaint.contains(word));
    if has(&["HOST IDENTIFICATION HAS CHANGED"]) {
        let text = format!(
            "shows another key than the one that is known, so nothing was sent: it may be another \
             machine. Ask whoever runs it; if the change is right, remove the old key (`{}`), \
             connect once by hand (`{}`), and call again",
            manual_commands::forget_key(settings, key_file(complaint), key_host(complaint)),
            manual_commands::login(settings)
        );
        return Some((FailureKind::HostKey, text));
    }
    if has(&["Host key verification failed"]) {
        let text = format!(
            "is not known yet: connect once by hand (`{}`) and compare its key, or set \
             `strict_host_key_checking = \"accept-new\"`",
            manual_commands::login(settings)
        );
        return Some((FailureKind::HostKey, text));
    }
    if has(&["Too many authentication failures"]) {
        return Some(permanent(match in_worker {
            true => {
                "is shown too many keys before the right one, and ends the login: name that key \
                 with `identity_file`"
            }
            false => {
                "is shown too many keys before the right one, and ends the login: name that key \
                 with `identity_file`, and none of ssh-agent goes before it"
            }
        }));
    }
    if has(&["Permission denied"]) {
        return Some(permanent(refusal(complaint, in_worker)));
    }
    if has(&["Could not resolve hostname"]) {
        return Some(unreachable(
            "is not known by that name: correct `host`, or add it to ssh's configuration",
        ));
    }
    if has(&["Connection refused"]) {
        return Some(unreachable(
            "refuses connections: see that sshd runs there and that `port` is right",
        ));
    }
    let configuration = [
        "Bad owner or permissions",
        "Bad configuration",
        "terminating, ",
    ];
    has(&configuration).then(|| permanent("cannot be reached: correct ssh's configuration"))
}

/// The file in `Offending ED25519 key in FILE:LINE`.
fn key_file(complaint: &str) -> Option<&str> {
    let mut lines = complaint.split("; ");
    lines.find_map(|line| {
        let (_, place) = line.strip_prefix("Offending ")?.split_once(" key in ")?;
        Some(place.rsplit_once(':')?.0)
    })
}

/// The host in `Host key for HOST has changed`.
fn key_host(complaint: &str) -> Option<&str> {
    let (_, rest) = complaint.split_once("Host key for ")?;
    let (host, _) = rest.split_once(" has changed")?;
    (!host.contains(char::is_whitespace)).then_some(host)
}

/// Why a server lets nobody in.
fn refusal(complaint: &str, in_worker: bool) -> &'static str {
    let mut lines = complaint.split("; ");
    let not_loaded = lines.find(|line| line.starts_with(LOAD_KEY));
    match (not_loaded, in_worker) {
        (Some(line), true) if line.ends_with("Permission denied") => {
            "was shown no key, since this plugin may not read it: it runs in a process of its own, \
             which reads keys below ~/.ssh only. Put the key there, or let the plugin run in the \
             host's process with `conjure plugin trust`"
        }
        (Some(_), _) => {
            "lets nobody in, and `ssh` could not load a key on this machine: see that its file is \
             a private key that the host's user may read and nobody else (`chmod 600`), or name \
             another with `identity_file`"
        }
        (None, true) => {
            "refuses the key: name the right `user` and `identity_file`, and see that the key \
             stands in ~/.ssh/authorized_keys there. This plugin runs in a process of its own, \
             where a key is a file below ~/.ssh without a passphrase; for others let it run in \
             the host's process with `conjure plugin trust`"
        }
        (None, false) => {
            "refuses the key: name the right `user` and `identity_file`, or add the key to \
             ssh-agent (a key with a passphrase needs that, since nobody is asked), and see that \
             it stands in ~/.ssh/authorized_keys there"
        }
    }
}

/// What the scripts that start the agent and the agent itself end with.
fn diagnose_agent(settings: &SshSettings, code: i32) -> Option<Diagnosis> {
    Some(match code {
        code if code == i32::from(EXIT_NO_RELAY) => (
            FailureKind::NoRelay,
            "has no agent of this session any more: it was ended, or the machine was started \
             again"
                .to_owned(),
        ),
        EXIT_NO_DIRECTORY => permanent(&format!(
            "lets nobody make the directory `{}` for the agent: name one that can be written, with \
             `agent_dir`",
            settings.agent_dir
        )),
        EXIT_NOT_WRITTEN => permanent(&format!(
            "takes no agent into `{}`: make room there or name another directory with `agent_dir`",
            settings.agent_dir
        )),
        EXIT_INCOMPLETE => unreachable("did not get all of the agent: call again"),
        EXIT_NOT_RUNNABLE => permanent(&format!(
            "runs no program in `{}`: where that file system is mounted noexec, name a directory \
             on another one with `agent_dir`; for another processor name an agent with `agent`",
            settings.agent_dir
        )),
        code if code == i32::from(EXIT_NO_SPACE) => permanent(&format!(
            "has no room in `{}`: make some, or name another directory with `scratch_dir`",
            settings.scratch_dir
        )),
        code if code == i32::from(EXIT_NO_SESSION_DIR) => permanent(
            "lets nobody make a directory for the session: name one that can be written, with \
             `scratch_dir`",
        ),
        _ => return None,
    })
}

/// What an exit code means of which nothing else is known.
fn diagnose_code(failure: &SshFailure) -> Diagnosis {
    match failure.code {
        Some(SSH_EXIT_CODE) | None => {
            unreachable("cannot be reached: see that it is up, and that `ssh` reaches it from here")
        }
        Some(code) if NO_PROGRAM_CODES.contains(&code) => permanent(
            "does not run the agent: give the user a shell, and see that /bin/sh is there and \
             that programs may run in `agent_dir`",
        ),
        Some(0) => unreachable(
            "closed the connection: another one has come, or the machine is short of something",
        ),
        Some(code) if failure.stderr.is_empty() => permanent(&format!(
            "starts no shell for this user; what it ran ended with {code}. Give the user a shell \
             (`chsh`), or name another `user`"
        )),
        // Such as a machine with no memory for it.
        Some(code) => unreachable(&format!("did not start the agent, which ended with {code}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_failure_says_what_to_do() {
        let settings = SshSettings {
            host: "build".to_owned(),
            ..SshSettings::default()
        };
        let of = |code: i32, complaint: &str| {
            let failure = SshFailure {
                code: Some(code),
                stderr: complaint.to_owned(),
                ..SshFailure::default()
            };
            explain(&settings, &failure)
        };
        for (code, complaint, kind, says) in [
            (
                255,
                "ssh: Could not resolve hostname build: Name or service not known",
                FailureKind::Unreachable,
                "correct `host`",
            ),
            (
                255,
                "me@build: Permission denied (publickey).",
                FailureKind::Permanent,
                "`identity_file`",
            ),
            (
                255,
                "@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @; Host key verification failed.",
                FailureKind::HostKey,
                "ssh-keygen -R build",
            ),
            (
                255,
                "HOST IDENTIFICATION HAS CHANGED; Offending RSA key in /k/known:3; Host key for \
                 [10.0.0.7]:22 has changed and you have requested strict checking.",
                FailureKind::HostKey,
                "ssh-keygen -f /k/known -R '[10.0.0.7]:22'",
            ),
            (
                255,
                "Host key verification failed.",
                FailureKind::HostKey,
                "accept-new",
            ),
            (
                255,
                "ssh: connect to host build port 22: Connection refused",
                FailureKind::Unreachable,
                "sshd",
            ),
            (
                92,
                "cat: write error: No space left on device",
                FailureKind::Permanent,
                "make room",
            ),
            (
                91,
                "mkdir: cannot create directory: Read-only file system",
                FailureKind::Permanent,
                "`agent_dir`",
            ),
            (94, "Permission denied", FailureKind::Permanent, "noexec"),
            (90, "", FailureKind::NoRelay, "no agent"),
            (
                96,
                "conjure-exec-agent: /tmp/x cannot be made: No space left on device",
                FailureKind::Permanent,
                "no room",
            ),
            (
                95,
                "conjure-exec-agent: /proc/x cannot be made: Permission denied",
                FailureKind::Permanent,
                "`scratch_dir`",
            ),
            // What a login script says is not about the session's directory.
            (
                1,
                "profile: the cache cannot be made: No space left on device",
                FailureKind::Unreachable,
                "ended with 1",
            ),
            (1, "", FailureKind::Permanent, "chsh"),
            (1, "bash: exec: restricted", FailureKind::Permanent, "chsh"),
            (
                127,
                "rbash: /bin/sh: restricted: cannot specify `/' in command names",
                FailureKind::Permanent,
                "restricted shell",
            ),
            (
                255,
                "Your account has expired; please contact your administrator; Connection closed",
                FailureKind::Permanent,
                "another `user`",
            ),
            (
                1,
                "WARNING: Your password has expired.; Password change required",
                FailureKind::Permanent,
                "(`ssh build`)",
            ),
            (
                255,
                "Received disconnect from build port 22:2: Too many authentication failures",
                FailureKind::Permanent,
                "too many keys",
            ),
            (
                255,
                "Load key \"/k/id\": bad permissions; me@build: Permission denied (publickey).",
                FailureKind::Permanent,
                "chmod 600",
            ),
        ] {
            let explained = of(code, complaint);
            assert_eq!(explained.kind, kind, "{}", explained.text);
            assert!(explained.text.contains(says), "{}", explained.text);
            assert!(explained.text.contains("build"), "{}", explained.text);
            assert!(explained.text.contains(complaint), "{}", explained.text);
        }
    }
    fn failed(code: i32, complaint: &str) -> SshFailure {
        SshFailure {
            code: Some(code),
            stderr: complaint.to_owned(),
            ..SshFailure::default()
        }
    }

    #[test]
    fn a_worker_is_told_of_no_agent_of_keys_and_where_a_key_has_to_be() {
        let settings = SshSettings::default();
        for (complaint, says) in [
            ("me@build: Permission denied (publickey).", "below ~/.ssh"),
            (
                "Load key \"/k/id\": Permission denied; me@build: Permission denied (publickey).",
                "may not read it",
            ),
            ("Too many authentication failures", "`identity_file`"),
        ] {
            let failure = failed(SSH_EXIT_CODE, complaint);
            let (kind, inside) = diagnose(&settings, &failure, true);
            let (_, outside) = diagnose(&settings, &failure, false);
            assert_eq!(kind, FailureKind::Permanent);
            assert!(inside.contains(says), "{inside}");
            assert!(!inside.contains("ssh-agent"), "{inside}");
            assert!(!outside.contains("conjure plugin trust"), "{outside}");
        }
    }

    #[test]
    fn a_banner_for_everybody_is_no_reason() {
        let settings = SshSettings::default();
        let silent = failed(SSH_EXIT_CODE, "");
        assert!(is_silent(&silent) && !is_silent(&failed(1, "")));
        for banner in [
            "If your account has expired or your password has expired, call 555",
            "Users whose password has expired are required to change your password",
            "Your account has expired? Call 555",
            "Connection refused means maintenance; Permission denied means no account",
        ] {
            let said = format!("{banner}; Connection closed by 10.0.0.7 port 22");
            let again = failed(SSH_EXIT_CODE, &said);
            let known = reason::with_reason(silent.clone(), &again);
            let explained = explain(&settings, &known);
            assert_eq!(
                explained.kind,
                FailureKind::Unreachable,
                "{}",
                explained.text
            );
            let end = "is up, and that `ssh` reaches it from here (Connection closed by 10.0.0.7 \
                       port 22)";
            assert!(explained.text.ends_with(end), "{}", explained.text);
            // Nor where a login script writes it.
            for code in FAILED_CODES {
                let explained = explain(&settings, &failed(code, &said));
                assert!(
                    !explained.text.contains("another `user`"),
                    "{}",
                    explained.text
                );
            }
        }
    }

    #[test]
    fn a_login_that_floods_is_shown_in_part() {
        let failure = SshFailure {
            preamble: "ä".repeat(4_000),
            floods: true,
            ..failed(SSH_EXIT_CODE, "bash: write error: Broken pipe")
        };
        let explained = explain(&SshSettings::default(), &failure);
        assert_eq!(explained.kind, FailureKind::Permanent);
        assert!(
            explained.text.contains("prints too much"),
            "{}",
            explained.text
        );
        assert_eq!(explained.text.matches('ä').count(), MAX_PREAMBLE_CHARS);
    }
}
