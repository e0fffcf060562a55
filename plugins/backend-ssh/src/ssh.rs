//! The program `ssh`: how it is told, what it runs over there, and its one connection.
//!
//! Nobody is asked anything, nothing of a person's is forwarded, and no other connection of his is
//! shared: one that is dead would hold this one.

use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::task::JoinHandle;

use crate::config::SshSettings;

/// What begins the line after which the stream is the agent's. Whatever a shell says before it is
/// left out.
const MARK: &str = "conjure-agent=";
/// The most that a shell may say before that.
const SHELL_SAYS: usize = 64 * 1024;
/// How much of what is complained about is kept.
const COMPLAINT: usize = 4_000;
/// How long logging in and starting a program may take, beyond connecting.
const LOGIN: Duration = Duration::from_secs(30);
/// How long an exit is waited for, once a stream is over.
const EXIT: Duration = Duration::from_secs(2);
/// How long what is complained about is waited for, after that.
const COMPLAINS: Duration = Duration::from_millis(500);
/// How many unanswered questions make a connection a lost one.
const UNANSWERED: u32 = 3;

/// A connection that ended, or never came about.
#[derive(Debug, Clone, Default)]
pub(crate) struct SshFailure {
    /// The exit code of `ssh`: 255 where it speaks of itself, else that of what it ran.
    pub(crate) code: Option<i32>,
    /// What `ssh` or what it ran complained about.
    pub(crate) complaint: String,
    /// What the shell over there said in place of the mark.
    pub(crate) said: String,
    /// Whether it took too long.
    pub(crate) late: bool,
}

/// An `ssh` that runs something over there.
#[derive(Debug)]
pub(crate) struct SshProcess {
    child: Child,
    /// Nothing where only the first was to be written.
    input: Option<ChildStdin>,
    output: ChildStdout,
    complaint: Complaint,
    /// Reads what is complained about.
    listening: JoinHandle<()>,
    /// What stands behind the mark.
    pub(crate) mark: String,
    /// What came behind that line already.
    pub(crate) rest: Vec<u8>,
}

/// What is said on standard error, as it comes.
#[derive(Debug, Clone, Default)]
struct Complaint(Arc<Mutex<Vec<u8>>>);

impl SshProcess {
    /// Connects, runs a script of the POSIX shell, writes to it what is to be written first, and
    /// waits for the mark.
    pub(crate) async fn run(
        settings: &SshSettings,
        script: &str,
        first: Option<&[u8]>,
    ) -> Result<Self, SshFailure> {
        let spawned = command(settings, script).spawn();
        let mut child = spawned.map_err(|error| SshFailure {
            complaint: format!("the program `ssh` cannot be started: {error}"),
            ..SshFailure::default()
        })?;
        let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (input, Some(output), Some(error)) = pipes else {
            return Err(SshFailure::default());
        };
        let complaint = Complaint::default();
        let listening = tokio::spawn(complaint.clone().listen(error));
        let mut process = Self {
            child,
            input,
            output,
            complaint,
            listening,
            mark: String::new(),
            rest: Vec::new(),
        };
        let limit = settings.connect_timeout() + LOGIN;
        let begun = tokio::time::timeout(limit, async {
            if let Some(bytes) = first {
                // The end of it is seen once it is dropped. Where nobody reads it, it is said why.
                if let Some(mut input) = process.input.take() {
                    let _ = input.write_all(bytes).await;
                }
            }
            process.wait_for_mark().await
        });
        match begun.await {
            Ok(Ok(())) => Ok(process),
            Ok(Err(said)) => Err(SshFailure {
                said,
                ..process.end().await
            }),
            Err(_) => Err(SshFailure {
                late: true,
                complaint: process.complaint.text(),
                ..SshFailure::default()
            }),
        }
    }

    async fn wait_for_mark(&mut self) -> Result<(), String> {
        let mut said = Vec::new();
        loop {
            let mut lines = said.split_inclusive(|byte| *byte == b'\n');
            let mut before = 0;
            let marked = lines.find_map(|line: &[u8]| {
                before += line.len();
                let text = String::from_utf8_lossy(line.strip_suffix(b"\n")?);
                // The line of a shell that did not end its own stands before it.
                let (_, mark) = text.split_once(MARK)?;
                Some((mark.trim().to_owned(), before))
            });
            if let Some((mark, before)) = marked {
                self.mark = mark;
                self.rest = said.split_off(before);
                return Ok(());
            }
            let ended = match said.len() < SHELL_SAYS {
                true => !matches!(self.output.read_buf(&mut said).await, Ok(1..)),
                false => true,
            };
            if ended {
                said.truncate(COMPLAINT);
                return Err(String::from_utf8_lossy(&said).trim().to_owned());
            }
        }
    }

    /// Where it reads, and where it writes.
    pub(crate) fn ends(&mut self) -> (Option<&mut ChildStdin>, &mut ChildStdout) {
        (self.input.as_mut(), &mut self.output)
    }

    /// Waits for its end and says how that was; one that goes on is killed.
    pub(crate) async fn end(self) -> SshFailure {
        let Self {
            mut child,
            input,
            output,
            complaint,
            listening,
            ..
        } = self;
        drop((input, output));
        let status = tokio::time::timeout(EXIT, child.wait()).await;
        let code = status.ok().and_then(Result::ok);
        // A program that a configuration starts may keep it open.
        let _ = tokio::time::timeout(COMPLAINS, listening).await;
        SshFailure {
            code: code.and_then(|status| status.code()),
            complaint: complaint.text(),
            ..SshFailure::default()
        }
    }
}

impl Complaint {
    async fn listen(self, mut error: ChildStderr) {
        let mut buffer = Vec::with_capacity(COMPLAINT);
        while matches!(error.read_buf(&mut buffer).await, Ok(1..)) {
            let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let room = COMPLAINT.saturating_sub(kept.len());
            kept.extend(buffer.drain(..).take(room));
        }
    }

    fn text(&self) -> String {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let text = String::from_utf8_lossy(&kept);
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        lines.collect::<Vec<_>>().join("; ")
    }
}

/// `ssh`, to run a script. The script holds no single quote: whatever shell a user has over there
/// reads it as one word.
fn command(settings: &SshSettings, script: &str) -> Command {
    let seconds = |time: Duration| time.as_millis().div_ceil(1_000).max(1);
    let alive = seconds(Duration::from_millis(settings.alive_ms));
    let connect = seconds(settings.connect_timeout());
    let mut command = Command::new("ssh");
    command.args(["-T", "-a", "-x"]);
    if let Some(file) = &settings.config_file {
        command.arg("-F").arg(file);
    }
    let mut options = vec![
        "BatchMode=yes".to_owned(),
        "LogLevel=ERROR".to_owned(),
        "ClearAllForwardings=yes".to_owned(),
        "PermitLocalCommand=no".to_owned(),
        "RemoteCommand=none".to_owned(),
        "ControlMaster=no".to_owned(),
        "ControlPath=none".to_owned(),
        "EscapeChar=none".to_owned(),
        "ConnectionAttempts=1".to_owned(),
        format!("ConnectTimeout={connect}"),
        format!("ServerAliveInterval={alive}"),
        format!("ServerAliveCountMax={UNANSWERED}"),
    ];
    if let Some(keys) = settings.strict_host_key_checking {
        options.push(format!("StrictHostKeyChecking={}", keys.word()));
    }
    if let Some(file) = &settings.known_hosts {
        options.push(format!("UserKnownHostsFile=\"{}\"", plain(file)));
    }
    if let Some(file) = &settings.identity_file {
        options.push(format!("IdentityFile=\"{}\"", plain(file)));
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
        .arg(format!("exec /bin/sh -c '{script}'"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // What a terminal sends to the host's group is not for it.
        .process_group(0)
        .kill_on_drop(true);
    command
}

/// A path in which `ssh` replaces nothing.
fn plain(path: &Path) -> String {
    path.to_string_lossy().replace('%', "%%")
}

/// The script that goes to the relay of a session. One that is not copied there is said to be
/// wanted, with the system and the processor.
pub(crate) fn open_script(agent: &str, dir: &str, seconds: u64) -> String {
    format!(
        "cd; a=\"{agent}\"; if [ -x \"$a\" ]; then echo {MARK}there; \
         exec \"$a\" open \"{dir}\" {seconds}; fi; echo {MARK}wanted $(uname -s) $(uname -m)"
    )
}

/// The script that goes back to the relay of a session.
pub(crate) fn attach_script(agent: &str, dir: &str) -> String {
    format!("cd; a=\"{agent}\"; echo {MARK}there; exec \"$a\" attach \"{dir}\"")
}

/// The script that takes the agent in, and what its exit codes say: it comes under a name of its
/// own, is tried, and has its name only then.
pub(crate) fn copy_script(agent_dir: &str, agent: &str, size: usize) -> String {
    format!(
        "cd; umask 077; mkdir -p \"{agent_dir}\" || exit {NO_DIRECTORY}; \
         t=\"{agent_dir}/.new-$$\"; fail() {{ rm -f \"$t\"; exit $1; }}; \
         cat >\"$t\" || fail {NOT_WRITTEN}; chmod 700 \"$t\" || fail {NOT_WRITTEN}; \
         [ $(wc -c <\"$t\") -eq {size} ] || fail {CUT}; \
         \"$t\" version >/dev/null || fail {DOES_NOT_RUN}; \
         mv -f \"$t\" \"{agent}\" || fail {NOT_WRITTEN}; echo {MARK}copied"
    )
}

/// The directory of the agent cannot be made.
pub(crate) const NO_DIRECTORY: i32 = 91;
/// The agent cannot be written.
pub(crate) const NOT_WRITTEN: i32 = 92;
/// Not all of the agent came.
pub(crate) const CUT: i32 = 93;
/// The agent cannot be run.
pub(crate) const DOES_NOT_RUN: i32 = 94;

#[cfg(test)]
mod tests {
    use super::*;

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
        let command = command(&settings, "true");
        let told: Vec<_> = command.as_std().get_args().collect();
        let told: Vec<_> = told.iter().map(|word| word.to_string_lossy()).collect();
        for option in [
            "IdentityFile=\"/k/100%% mine\"",
            "UserKnownHostsFile=\"/k/known hosts\"",
            "ServerAliveInterval=2",
            "BatchMode=yes",
            "Port=22",
        ] {
            let at = told.iter().position(|word| word == option).unwrap();
            assert_eq!(told[at - 1], "-o");
        }
        assert_eq!(
            told[told.len() - 3..],
            ["--", "build", "exec /bin/sh -c 'true'"]
        );
    }

    #[test]
    fn no_script_has_what_a_shell_would_end_it_with() {
        for script in [
            open_script(".cache/conjure/agent-1", "/tmp/conjure-1", 600),
            attach_script(".cache/conjure/agent-1", "/tmp/conjure-1"),
            copy_script(".cache/conjure", ".cache/conjure/agent-1", 7),
        ] {
            // Nor what csh and fish understand between single quotes.
            assert!(!script.contains(['\'', '\\', '!', '\n']), "{script}");
        }
    }
}
