//! One connection to a relay, as the relay sees it.

use std::io::{self, ErrorKind};
use std::net::Shutdown;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use conjure_process_tree::frame::Frames;
use conjure_process_tree::receive_descriptors;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;

use super::RELAY_PIECE;
use super::frame::RelayFrame;

/// No time: a look at what is there.
const NOW: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 0,
};

/// The two directions of a connection: its socket, or the standard input and output of the process
/// that came, which then need not pass through that process. No call waits but those that say so.
#[derive(Debug)]
pub(super) struct ConnectionStream {
    socket: UnixStream,
    streams: Option<SentStreams>,
}

/// The standard streams of [`attach`](super::attach), which sent them. Its end is seen by that of its
/// socket.
#[derive(Debug)]
struct SentStreams {
    input: OwnedFd,
    output: OwnedFd,
}

impl ConnectionStream {
    /// Waits for the first word, which comes with the streams or is a frame's beginning.
    ///
    /// # Errors
    /// When nothing comes in time.
    pub(super) fn accept(socket: UnixStream, limit: Duration) -> io::Result<(Self, Vec<u8>)> {
        socket.set_nonblocking(true)?;
        let mut stream = Self {
            socket,
            streams: None,
        };
        let mut first = vec![0; RELAY_PIECE];
        loop {
            stream.wait(PollFlags::IN, Some(limit))?;
            match receive_descriptors(&stream.socket, &mut first) {
                Ok((length, sent)) if sent.is_empty() => {
                    first.truncate(length);
                    return Ok((stream, first));
                }
                Ok((_, sent)) => {
                    let [input, output]: [OwnedFd; 2] = sent
                        .try_into()
                        .map_err(|_| io::Error::other("other streams came than are used"))?;
                    // Whoever writes there must never wait for a network that is gone.
                    let flags = fcntl_getfl(&output)?;
                    fcntl_setfl(&output, flags | OFlags::NONBLOCK)?;
                    stream.streams = Some(SentStreams { input, output });
                    return Ok((stream, Vec::new()));
                }
                Err(error) if is_passing(&error) => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn input(&self) -> BorrowedFd<'_> {
        match &self.streams {
            Some(sent) => sent.input.as_fd(),
            None => self.socket.as_fd(),
        }
    }

    fn output(&self) -> BorrowedFd<'_> {
        match &self.streams {
            Some(sent) => sent.output.as_fd(),
            None => self.socket.as_fd(),
        }
    }

    /// Waits for bytes, without a limit for ever; none at the end.
    ///
    /// # Errors
    /// When nothing comes in time, or it cannot be read.
    fn read(&self, buffer: &mut [u8], limit: Option<Duration>) -> io::Result<usize> {
        loop {
            if !self.wait(PollFlags::IN, limit)? {
                return Ok(0);
            }
            match rustix::io::read(self.input(), &mut *buffer) {
                Ok(length) => return Ok(length),
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Writes as much as is taken at once.
    ///
    /// # Errors
    /// When it is over.
    pub(super) fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        let mut written = 0;
        while let Some(rest) = bytes.get(written..).filter(|rest| !rest.is_empty()) {
            match rustix::io::write(self.output(), rest) {
                Ok(length) => written += length,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(written)
    }

    /// Waits until more is taken.
    ///
    /// # Errors
    /// When it is over.
    pub(super) fn wait_for_room(&self) -> io::Result<()> {
        match self.wait(PollFlags::OUT, None)? {
            true => Ok(()),
            false => Err(ErrorKind::BrokenPipe.into()),
        }
    }

    /// Writes everything, and waits where nothing is taken.
    ///
    /// # Errors
    /// When it is over.
    pub(super) fn write_all(&self, mut bytes: &[u8]) -> io::Result<()> {
        loop {
            let written = self.write(bytes)?;
            bytes = bytes.get(written..).unwrap_or_default();
            if bytes.is_empty() {
                return Ok(());
            }
            self.wait_for_room()?;
        }
    }

    /// Ends it, for whoever reads from it or writes to it too.
    pub(super) fn end(&self) {
        let _ = self.socket.shutdown(Shutdown::Both);
    }

    /// Waits for one of the directions; false when the process that came is gone, or the connection
    /// was ended.
    fn wait(&self, what: PollFlags, limit: Option<Duration>) -> io::Result<bool> {
        let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
        let awaited = match what {
            PollFlags::OUT => self.output(),
            _ => self.input(),
        };
        // On a socket that carries the frames this is seen by what is awaited, or by hanging up.
        let socket = match self.streams {
            Some(_) => PollFlags::IN,
            None => PollFlags::empty(),
        };
        let mut fds = [
            PollFd::from_borrowed_fd(awaited, what),
            PollFd::from_borrowed_fd(self.socket.as_fd(), socket),
        ];
        let mut limit = limit.as_ref();
        loop {
            let ready = match poll(&mut fds, limit) {
                Err(Errno::INTR) => continue,
                ready => ready?,
            };
            let [awaited, _] = &fds;
            if !awaited.revents().is_empty() {
                return Ok(true);
            }
            if limit == Some(&NOW) {
                return Ok(false);
            }
            if ready == 0 {
                return Err(ErrorKind::TimedOut.into());
            }
            // It is over; what came right before that is still to be read.
            limit = Some(&NOW);
        }
    }
}

fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock)
}

/// The connection that has the stream.
#[derive(Debug)]
pub(super) struct StreamConnection {
    /// Later ones have higher numbers.
    pub(super) number: u64,
    pub(super) stream: Arc<ConnectionStream>,
    /// Bytes that the connection has not taken yet.
    pub(super) unsent: Vec<u8>,
    /// Whether it was told how the agent ended.
    pub(super) end_sent: bool,
}

impl StreamConnection {
    pub(super) fn new(number: u64, stream: &Arc<ConnectionStream>) -> Self {
        Self {
            number,
            stream: Arc::clone(stream),
            unsent: Vec::new(),
            end_sent: false,
        }
    }

    /// Writes what waits to be written, as far as it is taken at once. False when some of it still
    /// waits.
    ///
    /// # Errors
    /// When the connection is over.
    pub(super) fn send(&mut self) -> io::Result<bool> {
        let written = self.stream.write(&self.unsent)?;
        drop(self.unsent.drain(..written));
        Ok(self.unsent.is_empty())
    }

    /// Ends it, for whoever reads from it or writes to it too.
    pub(super) fn end(&self) {
        self.stream.end();
    }
}

/// Frames out of a connection.
pub(super) struct ConnectionReader {
    stream: Arc<ConnectionStream>,
    frames: Frames,
    buffer: Vec<u8>,
    /// Time limit for the next bytes.
    pub(super) limit: Option<Duration>,
}

impl ConnectionReader {
    /// A reader of what came first, and of what follows.
    pub(super) fn new(stream: &Arc<ConnectionStream>, first: &[u8]) -> Self {
        let mut frames = Frames::default();
        frames.push(first);
        Self {
            stream: Arc::clone(stream),
            frames,
            buffer: vec![0; RELAY_PIECE],
            limit: None,
        }
    }

    /// The next frame; nothing at the end.
    ///
    /// # Errors
    /// When it cannot be read, or is none.
    pub(super) fn next(&mut self) -> io::Result<Option<RelayFrame>> {
        loop {
            if let Some(frame) = self.frames.next_frame().map_err(io::Error::other)? {
                return RelayFrame::decode(frame)
                    .map(Some)
                    .map_err(io::Error::other);
            }
            match self.stream.read(&mut self.buffer, self.limit)? {
                0 => return Ok(None),
                length => self
                    .frames
                    .push(self.buffer.get(..length).unwrap_or_default()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{Read as _, Write as _, pipe};
    use std::thread;

    use conjure_process_tree::send_descriptors;

    use super::*;

    /// How long anything may take.
    const LIMIT: Duration = Duration::from_secs(20);

    /// A connection whose streams are sent: with the socket of who came, what writes its input and
    /// what reads its output.
    fn sent() -> (ConnectionStream, UnixStream, File, File) {
        let (socket, other) = UnixStream::pair().unwrap();
        let ((input, writes), (reads, output)) = (pipe().unwrap(), pipe().unwrap());
        send_descriptors(&other, &[input.as_fd(), output.as_fd()]).unwrap();
        let (stream, first) = ConnectionStream::accept(socket, LIMIT).unwrap();
        assert_eq!(first, b"");
        let ends = [OwnedFd::from(writes), OwnedFd::from(reads)].map(File::from);
        let [writes, reads] = ends;
        (stream, other, writes, reads)
    }

    #[test]
    fn streams_that_are_sent_carry_the_frames_and_what_is_not_taken_waits() {
        let (stream, _other, mut writes, mut reads) = sent();
        writes.write_all(&RelayFrame::Question(7).encode()).unwrap();
        let stream = Arc::new(stream);
        let mut frames = ConnectionReader::new(&stream, &[]);
        assert_eq!(frames.next().unwrap(), Some(RelayFrame::Question(7)));
        let mut connection = StreamConnection::new(1, &stream);
        let bytes: Vec<u8> = (0..1_000_000_u32).map(|n| (n * 7 % 251) as u8).collect();
        connection.unsent.clone_from(&bytes);
        assert!(!connection.send().unwrap(), "a pipe takes all of it");
        let reading = thread::spawn(move || {
            let mut read = Vec::new();
            reads.read_to_end(&mut read).unwrap();
            read
        });
        while !connection.send().unwrap() {
            stream.wait_for_room().unwrap();
        }
        drop((connection, frames, stream));
        assert!(reading.join().unwrap() == bytes);
    }

    #[test]
    fn the_end_of_who_came_or_of_the_connection_wakes_who_waits_and_loses_nothing() {
        for is_gone in [true, false] {
            let (stream, other, mut writes, _reads) = sent();
            while stream.write(&[0; RELAY_PIECE]).unwrap() > 0 {}
            let stream = Arc::new(stream);
            let full = Arc::clone(&stream);
            let waiting = thread::spawn(move || full.wait_for_room());
            writes.write_all(b"last").unwrap();
            // The connection's input is open still.
            match is_gone {
                true => drop(other),
                false => stream.end(),
            }
            let error = waiting.join().unwrap().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::BrokenPipe);
            let mut buffer = [0; 16];
            assert_eq!(stream.read(&mut buffer, None).unwrap(), 4);
            assert_eq!(stream.read(&mut buffer, None).unwrap(), 0);
        }
    }

    #[test]
    fn one_stream_alone_is_no_connection() {
        let (socket, other) = UnixStream::pair().unwrap();
        let (reads, _writes) = pipe().unwrap();
        send_descriptors(&other, &[reads.as_fd()]).unwrap();
        assert!(ConnectionStream::accept(socket, LIMIT).is_err());
    }
}
