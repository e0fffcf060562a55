//! A program that runs for long under a supervisor of its own, such as a server that speaks over its
//! standard input and output: the supervisor adopts everything that the program starts, so that
//! nothing of it is left when it is to end, whatever it did to its session, its group, its
//! environment or its parents. The end of the host ends it too.

use std::fs::File;
use std::io::{self, IoSlice, PipeWriter, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::Path;
use std::process::{Child, ChildStderr, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

use crate::gaps::Gaps;
use crate::private::PrivatePaths;
use crate::supervise::{Confinement, Order, Report, Reports, Start};

/// What is started.
#[derive(Debug)]
pub struct Launch<'a> {
    /// The file of the program.
    pub program: &'a Path,
    /// Its arguments.
    pub args: &'a [String],
    /// Where it begins, unless where the host is.
    pub dir: Option<&'a Path>,
    /// What it does not see; nothing where it is not confined.
    pub private: Option<&'a PrivatePaths>,
    /// Directories below those that it does see.
    pub visible: Vec<&'a Path>,
}

/// A program that was started. Dropping it ends everything that it started, at once.
#[derive(Debug)]
pub struct Supervised {
    control: Arc<UnixStream>,
    pid: u32,
    gaps: Gaps,
}

/// The streams of a program.
#[derive(Debug)]
pub struct Streams {
    /// Its standard input.
    pub stdin: PipeWriter,
    /// Its standard output.
    pub stdout: ChildStdout,
    /// Its standard error.
    pub stderr: ChildStderr,
}

/// How a program ends, for a thread that waits for it.
#[derive(Debug)]
pub struct Ends {
    control: Arc<UnixStream>,
    reports: Reports,
    supervisor: Child,
}

/// What happens at the end of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// It has ended; the status may be unknown. What it left behind may still run.
    Ended(Option<ExitStatus>),
    /// Nothing of it is left.
    Gone,
}

/// Starts a program under a supervisor, with an environment that is complete. Blocks until it runs.
///
/// # Errors
/// The system's: also that of the program's own start.
pub fn supervise<E: AsRef<std::ffi::OsStr>>(
    agent: &File,
    launch: &Launch<'_>,
    env: impl IntoIterator<Item = (E, E)>,
) -> io::Result<(Supervised, Streams, Ends)> {
    let (ours, theirs) = UnixStream::pair()?;
    let (input, stdin) = io::pipe()?;
    let mut supervisor = agent_command(agent, "supervise-with-input");
    supervisor
        .env_clear()
        .envs(env)
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0);
    let spawned = supervisor.spawn();
    // Its end of the socket is its own alone from here on.
    drop(supervisor);
    let mut supervisor = spawned?;
    let streams = match (supervisor.stdout.take(), supervisor.stderr.take()) {
        (Some(stdout), Some(stderr)) => Streams {
            stdin,
            stdout,
            stderr,
        },
        _ => return Err(io::ErrorKind::BrokenPipe.into()),
    };
    hand_over(&ours, &input.into())?;
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let confinement = launch.private.map(|private| Confinement {
        hidden: private.iter().map(|path| text(path)).collect(),
        visible: launch.visible.iter().map(|path| text(path)).collect(),
        by_user_namespace: has_use_of_users(agent),
    });
    let start = Order::Start(Start {
        shell: text(launch.program),
        arguments: launch.args.to_vec(),
        env: Vec::new(),
        dir: launch.dir.map(text),
        waits: false,
        confinement,
    });
    (&ours).write_all(&start.encode())?;
    let control = Arc::new(ours);
    let mut ends = Ends {
        control: Arc::clone(&control),
        reports: Reports::default(),
        supervisor,
    };
    match ends.next()? {
        Some(Report::Begun { gaps, leader }) => {
            let pid = u32::try_from(leader).unwrap_or_default();
            Ok((Supervised { control, pid, gaps }, streams, ends))
        }
        Some(Report::NotBegun { number, text }) => {
            let _ = ends.supervisor.wait();
            Err(match number {
                Some(number) => io::Error::from_raw_os_error(number),
                None => io::Error::new(io::ErrorKind::InvalidInput, text),
            })
        }
        _ => {
            let _ = ends.supervisor.wait();
            Err(io::Error::other("its supervisor ended before it began"))
        }
    }
}

fn agent_command(agent: &File, verb: &str) -> Command {
    let mut command = Command::new(format!("/proc/self/fd/{}", agent.as_raw_fd()));
    command.arg0("conjure-exec-agent").arg(verb);
    command
}

/// Sends the program's standard input along, before anything else.
fn hand_over(control: &UnixStream, input: &OwnedFd) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut along = SendAncillaryBuffer::new(&mut space);
    let descriptors = [input.as_fd()];
    if !along.push(SendAncillaryMessage::ScmRights(&descriptors)) {
        return Err(io::Error::other("there is no room for a descriptor"));
    }
    sendmsg(
        control,
        &[IoSlice::new(b"i")],
        &mut along,
        SendFlags::NOSIGNAL,
    )?;
    Ok(())
}

/// Whether a user namespace is of use here, which is found out once.
fn has_use_of_users(agent: &File) -> bool {
    static FOUND: OnceLock<bool> = OnceLock::new();
    let probe = || {
        let mut probe = agent_command(agent, "probe");
        probe.env_clear().stdin(Stdio::null()).stdout(Stdio::null());
        probe.stderr(Stdio::null()).status()
    };
    *FOUND.get_or_init(|| {
        !rustix::process::geteuid().is_root() && probe().is_ok_and(|tried| tried.success())
    })
}

impl Supervised {
    /// The number of the program's own process.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.pid
    }

    /// What of the confinement this machine does not give.
    #[must_use]
    pub fn gaps(&self) -> Gaps {
        self.gaps
    }

    /// Ends everything: SIGTERM, so long to react, SIGKILL.
    pub fn end(&self, grace: Duration) {
        let grace_ms = u64::try_from(grace.as_millis()).unwrap_or(u64::MAX);
        // One that is gone has nothing left.
        let _ = (&*self.control).write_all(&Order::End { grace_ms }.encode());
    }
}

impl Drop for Supervised {
    fn drop(&mut self) {
        self.end(Duration::ZERO);
        // It is not spoken to any more, and may still say that nothing is left.
        let _ = self.control.shutdown(Shutdown::Write);
    }
}

impl Ends {
    /// Waits for what happens next; [`End::Gone`] is the last.
    pub fn wait(&mut self) -> End {
        loop {
            match self.next() {
                Ok(Some(Report::Ended { exit_code, signal })) => {
                    let code = exit_code.map(|code| (code & 0xff) << 8);
                    return End::Ended(code.or(signal).map(ExitStatus::from_raw));
                }
                Ok(Some(Report::Gone)) | Ok(None) | Err(_) => {
                    let _ = self.supervisor.wait();
                    return End::Gone;
                }
                Ok(Some(_)) => {}
            }
        }
    }

    /// The next report; nothing when the supervisor is gone.
    fn next(&mut self) -> io::Result<Option<Report>> {
        loop {
            if let Some(report) = self.reports.next().map_err(io::Error::other)? {
                return Ok(Some(report));
            }
            let mut bytes = [0; 256];
            match (&*self.control).read(&mut bytes) {
                Ok(0) => return Ok(None),
                Ok(length) => self.reports.push(bytes.get(..length).unwrap_or_default()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}
