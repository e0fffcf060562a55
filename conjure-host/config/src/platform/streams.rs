//! Standard input and output, taken away from everybody else in the process.
//!
//! Native code that a host loads may read descriptor 0 and print to descriptor 1. A server that
//! speaks a protocol over them takes them first.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileTypeExt as _;

use tokio::io::{AsyncRead, AsyncWrite};

/// The two streams of the process; nobody else has them.
pub struct ProcessStreams {
    input: OwnedFd,
    output: OwnedFd,
}

/// What can be read from.
pub type InputStream = Box<dyn AsyncRead + Send + Unpin>;
/// What can be written to.
pub type OutputStream = Box<dyn AsyncWrite + Send + Unpin>;

/// Takes standard input and output away: from here on descriptor 0 is empty, and what is printed
/// to descriptor 1 goes to standard error.
///
/// # Errors
/// The system's.
pub fn take_streams() -> io::Result<ProcessStreams> {
    // Above the three that programs take for granted, and not for child processes.
    let input = rustix::io::fcntl_dupfd_cloexec(io::stdin(), 3)?;
    let output = rustix::io::fcntl_dupfd_cloexec(io::stdout(), 3)?;
    let empty = File::open("/dev/null")?;
    rustix::stdio::dup2_stdin(&empty)?;
    rustix::stdio::dup2_stdout(io::stderr())?;
    Ok(ProcessStreams { input, output })
}

impl ProcessStreams {
    /// The streams for use on a runtime. Pipes and sockets are driven without threads.
    ///
    /// # Errors
    /// The system's.
    pub fn open(self) -> io::Result<(InputStream, OutputStream)> {
        Ok((reader(self.input)?, writer(self.output)?))
    }

    /// The input as it is, for threads of their own, and the output for use on a runtime.
    ///
    /// # Errors
    /// The system's.
    pub fn open_with_raw_input(self) -> io::Result<(OwnedFd, OutputStream)> {
        Ok((self.input, writer(self.output)?))
    }
}

fn reader(fd: OwnedFd) -> io::Result<InputStream> {
    match kind(&fd)? {
        StreamKind::Pipe(Some(own)) => Ok(Box::new(
            tokio::net::unix::pipe::Receiver::from_owned_fd(own)?,
        )),
        StreamKind::Socket => Ok(Box::new(socket(fd)?)),
        StreamKind::Pipe(None) | StreamKind::Other => {
            Ok(Box::new(tokio::fs::File::from_std(fd.into())))
        }
    }
}

fn writer(fd: OwnedFd) -> io::Result<OutputStream> {
    match kind(&fd)? {
        StreamKind::Pipe(Some(own)) => Ok(Box::new(tokio::net::unix::pipe::Sender::from_owned_fd(
            own,
        )?)),
        StreamKind::Socket => Ok(Box::new(socket(fd)?)),
        StreamKind::Pipe(None) | StreamKind::Other => {
            Ok(Box::new(tokio::fs::File::from_std(fd.into())))
        }
    }
}

enum StreamKind {
    /// With a description of our own, so that nobody else's descriptor stops blocking.
    Pipe(Option<OwnedFd>),
    Socket,
    Other,
}

fn kind(fd: &OwnedFd) -> io::Result<StreamKind> {
    let file = File::from(fd.as_fd().try_clone_to_owned()?);
    let kind = file.metadata()?.file_type();
    if kind.is_fifo() {
        return Ok(StreamKind::Pipe(reopened(fd)));
    }
    Ok(if kind.is_socket() {
        StreamKind::Socket
    } else {
        StreamKind::Other
    })
}

/// Opens the same pipe once more; only Linux has a name for it.
#[cfg(target_os = "linux")]
fn reopened(fd: &OwnedFd) -> Option<OwnedFd> {
    use std::os::fd::AsRawFd as _;

    use rustix::fs::{Mode, OFlags};

    let access = rustix::fs::fcntl_getfl(fd).ok()? & OFlags::RWMODE;
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    let flags = access | OFlags::NONBLOCK | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty()).ok()
}

#[cfg(not(target_os = "linux"))]
fn reopened(_fd: &OwnedFd) -> Option<OwnedFd> {
    None
}

fn socket(fd: OwnedFd) -> io::Result<tokio::net::UnixStream> {
    let stream = std::os::unix::net::UnixStream::from(fd);
    stream.set_nonblocking(true)?;
    tokio::net::UnixStream::from_std(stream)
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    async fn carries(input: OwnedFd, output: OwnedFd) {
        let mut writer = writer(output).unwrap();
        let mut reader = reader(input).unwrap();
        writer.write_all(b"hello").await.unwrap();
        writer.flush().await.unwrap();
        let mut bytes = [0; 5];
        reader.read_exact(&mut bytes).await.unwrap();
        assert_eq!(&bytes, b"hello");
    }

    #[tokio::test]
    async fn pipes_sockets_and_files_carry_bytes() {
        let (read, write) = std::io::pipe().unwrap();
        carries(read.into(), write.into()).await;
        let (one, other) = std::os::unix::net::UnixStream::pair().unwrap();
        carries(one.into(), other.into()).await;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let write = File::create(&path).unwrap();
        carries(File::open(&path).unwrap().into(), write.into()).await;
    }
}
