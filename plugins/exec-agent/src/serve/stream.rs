//! What comes in from outside: frame after frame, read by one thread at a time.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::sync::mpsc::Sender;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::frame::{AgentFrame, AgentFrames};

/// The agent's incoming stream.
pub(super) struct FrameInput {
    input: File,
    frames: AgentFrames,
    buffer: Vec<u8>,
    /// Told how it ended, by whoever saw that.
    end: Sender<io::Result<()>>,
}

impl FrameInput {
    pub(super) fn new(input: File, over: Sender<io::Result<()>>) -> Self {
        Self {
            input,
            frames: AgentFrames::default(),
            buffer: vec![0; 64 * 1024],
            end: over,
        }
    }

    /// The next frame; nothing at the end, or when none came for so long.
    pub(super) fn next(
        &mut self,
        quiet: Option<Duration>,
    ) -> io::Result<Option<(u32, AgentFrame)>> {
        loop {
            if let Some(frame) = self.frames.next_frame().map_err(io::Error::other)? {
                return Ok(Some(frame));
            }
            if !self.wait_readable(quiet)? {
                return Ok(None);
            }
            match self.input.read(&mut self.buffer) {
                Ok(0) => return Ok(None),
                Ok(length) => self
                    .frames
                    .push(self.buffer.get(..length).unwrap_or_default()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Records the end of the stream.
    pub(super) fn end(self, ended: io::Result<()>) {
        // Nobody waits for it but who ends the agent.
        let _ = self.end.send(ended);
    }

    /// Waits for bytes; false when none came for too long.
    fn wait_readable(&self, quiet: Option<Duration>) -> io::Result<bool> {
        let quiet = quiet.and_then(|quiet| Timespec::try_from(quiet).ok());
        loop {
            let mut fds = [PollFd::from_borrowed_fd(self.input.as_fd(), PollFlags::IN)];
            match poll(&mut fds, quiet.as_ref()) {
                Ok(count) => return Ok(count > 0),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}
