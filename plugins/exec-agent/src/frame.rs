//! Frames on a stream of bytes: `len u32, kind u8, call u32, bytes`, little-endian; `len` counts
//! what follows it.
//!
//! | kind | from | carries |
//! |---|---|---|
//! | 1 call | outside | a [`Request`](crate::message::Request) |
//! | 2 data | either | bytes of a file |
//! | 3 end | either | nothing: no data follows |
//! | 4 credit | either | `u32`: so many more bytes of output or data are welcome |
//! | 5 cancel | outside | nothing |
//! | 6 ping | outside | nothing |
//! | 16 ready | inside | the version, `u32` |
//! | 17, 18 stdout, stderr | inside | output |
//! | 19 reply | inside | a [`Reply`](crate::message::Reply) |
//! | 20 fault | inside | the kind of failure `u32`, the message |
//!
//! Output and data cost credit, of which a call begins with [`WINDOW`](crate::WINDOW) bytes in
//! each direction. The stream has no other order than that of each call's frames.

use crate::error::{Error, Kind, Result};

/// The most that a frame carries.
pub const MAX: usize = 4 * 1024 * 1024;

const HEAD: usize = 5;

/// What passes on the stream, each with the number of its call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame {
    /// Begins a call.
    Call(Vec<u8>),
    /// A piece of a file.
    Data(Vec<u8>),
    /// No more pieces.
    End,
    /// So many more bytes are welcome.
    Credit(u32),
    /// The call is cancelled.
    Cancel,
    /// Somebody is there.
    Ping,
    /// The first frame from inside.
    Ready {
        /// Its [`VERSION`](crate::VERSION).
        version: u32,
    },
    /// Standard output of a command.
    Stdout(Vec<u8>),
    /// Standard error of a command.
    Stderr(Vec<u8>),
    /// The call is over.
    Reply(Vec<u8>),
    /// The call is over without a reply.
    Fault(Error),
}

impl Frame {
    /// The bytes of the frame.
    #[must_use]
    pub fn encode(&self, call: u32) -> Vec<u8> {
        let (kind, head, bytes): (u8, Vec<u8>, &[u8]) = match self {
            Self::Call(bytes) => (1, Vec::new(), bytes),
            Self::Data(bytes) => (2, Vec::new(), bytes),
            Self::End => (3, Vec::new(), &[]),
            Self::Credit(more) => (4, more.to_le_bytes().to_vec(), &[]),
            Self::Cancel => (5, Vec::new(), &[]),
            Self::Ping => (6, Vec::new(), &[]),
            Self::Ready { version } => (16, version.to_le_bytes().to_vec(), &[]),
            Self::Stdout(bytes) => (17, Vec::new(), bytes),
            Self::Stderr(bytes) => (18, Vec::new(), bytes),
            Self::Reply(bytes) => (19, Vec::new(), bytes),
            Self::Fault(error) => {
                let head = error.kind().number().to_le_bytes().to_vec();
                (20, head, error.message().as_bytes())
            }
        };
        let length = u32::try_from(HEAD + head.len() + bytes.len()).unwrap_or(u32::MAX);
        let mut frame = Vec::with_capacity(4 + length as usize);
        frame.extend_from_slice(&length.to_le_bytes());
        frame.push(kind);
        frame.extend_from_slice(&call.to_le_bytes());
        frame.extend_from_slice(&head);
        frame.extend_from_slice(bytes);
        frame
    }

    fn decode(kind: u8, bytes: &[u8]) -> Result<Self> {
        let number = || -> Result<u32> {
            let bytes = bytes.first_chunk().ok_or_else(malformed)?;
            Ok(u32::from_le_bytes(*bytes))
        };
        Ok(match kind {
            1 => Self::Call(bytes.to_vec()),
            2 => Self::Data(bytes.to_vec()),
            3 => Self::End,
            4 => Self::Credit(number()?),
            5 => Self::Cancel,
            6 => Self::Ping,
            16 => Self::Ready { version: number()? },
            17 => Self::Stdout(bytes.to_vec()),
            18 => Self::Stderr(bytes.to_vec()),
            19 => Self::Reply(bytes.to_vec()),
            20 => {
                let kind = Kind::from_number(number()?);
                let message = bytes.get(4..).unwrap_or_default();
                Self::Fault(Error::of(kind, String::from_utf8_lossy(message)))
            }
            other => {
                return Err(Error::invalid(format!(
                    "the stream holds a frame of the unknown kind {other}"
                )));
            }
        })
    }
}

fn malformed() -> Error {
    Error::invalid("the stream holds a frame that is too short")
}

/// Cuts a stream into frames, however its bytes come in.
#[derive(Debug, Default)]
pub struct Frames {
    waiting: Vec<u8>,
    /// How much of it was given out.
    done: usize,
}

impl Frames {
    /// Takes bytes in.
    pub fn push(&mut self, bytes: &[u8]) {
        self.waiting.drain(..self.done);
        self.done = 0;
        self.waiting.extend_from_slice(bytes);
    }

    /// The next frame with the number of its call, once all of it is there.
    ///
    /// # Errors
    /// When what came is no frame. The stream is of no use then.
    pub fn next_frame(&mut self) -> Result<Option<(u32, Frame)>> {
        let waiting = self.waiting.get(self.done..).unwrap_or_default();
        let Some((length, rest)) = waiting.split_first_chunk::<4>() else {
            return Ok(None);
        };
        let length = u32::from_le_bytes(*length) as usize;
        if !(HEAD..=HEAD + MAX).contains(&length) {
            return Err(Error::invalid(format!(
                "the stream holds a frame of {length} bytes"
            )));
        }
        let Some(frame) = rest.get(..length) else {
            return Ok(None);
        };
        self.done += 4 + length;
        let (kind, rest) = frame.split_first().ok_or_else(malformed)?;
        let (call, bytes) = rest.split_first_chunk::<4>().ok_or_else(malformed)?;
        Ok(Some((
            u32::from_le_bytes(*call),
            Frame::decode(*kind, bytes)?,
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Vec<Frame> {
        vec![
            Frame::Call(b"c".to_vec()),
            Frame::Data(vec![0; 70_000]),
            Frame::End,
            Frame::Credit(7),
            Frame::Cancel,
            Frame::Ping,
            Frame::Ready { version: 1 },
            Frame::Stdout(b"\xff".to_vec()),
            Frame::Stderr(Vec::new()),
            Frame::Reply(b"r".to_vec()),
            Frame::Fault(Error::invalid("no")),
        ]
    }

    #[test]
    fn frames_survive_every_cut_of_the_stream() {
        let stream: Vec<u8> = all().iter().flat_map(|frame| frame.encode(9)).collect();
        for size in [1, 3, 4, 5, 9, 32_768, stream.len()] {
            let mut frames = Frames::default();
            let mut seen = Vec::new();
            for piece in stream.chunks(size) {
                frames.push(piece);
                while let Some((call, frame)) = frames.next_frame().unwrap() {
                    assert_eq!(call, 9);
                    seen.push(frame);
                }
            }
            assert_eq!(seen, all(), "in pieces of {size}");
        }
    }

    #[test]
    fn what_is_no_frame_is_refused() {
        for bytes in [
            &[0xff, 0xff, 0xff, 0xff, 1][..],
            &[4, 0, 0, 0, 1, 0, 0, 0],
            &[5, 0, 0, 0, 99, 0, 0, 0, 0],
            &[5, 0, 0, 0, 4, 0, 0, 0, 0],
        ] {
            let mut frames = Frames::default();
            frames.push(bytes);
            assert!(frames.next_frame().is_err(), "{bytes:?}");
        }
    }
}
