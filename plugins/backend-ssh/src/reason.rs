//! The lines of a failed `ssh` that are the reason: a server may show its banner before, where any
//! words may stand.

use crate::ssh::SshFailure;

/// The exit code with which `ssh` speaks of itself.
pub(crate) const SSH_EXIT_CODE: i32 = 255;
/// How a system begins its line about an account that has expired.
const ACCOUNT_EXPIRED: [&str; 1] = ["Your account has expired"];
/// How a system, or its SSH server, begins its line about a password that has.
const PASSWORD_EXPIRED: [&str; 3] = [
    "WARNING: Your password has expired",
    "Password change required",
    "You are required to change your password",
];
/// How `ssh` begins the line that a server's own reason stands in.
const RECEIVED_DISCONNECT: &str = "Received disconnect from ";
/// How `ssh` begins its last line about a connection that ended.
const CONNECTION_ENDS: [&str; 7] = [
    "Connection closed",
    "Connection reset",
    "Connection timed out",
    "Connection to ",
    "Disconnected from ",
    RECEIVED_DISCONNECT,
    "ssh: ",
];

/// Whether a shell says that it is a restricted one, which it says at the end of a line or before what it
/// does not do.
pub(crate) fn is_restricted(complaint: &str) -> bool {
    let mut lines = complaint.split("; ");
    lines.any(|line| line.ends_with(": restricted") || line.contains(": restricted: "))
}

/// Whether a system says that the user's account has expired.
pub(crate) fn account_expired(complaint: &str) -> bool {
    has_line(complaint, &ACCOUNT_EXPIRED)
}

/// Whether one says that the user's password has.
pub(crate) fn password_expired(complaint: &str) -> bool {
    has_line(complaint, &PASSWORD_EXPIRED)
}

/// Gives the failure the reason that `ssh` gave when it was asked again, if it failed again. Of what
/// stands before that, such as a server's banner for everybody, only what a system writes about the
/// user's account is one.
pub(crate) fn with_reason(failure: SshFailure, again: &SshFailure) -> SshFailure {
    if again.code != Some(SSH_EXIT_CODE) {
        return failure;
    }
    let lines: Vec<&str> = again.stderr.split("; ").collect();
    let mut reasons = Vec::new();
    let mut goes_on = false;
    for line in &lines {
        // Such a line may have a semicolon itself.
        goes_on &= line.starts_with(char::is_lowercase) && !begins(line, &CONNECTION_ENDS);
        goes_on |= begins(line, &ACCOUNT_EXPIRED) || begins(line, &PASSWORD_EXPIRED);
        if goes_on {
            reasons.push(*line);
        }
    }
    let (before, last) = match lines.as_slice() {
        [.., before, last] => (Some(*before), Some(*last)),
        [last] => (None, Some(*last)),
        [] => (None, None),
    };
    if let Some(last) = last.filter(|last| begins(last, &CONNECTION_ENDS)) {
        reasons.extend(before.filter(|before| before.starts_with(RECEIVED_DISCONNECT)));
        reasons.push(last);
    }
    SshFailure {
        stderr: reasons.join("; "),
        ..failure
    }
}

/// Whether a line begins as one of these does. A question is none: it stands in a banner.
fn begins(line: &str, beginnings: &[&str]) -> bool {
    !line.contains('?') && beginnings.iter().any(|known| line.starts_with(known))
}

fn has_line(complaint: &str, beginnings: &[&str]) -> bool {
    complaint.split("; ").any(|line| begins(line, beginnings))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(code: i32, complaint: &str) -> SshFailure {
        SshFailure {
            code: Some(code),
            stderr: complaint.to_owned(),
            ..SshFailure::default()
        }
    }

    #[test]
    fn a_reason_is_the_end_of_what_ssh_says_and_only_where_it_failed_again() {
        let silent = failed(SSH_EXIT_CODE, "");
        for (said, reason) in [
            (
                "line; line; Connection closed by 10.0.0.7",
                "Connection closed by 10.0.0.7",
            ),
            (
                "Hello; Received disconnect from build port 22:11: Idle; Disconnected from build",
                "Received disconnect from build port 22:11: Idle; Disconnected from build",
            ),
            (
                "Hello; Your account has expired; ask somebody; Bye; Connection closed",
                "Your account has expired; ask somebody; Connection closed",
            ),
            ("Welcome to build", ""),
            ("", ""),
        ] {
            let known = with_reason(silent.clone(), &failed(SSH_EXIT_CODE, said));
            assert_eq!(known.stderr, reason, "{said}");
        }
        let answered = with_reason(silent, &failed(0, "Connection closed"));
        assert_eq!(answered.stderr, "");
    }
}
