//! What passes between a host and an agent, in frames.
//!
//! Output and data cost credit, of which a call begins with [`WINDOW`](crate::WINDOW) bytes in
//! each direction. The stream has no other order than that of each call's frames. Their form and
//! their numbers are in [`conjure_process_tree::frame`].

use conjure_process_tree::frame::{self, RawFrame, kind};

use crate::error::{AgentError, AgentErrorKind, Result};

/// A frame of the stream. Each carries the number of its call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AgentFrame {
    /// Begins a call.
    Call(Vec<u8>),
    /// A piece of a file.
    Data(Vec<u8>),
    /// The stream of pieces ended.
    End,
    /// The receiver takes so many more bytes.
    Credit(u32),
    /// The call is cancelled.
    Cancel,
    /// Somebody is there.
    Ping,
    /// The first frame from inside.
    Ready {
        /// The sender's [`VERSION`](crate::VERSION).
        version: u32,
        /// DirectoryLocation of the working directory, as [`DirectoryLocation::text`](crate::files::DirectoryLocation::text).
        location: String,
    },
    /// Standard output of a command.
    Stdout(Vec<u8>),
    /// Standard error of a command.
    Stderr(Vec<u8>),
    /// The call is over.
    Reply(Vec<u8>),
    /// The call is over without a reply.
    Fault(AgentError),
}

impl AgentFrame {
    /// The bytes of the frame.
    #[must_use]
    pub fn encode(&self, call: u32) -> Vec<u8> {
        let number = |number: u32| number.to_le_bytes();
        match self {
            Self::Call(bytes) => frame::encode(kind::CALL, call, &[bytes]),
            Self::Data(bytes) => frame::encode(kind::DATA, call, &[bytes]),
            Self::End => frame::encode(kind::END, call, &[]),
            Self::Credit(more) => frame::encode(kind::CREDIT, call, &[&number(*more)]),
            Self::Cancel => frame::encode(kind::CANCEL, call, &[]),
            Self::Ping => frame::encode(kind::PING, call, &[]),
            Self::Ready { version, location } => {
                let parts: [&[u8]; 2] = [&number(*version), location.as_bytes()];
                frame::encode(kind::READY, call, &parts)
            }
            Self::Stdout(bytes) => frame::encode(kind::STDOUT, call, &[bytes]),
            Self::Stderr(bytes) => frame::encode(kind::STDERR, call, &[bytes]),
            Self::Reply(bytes) => frame::encode(kind::REPLY, call, &[bytes]),
            Self::Fault(error) => {
                let (kind, message) = (error.kind().number(), error.message());
                frame::encode(kind::FAULT, call, &[&number(kind), message.as_bytes()])
            }
        }
    }

    fn decode(frame: RawFrame<'_>) -> Result<Self> {
        let bytes = frame.bytes;
        let number = || -> Result<u32> {
            let too_short = || AgentError::invalid("the stream holds a frame that is too short");
            let bytes = bytes.first_chunk().ok_or_else(too_short)?;
            Ok(u32::from_le_bytes(*bytes))
        };
        Ok(match frame.kind {
            kind::CALL => Self::Call(bytes.to_vec()),
            kind::DATA => Self::Data(bytes.to_vec()),
            kind::END => Self::End,
            kind::CREDIT => Self::Credit(number()?),
            kind::CANCEL => Self::Cancel,
            kind::PING => Self::Ping,
            kind::READY => Self::Ready {
                version: number()?,
                location: text_behind_number(bytes),
            },
            kind::STDOUT => Self::Stdout(bytes.to_vec()),
            kind::STDERR => Self::Stderr(bytes.to_vec()),
            kind::REPLY => Self::Reply(bytes.to_vec()),
            kind::FAULT => {
                let kind = AgentErrorKind::from_number(number()?);
                Self::Fault(AgentError::of(kind, text_behind_number(bytes)))
            }
            other => {
                return Err(AgentError::invalid(format!(
                    "the stream holds a frame of the unknown kind {other}"
                )));
            }
        })
    }
}

/// The text of a frame that begins with a number.
fn text_behind_number(bytes: &[u8]) -> String {
    let text = bytes.get(4..).unwrap_or_default();
    String::from_utf8_lossy(text).into_owned()
}

/// Cuts a stream into frames, however its bytes come in.
#[derive(Debug, Default)]
pub struct AgentFrames(frame::Frames);

impl AgentFrames {
    /// Takes bytes in.
    pub fn push(&mut self, bytes: &[u8]) {
        self.0.push(bytes);
    }

    /// The next frame with the number of its call, once all of it is there.
    ///
    /// # Errors
    /// When what came is no frame. The stream is of no use then.
    pub fn next_frame(&mut self) -> Result<Option<(u32, AgentFrame)>> {
        match self.0.next_frame()? {
            Some(frame) => Ok(Some((frame.call, AgentFrame::decode(frame)?))),
            None => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Vec<AgentFrame> {
        vec![
            AgentFrame::Call(b"c".to_vec()),
            AgentFrame::Data(vec![0; 70_000]),
            AgentFrame::End,
            AgentFrame::Credit(7),
            AgentFrame::Cancel,
            AgentFrame::Ping,
            AgentFrame::Ready {
                version: 1,
                location: "m 1:2".into(),
            },
            AgentFrame::Stdout(b"\xff".to_vec()),
            AgentFrame::Stderr(Vec::new()),
            AgentFrame::Reply(b"r".to_vec()),
            AgentFrame::Fault(AgentError::invalid("no")),
        ]
    }

    #[test]
    fn frames_survive_every_cut_of_the_stream() {
        let stream: Vec<u8> = all().iter().flat_map(|frame| frame.encode(9)).collect();
        for size in [1, 3, 4, 5, 9, 32_768, stream.len()] {
            let mut frames = AgentFrames::default();
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
            &[4, 0, 0, 0, 1, 0, 0, 0][..],
            &[5, 0, 0, 0, 99, 0, 0, 0, 0],
            &[5, 0, 0, 0, 4, 0, 0, 0, 0],
        ] {
            let mut frames = AgentFrames::default();
            frames.push(bytes);
            assert!(frames.next_frame().is_err(), "{bytes:?}");
        }
    }
}
