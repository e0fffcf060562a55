//! A process of `ssh`: what it is given, what it says, and its end.

use std::io;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use conjure_exec_agent::client::relayed::{RelayCarrier, read_mark};
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout};
use tokio::task::JoinHandle;

use crate::config::SshSettings;
use crate::ssh_command::{Verbosity, command};

/// How much of what is complained about is kept, from its end.
const MAX_STDERR_BYTES: usize = 4_000;
/// How long logging in and starting a program may take, beyond connecting.
const LOGIN_TIMEOUT: Duration = Duration::from_secs(30);
/// How long an exit is waited for, once a stream is over.
const EXIT_TIMEOUT: Duration = Duration::from_secs(2);
/// How long what is complained about is waited for, after that.
const STDERR_TIMEOUT: Duration = Duration::from_millis(500);

/// A connection that ended, or never came about.
#[derive(Debug, Clone, Default)]
pub(crate) struct SshFailure {
    /// The exit code of `ssh`: 255 where it speaks of itself, else that of what it ran.
    pub(crate) code: Option<i32>,
    /// What `ssh` or what it ran complained about.
    pub(crate) stderr: String,
    /// What the shell over there said in place of the mark.
    pub(crate) preamble: String,
    /// Whether more was said in place of the mark than is read.
    pub(crate) floods: bool,
    /// Whether the time limit was exceeded.
    pub(crate) timed_out: bool,
    /// Reason why no process was started.
    pub(crate) start_error: Option<io::ErrorKind>,
}

/// An `ssh` that runs something over there.
#[derive(Debug)]
pub(crate) struct SshProcess {
    child: SshChild,
    /// Nothing where only the first was to be written.
    input: Option<ChildStdin>,
    output: ChildStdout,
    stderr: StderrBuffer,
    /// Reads what is complained about.
    listening: JoinHandle<()>,
    /// Text behind the mark on its line.
    pub(crate) mark: String,
    /// What came behind that line already.
    pub(crate) buffered: Vec<u8>,
}

/// The process, with those that it starts itself, such as another `ssh` to a jump host: all of them
/// are in a group of their own, and go with this value.
#[derive(Debug)]
struct SshChild(Child);

impl Drop for SshChild {
    fn drop(&mut self) {
        // Once it is waited for, its number may be another one's.
        let pid = self.0.id().and_then(|pid| i32::try_from(pid).ok());
        if let Some(group) = pid.and_then(Pid::from_raw) {
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

/// What is said on standard error, as it comes.
#[derive(Debug, Clone, Default)]
struct StderrBuffer(Arc<Mutex<Vec<u8>>>);

impl SshProcess {
    /// Connects, runs a script of the POSIX shell, writes to it what is to be written first, and
    /// waits for the mark.
    pub(crate) async fn run(
        settings: &SshSettings,
        script: &str,
        first: Option<&[u8]>,
        verbosity: Verbosity,
    ) -> Result<Self, SshFailure> {
        let not_started = |error: io::Error| SshFailure {
            start_error: Some(error.kind()),
            stderr: error.to_string(),
            ..SshFailure::default()
        };
        let told = command(settings, script, verbosity).await;
        let mut told = told.map_err(not_started)?;
        told.stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        let mut child = told.spawn().map_err(not_started)?;
        let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (input, Some(output), Some(error)) = pipes else {
            return Err(not_started(io::ErrorKind::BrokenPipe.into()));
        };
        let complaint = StderrBuffer::default();
        let listening = tokio::spawn(complaint.clone().listen(error));
        let mut process = Self {
            child: SshChild(child),
            input,
            output,
            stderr: complaint,
            listening,
            mark: String::new(),
            buffered: Vec::new(),
        };
        let limit = settings.connect_timeout() + LOGIN_TIMEOUT;
        let begun = tokio::time::timeout(limit, async {
            if let Some(bytes) = first {
                // The end of it is seen once it is dropped. Where nobody reads it, it is said why.
                if let Some(mut input) = process.input.take() {
                    let _ = input.write_all(bytes).await;
                }
            }
            (process.mark, process.buffered) = read_mark(&mut process.output).await?;
            Ok(())
        });
        match begun.await {
            Ok(Ok(())) => Ok(process),
            Ok(Err(said)) => Err(SshFailure {
                preamble: said,
                floods: !is_over(&mut process.output).await,
                ..process.end().await
            }),
            Err(_) => Err(SshFailure {
                timed_out: true,
                stderr: process.stderr.text(),
                ..SshFailure::default()
            }),
        }
    }

    /// Waits for its end and says how that was; one that goes on is killed.
    pub(crate) async fn end(self) -> SshFailure {
        let Self {
            mut child,
            input,
            output,
            stderr: complaint,
            listening,
            ..
        } = self;
        drop((input, output));
        let status = tokio::time::timeout(EXIT_TIMEOUT, child.0.wait()).await;
        let code = status.ok().and_then(Result::ok);
        // A program that a configuration starts may keep it open.
        let _ = tokio::time::timeout(STDERR_TIMEOUT, listening).await;
        SshFailure {
            code: code.and_then(|status| status.code()),
            stderr: complaint.text(),
            ..SshFailure::default()
        }
    }
}

/// Whether the output has ended, so that nothing more comes.
async fn is_over(output: &mut ChildStdout) -> bool {
    let mut next = [0; 1];
    let reading = tokio::time::timeout(EXIT_TIMEOUT, output.read(&mut next));
    matches!(reading.await, Ok(Ok(0) | Err(_)))
}

impl RelayCarrier for SshProcess {
    type Input = ChildStdin;
    type Output = ChildStdout;

    fn streams(&mut self) -> (Option<&mut ChildStdin>, &mut ChildStdout) {
        (self.input.as_mut(), &mut self.output)
    }

    async fn into_stderr(self) -> String {
        self.end().await.stderr
    }
}

impl StderrBuffer {
    async fn listen(self, mut error: ChildStderr) {
        let mut buffer = Vec::with_capacity(MAX_STDERR_BYTES);
        while matches!(error.read_buf(&mut buffer).await, Ok(1..)) {
            let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            kept.append(&mut buffer);
            // The reason stands at the end.
            let surplus = kept.len().saturating_sub(MAX_STDERR_BYTES);
            kept.drain(..surplus);
        }
    }

    fn text(&self) -> String {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let text = String::from_utf8_lossy(&kept);
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        lines.collect::<Vec<_>>().join("; ")
    }
}
