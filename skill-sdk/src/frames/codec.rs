//! Frames and their bytes, without any I/O.

use std::io;

/// The most bytes that a frame may carry behind its head: 32 MiB.
pub const MAX_BYTES: usize = 32 * 1024 * 1024;

/// Bytes of a frame's head: length, kind, call.
pub const HEAD_LEN: usize = 4 + 1 + 8;

/// Bytes of the head that the length counts.
const COUNTED_HEAD_LEN: usize = HEAD_LEN - 4;

/// A buffer that one frame has blown up beyond this is not kept.
const MAX_KEPT_BUFFER: usize = 1024 * 1024;

/// Kind of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// Host to plugin: run an operation.
    Request = 1,
    /// Plugin to host: the answer to a request.
    Reply = 2,
    /// Plugin to host: a piece of output. Costs one credit.
    Emit = 3,
    /// Host to plugin: room for more output.
    Credit = 4,
    /// Either way: something is not wanted any more.
    Cancel = 5,
    /// Plugin to host: a line for the log.
    Log = 6,
    /// Plugin to host: run a host operation.
    HostRequest = 7,
    /// Host to plugin: the answer to a host request.
    HostReply = 8,
}

impl Kind {
    fn from_number(number: u8) -> Option<Self> {
        Some(match number {
            1 => Self::Request,
            2 => Self::Reply,
            3 => Self::Emit,
            4 => Self::Credit,
            5 => Self::Cancel,
            6 => Self::Log,
            7 => Self::HostRequest,
            8 => Self::HostReply,
            _ => return None,
        })
    }
}

/// One frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// Kind of the frame.
    pub kind: Kind,
    /// The call, or the instance, that it belongs to.
    pub call_id: u64,
    /// What it carries; see [`super::Message`].
    pub bytes: Vec<u8>,
}

impl Frame {
    /// Appends the frame's bytes.
    ///
    /// # Errors
    /// [`FrameError::TooLarge`]; nothing was appended.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), FrameError> {
        let len = self.bytes.len() + COUNTED_HEAD_LEN;
        if self.bytes.len() > MAX_BYTES {
            return Err(FrameError::TooLarge { len });
        }
        let len = u32::try_from(len).map_err(|_| FrameError::TooLarge { len })?;
        out.reserve(HEAD_LEN + self.bytes.len());
        out.extend_from_slice(&len.to_le_bytes());
        out.push(self.kind as u8);
        out.extend_from_slice(&self.call_id.to_le_bytes());
        out.extend_from_slice(&self.bytes);
        Ok(())
    }
}

/// Errors after which a stream cannot be read on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// A frame is larger than [`MAX_BYTES`].
    #[error("a frame of {len} bytes is over the limit of {MAX_BYTES}: send it as a file")]
    TooLarge {
        /// The length that it gives itself.
        len: usize,
    },
    /// What came is text where a frame begins, such as what a program prints.
    #[error("it printed \"{line}\"; what is meant for people belongs on its standard error")]
    Text {
        /// First line of the text, at most 200 characters of it.
        line: String,
    },
    /// A frame is shorter than its own head.
    #[error("a frame gives itself the length {len}, which is less than its head")]
    TooShort {
        /// The length that it gives itself.
        len: usize,
    },
    /// A frame is of a kind that this version does not know.
    #[error("a frame has the unknown kind {kind}: the other side is no Conjure, or a newer one")]
    UnknownKind {
        /// Number of the kind.
        kind: u8,
    },
    /// A frame's bytes are not what its kind says.
    #[error("a {kind:?} frame is malformed: {what}")]
    Malformed {
        /// Kind of the frame.
        kind: Kind,
        /// Fault of the frame.
        what: &'static str,
    },
    /// A frame of a kind that only the receiver may send.
    #[error("a {kind:?} frame came from the wrong side")]
    Unexpected {
        /// Kind of the frame.
        kind: Kind,
    },
    /// A request with the number of a call that runs.
    #[error("call {call_id} was begun twice")]
    Twice {
        /// The call.
        call_id: u64,
    },
    /// More output than there were credits for.
    #[error("call {call_id} sent more output than it had credits for")]
    Overrun {
        /// The call.
        call_id: u64,
    },
    /// The stream ended inside a frame.
    #[error("the stream ended inside a frame, {missing} bytes short")]
    Cut {
        /// Bytes that are missing, as far as it is known.
        missing: usize,
    },
    /// The stream failed.
    #[error("the stream failed: {source}")]
    Stream {
        /// Error of the operating system.
        #[from]
        source: io::Error,
    },
}

/// Characters of what a program printed that its error shows.
const MAX_SHOWN_CHARS: usize = 200;

impl FrameError {
    /// Whether the other side sent what is not the protocol; otherwise the stream ended or failed.
    pub fn is_violation(&self) -> bool {
        !matches!(self, Self::Cut { .. } | Self::Stream { .. })
    }
}

/// Makes frames out of bytes that come in pieces of any size.
#[derive(Debug, Default)]
pub struct Decoder {
    buffer: Vec<u8>,
    start: usize,
}

impl Decoder {
    /// A decoder at the beginning of a stream.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes bytes of the stream.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.start > 0 && self.start >= self.buffer.len() / 2 {
            self.buffer.drain(..self.start);
            self.start = 0;
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// The next whole frame, or nothing until more bytes are there.
    ///
    /// # Errors
    /// What is wrong with the frame, from its head alone. The stream cannot be read on.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, FrameError> {
        let rest = self.unread();
        let Some((len, behind)) = rest.split_first_chunk::<4>() else {
            return Ok(None);
        };
        let len = usize::try_from(u32::from_le_bytes(*len)).unwrap_or(usize::MAX);
        if len < COUNTED_HEAD_LEN {
            return Err(FrameError::TooShort { len });
        }
        if len > MAX_BYTES + COUNTED_HEAD_LEN {
            return Err(match printed_line(rest) {
                Some(line) => FrameError::Text { line },
                None => FrameError::TooLarge { len },
            });
        }
        let Some((kind, behind)) = behind.split_first() else {
            return Ok(None);
        };
        let kind = Kind::from_number(*kind).ok_or(FrameError::UnknownKind { kind: *kind })?;
        let Some((call_id, behind)) = behind.split_first_chunk::<8>() else {
            return Ok(None);
        };
        let call_id = u64::from_le_bytes(*call_id);
        let Some(bytes) = behind.get(..len - COUNTED_HEAD_LEN) else {
            return Ok(None);
        };
        let bytes = bytes.to_vec();
        self.start += 4 + len;
        if self.unread().is_empty() {
            self.start = 0;
            if self.buffer.capacity() > MAX_KEPT_BUFFER {
                self.buffer = Vec::new();
            } else {
                self.buffer.clear();
            }
        }
        Ok(Some(Frame {
            kind,
            call_id,
            bytes,
        }))
    }

    /// Says that the stream has ended.
    ///
    /// # Errors
    /// [`FrameError::Cut`] when that was inside a frame, and [`FrameError::Text`] when what is left is
    /// none.
    pub fn finish(&self) -> Result<(), FrameError> {
        let rest = self.unread();
        if rest.is_empty() {
            return Ok(());
        }
        if let Some(line) = printed_line(rest).filter(|_| rest.len() > 1) {
            return Err(FrameError::Text { line });
        }
        let whole = match rest.split_first_chunk::<4>() {
            Some((len, _)) => {
                4 + usize::try_from(u32::from_le_bytes(*len)).unwrap_or(usize::MAX / 2)
            }
            None => HEAD_LEN,
        };
        Err(FrameError::Cut {
            missing: whole.saturating_sub(rest.len()),
        })
    }

    fn unread(&self) -> &[u8] {
        self.buffer.get(self.start..).unwrap_or_default()
    }
}

/// The first line of bytes that begin as text does; the length of a frame that is not too large begins
/// with none.
fn printed_line(bytes: &[u8]) -> Option<String> {
    let is_text = |byte: &u8| byte.is_ascii_graphic() || byte.is_ascii_whitespace();
    if !bytes.iter().take(4).all(is_text) {
        return None;
    }
    let text = String::from_utf8_lossy(bytes);
    let line = text.trim_start().lines().next().unwrap_or_default();
    Some(line.chars().take(MAX_SHOWN_CHARS).collect())
}
