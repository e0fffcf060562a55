//! What frames carry.

use conjure_abi::{Fault, RVec};

use super::codec::{Frame, FrameError, Kind};

/// Purpose of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Verb {
    /// The plugin's manifest. Instance, operation and body are empty.
    Manifest = 0,
    /// A new instance; the body is the argument of `create`. The call's number becomes the
    /// instance's, and its context lives until the instance is released.
    Create = 1,
    /// [`conjure_abi::Plugin::call`].
    Call = 2,
    /// [`conjure_abi::Plugin::start`].
    Start = 3,
}

/// The work that is cancelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Cancel {
    /// Host to plugin: the call is cancelled; it may clean up and then replies.
    Call,
    /// Host to plugin: nobody waits for the call's reply, or the instance is dropped.
    Release,
    /// Plugin to host: nobody waits for this host request's reply.
    HostRequest(u32),
}

/// A frame, understood.
///
/// Layouts, little-endian: request `verb u8, instance u64, credit u32, n u16, operation [n],
/// body`; reply `0 u8, body` or `1 u8, code u32, message`; emit `kind u32, bytes`; credit
/// `pieces u32`; cancel `0 u8` (call), `1 u8` (release) or `2 u8, id u32` (host request); log
/// `level u32, n u16, target [n], message`; host request `id u32, n u16, operation [n], body`;
/// host reply `id u32`, then as a reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    /// Run an operation.
    Request {
        /// Purpose of the request.
        verb: Verb,
        /// The instance, for a call or start.
        instance: u64,
        /// Pieces of output that may be sent before a [`Message::Credit`] comes.
        credit: u32,
        /// The operation's name; any bytes.
        op: Vec<u8>,
        /// The request in its envelope.
        json: Vec<u8>,
    },
    /// The answer to a request.
    Reply(Result<Vec<u8>, Fault>),
    /// A piece of output.
    Emit {
        /// A [`conjure_abi::EmitKind`] number.
        kind: u32,
        /// The piece.
        bytes: Vec<u8>,
    },
    /// Room for more output.
    Credit {
        /// Number of pieces.
        pieces: u32,
    },
    /// Something is not wanted any more.
    Cancel(Cancel),
    /// A line for the log.
    Log {
        /// A [`conjure_abi::LogLevel`] number.
        level: u32,
        /// Where in the plugin it comes from.
        target: Vec<u8>,
        /// The line.
        message: Vec<u8>,
    },
    /// Run a host operation.
    HostRequest {
        /// Number of the request, unique in its call.
        id: u32,
        /// The operation's name; any bytes.
        op: Vec<u8>,
        /// The request.
        json: Vec<u8>,
    },
    /// The answer to a host request.
    HostReply {
        /// The request's number.
        id: u32,
        /// The answer.
        reply: Result<Vec<u8>, Fault>,
    },
}

impl Message {
    /// The frame that carries this message. A name of more than 65,535 bytes is cut.
    pub fn into_frame(self, call_id: u64) -> Frame {
        let mut bytes = Vec::new();
        let kind = match self {
            Self::Request {
                verb,
                instance,
                credit,
                op,
                json,
            } => {
                bytes.push(verb as u8);
                bytes.extend(instance.to_le_bytes());
                bytes.extend(credit.to_le_bytes());
                put_name(&mut bytes, &op);
                bytes.extend(json);
                Kind::Request
            }
            Self::Reply(reply) => {
                put_reply(&mut bytes, reply);
                Kind::Reply
            }
            Self::Emit { kind, bytes: piece } => {
                bytes.extend(kind.to_le_bytes());
                bytes.extend(piece);
                Kind::Emit
            }
            Self::Credit { pieces } => {
                bytes.extend(pieces.to_le_bytes());
                Kind::Credit
            }
            Self::Cancel(cancel) => {
                match cancel {
                    Cancel::Call => bytes.push(0),
                    Cancel::Release => bytes.push(1),
                    Cancel::HostRequest(id) => {
                        bytes.push(2);
                        bytes.extend(id.to_le_bytes());
                    }
                }
                Kind::Cancel
            }
            Self::Log {
                level,
                target,
                message,
            } => {
                bytes.extend(level.to_le_bytes());
                put_name(&mut bytes, &target);
                bytes.extend(message);
                Kind::Log
            }
            Self::HostRequest { id, op, json } => {
                bytes.extend(id.to_le_bytes());
                put_name(&mut bytes, &op);
                bytes.extend(json);
                Kind::HostRequest
            }
            Self::HostReply { id, reply } => {
                bytes.extend(id.to_le_bytes());
                put_reply(&mut bytes, reply);
                Kind::HostReply
            }
        };
        Frame {
            kind,
            call_id,
            bytes,
        }
    }

    /// Reads a frame.
    ///
    /// # Errors
    /// [`FrameError::Malformed`]; the bytes can be anything.
    pub fn from_frame(frame: Frame) -> Result<Self, FrameError> {
        let Frame { kind, bytes, .. } = frame;
        let mut rest = FrameReader {
            kind,
            bytes: &bytes,
        };
        let message = match kind {
            Kind::Request => Self::Request {
                verb: match rest.u8()? {
                    0 => Verb::Manifest,
                    1 => Verb::Create,
                    2 => Verb::Call,
                    3 => Verb::Start,
                    _ => return Err(rest.malformed("the verb is unknown")),
                },
                instance: rest.u64()?,
                credit: rest.u32()?,
                op: rest.name()?,
                json: rest.all(),
            },
            Kind::Reply => Self::Reply(rest.reply()?),
            Kind::Emit => Self::Emit {
                kind: rest.u32()?,
                bytes: rest.all(),
            },
            Kind::Credit => Self::Credit {
                pieces: rest.u32()?,
            },
            Kind::Cancel => Self::Cancel(match rest.u8()? {
                0 => Cancel::Call,
                1 => Cancel::Release,
                2 => Cancel::HostRequest(rest.u32()?),
                _ => return Err(rest.malformed("what is cancelled is unknown")),
            }),
            Kind::Log => Self::Log {
                level: rest.u32()?,
                target: rest.name()?,
                message: rest.all(),
            },
            Kind::HostRequest => Self::HostRequest {
                id: rest.u32()?,
                op: rest.name()?,
                json: rest.all(),
            },
            Kind::HostReply => Self::HostReply {
                id: rest.u32()?,
                reply: rest.reply()?,
            },
        };
        if rest.bytes.is_empty() {
            Ok(message)
        } else {
            Err(rest.malformed("there are bytes behind its end"))
        }
    }
}

fn put_name(out: &mut Vec<u8>, name: &[u8]) {
    let len = u16::try_from(name.len()).unwrap_or(u16::MAX);
    out.extend(len.to_le_bytes());
    out.extend(name.iter().take(usize::from(len)));
}

fn put_reply(out: &mut Vec<u8>, reply: Result<Vec<u8>, Fault>) {
    match reply {
        Ok(json) => {
            out.push(0);
            out.extend(json);
        }
        Err(fault) => {
            out.push(1);
            out.extend(fault.code.to_le_bytes());
            out.extend(fault.message.iter());
        }
    }
}

struct FrameReader<'a> {
    kind: Kind,
    bytes: &'a [u8],
}

impl FrameReader<'_> {
    fn malformed(&self, what: &'static str) -> FrameError {
        FrameError::Malformed {
            kind: self.kind,
            what,
        }
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], FrameError> {
        let Some((head, tail)) = self.bytes.split_first_chunk::<N>() else {
            return Err(self.malformed("it ends too early"));
        };
        self.bytes = tail;
        Ok(*head)
    }

    fn u8(&mut self) -> Result<u8, FrameError> {
        self.take().map(|[byte]| byte)
    }

    fn u32(&mut self) -> Result<u32, FrameError> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, FrameError> {
        self.take().map(u64::from_le_bytes)
    }

    fn name(&mut self) -> Result<Vec<u8>, FrameError> {
        let len = usize::from(u16::from_le_bytes(self.take()?));
        let Some((name, tail)) = self.bytes.split_at_checked(len) else {
            return Err(self.malformed("a name is longer than the frame"));
        };
        self.bytes = tail;
        Ok(name.to_vec())
    }

    fn all(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.bytes).to_vec()
    }

    fn reply(&mut self) -> Result<Result<Vec<u8>, Fault>, FrameError> {
        match self.u8()? {
            0 => Ok(Ok(self.all())),
            1 => Ok(Err(Fault {
                code: self.u32()?,
                message: RVec::from(self.all()),
            })),
            _ => Err(self.malformed("it is neither an answer nor a fault")),
        }
    }
}
