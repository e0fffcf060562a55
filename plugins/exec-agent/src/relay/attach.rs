//! Carries one connection to a relay, which is given standard input and output.

use std::fs::{self, DirBuilder};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use conjure_process_tree::{keep_private, own_program, send_descriptors};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use super::refusal::is_no_room;
use super::session_dir::{SOCKET, is_in_use};
use super::{SKILLS, WORK};

/// The exit code of [`attach`] where no relay is.
pub const EXIT_NO_RELAY: u8 = 90;
/// The exit code of [`open`] where the directory cannot be made, or is somebody else's.
pub const EXIT_NO_SESSION_DIR: u8 = 95;
/// The exit code of [`open`] where there is no room for the directory.
pub const EXIT_NO_SPACE: u8 = 96;

/// How long a relay may take to listen, or to listen again where a command removed its socket.
const LISTEN_TIMEOUT: Duration = Duration::from_secs(5);
/// Delay between two tries.
const RETRY_DELAY: Duration = Duration::from_millis(20);

/// Goes to the relay of a directory, which is started where there is none. It waits for `seconds`
/// for somebody to come back, each time that nobody is there. Where the directory is not to be had,
/// that is the exit code [`EXIT_NO_SESSION_DIR`] or [`EXIT_NO_SPACE`], and standard error says why.
///
/// # Errors
/// When the relay does not start, or bytes cannot be copied.
pub fn open(dir: &Path, seconds: &str) -> io::Result<ExitCode> {
    // Commands of the same user reach neither what comes in here nor what goes out.
    keep_private()?;
    if let Err(error) = make(dir) {
        let _ = writeln!(io::stderr(), "conjure-exec-agent: {error}");
        return Ok(ExitCode::from(creation_exit_code(&error)));
    }
    std::env::set_current_dir(dir)?;
    match connect_relay(Some((dir, seconds)))? {
        Some(socket) => carry(&socket),
        None => Err(ErrorKind::NotFound.into()),
    }
}

/// Connects to the relay of the working directory, which is started where there is none and
/// somebody says how. Nothing where none is.
fn connect_relay(starts: Option<(&Path, &str)>) -> io::Result<Option<UnixStream>> {
    let deadline = Instant::now() + LISTEN_TIMEOUT;
    loop {
        let error = match UnixStream::connect(SOCKET) {
            Ok(socket) => return Ok(Some(socket)),
            // Such as a machine with no memory: whoever comes again may find it.
            Err(error) if !is_no_listener(&error) => return Err(error),
            Err(error) => error,
        };
        // One that has the directory is about to listen there, or to find that its socket is gone.
        let taken = is_in_use(Path::new("."))?;
        if Instant::now() > deadline {
            return Err(error);
        }
        match starts {
            None if !taken => return Ok(None),
            Some((dir, seconds)) if !taken => start(dir, seconds)?,
            _ => thread::sleep(RETRY_DELAY),
        }
    }
}

/// Whether a socket is not there, or nobody listens there any more.
fn is_no_listener(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::NotFound | ErrorKind::ConnectionRefused
    )
}

/// Goes to the relay of a directory.
///
/// # Errors
/// When bytes cannot be copied. Where no relay is, that is the exit code [`EXIT_NO_RELAY`].
pub fn attach(dir: &Path) -> io::Result<ExitCode> {
    keep_private()?;
    match std::env::set_current_dir(dir) {
        Err(error) if is_no_listener(&error) => return Ok(ExitCode::from(EXIT_NO_RELAY)),
        changed => changed?,
    }
    match connect_relay(None)? {
        Some(socket) => carry(&socket),
        None => Ok(ExitCode::from(EXIT_NO_RELAY)),
    }
}

/// The exit code of a directory that was not made.
fn creation_exit_code(error: &io::Error) -> u8 {
    match is_no_room(error) {
        true => EXIT_NO_SPACE,
        false => EXIT_NO_SESSION_DIR,
    }
}

/// Makes the directory of a relay, in which nobody else can do anything.
fn make(dir: &Path) -> io::Result<()> {
    let named = |error: io::Error| {
        let why = format!("{} cannot be made: {error}", dir.display());
        io::Error::new(error.kind(), why)
    };
    match DirBuilder::new().mode(0o700).create(dir) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            let found = fs::symlink_metadata(dir).map_err(named)?;
            let own = rustix::process::geteuid().as_raw();
            if !found.is_dir() || found.uid() != own || found.mode() & 0o077 != 0 {
                let why = format!("{} is somebody else's", dir.display());
                return Err(io::Error::new(ErrorKind::PermissionDenied, why));
            }
        }
        made => made.map_err(named)?,
    }
    for inside in [WORK, SKILLS] {
        match fs::create_dir(dir.join(inside)) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(named(error)),
            _ => {}
        }
    }
    Ok(())
}

/// Starts a relay and waits until it listens, or says that another one has the directory.
fn start(dir: &Path, seconds: &str) -> io::Result<()> {
    let mut relay = own_program("relay")?
        .arg(dir)
        .arg(seconds)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let mut said = String::new();
    if let Some(mut says) = relay.stdout.take() {
        says.read_to_string(&mut said)?;
    }
    match said.trim() {
        "ready" | "taken" => Ok(()),
        "" => Err(io::Error::other("the relay of the agent ended at once")),
        why => Err(io::Error::other(format!("the relay of the agent: {why}"))),
    }
}

/// Gives the relay the standard streams, which it reads and writes itself, and waits for its end of
/// the connection, or that of whoever came.
fn carry(socket: &UnixStream) -> io::Result<ExitCode> {
    let (input, output) = (rustix::stdio::stdin(), rustix::stdio::stdout());
    match send_descriptors(socket, &[input, output]) {
        // A relay that is about to end.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(ExitCode::SUCCESS),
        sent => sent?,
    }
    let mut fds = [
        // What is to be read there is the relay's; an end is an end.
        PollFd::from_borrowed_fd(input, PollFlags::empty()),
        PollFd::new(socket, PollFlags::IN),
    ];
    loop {
        match poll(&mut fds, None) {
            Err(Errno::INTR) => {}
            waited => return waited.map(|_| ExitCode::SUCCESS).map_err(io::Error::from),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_is_not_to_be_had_ends_with_a_code_that_says_so() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        fs::write(&file, "").unwrap();
        for taken in [file.join("session"), file] {
            let error = make(&taken).unwrap_err();
            assert_eq!(creation_exit_code(&error), EXIT_NO_SESSION_DIR, "{error}");
            assert!(error.to_string().contains("file"), "{error}");
        }
        let full = io::Error::from(ErrorKind::StorageFull);
        assert_eq!(creation_exit_code(&full), EXIT_NO_SPACE);
    }
}
