//! The processes that run the checks of `conjure plugin test`, from both sides: what one of them says,
//! and how the process that started it reads that.
//!
//! What the plugin prints is no part of it: the lines go over a descriptor that the plugin does not
//! have. A process that runs checks ends when the one that reads them does, however that ends.

use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use conjure_plugin_checks::CheckOutcome;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::process::{Child, ChildStderr, ChildStdin, Command};

use super::error::CliError;

/// How long a process that runs checks may say nothing: one check, and the loading before it.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(120);
/// How long it may take to end after its last line, and what it has written to be read after its end.
const LINGERING: Duration = Duration::from_secs(2);
/// The last bytes that are kept of what it says beside.
const STDERR_TAIL_BYTES: usize = 16 * 1024;

/// A line that a process which runs checks writes.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "line")]
pub(super) enum CheckLine {
    /// The plugin is no plugin of this host.
    Refused { reason: String },
    /// The checks that there are.
    Checks {
        plugin: String,
        kind: String,
        checks: Vec<String>,
    },
    /// The check at this place begins.
    Begins { place: usize },
    /// The check that began is done.
    Done { outcome: CheckOutcome },
    /// The last check is done.
    End,
}

/// Where a process that runs checks writes its lines.
pub(super) struct LineWriter(std::fs::File);

impl LineWriter {
    /// Takes standard output and input away from the plugin: what it prints goes to standard error,
    /// and it reads nothing. When the reader ends, `scratch` is removed and this process ends.
    pub(super) fn take(scratch: &Path) -> std::io::Result<Self> {
        const ABOVE: i32 = 3;
        let lines = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdout(), ABOVE)?;
        let reader = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), ABOVE)?;
        rustix::stdio::dup2_stdout(rustix::stdio::stderr())?;
        let nothing = conjure_config::fs::open("/dev/null")?;
        rustix::stdio::dup2_stdin(nothing)?;
        let scratch = scratch.to_owned();
        std::thread::Builder::new()
            .name("reader of the checks".to_owned())
            .spawn(move || exit_with_reader(reader, &scratch))?;
        Ok(Self(lines.into()))
    }

    /// Writes one line.
    pub(super) fn write_line(&mut self, line: &CheckLine) {
        let mut text = serde_json::to_string(line).unwrap_or_default();
        text.push('\n');
        // Where nobody reads any more this process is about to end.
        let _ = self.0.write_all(text.as_bytes());
    }
}

/// Waits until the process that reads is gone, which writes nothing, and ends this one.
fn exit_with_reader(reader: OwnedFd, scratch: &Path) {
    use std::io::Read as _;
    let mut reader = std::fs::File::from(reader);
    while reader.read(&mut [0; 64]).is_ok_and(|length| length > 0) {}
    let _ = conjure_config::fs::remove_dir_all(scratch);
    // Not by an exit, which would run code of the plugin's.
    let own = rustix::process::getpid();
    let _ = rustix::process::kill_process(own, rustix::process::Signal::KILL);
}

/// A process that runs checks.
pub(super) struct CheckProcess {
    child: Child,
    /// Pipe whose end is the sign for the process to end, too. Waiting for a child would close it.
    _stdin: ChildStdin,
    /// Task that gives the last words of the process at its end.
    stderr_tail: tokio::task::JoinHandle<String>,
    lines: tokio::io::Lines<BufReader<tokio::process::ChildStdout>>,
}

/// How a process ended that ran checks.
pub(super) enum CheckEnd {
    /// After its last line.
    Complete,
    /// Before it, in these words.
    Early(String),
}

impl CheckProcess {
    /// Starts one.
    pub(super) fn start(command: &mut Command) -> Result<Self, CliError> {
        let started = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn();
        let mut child = started.map_err(|error| {
            CliError::host_from(error).context("no process for the checks can be started")
        })?;
        let streams = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (Some(stdin), Some(stdout), Some(stderr)) = streams else {
            return Err(CliError::host("the process for the checks has no output"));
        };
        Ok(Self {
            child,
            _stdin: stdin,
            stderr_tail: tokio::spawn(read_stderr_tail(stderr)),
            lines: BufReader::new(stdout).lines(),
        })
    }

    /// Gives each line to `take`, to the last one or the end of the process, whatever still holds its
    /// output open.
    pub(super) async fn follow(
        mut self,
        mut take: impl FnMut(CheckLine),
    ) -> Result<CheckEnd, CliError> {
        let mut status: Option<ExitStatus> = None;
        loop {
            let patience = status.map_or(SILENCE_TIMEOUT, |_| LINGERING);
            let line = tokio::select! {
                biased;
                line = tokio::time::timeout(patience, self.lines.next_line()) => line,
                ended = self.child.wait(), if status.is_none() => {
                    status = Some(ended.map_err(CliError::host_from)?);
                    continue;
                }
            };
            let line = match line {
                Ok(Ok(Some(line))) => line,
                Ok(_) => break,
                Err(_) if status.is_some() => break,
                Err(_) => {
                    let _ = self.child.kill().await;
                    let how = format!(
                        "said nothing for {} s and was ended",
                        SILENCE_TIMEOUT.as_secs()
                    );
                    return Ok(CheckEnd::Early(self.with_stderr_tail(how).await));
                }
            };
            let Ok(line) = serde_json::from_str::<CheckLine>(&line) else {
                continue;
            };
            let is_last = matches!(line, CheckLine::End | CheckLine::Refused { .. });
            take(line);
            if is_last {
                return self.end(status).await;
            }
        }
        let status = match status {
            Some(status) => status,
            None => self.child.wait().await.map_err(CliError::host_from)?,
        };
        // A plugin that ends the process with a good code ends it all the same.
        let how = describe_exit(status);
        Ok(CheckEnd::Early(self.with_stderr_tail(how).await))
    }

    /// The end after the last line: a crash there is the plugin's too, and what does not end is ended.
    async fn end(mut self, status: Option<ExitStatus>) -> Result<CheckEnd, CliError> {
        let status = match status {
            Some(status) => Some(status),
            None => match tokio::time::timeout(LINGERING, self.child.wait()).await {
                Ok(status) => Some(status.map_err(CliError::host_from)?),
                Err(_) => {
                    let _ = self.child.kill().await;
                    None
                }
            },
        };
        match status.filter(|status| !status.success()) {
            Some(status) => {
                let how = format!("{}, after its last check", describe_exit(status));
                Ok(CheckEnd::Early(self.with_stderr_tail(how).await))
            }
            None => Ok(CheckEnd::Complete),
        }
    }

    async fn with_stderr_tail(self, how: String) -> String {
        // What it left open keeps nothing waiting here.
        let said = tokio::time::timeout(LINGERING, self.stderr_tail).await;
        let said = said.ok().and_then(Result::ok).unwrap_or_default();
        match said.lines().rev().find(|line| !line.trim().is_empty()) {
            Some(last) => format!("{how}; it last said: {}", last.trim()),
            None => how,
        }
    }
}

/// The end of what a process says, however much that is.
async fn read_stderr_tail(mut stderr: ChildStderr) -> String {
    let mut said = Vec::new();
    let mut piece = vec![0; STDERR_TAIL_BYTES];
    while let Ok(length @ 1..) = stderr.read(&mut piece).await {
        said.extend_from_slice(piece.get(..length).unwrap_or_default());
        let before = said.len().saturating_sub(STDERR_TAIL_BYTES);
        said.drain(..before);
    }
    String::from_utf8_lossy(&said).into_owned()
}

fn describe_exit(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt as _;
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("ended with exit code {code}"),
        (None, Some(signal)) => {
            let name = match signal {
                4 => " (SIGILL)",
                6 => " (SIGABRT)",
                7 | 10 => " (SIGBUS)",
                8 => " (SIGFPE)",
                9 => " (SIGKILL)",
                11 => " (SIGSEGV)",
                _ => "",
            };
            format!("was ended by signal {signal}{name}")
        }
        (None, None) => "ended".to_owned(),
    }
}

/// What a process that runs checks is told on its command line.
#[derive(clap::Args)]
pub(super) struct CheckProcessArgs {
    /// For the processes that run the checks: the first of them
    #[arg(long, hide = true, value_name = "N", requires = "scratch")]
    from: Option<usize>,
    /// For the same: where they write
    #[arg(long, hide = true, value_name = "DIR")]
    scratch: Option<PathBuf>,
}

impl CheckProcessArgs {
    /// The first check and the directory, where this process is one that runs checks.
    pub(super) fn given(&self) -> Option<(usize, &Path)> {
        Some((self.from?, self.scratch.as_deref()?))
    }

    /// The arguments of such a process.
    pub(super) fn add_to(command: &mut Command, from: usize, scratch: &Path) {
        command.args(["--from", &from.to_string(), "--scratch"]);
        command.arg(scratch);
    }
}
