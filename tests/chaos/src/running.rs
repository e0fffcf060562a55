//! A host under test as a process: started, told what to do, heard, killed. It is the program of
//! this crate that embeds a manager, or `conjure serve`.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow};
use conjure_kit::{Guard, Workspace};

use crate::protocol::{HostReport, Order};
use crate::served::ServedHost;

/// The variable whose value the commands of the local executor inherit.
pub(crate) const MARK: &str = "CONJURE_CHAOS";
/// The variable by which a host knows that it is itself a command: the process that ends its
/// commands after it has it too.
pub(crate) const OUTER: &str = "CONJURE_CALL";

/// How a host is started.
#[derive(Debug, Clone)]
pub(crate) struct Start {
    /// Whether it is `conjure serve`.
    pub(crate) serves: bool,
    /// The program of this crate, which embeds a manager.
    pub(crate) program: PathBuf,
    /// The program `conjure`.
    pub(crate) conjure: PathBuf,
    pub(crate) database: String,
    pub(crate) seed: u64,
}

/// A host that runs. It is killed when this is dropped.
pub(crate) enum TestedHost {
    Embedded(EmbeddedHost),
    Served(ServedHost),
}

/// A host that embeds a manager.
pub(crate) struct EmbeddedHost {
    child: Child,
    guard: Option<Guard>,
    stdin: Option<ChildStdin>,
    reports: Receiver<HostReport>,
}

impl Start {
    pub(crate) fn start(&self, workspace: &Workspace, mark: &str) -> Result<TestedHost> {
        if self.serves {
            return ServedHost::start(self, workspace, mark).map(TestedHost::Served);
        }
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(workspace.root().join("host.log"))?;
        let mut child = Command::new(&self.program)
            .args(["host", "--database", &self.database])
            .arg("--data-dir")
            .arg(workspace.root().join("data"))
            .arg("--plugins")
            .arg(workspace.plugins())
            .env_clear()
            .envs(std::env::var_os("PATH").map(|path| ("PATH", path)))
            .env("HOME", workspace.home())
            .env("TMPDIR", workspace.root().join("tmp"))
            .env(MARK, mark)
            .env(OUTER, mark)
            .current_dir(workspace.work())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .with_context(|| format!("{} could not be started", self.program.display()))?;
        let guard = kill_on_exit(&child)?;
        let stdout = child.stdout.take().context("it has no output")?;
        let (lines, said) = channel();
        std::thread::spawn(move || {
            // A line that the kill cut off acknowledges nothing.
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let Ok(said) = serde_json::from_str(&line) else {
                    break;
                };
                if lines.send(said).is_err() {
                    break;
                }
            }
        });
        Ok(TestedHost::Embedded(EmbeddedHost {
            stdin: child.stdin.take(),
            child,
            guard: Some(guard),
            reports: said,
        }))
    }
}

impl TestedHost {
    pub(crate) fn send_order(&mut self, order: Order) -> Result<()> {
        match self {
            Self::Embedded(host) => host.send_order(&order),
            Self::Served(host) => host.send_order(order),
        }
    }

    /// What it says next; nothing when that takes until then.
    pub(crate) fn next(&self, until: Instant) -> Result<Option<HostReport>> {
        let said = match self {
            Self::Embedded(host) => &host.reports,
            Self::Served(host) => host.reports(),
        };
        let left = until.saturating_duration_since(Instant::now());
        match said.recv_timeout(left) {
            Ok(HostReport::Wrong { error }) => Err(anyhow!("an order failed: {error}")),
            Ok(said) => Ok(Some(said)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(anyhow!("the host ended by itself")),
        }
    }

    /// Kills it, and gives what it had said until then.
    pub(crate) fn kill(&mut self) -> Result<Vec<HostReport>> {
        match self {
            Self::Embedded(host) => host.kill(),
            Self::Served(host) => host.kill(),
        }
    }

    /// Lets it come to its end.
    pub(crate) fn end(self, patience: Duration) -> Result<()> {
        match self {
            Self::Embedded(host) => host.end(patience),
            Self::Served(host) => host.end(patience),
        }
    }
}

/// Kills a host when this process ends, however that happens.
pub(crate) fn kill_on_exit(host: &Child) -> std::io::Result<Guard> {
    Guard::new("kill -9 \"$1\"", &[&host.id().to_string()], None)
}

impl EmbeddedHost {
    /// Disarms the guard of a host that is about to be collected: its number is soon somebody else's.
    fn disarm(&mut self) {
        if let Some(guard) = self.guard.take() {
            guard.disarm();
        }
    }

    fn send_order(&mut self, order: &Order) -> Result<()> {
        let mut line = serde_json::to_vec(order)?;
        line.push(b'\n');
        let stdin = self.stdin.as_mut().context("it takes no orders any more")?;
        stdin.write_all(&line).context("it reads no orders")
    }

    fn kill(&mut self) -> Result<Vec<HostReport>> {
        self.child.kill().context("it could not be killed")?;
        self.disarm();
        self.child.wait()?;
        // The pipe ends with the process, so this ends too.
        Ok(self.reports.iter().collect())
    }

    fn end(mut self, patience: Duration) -> Result<()> {
        drop(self.stdin.take());
        let until = Instant::now() + patience;
        loop {
            if let Some(status) = self.child.try_wait()? {
                self.disarm();
                anyhow::ensure!(status.success(), "it ended with {status}");
                return Ok(());
            }
            anyhow::ensure!(Instant::now() < until, "it does not end");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for EmbeddedHost {
    fn drop(&mut self) {
        let _ = self.child.kill();
        self.disarm();
        let _ = self.child.wait();
    }
}
