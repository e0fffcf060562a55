//! The agent as a program, on its standard input and output or on a socket. It takes no other
//! arguments than the places that it works in, and prints nothing but frames.

use std::ffi::OsString;
use std::io::{self, ErrorKind};
use std::process::ExitCode;

#[cfg(target_os = "linux")]
fn run(mut arguments: impl Iterator<Item = OsString>) -> io::Result<()> {
    use std::os::unix::net::UnixStream;
    use std::path::PathBuf;
    use std::time::Duration;

    use conjure_exec_agent::serve::{Place, hold, let_go_at_end, serve};

    /// How long the first process waits for somebody to serve.
    const FIRST: Duration = Duration::from_secs(60);

    let verb = arguments.next().ok_or_else(usage)?;
    if verb == "hold" {
        let pipe = arguments.next().ok_or_else(usage)?;
        return hold(pipe.as_ref(), FIRST);
    }
    let mut socket = None;
    let _held = match verb.to_str() {
        Some("serve") => None,
        Some("serve-at") => {
            let path = arguments.next().ok_or_else(usage)?;
            // Where nobody is reached there, it is standard input and output.
            socket = UnixStream::connect(path).ok();
            None
        }
        Some("serve-held") => {
            let pipe = arguments.next().ok_or_else(usage)?;
            Some(let_go_at_end(pipe.as_ref())?)
        }
        _ => return Err(usage()),
    };
    let quiet = arguments.next().ok_or_else(usage)?;
    let quiet = quiet.to_str().and_then(|quiet| quiet.parse().ok());
    let place = Place {
        quiet: Duration::from_secs(quiet.ok_or_else(usage)?),
        working_dir: PathBuf::from(arguments.next().ok_or_else(usage)?),
        skills: arguments.map(PathBuf::from).collect(),
    };
    // Where every command begins: the agent is there already.
    std::env::set_current_dir(&place.working_dir)?;
    if let Some(socket) = socket {
        return serve(place, socket.try_clone()?.into(), socket.into());
    }
    // Copies, so that a command can never inherit the stream itself.
    let input = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?;
    let output = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdout(), 3)?;
    serve(place, input, output)
}

#[cfg(not(target_os = "linux"))]
fn run(_arguments: impl Iterator<Item = OsString>) -> io::Result<()> {
    Err(io::Error::new(
        ErrorKind::Unsupported,
        "the agent runs on Linux only",
    ))
}

fn usage() -> io::Error {
    io::Error::new(
        ErrorKind::InvalidInput,
        "usage: serve QUIET_SECONDS WORKING_DIR [SKILLS_DIR…] | serve-at SOCKET QUIET_SECONDS \
         WORKING_DIR [SKILLS_DIR…] | serve-held PIPE QUIET_SECONDS WORKING_DIR [SKILLS_DIR…] | \
         hold PIPE",
    )
}

fn main() -> ExitCode {
    match run(std::env::args_os().skip(1)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = io::Write::write_all(
                &mut io::stderr(),
                format!("conjure-exec-agent: {error}\n").as_bytes(),
            );
            ExitCode::FAILURE
        }
    }
}
