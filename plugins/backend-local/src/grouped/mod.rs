//! Runs commands where the system has nothing that adopts what a command starts, such as on macOS.
//!
//! A command is a process group, which is ended with its call, and by a small script when the host
//! is gone. What leaves the group is not found, and nothing is kept from a command: these systems
//! have no way to that.

mod guardian;
mod tree;

use std::io::ErrorKind;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use conjure_exec_agent::files::{Changes, Roots, Snapshot};
use conjure_exec_agent::output::{Capture, Kept, Limits, Live, first_files, say_what_is_missing};
use conjure_exec_agent::private::PrivatePaths;
use conjure_skill_sdk::abi::EmitKind;
use conjure_skill_sdk::protocol::{Bash, BashOutput, FileRef};
use conjure_skill_sdk::{Cx, Error, Result};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, ChildStderr, ChildStdout, Command};

use crate::blocking;
use crate::config::Settings;
use crate::keeping;
use crate::session::Session;
use guardian::Guardian;
use tree::Tree;

/// How long output is read after every process that was found is gone.
const DRAIN: Duration = Duration::from_millis(200);
/// The kernel takes no argument longer than this.
const MAX_COMMAND: usize = 128 * 1024 - 1;
/// The size of a read, and of a piece that the host gets.
const PIECE: usize = 16 * 1024;

/// The commands of an instance.
#[derive(Debug)]
pub(crate) struct Commands {
    settings: Settings,
    guardian: Arc<Guardian>,
}

impl Commands {
    /// None yet.
    pub(crate) fn new(settings: Settings, _private: PrivatePaths) -> Self {
        Self {
            guardian: Guardian::new(settings.path()),
            settings,
        }
    }

    /// Runs a command of a session.
    pub(crate) async fn run(
        &self,
        cx: &Cx,
        request: Bash,
        session: &Arc<Session>,
    ) -> Result<BashOutput> {
        run(cx, request, session, &self.settings, &self.guardian).await
    }
}

async fn run(
    cx: &Cx,
    request: Bash,
    session: &Arc<Session>,
    settings: &Settings,
    guardian: &Arc<Guardian>,
) -> Result<BashOutput> {
    let limits = Limits::new(cx.time_limit(), settings.timeout);
    let _running = session.running();
    // A command is not kept from anything here: only its own places are of interest.
    let roots = keeping::roots(cx, session.skills(), &PrivatePaths::default())?;
    let command = build(cx, &request, session, settings, &roots)?;
    let spill = cx
        .exchange_dir()
        .map(|dir| dir.join(format!("bash-{}.txt", tree::unique())));
    let working_dir = roots.working_dir().to_owned();
    let started = {
        let (dir, guardian) = (working_dir.clone(), Arc::clone(guardian));
        blocking(move || Started::new(command, Snapshot::take(&dir), &guardian)).await?
    };
    let Started {
        mut child,
        tree,
        before,
    } = started;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let mut capture = Capture::new(request.keep_bytes, spill);
    let mut live = Live::new(cx.clone());

    let end = {
        let mut reading = std::pin::pin!(read_all(stdout, stderr, |kind, bytes| {
            capture.push(kind, bytes);
            live.push(kind, bytes);
        }));
        let mut living = std::pin::pin!(live_and_end(
            cx,
            session,
            child,
            tree,
            &limits,
            before,
            &working_dir
        ));
        let mut read = false;
        let end = loop {
            tokio::select! {
                () = &mut reading, if !read => read = true,
                end = &mut living => break end?,
            }
        };
        if !read {
            // Only somebody who could not be found still holds the pipes.
            let _ = tokio::time::timeout(DRAIN, reading).await;
        }
        end
    };
    let shown = cx.working_dir().unwrap_or(&working_dir).to_owned();
    Ok(reply(end, capture.finish(), live, cx, &shown).await)
}

/// A command that runs. Dropping it kills its tree.
struct Started {
    child: Child,
    tree: Tree,
    before: Snapshot,
}

impl Started {
    fn new(mut command: Command, before: Snapshot, guardian: &Arc<Guardian>) -> Result<Self> {
        guardian.ready()?;
        let child = command.spawn().map_err(|error| match error.kind() {
            ErrorKind::InvalidInput => {
                Error::invalid("the command or its environment holds a NUL byte")
            }
            ErrorKind::NotFound => Error::new(format!(
                "the command cannot be started: the shell or the working directory is not there \
                 ({error})"
            )),
            _ => Error::new(format!("the command cannot be started: {error}")),
        })?;
        let mut tree = child
            .id()
            .and_then(Tree::new)
            .ok_or_else(|| Error::new("the command ended before it began"))?;
        tree.guard(guardian)?;
        Ok(Self {
            child,
            tree,
            before,
        })
    }
}

fn build(
    cx: &Cx,
    request: &Bash,
    session: &Session,
    settings: &Settings,
    roots: &Roots,
) -> Result<Command> {
    if request.command.len() > MAX_COMMAND {
        return Err(Error::invalid(format!(
            "the command has {} bytes and may have {MAX_COMMAND}; write it to a file first and \
             run that",
            request.command.len()
        )));
    }
    let mut command = Command::new(&settings.shell);
    command
        // The dashes end the options: a command may begin with one.
        .args(["-c", "--", &request.command])
        .current_dir(roots.working_dir())
        .env_clear()
        .envs(settings.env.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0);
    for (name, value) in session.env().iter().chain(&request.env) {
        if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
            return Err(Error::invalid(format!(
                "`{}` cannot be an environment variable",
                name.escape_debug()
            )));
        }
        command.env(name, value);
    }
    if let Some(dir) = cx.skill_dir() {
        command.env("SKILL_DIR", dir);
    }
    Ok(command)
}

/// How a command came to its end.
struct End {
    status: ExitStatus,
    timed_out: bool,
    changes: Changes,
}

/// Waits for the command, its time, or a cancel; ends what is left and looks at its files.
async fn live_and_end(
    cx: &Cx,
    session: &Session,
    mut child: Child,
    mut tree: Tree,
    limits: &Limits,
    before: Snapshot,
    working_dir: &Path,
) -> Result<End> {
    let mut timed_out = false;
    let finished = tokio::select! {
        status = child.wait() => Some(status?),
        () = cancelled(cx) => None,
        () = session.over() => None,
        () = tokio::time::sleep_until(limits.at.into()) => {
            timed_out = true;
            None
        }
    };
    let over = finished.is_some();
    let changes = {
        let grace = limits.grace;
        let dir = working_dir.to_owned();
        blocking(move || {
            match over {
                true => tree.end_leftovers(grace),
                false => tree.end(grace),
            }
            Ok(before.changes(&dir))
        })
        .await?
    };
    let status = match finished {
        Some(status) => status,
        None => child.wait().await?,
    };
    Ok(End {
        status,
        timed_out,
        changes,
    })
}

/// Becomes ready when the call is cancelled, and never with a host that cannot tell.
async fn cancelled(cx: &Cx) {
    cx.until_cancelled().await;
    if !cx.cancelled() {
        std::future::pending::<()>().await;
    }
}

/// Reads both pipes until their ends.
async fn read_all(
    mut stdout: Option<ChildStdout>,
    mut stderr: Option<ChildStderr>,
    mut take: impl FnMut(EmitKind, &[u8]),
) {
    let (mut out, mut err) = (vec![0; PIECE], vec![0; PIECE]);
    while stdout.is_some() || stderr.is_some() {
        tokio::select! {
            piece = read(&mut stdout, &mut out) => match piece {
                Some(bytes) => take(EmitKind::Stdout, bytes),
                None => stdout = None,
            },
            piece = read(&mut stderr, &mut err) => match piece {
                Some(bytes) => take(EmitKind::Stderr, bytes),
                None => stderr = None,
            },
        }
    }
}

/// The next piece; nothing at the end. A pipe that is closed already never has one.
async fn read<'b>(
    pipe: &mut Option<impl AsyncRead + Unpin>,
    buffer: &'b mut [u8],
) -> Option<&'b [u8]> {
    match pipe {
        Some(pipe) => match pipe.read(buffer).await {
            Ok(0) | Err(_) => None,
            Ok(length) => buffer.get(..length),
        },
        None => std::future::pending().await,
    }
}

/// `shown`: what the paths of files begin with.
async fn reply(end: End, kept: Kept, live: Live, cx: &Cx, shown: &Path) -> BashOutput {
    let changes = end.changes;
    say_what_is_missing(&live, &kept, changes.cut, changes.unnamed as u64);
    live.finish().await;
    let files = changes.files.into_iter().map(|change| FileRef {
        size: Some(change.size),
        ..FileRef::at(shown.join(change.path).to_string_lossy())
    });
    BashOutput {
        exit_code: end.status.code(),
        signal: end.status.signal(),
        stdout: kept.stdout,
        stderr: kept.stderr,
        stdout_bytes: kept.stdout_bytes,
        stderr_bytes: kept.stderr_bytes,
        full_output: kept.full_output,
        timed_out: end.timed_out,
        files: first_files(files.collect(), cx).await,
    }
}
