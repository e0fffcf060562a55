//! Frames on a stream of bytes: `len u32, kind u8, call u32, bytes`, little-endian; `len` counts
//! what follows it.
//!
//! What a host and an agent say to each other, and both and a supervisor, is in these frames; workers
//! and plugins that are executables speak those of the SDK, which are others. Here are the form of a
//! frame and the numbers of all kinds; what the bytes of a kind mean is said where they are made.

use std::io::{self, ErrorKind, Read};

use crate::field::Malformed;

/// The kinds of frames, each with who sends it and what it carries.
pub mod kind {
    /// From a host: begins a call. A request.
    pub const CALL: u8 = 1;
    /// From either side: bytes of a file.
    pub const DATA: u8 = 2;
    /// From either side: no data follows. Nothing.
    pub const END: u8 = 3;
    /// From either side: so many more bytes of output or data are welcome. A `u32`.
    pub const CREDIT: u8 = 4;
    /// From a host: the call is cancelled. Nothing.
    pub const CANCEL: u8 = 5;
    /// From a host: somebody is there. Nothing.
    pub const PING: u8 = 6;
    /// From an agent, once: its version. A `u32`.
    pub const READY: u8 = 16;
    /// From an agent: standard output of a command.
    pub const STDOUT: u8 = 17;
    /// From an agent: standard error of a command.
    pub const STDERR: u8 = 18;
    /// From an agent: the call is over. A reply.
    pub const REPLY: u8 = 19;
    /// From an agent: the call is over without a reply. The kind of failure, a `u32`, and a message.
    pub const FAULT: u8 = 20;
    /// To a supervisor, once: starts the program. How.
    pub const START: u8 = 32;
    /// To a supervisor: the standard input of a program that waits for it. A text.
    pub const INPUT: u8 = 33;
    /// To a supervisor: ends everything. How long it has to react, a `u64` of milliseconds.
    pub const FINISH: u8 = 34;
    /// From a supervisor: the program runs. What its confinement lacks, and its number.
    pub const STARTED: u8 = 48;
    /// From a supervisor: the program was not started. The system's error, and a message.
    pub const START_FAILED: u8 = 49;
    /// From a supervisor: a program that waited has its input. Nothing.
    pub const INPUT_WRITTEN: u8 = 50;
    /// From a supervisor: the program has ended. Its exit code, and the signal that ended it.
    pub const EXITED: u8 = 51;
    /// From a supervisor: no process is left. Nothing.
    pub const ALL_EXITED: u8 = 52;
    /// To a relay, first: who comes. Version, token, number of the stream, and how far it was read.
    pub const HELLO: u8 = 64;
    /// To a relay: a folder of the skills. A path.
    pub const FOLDER: u8 = 65;
    /// To a relay: a file of the skills. A path, and whether it can be run.
    pub const FILE: u8 = 66;
    /// To a relay: bytes of the file before.
    pub const CONTENT: u8 = 67;
    /// To a relay: a link in the skills. A path, and what it says.
    pub const LINK: u8 = 68;
    /// To a relay: the stream begins. A working directory, or none.
    pub const BEGIN: u8 = 69;
    /// To a relay: everything ends. Nothing.
    pub const CLOSE: u8 = 70;
    /// To a relay and from it: bytes of the stream.
    pub const STREAM: u8 = 71;
    /// To a relay and from it: so many bytes of the stream have come. A `u64`.
    pub const RECEIVED: u8 = 72;
    /// To a relay: whether the connection carries anything. A number, a `u64`.
    pub const QUESTION: u8 = 73;
    /// From a relay: the stream goes on. How far it was read, a `u64`.
    pub const WELCOME: u8 = 80;
    /// From a relay: there is no such stream. Nothing.
    pub const NO_STREAM: u8 = 81;
    /// From a relay: why something is not possible. A text.
    pub const REFUSED: u8 = 82;
    /// From a relay: the agent has ended. How, a text.
    pub const AGENT_ENDED: u8 = 83;
    /// From a relay: everything has ended. Nothing.
    pub const CLOSED: u8 = 84;
    /// From a relay: the answer to a question. Its number, a `u64`.
    pub const ANSWER: u8 = 85;
}

/// The most that a frame carries.
pub const MAX: usize = 4 * 1024 * 1024;

/// What stands before the bytes, behind the length.
const HEAD: usize = 5;

/// A frame, as it is in the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RawFrame<'b> {
    /// One of [`kind`].
    pub kind: u8,
    /// The number of its call.
    pub call: u32,
    /// What it carries.
    pub bytes: &'b [u8],
}

/// The bytes of a frame that carries these, one behind the other.
#[must_use]
pub fn encode(kind: u8, call: u32, parts: &[&[u8]]) -> Vec<u8> {
    let carried: usize = parts.iter().map(|part| part.len()).sum();
    let length = u32::try_from(HEAD + carried).unwrap_or(u32::MAX);
    let mut frame = Vec::with_capacity(4 + length as usize);
    frame.extend_from_slice(&length.to_le_bytes());
    frame.push(kind);
    frame.extend_from_slice(&call.to_le_bytes());
    for part in parts {
        frame.extend_from_slice(part);
    }
    frame
}

/// Reads one frame and nothing behind it, and makes something of its kind and its bytes. Nothing
/// at the end of the stream.
pub(crate) fn read<T>(
    stream: &mut impl Read,
    decode: impl FnOnce(u8, &[u8]) -> Result<T, Malformed>,
) -> io::Result<Option<T>> {
    let mut length = [0; 4];
    match stream.read_exact(&mut length) {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error),
    }
    let mut bytes = vec![0; check_length(length).map_err(io::Error::other)?];
    stream.read_exact(&mut bytes)?;
    let frame = RawFrame::of(&bytes).map_err(io::Error::other)?;
    decode(frame.kind, frame.bytes)
        .map(Some)
        .map_err(io::Error::other)
}

/// Cuts a stream into frames, however its bytes come in.
#[derive(Debug, Default)]
pub struct Frames {
    buffer: Vec<u8>,
    /// How much of it was given out.
    consumed: usize,
}

impl Frames {
    /// Takes bytes in.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.drain(..self.consumed);
        self.consumed = 0;
        self.buffer.extend_from_slice(bytes);
    }

    /// The next frame, once all of it is there.
    ///
    /// # Errors
    /// When what came is no frame. The stream is of no use then.
    pub fn next_frame(&mut self) -> Result<Option<RawFrame<'_>>, Malformed> {
        let waiting = self.buffer.get(self.consumed..).unwrap_or_default();
        let Some((length, rest)) = waiting.split_first_chunk() else {
            return Ok(None);
        };
        let length = check_length(*length)?;
        let Some(frame) = rest.get(..length) else {
            return Ok(None);
        };
        self.consumed += 4 + length;
        RawFrame::of(frame).map(Some)
    }
}

impl<'b> RawFrame<'b> {
    /// What follows a length.
    fn of(frame: &'b [u8]) -> Result<Self, Malformed> {
        let too_short = || Malformed::new("the stream holds a frame that is too short");
        let (kind, rest) = frame.split_first().ok_or_else(too_short)?;
        let (call, bytes) = rest.split_first_chunk().ok_or_else(too_short)?;
        Ok(Self {
            kind: *kind,
            call: u32::from_le_bytes(*call),
            bytes,
        })
    }
}

fn check_length(length: [u8; 4]) -> Result<usize, Malformed> {
    let length = u32::from_le_bytes(length) as usize;
    if !(HEAD..=HEAD + MAX).contains(&length) {
        return Err(Malformed::new(format!(
            "the stream holds a frame of {length} bytes"
        )));
    }
    Ok(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_of_a_frame_are_what_they_ever_were() {
        let frame = encode(kind::FAULT, 9, &[&7_u32.to_le_bytes(), b"no"]);
        assert_eq!(frame, b"\x0b\0\0\0\x14\x09\0\0\0\x07\0\0\0no");
        assert_eq!(encode(kind::PING, 0, &[]), b"\x05\0\0\0\x06\0\0\0\0");
    }

    #[test]
    fn frames_survive_every_cut_of_the_stream() {
        let long = vec![7; 70_000];
        let carried: [&[u8]; 3] = [b"", b"x", &long];
        let encoded = carried.map(|bytes| encode(kind::DATA, 9, &[bytes]));
        let stream = encoded.concat();
        for size in [1, 3, 4, 5, 9, 32_768, stream.len()] {
            let (mut frames, mut seen) = (Frames::default(), Vec::new());
            for piece in stream.chunks(size) {
                frames.push(piece);
                while let Some(frame) = frames.next_frame().unwrap() {
                    assert_eq!((frame.kind, frame.call), (kind::DATA, 9));
                    seen.push(frame.bytes.to_vec());
                }
            }
            assert_eq!(seen, carried, "in pieces of {size}");
        }
    }

    #[test]
    fn what_is_no_frame_is_refused() {
        for bytes in [
            &[0xff, 0xff, 0xff, 0xff, 1][..],
            &[4, 0, 0, 0, 1, 0, 0, 0],
            &[0; 4],
        ] {
            let mut frames = Frames::default();
            frames.push(bytes);
            assert!(frames.next_frame().is_err(), "{bytes:?}");
            let read = read(&mut &*bytes, |_, _| Ok(()));
            assert!(read.is_err(), "{bytes:?}");
        }
    }
}
