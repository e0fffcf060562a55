//! One connection to a relay, as the relay sees it.

use std::fs::File;
use std::io::{self, Read as _};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use conjure_process_tree::frame::Frames;

use super::RELAY_PIECE;
use super::frame::RelayFrame;

/// The connection that has the stream.
#[derive(Debug)]
pub(super) struct StreamConnection {
    /// Later ones have higher numbers.
    pub(super) number: u64,
    socket: UnixStream,
}

impl StreamConnection {
    /// # Errors
    /// When the system has no more file descriptors.
    pub(super) fn new(number: u64, socket: &UnixStream) -> io::Result<Self> {
        let socket = socket.try_clone()?;
        Ok(Self { number, socket })
    }

    /// Ends it, for whoever reads from it or writes to it too.
    pub(super) fn end(&self) {
        let _ = self.socket.shutdown(Shutdown::Both);
    }
}

/// Frames out of a connection.
pub(super) struct ConnectionReader {
    socket: File,
    frames: Frames,
    buffer: Vec<u8>,
}

impl ConnectionReader {
    /// # Errors
    /// When the system has no more file descriptors.
    pub(super) fn new(socket: &UnixStream) -> io::Result<Self> {
        Ok(Self {
            socket: File::from(OwnedFd::from(socket.try_clone()?)),
            frames: Frames::default(),
            buffer: vec![0; RELAY_PIECE],
        })
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
            match self.socket.read(&mut self.buffer) {
                Ok(0) => return Ok(None),
                Ok(length) => self
                    .frames
                    .push(self.buffer.get(..length).unwrap_or_default()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}
