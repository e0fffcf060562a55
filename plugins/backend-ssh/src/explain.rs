//! What a failed connection says to whoever reads it: what failed, why, and what to do.

use std::io::ErrorKind;

use conjure_exec_agent::client::relayed::{
    CUT, DOES_NOT_RUN, NO_DIRECTORY, NOT_WRITTEN, RouteFailure,
};
use conjure_exec_agent::relay::{NO_ROOM, NO_SESSION_DIR, NOT_THERE};
use conjure_skill_sdk::Error;

use crate::config::SshSettings;
use crate::ssh::SshFailure;

/// The exit code with which `ssh` speaks of itself.
const SSH_EXIT_CODE: i32 = 255;
/// What a shell ends with that finds no program, and one that may not run it.
const NO_PROGRAM_CODES: [i32; 2] = [126, 127];

/// Consequence of a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FailureKind {
    /// The machine may be reached in a moment.
    Unreachable,
    /// The machine is another one than it was, or not known.
    HostKey,
    /// The failure stays, however long one waits.
    Lasting,
    /// There is a relay, and it does not take the session.
    Refused,
    /// The relay does not exist any more.
    Gone,
}

/// A failure with its meaning and its words.
#[derive(Debug, Clone)]
pub(crate) struct Explained {
    pub(crate) kind: FailureKind,
    pub(crate) text: String,
}

impl Explained {
    /// A failure that stays, however long one waits.
    pub(crate) fn lasting(settings: &SshSettings, text: &str) -> Self {
        Self {
            kind: FailureKind::Lasting,
            text: format!("the machine {} {text}", settings.host),
        }
    }

    /// One whose relay does not take the session.
    pub(crate) fn refused(settings: &SshSettings, text: &str) -> Self {
        Self {
            kind: FailureKind::Refused,
            ..Self::lasting(settings, text)
        }
    }

    /// One whose relay does not know the session.
    pub(crate) fn no_relay(settings: &SshSettings) -> Self {
        let failure = SshFailure {
            code: Some(NOT_THERE.into()),
            ..SshFailure::default()
        };
        explain(settings, &failure)
    }
}

impl From<Explained> for Error {
    fn from(explained: Explained) -> Self {
        Self::new(explained.text)
    }
}

impl From<Explained> for RouteFailure {
    fn from(Explained { kind, text }: Explained) -> Self {
        let may_pass = kind.may_pass();
        Self { text, may_pass }
    }
}

impl FailureKind {
    /// Whether somebody who comes again may find it better.
    pub(crate) fn may_pass(self) -> bool {
        self == Self::Unreachable
    }
}

/// Whether a server has ended the connection before anybody could say who he is, which it does when
/// too many log in at once.
pub(crate) fn is_crowded(failure: &SshFailure) -> bool {
    let ends = ["kex_exchange_identification", "Exceeded MaxStartups"];
    failure.code == Some(SSH_EXIT_CODE) && ends.iter().any(|end| failure.complaint.contains(end))
}

/// Explains a failure: its kind and a text with what to do.
pub(crate) fn explain(settings: &SshSettings, failure: &SshFailure) -> Explained {
    let (kind, what) = meaning(settings, failure);
    let why = match (failure.complaint.as_str(), failure.said.as_str()) {
        ("", "") => String::new(),
        ("", said) => format!(" (it says: {said})"),
        (complaint, _) => format!(" ({complaint})"),
    };
    Explained {
        kind,
        text: format!("the machine {} {what}{why}", settings.host),
    }
}

fn meaning(settings: &SshSettings, failure: &SshFailure) -> (FailureKind, String) {
    let host = &settings.host;
    let complaint = failure.complaint.as_str();
    let has = |words: &[&str]| words.iter().any(|word| complaint.contains(word));
    let lasting = |text: &str| (FailureKind::Lasting, text.to_owned());
    if failure.late {
        let text = "does not answer in time: see that it is up and that `connect_timeout_ms` is \
                    long enough";
        return (FailureKind::Unreachable, text.to_owned());
    }
    match failure.not_started {
        Some(ErrorKind::NotFound) => {
            return lasting(
                "cannot be reached: install OpenSSH's client, so that `ssh` is found on the PATH \
                 of the host",
            );
        }
        Some(_) => {
            let text = "cannot be reached, since `ssh` could not be started: see what the host's \
                        machine is short of";
            return (FailureKind::Unreachable, text.to_owned());
        }
        None => {}
    }
    match failure.code {
        Some(code) if code == i32::from(NOT_THERE) => (
            FailureKind::Gone,
            "has no agent of this session any more: it was ended, or the machine was started \
             again"
                .to_owned(),
        ),
        Some(NO_DIRECTORY) => lasting(&format!(
            "lets nobody make the directory `{}` for the agent: name one that can be written, with \
             `agent_dir`",
            settings.agent_dir
        )),
        Some(NOT_WRITTEN) => lasting(&format!(
            "takes no agent into `{}`: make room there or name another directory with `agent_dir`",
            settings.agent_dir
        )),
        Some(CUT) => (
            FailureKind::Unreachable,
            "did not get all of the agent: call again".to_owned(),
        ),
        Some(DOES_NOT_RUN) => lasting(&format!(
            "runs no program in `{}`: where that file system is mounted noexec, name a directory \
             on another one with `agent_dir`; for another processor name an agent with `agent`",
            settings.agent_dir
        )),
        Some(SSH_EXIT_CODE) if has(&["HOST IDENTIFICATION HAS CHANGED"]) => (
            FailureKind::HostKey,
            format!(
                "shows another key than the one that is known, so nothing was sent: it may be \
                 another machine. Ask whoever runs it; if the change is right, remove the old key \
                 (`ssh-keygen -R {host}`), connect once by hand, and call again"
            ),
        ),
        Some(SSH_EXIT_CODE) if has(&["Host key verification failed"]) => (
            FailureKind::HostKey,
            format!(
                "is not known yet: connect once by hand (`ssh {host}`) and compare its key, or \
                 set `strict_host_key_checking = \"accept-new\"`"
            ),
        ),
        Some(SSH_EXIT_CODE) if has(&["Permission denied", "Too many authentication failures"]) => {
            lasting(
                "refuses the key: name the right `user` and `identity_file`, or add the key to \
             ssh-agent (a key with a passphrase needs that, since nobody is asked), and see that \
             it stands in ~/.ssh/authorized_keys there",
            )
        }
        Some(SSH_EXIT_CODE) if has(&["Could not resolve hostname"]) => (
            FailureKind::Unreachable,
            "is not known by that name: correct `host`, or add it to ssh's configuration"
                .to_owned(),
        ),
        Some(SSH_EXIT_CODE) if has(&["Connection refused"]) => (
            FailureKind::Unreachable,
            "refuses connections: see that sshd runs there and that `port` is right".to_owned(),
        ),
        Some(SSH_EXIT_CODE)
            if has(&[
                "Bad owner or permissions",
                "Bad configuration",
                "terminating, ",
            ]) =>
        {
            lasting("cannot be reached: correct ssh's configuration")
        }
        Some(SSH_EXIT_CODE) | None => (
            FailureKind::Unreachable,
            "cannot be reached: see that it is up, and that `ssh` reaches it from here".to_owned(),
        ),
        Some(code) if NO_PROGRAM_CODES.contains(&code) => lasting(
            "does not run the agent: give the user a shell, and see that /bin/sh is there and \
             that programs may run in `agent_dir`",
        ),
        Some(code) if code == i32::from(NO_ROOM) => lasting(&format!(
            "has no room in `{}`: make some, or name another directory with `scratch_dir`",
            settings.scratch_dir
        )),
        Some(code) if code == i32::from(NO_SESSION_DIR) => lasting(
            "lets nobody make a directory for the session: name one that can be written, with \
             `scratch_dir`",
        ),
        Some(0) => (
            FailureKind::Unreachable,
            "closed the connection: another one has come, or the machine is short of something"
                .to_owned(),
        ),
        Some(code) if complaint.is_empty() => lasting(&format!(
            "starts no shell for this user; what it ran ended with {code}. Give the user a shell \
             (`chsh`), or name another `user`"
        )),
        // Such as a machine with no memory for it.
        Some(code) => (
            FailureKind::Unreachable,
            format!("did not start the agent, which ended with {code}"),
        ),
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
                complaint: complaint.to_owned(),
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
                FailureKind::Lasting,
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
                FailureKind::Lasting,
                "make room",
            ),
            (
                91,
                "mkdir: cannot create directory: Read-only file system",
                FailureKind::Lasting,
                "`agent_dir`",
            ),
            (94, "Permission denied", FailureKind::Lasting, "noexec"),
            (90, "", FailureKind::Gone, "no agent"),
            (
                96,
                "conjure-exec-agent: /tmp/x cannot be made: No space left on device",
                FailureKind::Lasting,
                "no room",
            ),
            (
                95,
                "conjure-exec-agent: /proc/x cannot be made: Permission denied",
                FailureKind::Lasting,
                "`scratch_dir`",
            ),
            // What a login script says is not about the session's directory.
            (
                1,
                "profile: the cache cannot be made: No space left on device",
                FailureKind::Unreachable,
                "ended with 1",
            ),
            (1, "", FailureKind::Lasting, "chsh"),
        ] {
            let explained = of(code, complaint);
            assert_eq!(explained.kind, kind, "{}", explained.text);
            assert!(explained.text.contains(says), "{}", explained.text);
            assert!(explained.text.contains("build"), "{}", explained.text);
            assert!(explained.text.contains(complaint), "{}", explained.text);
        }
    }
}
