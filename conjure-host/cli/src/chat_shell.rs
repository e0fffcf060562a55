//! `!COMMAND`: a command of the person's own. What it says is shown, and goes with the next message.

use std::path::Path;
use std::process::Stdio;

use tokio::io::{AsyncBufReadExt as _, AsyncRead, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::mpsc;

use super::error::CliError;

/// The most characters of what it says that the model reads.
const MOST: usize = 30_000;

/// A command that runs. It is ended when it is dropped.
pub(crate) struct OwnCommand {
    command: String,
    child: Child,
    lines: mpsc::Receiver<String>,
    said: String,
    left_out: usize,
}

/// A line that a command wrote, or its end.
pub(crate) enum OwnCommandEvent {
    Line(String),
    /// It is over; what the model reads of it.
    Over {
        status: String,
        told: String,
    },
}

impl OwnCommand {
    /// Starts a command in a directory.
    ///
    /// # Errors
    /// When there is no shell.
    pub(crate) fn start(command: &str, dir: &Path) -> Result<Self, CliError> {
        let mut child = Command::new("sh")
            .args(["-c", command])
            .current_dir(dir)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| CliError::host_from(error).context("`sh` cannot be started"))?;
        let (said, lines) = mpsc::channel(256);
        if let Some(stdout) = child.stdout.take() {
            tokio::spawn(read(stdout, said.clone()));
        }
        if let Some(stderr) = child.stderr.take() {
            tokio::spawn(read(stderr, said));
        }
        Ok(Self {
            command: command.to_owned(),
            child,
            lines,
            said: String::new(),
            left_out: 0,
        })
    }

    /// What happens next. May be dropped and called again.
    pub(crate) async fn next(&mut self) -> Result<OwnCommandEvent, CliError> {
        if let Some(line) = self.lines.recv().await {
            if self.said.len() + line.len() < MOST {
                self.said.push_str(&line);
                self.said.push('\n');
            } else {
                self.left_out += 1;
            }
            return Ok(OwnCommandEvent::Line(line));
        }
        let status = self.child.wait().await.map_err(CliError::host_from)?;
        let status = match status.code() {
            Some(code) => format!("exit code {code}"),
            None => "ended by a signal".to_owned(),
        };
        let mut told = format!("I ran `{}` ({status}). It said:\n\n", self.command);
        told += &format!("```\n{}```", self.said);
        if self.left_out > 0 {
            told += &format!("\n({} more lines were left out.)", self.left_out);
        }
        Ok(OwnCommandEvent::Over { status, told })
    }

    /// Ends it, and what it started.
    pub(crate) fn stop(&self) {
        let id = self.child.id().and_then(|id| i32::try_from(id).ok());
        if let Some(group) = id.and_then(rustix::process::Pid::from_raw) {
            // It may be over already.
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::TERM);
        }
    }
}

impl Drop for OwnCommand {
    fn drop(&mut self) {
        self.stop();
    }
}

async fn read(from: impl AsyncRead + Unpin, said: mpsc::Sender<String>) {
    let mut from = BufReader::new(from);
    let mut line = Vec::new();
    loop {
        line.clear();
        match from.read_until(b'\n', &mut line).await {
            Ok(read) if read > 0 => {
                let text = String::from_utf8_lossy(&line);
                let text = text.trim_end_matches(['\n', '\r']).to_owned();
                if said.send(text).await.is_err() {
                    return;
                }
            }
            _ => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn all(command: &str) -> (Vec<String>, String, String) {
        let dir = tempfile::tempdir().unwrap();
        let mut running = OwnCommand::start(command, dir.path()).unwrap();
        let mut lines = Vec::new();
        loop {
            match running.next().await.unwrap() {
                OwnCommandEvent::Line(line) => lines.push(line),
                OwnCommandEvent::Over { status, told } => return (lines, status, told),
            }
        }
    }

    #[tokio::test]
    async fn what_a_command_says_is_told_with_how_it_ended() {
        let (lines, status, told) = all("echo one; exit 3").await;
        assert_eq!(
            (lines, status.as_str()),
            (vec!["one".to_owned()], "exit code 3")
        );
        assert_eq!(
            told,
            "I ran `echo one; exit 3` (exit code 3). It said:\n\n```\none\n```"
        );
        let (lines, _, told) = all("seq 1 20000").await;
        assert_eq!(lines.len(), 20000);
        assert!(told.len() < MOST + 200 && told.ends_with("more lines were left out.)"));
    }
}
