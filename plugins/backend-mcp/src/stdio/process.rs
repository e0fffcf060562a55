//! A server's process: its start under a supervisor of its own, and its end.
//!
//! The supervisor adopts whatever the server starts and ends all of it, also when the host is gone.
//! Unless its configuration says otherwise the server is kept from the host's own files, and from
//! looking into the host's processes.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use conjure_exec_agent::sandbox_rules::SandboxRules;
use conjure_process_tree::{Confinement, Sandbox, Start};
use tempfile::TempDir;
use tokio::process::{ChildStderr, ChildStdin, ChildStdout};

use super::program::{Launch, ServerProgram};
use super::supervisors::{ProcessExit, SupervisedProcess, Supervisors};

/// How long a server may take to end when its input has ended, and after it was told to.
const EXIT_TIMEOUT: Duration = Duration::from_secs(1);
/// How long what it started may take after it was told to.
const CHILDREN_TIMEOUT: Duration = Duration::from_millis(300);
/// How long it is waited for that what was killed is gone.
const KILL_TIMEOUT: Duration = Duration::from_secs(1);

const TMPDIR: &str = "TMPDIR";

/// The pipes of a server that was started.
#[derive(Debug)]
pub(crate) struct ServerPipes {
    pub(crate) stdin: ChildStdin,
    pub(crate) stdout: ChildStdout,
    pub(crate) stderr: ChildStderr,
}

/// A server that runs. Dropping it kills it and all that it started.
#[derive(Debug)]
pub(crate) struct ServerProcess {
    program: String,
    running: SupervisedProcess,
    /// Where its temporary files are, when it writes nowhere else. Removed behind it.
    _temporary: Option<TempDir>,
}

/// What a server in a sandbox is started with.
struct SandboxedServer {
    sandbox: Sandbox,
    hidden: Vec<PathBuf>,
    temporary: TempDir,
}

impl SandboxedServer {
    fn of(rules: &SandboxRules) -> io::Result<Self> {
        let made = tempfile::Builder::new().prefix("conjure-mcp-").tempdir();
        let temporary = made.map_err(|error| {
            let why = format!("no directory for its temporary files can be made: {error}");
            io::Error::new(error.kind(), why)
        })?;
        let mut write = rules.write().to_vec();
        write.push(temporary.path().canonicalize()?);
        Ok(Self {
            sandbox: Sandbox {
                write,
                network: rules.network(),
            },
            hidden: rules.hidden(),
            temporary,
        })
    }
}

/// Starts a server.
///
/// # Errors
/// What failed, why, and what to do.
pub(crate) async fn launch(
    launch: &Launch<'_>,
    program: &ServerProgram,
    supervisors: &Arc<Supervisors>,
) -> io::Result<(ServerProcess, ServerPipes)> {
    if let Some(dir) = launch.cwd.filter(|dir| !dir.is_dir()) {
        return Err(io::Error::new(
            io::ErrorKind::NotFound,
            format!("its `cwd` {} is no directory", dir.display()),
        ));
    }
    let file = program.file.display();
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let sandboxed = launch
        .sandbox
        .as_ref()
        .map(SandboxedServer::of)
        .transpose()?;
    let mut hidden = supervisors.hidden_paths();
    let mut env = program.env.clone();
    if let Some(sandboxed) = &sandboxed {
        hidden.extend(sandboxed.hidden.iter().map(|path| text(path)));
        // What the configuration says it keeps.
        if !launch.env.contains_key(TMPDIR) {
            env.insert(TMPDIR.into(), sandboxed.temporary.path().into());
        }
    }
    let start = Start {
        program: text(&program.file),
        arguments: launch.args.to_vec(),
        dir: launch.cwd.map(text),
        confinement: launch.confine.then(|| Confinement {
            hidden,
            visible: launch.visible.iter().map(|path| text(path)).collect(),
            sandbox: sandboxed.as_ref().map(|own| own.sandbox.clone()),
            ..Confinement::default()
        }),
        ..Start::default()
    };
    let (input, stdin) = io::pipe()?;
    let started = supervisors.start(start, env, Some(input.into()));
    let (running, outputs) = started.await.map_err(|error| {
        io::Error::new(
            error.kind(),
            format!("{file} could not be started: {error}"),
        )
    })?;
    let stdin = std::process::ChildStdin::from(OwnedFd::from(stdin));
    let pipes = ServerPipes {
        stdin: ChildStdin::from_std(stdin)?,
        stdout: ChildStdout::from_std(outputs.stdout)?,
        stderr: ChildStderr::from_std(outputs.stderr)?,
    };
    let process = ServerProcess {
        program: file.to_string(),
        running,
        _temporary: sandboxed.map(|own| own.temporary),
    };
    Ok((process, pipes))
}

impl ServerProcess {
    /// Process id.
    pub(crate) fn id(&self) -> u32 {
        self.running.supervised.id()
    }

    /// The file of its program.
    pub(crate) fn program(&self) -> &str {
        &self.program
    }

    /// Future exit of the process.
    pub(crate) fn exit(&self) -> ProcessExit {
        self.running.exit.clone()
    }

    /// What of the server's confinement this machine does not give.
    pub(crate) fn gaps(&self) -> Option<String> {
        let gaps = self.running.supervised.gaps();
        let lacks = [
            (gaps.files, "read the host's own files"),
            (gaps.processes, "look into the host's processes"),
            (gaps.writes, "write outside its sandbox"),
            (
                gaps.modes,
                "change modes, owners and times of files outside its sandbox",
            ),
            (gaps.network, "reach the network"),
        ];
        let lacks = lacks.into_iter().filter(|(lacks, _)| *lacks);
        let lacks: Vec<&str> = lacks.map(|(_, what)| what).collect();
        (!lacks.is_empty()).then(|| format!("it can {}", lacks.join(", ")))
    }

    /// Ends it: it has a moment after the end of its input, one after SIGTERM, and then none. Its
    /// input must be closed already.
    pub(crate) async fn end(mut self) -> Option<ExitStatus> {
        let mut status = self.wait_exit(EXIT_TIMEOUT).await;
        // Whatever it started and left has a moment, too.
        let grace = match status {
            None => EXIT_TIMEOUT,
            Some(_) => CHILDREN_TIMEOUT,
        };
        self.running.supervised.end(grace);
        if status.is_none() {
            status = self.wait_exit(EXIT_TIMEOUT + KILL_TIMEOUT).await;
        }
        let _ = tokio::time::timeout(grace + KILL_TIMEOUT, self.running.exit.until_exited()).await;
        status
    }

    async fn wait_exit(&mut self, within: Duration) -> Option<ExitStatus> {
        let exited = tokio::time::timeout(within, self.running.exit.wait()).await;
        exited.ok().flatten()
    }
}
