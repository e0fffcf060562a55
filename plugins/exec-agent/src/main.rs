//! The agent as a program, on its standard input and output or on a socket. It takes no other
//! arguments than the places that it works in, and prints nothing but frames. The other verbs are
//! what it starts itself.

use std::ffi::OsString;
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use conjure_exec_agent::relay::{RELAY_VERSION, attach, open, relay};
use conjure_exec_agent::serve::{AgentSettings, serve};
use conjure_process_tree::{keep_private, supervise, users_probe};

/// How long the first process waits for somebody to serve.
#[cfg(target_os = "linux")]
const FIRST_CLIENT_TIMEOUT: Duration = Duration::from_secs(60);
/// How many calls run at once in the agent of a single session, such as a container's.
const MAX_SESSION_CALLS: usize = 32;
/// How many calls run at once in the agent of a machine, for all sessions of a host.
const MAX_LOCAL_CALLS: usize = 4096;
/// How long commands have to end when the host is gone.
const TERM_GRACE: Duration = Duration::from_millis(500);

fn run(mut arguments: impl Iterator<Item = OsString>) -> io::Result<ExitCode> {
    let verb = arguments.next().ok_or_else(usage)?;
    let mut socket = None;
    let _held: Option<std::fs::File> = match verb.to_str() {
        Some("supervise") => return supervise(),
        Some("supervise-later") => {
            // Commands run while it waits.
            keep_private()?;
            return supervise();
        }
        Some("probe") => return Ok(users_probe()),
        #[cfg(target_os = "linux")]
        Some("hold") => {
            let pipe = arguments.next().ok_or_else(usage)?;
            conjure_exec_agent::serve::hold(pipe.as_ref(), FIRST_CLIENT_TIMEOUT)?;
            return Ok(ExitCode::SUCCESS);
        }
        Some(verb @ ("serve-confined" | "serve-unconfined")) => {
            return serve_machine(arguments, verb == "serve-confined");
        }
        Some("serve-relayed") => return serve_relayed(arguments),
        Some("open") => {
            let dir = PathBuf::from(arguments.next().ok_or_else(usage)?);
            let seconds = arguments.next().ok_or_else(usage)?;
            return open(&dir, seconds.to_str().ok_or_else(usage)?);
        }
        Some("attach") => return attach(&PathBuf::from(arguments.next().ok_or_else(usage)?)),
        Some("relay") => {
            let dir = PathBuf::from(arguments.next().ok_or_else(usage)?);
            let seconds = arguments.next().ok_or_else(usage)?;
            let seconds = seconds.to_str().and_then(|seconds| seconds.parse().ok());
            relay(&dir, Duration::from_secs(seconds.ok_or_else(usage)?))?;
            return Ok(ExitCode::SUCCESS);
        }
        Some("version") => {
            let version = conjure_exec_agent::VERSION;
            writeln!(io::stdout(), "{version} {RELAY_VERSION}")?;
            return Ok(ExitCode::SUCCESS);
        }
        Some("serve") => None,
        Some("serve-at") => {
            let path = arguments.next().ok_or_else(usage)?;
            // Where nobody is reached there, it is standard input and output.
            socket = UnixStream::connect(path).ok();
            None
        }
        #[cfg(target_os = "linux")]
        Some("serve-held") => {
            let pipe = arguments.next().ok_or_else(usage)?;
            Some(conjure_exec_agent::serve::release_on_drop(pipe.as_ref())?)
        }
        _ => return Err(usage()),
    };
    let settings = container_settings(arguments)?;
    // Where every command begins: the agent is there already.
    std::env::set_current_dir(&settings.working_dir)?;
    if let Some(socket) = socket {
        serve(settings, socket.try_clone()?.into(), socket.into())?;
        return Ok(ExitCode::SUCCESS);
    }
    on_standard_streams(settings)
}

/// Serves all sessions of a host on this machine.
fn serve_machine(
    hidden: impl Iterator<Item = OsString>,
    is_confined: bool,
) -> io::Result<ExitCode> {
    // No signal to the host's group or terminal reaches it: the end of the stream does.
    rustix::process::setsid()?;
    std::env::set_current_dir("/")?;
    let hidden = hidden.map(|path| path.to_string_lossy().into_owned());
    let hidden: Vec<String> = hidden.collect();
    on_standard_streams(AgentSettings {
        quiet: None,
        calls: MAX_LOCAL_CALLS,
        grace: TERM_GRACE,
        working_dir: PathBuf::from("/"),
        skills: Vec::new(),
        confined: is_confined.then_some(hidden),
        takes_sandboxes: true,
        has_one_session: false,
    })
}

/// Serves one session behind a relay.
fn serve_relayed(mut arguments: impl Iterator<Item = OsString>) -> io::Result<ExitCode> {
    let working_dir = PathBuf::from(arguments.next().ok_or_else(usage)?);
    std::env::set_current_dir(&working_dir)?;
    on_standard_streams(AgentSettings {
        quiet: None,
        calls: MAX_SESSION_CALLS,
        grace: TERM_GRACE,
        working_dir,
        skills: arguments.map(PathBuf::from).collect(),
        confined: None,
        takes_sandboxes: false,
        has_one_session: true,
    })
}

/// The settings of an agent that is alone in a container with its session.
fn container_settings(mut arguments: impl Iterator<Item = OsString>) -> io::Result<AgentSettings> {
    let quiet = arguments.next().ok_or_else(usage)?;
    let quiet = quiet.to_str().and_then(|quiet| quiet.parse().ok());
    Ok(AgentSettings {
        quiet: Some(Duration::from_secs(quiet.ok_or_else(usage)?)),
        calls: MAX_SESSION_CALLS,
        grace: Duration::ZERO,
        working_dir: PathBuf::from(arguments.next().ok_or_else(usage)?),
        skills: arguments.map(PathBuf::from).collect(),
        confined: None,
        takes_sandboxes: false,
        has_one_session: true,
    })
}

fn on_standard_streams(settings: AgentSettings) -> io::Result<ExitCode> {
    // Copies, so that a command can never inherit the stream itself.
    let input = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?;
    let output = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdout(), 3)?;
    serve(settings, input, output)?;
    Ok(ExitCode::SUCCESS)
}

fn usage() -> io::Error {
    io::Error::new(
        ErrorKind::InvalidInput,
        "usage: serve QUIET_SECONDS WORKING_DIR [SKILLS_DIR…] | serve-at SOCKET QUIET_SECONDS \
         WORKING_DIR [SKILLS_DIR…] | serve-held PIPE QUIET_SECONDS WORKING_DIR [SKILLS_DIR…] | \
         serve-confined [HIDDEN…] | serve-unconfined | hold PIPE | open DIR SECONDS | attach DIR | \
         relay DIR SECONDS | serve-relayed WORKING_DIR [SKILLS_DIR…] | version",
    )
}

fn main() -> ExitCode {
    match run(std::env::args_os().skip(1)) {
        Ok(code) => code,
        Err(error) => {
            let _ = io::Write::write_all(
                &mut io::stderr(),
                format!("conjure-exec-agent: {error}\n").as_bytes(),
            );
            ExitCode::FAILURE
        }
    }
}
