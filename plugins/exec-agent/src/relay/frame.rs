//! What an executor and a relay say to each other, in frames.

use conjure_process_tree::field::{Malformed, PayloadReader, PayloadWriter};
use conjure_process_tree::frame::{self, RawFrame, kind};

use super::refusal::{RefusalReason, RelayRefusal};

/// A frame between an executor and a relay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RelayFrame {
    /// From an executor, first: who comes.
    Hello {
        /// The executor's [`RELAY_VERSION`](super::RELAY_VERSION).
        version: u32,
        /// Secret of the first client.
        token: String,
        /// The number of the stream that he wants.
        stream: u64,
        /// Number of bytes that the client received.
        received: u64,
    },
    /// From an executor: a folder of the skills, by its path below them.
    Folder(String),
    /// From an executor: a file of the skills, empty so far.
    File {
        /// Path below the directory of skills.
        path: String,
        /// Whether the file is executable.
        executable: bool,
    },
    /// From an executor: more of the file before.
    Content(Vec<u8>),
    /// From an executor: a link in the skills.
    Link {
        /// Path below the directory of skills.
        path: String,
        /// Target of the link.
        target: String,
    },
    /// From an executor: the stream begins, with an agent that works there; without a directory, in
    /// the relay's own.
    Begin(Option<String>),
    /// From either side: bytes of the stream.
    Stream(Vec<u8>),
    /// From either side: so many bytes of the stream have come.
    Received(u64),
    /// From an executor: whether the connection carries anything, with a number.
    Question(u64),
    /// From an executor: the agent ends, and so does all that is here.
    Close,
    /// From a relay: the answer to a question, behind all that the agent had said when it came.
    Answer(u64),
    /// From a relay: the stream goes on here, of which it has so many bytes.
    Welcome(u64),
    /// From a relay: there is no such stream; it can begin.
    NoStream,
    /// From a relay: why this is not possible.
    Refused(RelayRefusal),
    /// From a relay: the agent has ended, and how.
    AgentEnded(String),
    /// From a relay: everything has ended and is removed.
    Closed,
}

impl RelayFrame {
    /// The bytes of the frame.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let writer = PayloadWriter::default();
        let (kind, bytes) = match self {
            Self::Hello {
                version,
                token,
                stream,
                received,
            } => {
                let hello = writer.u32(*version).text(token).u64(*stream).u64(*received);
                (kind::HELLO, hello.bytes())
            }
            Self::Folder(path) => (kind::FOLDER, writer.text(path).bytes()),
            Self::File { path, executable } => {
                let file = writer.text(path).u8((*executable).into());
                (kind::FILE, file.bytes())
            }
            Self::Content(bytes) => return frame::encode(kind::CONTENT, 0, &[bytes]),
            Self::Link { path, target } => (kind::LINK, writer.text(path).text(target).bytes()),
            Self::Begin(dir) => {
                let begin = writer.option(dir.as_deref(), PayloadWriter::text);
                (kind::BEGIN, begin.bytes())
            }
            Self::Stream(bytes) => return frame::encode(kind::STREAM, 0, &[bytes]),
            Self::Received(count) => (kind::RECEIVED, writer.u64(*count).bytes()),
            Self::Question(number) => (kind::QUESTION, writer.u64(*number).bytes()),
            Self::Close => (kind::CLOSE, Vec::new()),
            Self::Answer(number) => (kind::ANSWER, writer.u64(*number).bytes()),
            Self::Welcome(received) => (kind::WELCOME, writer.u64(*received).bytes()),
            Self::NoStream => (kind::NO_STREAM, Vec::new()),
            Self::Refused(RelayRefusal { reason, text }) => {
                let writer = writer.text(text);
                let refused = match reason.number() {
                    Some(number) => writer.u8(number),
                    None => writer,
                };
                (kind::REFUSED, refused.bytes())
            }
            Self::AgentEnded(how) => (kind::AGENT_ENDED, writer.text(how).bytes()),
            Self::Closed => (kind::CLOSED, Vec::new()),
        };
        frame::encode(kind, 0, &[&bytes])
    }

    /// Reads a frame.
    ///
    /// # Errors
    /// When it is none of these.
    pub fn decode(frame: RawFrame<'_>) -> Result<Self, Malformed> {
        let mut reader = PayloadReader::new(frame.bytes);
        let read = match frame.kind {
            kind::STREAM => return Ok(Self::Stream(frame.bytes.to_vec())),
            kind::CONTENT => return Ok(Self::Content(frame.bytes.to_vec())),
            kind::HELLO => Self::Hello {
                version: reader.u32()?,
                token: reader.text()?,
                stream: reader.u64()?,
                received: reader.u64()?,
            },
            kind::FOLDER => Self::Folder(reader.text()?),
            kind::FILE => Self::File {
                path: reader.text()?,
                executable: reader.u8()? == 1,
            },
            kind::LINK => Self::Link {
                path: reader.text()?,
                target: reader.text()?,
            },
            kind::BEGIN => Self::Begin(reader.option(PayloadReader::text)?),
            kind::RECEIVED => Self::Received(reader.u64()?),
            kind::QUESTION => Self::Question(reader.u64()?),
            kind::CLOSE => Self::Close,
            kind::ANSWER => Self::Answer(reader.u64()?),
            kind::WELCOME => Self::Welcome(reader.u64()?),
            kind::NO_STREAM => Self::NoStream,
            kind::REFUSED => Self::Refused(RelayRefusal {
                text: reader.text()?,
                reason: reader
                    .default_at_end(|reader| reader.u8().map(RefusalReason::from_number))?,
            }),
            kind::AGENT_ENDED => Self::AgentEnded(reader.text()?),
            kind::CLOSED => Self::Closed,
            other => {
                return Err(Malformed::new(format!(
                    "the stream to a relay holds a frame of the unknown kind {other}"
                )));
            }
        };
        reader.end()?;
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        let text = || "a \u{e9}".to_owned();
        let refused = |reason| {
            RelayFrame::Refused(RelayRefusal {
                reason,
                text: text(),
            })
        };
        let all = [
            RelayFrame::Hello {
                version: 1,
                token: text(),
                stream: u64::MAX,
                received: 7,
            },
            RelayFrame::Folder(text()),
            RelayFrame::File {
                path: text(),
                executable: true,
            },
            RelayFrame::Content(vec![0, 255]),
            RelayFrame::Link {
                path: text(),
                target: text(),
            },
            RelayFrame::Begin(Some(text())),
            RelayFrame::Begin(None),
            RelayFrame::Stream(vec![1; 70_000]),
            RelayFrame::Received(9),
            RelayFrame::Question(5),
            RelayFrame::Close,
            RelayFrame::Answer(5),
            RelayFrame::Welcome(3),
            RelayFrame::NoStream,
            refused(RefusalReason::Other),
            refused(RefusalReason::WorkingDir),
            refused(RefusalReason::NoRoom),
            RelayFrame::AgentEnded(text()),
            RelayFrame::Closed,
        ];
        let mut frames = frame::Frames::default();
        for one in &all {
            frames.push(&one.encode());
        }
        for one in &all {
            let read = frames.next_frame().unwrap().unwrap();
            assert_eq!(RelayFrame::decode(read).as_ref(), Ok(one));
        }
        assert_eq!(frames.next_frame(), Ok(None));
    }

    #[test]
    fn a_refusal_of_a_relay_that_gives_no_reason_or_a_newer_one_is_read() {
        let refused = |bytes: &[u8]| {
            let frame = RawFrame {
                kind: kind::REFUSED,
                call: 0,
                bytes,
            };
            RelayFrame::decode(frame)
        };
        let text = || PayloadWriter::default().text("no");
        let expected = Ok(RelayFrame::Refused(RelayRefusal {
            reason: RefusalReason::Other,
            text: "no".to_owned(),
        }));
        assert_eq!(refused(&text().bytes()), expected);
        assert_eq!(refused(&text().u8(200).bytes()), expected);
        assert!(refused(&text().u8(1).u8(1).bytes()).is_err());
    }

    #[test]
    fn what_is_no_such_frame_is_refused() {
        for (kind, bytes) in [
            (kind::CALL, &b""[..]),
            (kind::RECEIVED, b"1"),
            (kind::CLOSE, b"1"),
        ] {
            let frame = RawFrame {
                kind,
                call: 0,
                bytes,
            };
            assert!(RelayFrame::decode(frame).is_err(), "{kind}");
        }
    }
}
