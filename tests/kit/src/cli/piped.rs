//! A program whose standard input and output are pipes: in the hands of whoever started it.

use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::time::Duration;

use super::{Cli, ProgramHandle, WatchedOutput};
use crate::{KitError, Workspace};

impl Cli {
    /// Starts it with its standard input and output in the test's hands: what [`Cli::stdin`] gave is
    /// not sent, and only standard error is seen by [`ProgramHandle`].
    ///
    /// # Errors
    /// When it does not start.
    pub fn start_piped(self) -> Result<(ProgramHandle, ChildStdin, ChildStdout), KitError> {
        let (mut child, deadline, workspace) = self.spawn()?;
        let (stdin, stdout, stderr) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let running = ProgramHandle::new(child, deadline, workspace, None);
        running.output.update(|now| now.closed_outputs += 1);
        if let Some(stderr) = stderr {
            WatchedOutput::read(&running.output, stderr, |now| &mut now.stderr);
        }
        match (stdin, stdout) {
            (Some(stdin), Some(stdout)) => Ok((running, stdin, stdout)),
            _ => Err(KitError::Ended {
                what: "it had a standard input and output".to_owned(),
                seen: String::new(),
            }),
        }
    }

    /// Starts it with pipes.
    pub(super) fn spawn(self) -> Result<(Child, Duration, Workspace), KitError> {
        let deadline = self.deadline;
        let (mut command, program, workspace) = self.command()?;
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let child = command
            .spawn()
            .map_err(|source| KitError::Start { program, source })?;
        Ok((child, deadline, workspace))
    }
}
