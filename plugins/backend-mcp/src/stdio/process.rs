//! A server's process: its environment, its group, its end.
//!
//! The environment is an allowlist, because a host's own holds the keys of everything. The group
//! is ended as a whole and always: programs that a server started outlive its polite end.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::sync::watch;

use super::guardian::{Guarded, Guardian, MARK};

/// Variables of the host's that every server sees, besides everything that begins with `LC_`.
const PASSED: &[&str] = &[
    "PATH", "HOME", "LOGNAME", "USER", "SHELL", "LANG", "TERM", "TMPDIR", "TZ",
];
/// Where programs are looked for when the host does not say.
const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";
/// How long a server may take to end when its input has ended, and after it was told to.
const POLITE: Duration = Duration::from_secs(1);
/// How long the rest of its group may take after it was told to.
const REST: Duration = Duration::from_millis(300);
/// How often the rest is looked at.
const LOOK: Duration = Duration::from_millis(10);

/// What a server is started from.
#[derive(Debug)]
pub(crate) struct Launch<'a> {
    pub(crate) command: &'a str,
    pub(crate) args: &'a [String],
    pub(crate) env: &'a BTreeMap<String, String>,
    pub(crate) pass_env: &'a [String],
    pub(crate) cwd: Option<&'a Path>,
}

/// The pipes of a server that was started.
#[derive(Debug)]
pub(crate) struct Pipes {
    pub(crate) stdin: ChildStdin,
    pub(crate) stdout: ChildStdout,
    pub(crate) stderr: ChildStderr,
}

/// A server that runs. Dropping it kills its group.
#[derive(Debug)]
pub(crate) struct Process {
    id: Option<u32>,
    program: String,
    exit: Exit,
    group: Option<Pid>,
    _guarded: Option<Guarded>,
}

/// The end of a server's process. A program that it started may hold its pipes open for longer.
#[derive(Debug, Clone)]
pub(crate) struct Exit(watch::Receiver<Option<Option<ExitStatus>>>);

/// Starts a server in a process group of its own.
///
/// # Errors
/// What failed, why, and what to do; the kind is `NotFound` when there is no such program.
pub(crate) fn launch(
    launch: &Launch<'_>,
    guardian: &Arc<Guardian>,
) -> io::Result<(Process, Pipes)> {
    let env = environment(std::env::vars_os(), launch);
    let program = find(launch.command, launch.cwd, &env)?;
    if let Some(dir) = launch.cwd.filter(|dir| !dir.is_dir()) {
        return Err(io::Error::new(
            io::ErrorKind::NotFound,
            format!("its `cwd` {} is no directory", dir.display()),
        ));
    }
    guardian.ready().map_err(|error| {
        io::Error::other(format!(
            "no server can be started: the process that would end it after a crash of the host \
             does not run ({error}); see that /bin/sh works and that more processes may be started"
        ))
    })?;
    let mut command = Command::new(&program);
    command
        .args(launch.args)
        .env_clear()
        .envs(env)
        .env(MARK, guardian.mark())
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    if let Some(dir) = launch.cwd {
        command.current_dir(dir);
    }
    let mut child = command.spawn().map_err(|error| {
        io::Error::new(
            error.kind(),
            format!("{} could not be started: {error}", program.display()),
        )
    })?;
    let group = child
        .id()
        .and_then(|id| i32::try_from(id).ok())
        .and_then(Pid::from_raw);
    let pipes = match (child.stdin.take(), child.stdout.take(), child.stderr.take()) {
        (Some(stdin), Some(stdout), Some(stderr)) => Pipes {
            stdin,
            stdout,
            stderr,
        },
        _ => return Err(io::ErrorKind::BrokenPipe.into()),
    };
    let process = Process {
        _guarded: group.map(|group| guardian.guard(group)),
        id: child.id(),
        program: program.display().to_string(),
        exit: Exit::of(child),
        group,
    };
    Ok((process, pipes))
}

impl Exit {
    /// Waits for it in a task of its own, so that whoever asks can stop asking.
    fn of(mut child: Child) -> Self {
        let (told, exit) = watch::channel(None);
        tokio::spawn(async move {
            let status = child.wait().await.ok();
            told.send_replace(Some(status));
        });
        Self(exit)
    }

    /// Waits for the end; the status may be unknown.
    pub(crate) async fn wait(&mut self) -> Option<ExitStatus> {
        let ended = self.0.wait_for(Option::is_some).await;
        ended.ok().and_then(|status| (*status).flatten())
    }
}

impl Process {
    /// Its number.
    pub(crate) fn id(&self) -> Option<u32> {
        self.id
    }

    /// The file of its program.
    pub(crate) fn program(&self) -> &str {
        &self.program
    }

    /// Its end.
    pub(crate) fn exit(&self) -> Exit {
        self.exit.clone()
    }

    /// Ends it: it has a moment after the end of its input, one after SIGTERM, and then none. Its
    /// input must be closed already.
    pub(crate) async fn end(mut self) -> Option<ExitStatus> {
        let mut status = self.exited(POLITE).await;
        if status.is_none() {
            self.signal(Signal::TERM);
            status = self.exited(POLITE).await;
        }
        if status.is_none() {
            self.signal(Signal::KILL);
            status = self.exited(POLITE).await;
        }
        // Whatever it started and left.
        self.signal(Signal::TERM);
        let until = tokio::time::Instant::now() + REST;
        while self.is_anything_left() && tokio::time::Instant::now() < until {
            tokio::time::sleep(LOOK).await;
        }
        status
    }

    async fn exited(&mut self, within: Duration) -> Option<ExitStatus> {
        let exited = tokio::time::timeout(within, self.exit.wait()).await;
        exited.ok().flatten()
    }

    fn is_anything_left(&self) -> bool {
        self.group
            .is_some_and(|group| test_kill_process_group(group).is_ok())
    }

    fn signal(&self, signal: Signal) {
        if let Some(group) = self.group {
            // Nobody of it may be left.
            let _ = kill_process_group(group, signal);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
    }
}

fn environment(
    host: impl Iterator<Item = (OsString, OsString)>,
    launch: &Launch<'_>,
) -> BTreeMap<OsString, OsString> {
    let passed = |name: &OsStr| {
        PASSED.iter().any(|allowed| name == *allowed)
            || launch
                .pass_env
                .iter()
                .any(|allowed| name == allowed.as_str())
            || name.as_encoded_bytes().starts_with(b"LC_")
    };
    let mut env: BTreeMap<_, _> = host.filter(|(name, _)| passed(name)).collect();
    env.entry("PATH".into())
        .or_insert_with(|| DEFAULT_PATH.into());
    for (name, value) in launch.env {
        env.insert(name.into(), value.into());
    }
    env
}

/// The program's file: what has a slash is a path, anything else is looked for.
fn find(
    command: &str,
    cwd: Option<&Path>,
    env: &BTreeMap<OsString, OsString>,
) -> io::Result<PathBuf> {
    let not_found = |why: String| Err(io::Error::new(io::ErrorKind::NotFound, why));
    if command.contains('/') {
        let path = cwd.map_or_else(|| PathBuf::from(command), |dir| dir.join(command));
        if path.is_file() {
            return Ok(path);
        }
        return not_found(format!("there is no program {}", path.display()));
    }
    let path = env.get(OsStr::new("PATH")).cloned().unwrap_or_default();
    let mut found = std::env::split_paths(&path).map(|dir| dir.join(command));
    match found.find(|path| is_program(path)) {
        Some(program) => Ok(program),
        None => not_found(format!(
            "there is no program `{command}`; it was looked for in PATH={}",
            path.display()
        )),
    }
}

fn is_program(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    path.metadata()
        .is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_is_an_allowlist() {
        let host = [
            ("HOME", "/h"),
            ("API_KEY", "x"),
            ("LC_ALL", "C"),
            ("ASKED", "a"),
        ];
        let host = host.map(|(name, value)| (name.into(), value.into()));
        let env = BTreeMap::from([("OWN".to_owned(), "o".to_owned())]);
        let launch = Launch {
            command: "x",
            args: &[],
            env: &env,
            pass_env: &["ASKED".to_owned()],
            cwd: None,
        };
        let env = environment(host.into_iter(), &launch);
        let names: Vec<_> = env.keys().map(|name| name.to_string_lossy()).collect();
        assert_eq!(names, ["ASKED", "HOME", "LC_ALL", "OWN", "PATH"]);
    }

    #[test]
    fn a_program_that_is_missing_is_named_with_the_path() {
        let env = BTreeMap::from([("PATH".into(), "/nowhere:/bin".into())]);
        assert!(find("sh", None, &env).unwrap().ends_with("bin/sh"));
        let error = find("no-such-program", None, &env).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert!(error.to_string().contains("PATH=/nowhere:/bin"), "{error}");
    }
}
