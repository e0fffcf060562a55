//! Keeps a container alive whose first process cannot be spoken to, for as long as somebody works
//! in it.
//!
//! The first process waits at a named pipe. Whoever serves opens it and keeps it open; when that
//! one is gone, so is the first process, and the container with it.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, Mode, OFlags, mkfifoat};

/// Waits until somebody came to the pipe and went again, at most `first` until somebody comes.
///
/// # Errors
/// When there can be no pipe at this path.
pub fn hold(pipe: &Path, first: Duration) -> io::Result<()> {
    mkfifoat(CWD, pipe, Mode::from_raw_mode(0o600))?;
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let mut held = OpenOptions::new()
        .read(true)
        .custom_flags(flags)
        .open(pipe)?;
    let first = Timespec::try_from(first).ok();
    let mut fds = [PollFd::from_borrowed_fd(held.as_fd(), PollFlags::IN)];
    if poll(&mut fds, first.as_ref())? == 0 {
        return Ok(());
    }
    rustix::io::ioctl_fionbio(&held, false)?;
    io::copy(&mut Read::by_ref(&mut held), &mut io::sink()).map(drop)
}

/// How often somebody who is early looks again, and after how long.
const MAX_EARLY_TRIES: u32 = 250;
const RETRY_DELAY: Duration = Duration::from_millis(20);

/// Comes to the pipe, which may not be there yet; who waits there goes on waiting for as long as the result lives.
///
/// # Errors
/// When nobody waits there.
pub fn release_on_drop(pipe: &Path) -> io::Result<File> {
    let mut tries = 0;
    let mut held = loop {
        match OpenOptions::new().write(true).open(pipe) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && tries < MAX_EARLY_TRIES => {
                tries += 1;
                std::thread::sleep(RETRY_DELAY);
            }
            opened => break opened?,
        }
    };
    held.write_all(b".")?;
    Ok(held)
}
