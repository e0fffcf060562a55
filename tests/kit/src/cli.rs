//! Running a program as a person would, in an environment where nothing of this machine is left.
//!
//! No key, no configuration and no plugin of the developer reaches the program. It runs in a process
//! group of its own, which ends with the test.

mod environment;
mod piped;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::io::{Read, Write};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

pub use rustix::process::Signal;
use rustix::process::{Pid, kill_process, kill_process_group};

pub(crate) use environment::environment;

use crate::{KitError, Model, Redactor, Workspace, conjure_bin, terminal};

/// How long a program may run, unless the test says otherwise.
const DEADLINE: Duration = Duration::from_secs(60);

/// `conjure` with these arguments.
pub fn cli<A: Into<OsString>>(args: impl IntoIterator<Item = A>) -> Cli {
    Cli::new(None, args)
}

/// A program to run.
#[derive(Debug)]
pub struct Cli {
    /// `None`: `conjure`, built when it is needed.
    pub(crate) program: Option<PathBuf>,
    pub(crate) args: Vec<OsString>,
    pub(crate) env: BTreeMap<OsString, OsString>,
    stdin: Vec<u8>,
    deadline: Duration,
    pub(crate) workspace: Option<Workspace>,
    terminal: bool,
}

impl Cli {
    /// Another program in the same environment.
    pub fn program<A: Into<OsString>>(
        program: impl Into<PathBuf>,
        args: impl IntoIterator<Item = A>,
    ) -> Self {
        Self::new(Some(program.into()), args)
    }

    fn new<A: Into<OsString>>(program: Option<PathBuf>, args: impl IntoIterator<Item = A>) -> Self {
        Self {
            program,
            args: args.into_iter().map(Into::into).collect(),
            env: BTreeMap::new(),
            stdin: Vec::new(),
            deadline: DEADLINE,
            workspace: None,
            terminal: false,
        }
    }

    /// Runs in this workspace; without it, in a new one.
    #[must_use]
    pub fn workspace(mut self, workspace: &Workspace) -> Self {
        self.workspace = Some(workspace.clone());
        self
    }

    /// Sets a variable of the environment.
    #[must_use]
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.env.insert(name.into(), value.into());
        self
    }

    /// The provider `anthropic` is this model.
    #[must_use]
    pub fn model(self, model: &Model) -> Self {
        self.env("ANTHROPIC_API_KEY", "a-key-of-nobody")
            .env("ANTHROPIC_BASE_URL", model.base_url())
    }

    /// Runs on a terminal: what it says to standard error is on standard output then, lines end
    /// in `\r\n`, and what is typed is shown.
    #[must_use]
    pub fn on_terminal(mut self) -> Self {
        self.terminal = true;
        self
    }

    /// What the program reads; without it, nothing.
    #[must_use]
    pub fn stdin(mut self, text: impl Into<Vec<u8>>) -> Self {
        self.stdin = text.into();
        self
    }

    /// How long the program may run (default 60 s).
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// Runs it to its end.
    ///
    /// # Errors
    /// When it does not start, or does not end before the deadline; then its process group is ended.
    pub fn run(self) -> Result<Output, KitError> {
        let input = self.stdin.clone();
        let mut running = self.launch()?;
        if let Some(mut stdin) = running.stdin.take() {
            // On a thread: a program that never reads must not outlast the deadline.
            thread::spawn(move || {
                let _unread = stdin.write_all(&input);
            });
        }
        running.wait()
    }

    /// Starts it, with its standard input open after what [`Cli::stdin`] gave, which should be short.
    ///
    /// # Errors
    /// When it does not start.
    pub fn start(self) -> Result<ProgramHandle, KitError> {
        let input = self.stdin.clone();
        let mut running = self.launch()?;
        if let Some(stdin) = &mut running.stdin {
            // A program that does not read its input is its own affair.
            let _unread = stdin.write_all(&input);
        }
        Ok(running)
    }

    fn launch(self) -> Result<ProgramHandle, KitError> {
        if !self.terminal {
            let (mut child, deadline, workspace) = self.spawn()?;
            let (stdin, stdout, stderr) =
                (child.stdin.take(), child.stdout.take(), child.stderr.take());
            let stdin = stdin.map(|stdin| Box::new(stdin) as Box<dyn Write + Send>);
            let running = ProgramHandle::new(child, deadline, workspace, stdin);
            if let Some(stdout) = stdout {
                WatchedOutput::read(&running.output, stdout, |now| &mut now.stdout);
            }
            if let Some(stderr) = stderr {
                WatchedOutput::read(&running.output, stderr, |now| &mut now.stderr);
            }
            return Ok(running);
        }
        let deadline = self.deadline;
        let (mut command, program, workspace) = self.command()?;
        let failed = |source| KitError::Start {
            program: program.clone(),
            source,
        };
        let (ours, theirs) = terminal::open().map_err(failed)?;
        let end = || theirs.try_clone().map(Stdio::from);
        command
            .stdin(end().map_err(failed)?)
            .stdout(end().map_err(failed)?)
            .stderr(end().map_err(failed)?);
        let child = command.spawn().map_err(failed)?;
        let input = ours.try_clone().map_err(failed)?;
        let running = ProgramHandle::new(child, deadline, workspace, Some(Box::new(input)));
        // What is left of standard error is on the terminal too.
        running.output.update(|now| now.closed_outputs += 1);
        WatchedOutput::read(&running.output, ours, |now| &mut now.stdout);
        Ok(running)
    }

    fn command(self) -> Result<(Command, PathBuf, Workspace), KitError> {
        let workspace = match self.workspace {
            Some(workspace) => workspace,
            None => Workspace::new()?,
        };
        let program = match self.program {
            Some(program) => program,
            None => conjure_bin()?,
        };
        let mut command = Command::new(&program);
        command
            .args(&self.args)
            .current_dir(workspace.work())
            .env_clear()
            .envs(environment(&workspace))
            .envs(&self.env)
            .process_group(0);
        Ok((command, program, workspace))
    }
}

/// A program that runs. Its process group is ended when this is dropped.
pub struct ProgramHandle {
    group: Option<Pid>,
    stdin: Option<Box<dyn Write + Send>>,
    output: Arc<WatchedOutput>,
    deadline: Instant,
    limit: Duration,
    workspace: Workspace,
}

/// What a program did so far, and the news of it.
#[derive(Debug, Default)]
struct WatchedOutput {
    state: Mutex<ProgramState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct ProgramState {
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    /// How many of the two outputs have ended.
    closed_outputs: usize,
    status: Option<ExitStatus>,
}

impl ProgramHandle {
    fn new(
        mut child: Child,
        limit: Duration,
        workspace: Workspace,
        stdin: Option<Box<dyn Write + Send>>,
    ) -> Self {
        let seen = Arc::new(WatchedOutput::default());
        let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let waiter = Arc::clone(&seen);
        thread::spawn(move || {
            let status = child.wait().ok();
            waiter.update(|now| now.status = status);
        });
        Self {
            group,
            stdin,
            output: seen,
            deadline: Instant::now() + limit,
            limit,
            workspace,
        }
    }

    /// Sends a line.
    ///
    /// # Errors
    /// When the program no longer reads.
    pub fn send_line(&mut self, line: &str) -> Result<(), KitError> {
        self.send(&format!("{line}\n"))
    }

    /// Sends a text as it is.
    ///
    /// # Errors
    /// When the program no longer reads.
    pub fn send(&mut self, line: &str) -> Result<(), KitError> {
        let sent = self
            .stdin
            .as_mut()
            .is_some_and(|stdin| write!(stdin, "{line}").and_then(|()| stdin.flush()).is_ok());
        if sent {
            return Ok(());
        }
        Err(KitError::Ended {
            what: format!("it read `{line}`"),
            seen: self.output.text(),
        })
    }

    /// Sends a signal to the program alone, not to its group.
    pub fn signal(&self, signal: Signal) {
        if let Some(pid) = self.group {
            // A program that has ended needs none.
            let _gone = kill_process(pid, signal);
        }
    }

    /// Ends its input.
    pub fn close_stdin(&mut self) {
        self.stdin = None;
    }

    /// The process id, for a signal.
    #[must_use]
    pub fn pid(&self) -> Option<Pid> {
        self.group
    }

    /// The workspace in which it runs.
    #[must_use]
    pub fn workspace(&self) -> &Workspace {
        &self.workspace
    }

    /// Waits until the standard output so far contains a text, and returns that output.
    ///
    /// # Errors
    /// When the program ends first, or the deadline passes.
    pub fn wait_for_stdout(&self, text: &str) -> Result<String, KitError> {
        self.wait_for(text, |now| &now.stdout)
    }

    /// Waits until the standard output so far is as wanted, and returns it.
    ///
    /// # Errors
    /// When the program ends first, or the deadline passes.
    pub fn wait_until_stdout(
        &self,
        what: &str,
        is_there: impl Fn(&str) -> bool,
    ) -> Result<String, KitError> {
        let ready = |now: &ProgramState| is_there(&String::from_utf8_lossy(&now.stdout));
        self.wait_until(what.to_owned(), |now| &now.stdout, ready)
    }

    /// Waits until the standard error so far contains a text, and returns it.
    ///
    /// # Errors
    /// When the program ends first, or the deadline passes.
    pub fn wait_for_stderr(&self, text: &str) -> Result<String, KitError> {
        self.wait_for(text, |now| &now.stderr)
    }

    /// Waits until the standard output has this many whole lines, and returns it.
    ///
    /// # Errors
    /// When the program ends first, or the deadline passes.
    pub fn wait_for_lines(&self, count: usize) -> Result<String, KitError> {
        let lines = |now: &ProgramState| now.stdout.iter().filter(|byte| **byte == b'\n').count();
        let what = format!("line {count}");
        self.wait_until(what, |now| &now.stdout, |now| lines(now) >= count)
    }

    fn wait_for(
        &self,
        text: &str,
        output: fn(&ProgramState) -> &Vec<u8>,
    ) -> Result<String, KitError> {
        let contains = |now: &ProgramState| String::from_utf8_lossy(output(now)).contains(text);
        self.wait_until(format!("`{text}`"), output, contains)
    }

    fn wait_until(
        &self,
        what: String,
        output: fn(&ProgramState) -> &Vec<u8>,
        ready: impl Fn(&ProgramState) -> bool,
    ) -> Result<String, KitError> {
        let now = self
            .output
            .wait(self.deadline, |now| ready(now) || now.is_over());
        if ready(&now) {
            return Ok(String::from_utf8_lossy(output(&now)).into_owned());
        }
        let (over, seen) = (now.is_over(), now.text());
        drop(now);
        Err(if over {
            KitError::Ended { what, seen }
        } else {
            self.deadline_error(what, seen)
        })
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// When it does not end before the deadline; then its process group is ended.
    pub fn wait(self) -> Result<Output, KitError> {
        let mut now = self.output.wait(self.deadline, ProgramState::is_over);
        let Some(status) = now.status.filter(|_| now.is_over()) else {
            let seen = now.text();
            drop(now);
            return Err(self.deadline_error("the program's end".to_owned(), seen));
        };
        Ok(Output {
            code: status.code(),
            signal: status.signal(),
            stdout: String::from_utf8_lossy(&std::mem::take(&mut now.stdout)).into_owned(),
            stderr: String::from_utf8_lossy(&std::mem::take(&mut now.stderr)).into_owned(),
            workspace: self.workspace.clone(),
        })
    }

    fn deadline_error(&self, what: String, seen: String) -> KitError {
        KitError::Deadline {
            what,
            limit: self.limit,
            seen,
        }
    }
}

impl fmt::Debug for ProgramHandle {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "Running({:?})\n{}",
            self.group,
            self.output.text()
        )
    }
}

impl Drop for ProgramHandle {
    fn drop(&mut self) {
        if let Some(group) = self.group {
            // Fails when nothing of the group is left, which is as good.
            let _gone = kill_process_group(group, Signal::KILL);
        }
    }
}

impl WatchedOutput {
    fn read(
        seen: &Arc<Self>,
        mut pipe: impl Read + Send + 'static,
        into: fn(&mut ProgramState) -> &mut Vec<u8>,
    ) {
        let seen = Arc::clone(seen);
        thread::spawn(move || {
            let mut buffer = [0; 8192];
            while let Some(part) = pipe
                .read(&mut buffer)
                .ok()
                .and_then(|read| buffer.get(..read))
            {
                if part.is_empty() {
                    break;
                }
                seen.update(|now| into(now).extend_from_slice(part));
            }
            seen.update(|now| now.closed_outputs += 1);
        });
    }

    fn update(&self, change: impl FnOnce(&mut ProgramState)) {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.notify_all();
    }

    /// Waits until the condition holds, or the time has come.
    fn wait(
        &self,
        until: Instant,
        ready: impl Fn(&ProgramState) -> bool,
    ) -> MutexGuard<'_, ProgramState> {
        let now = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let left = until.saturating_duration_since(Instant::now());
        self.changed
            .wait_timeout_while(now, left, |now| !ready(now))
            .unwrap_or_else(PoisonError::into_inner)
            .0
    }

    fn text(&self) -> String {
        self.state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .text()
    }
}

impl ProgramState {
    fn is_over(&self) -> bool {
        self.status.is_some() && self.closed_outputs == 2
    }

    fn text(&self) -> String {
        let stdout = String::from_utf8_lossy(&self.stdout);
        let stderr = String::from_utf8_lossy(&self.stderr);
        format!("--- stdout\n{stdout}\n--- stderr\n{stderr}")
    }
}

/// What a program left.
#[derive(Debug)]
pub struct Output {
    /// The exit code; `None` when a signal ended it.
    pub code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// Standard output of the program.
    pub stdout: String,
    /// Standard error of the program.
    pub stderr: String,
    /// Workspace that the program ran in, kept until this is dropped.
    pub workspace: Workspace,
}

impl Output {
    /// Exit code and both outputs as one text for a snapshot, with what differs from run to run
    /// replaced.
    #[must_use]
    pub fn snapshot(&self) -> String {
        let code = match (self.code, self.signal) {
            (Some(code), _) => format!("exit code {code}"),
            (None, signal) => format!("ended by signal {}", signal.unwrap_or_default()),
        };
        let text = format!(
            "{code}\n--- stdout\n{}--- stderr\n{}",
            self.stdout, self.stderr
        );
        Redactor::for_workspace(&self.workspace).apply(&text)
    }
}

#[cfg(test)]
mod tests;
