//! What a supervisor is told and what it reports, over a socket that only whoever started it holds
//! the other end of.

use std::io::{self, Read};

use conjure_confinement::Sandbox;

use crate::field::{Malformed, PayloadReader, PayloadWriter};
use crate::frame::{self, Frames, RawFrame, kind};
use crate::gaps::Gaps;

type Result<T> = std::result::Result<T, Malformed>;

/// What a supervisor is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Order {
    /// Starts the program. The first order, and given once.
    Start(Start),
    /// The text for the standard input of a program that waits for it.
    Input(String),
    /// Ends everything: SIGTERM, so many milliseconds to react, SIGKILL.
    Finish {
        /// The time to react, in milliseconds.
        grace_ms: u64,
    },
}

/// How a program is started.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Start {
    /// Path of the program's file.
    pub program: String,
    /// Arguments of the program.
    pub arguments: Vec<String>,
    /// Environment variables beside those of the supervisor.
    pub env: Vec<(String, String)>,
    /// Directory where the program begins, unless where the supervisor is.
    pub dir: Option<String>,
    /// Source of the program's standard input.
    pub input: StdinSource,
    /// Whether nobody reads its standard error.
    pub is_silent: bool,
    /// Confinement of the program, if it is confined; only Linux can do that.
    pub confinement: Option<Confinement>,
}

/// Where the standard input of a program comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StdinSource {
    /// An empty input.
    #[default]
    Empty,
    /// A text that is given later.
    Text,
    /// A file that is sent behind the order.
    File,
}

/// What is kept from a program.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Confinement {
    /// Files and directories that it does not see.
    pub hidden: Vec<String>,
    /// Directories below hidden ones that it does see.
    pub visible: Vec<String>,
    /// Whether a user namespace may be made where nothing can be hidden without.
    pub by_user_namespace: bool,
    /// What alone it may change, where that is limited.
    pub sandbox: Option<Sandbox>,
}

/// What a supervisor reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SupervisorReport {
    /// The program runs.
    Started {
        /// What of its confinement could not be had.
        gaps: Gaps,
        /// The number of its process.
        leader: i32,
    },
    /// The program was not started.
    StartFailed {
        /// The error number of the system, if it was one.
        number: Option<i32>,
        /// What failed.
        text: String,
    },
    /// A program that waited has its input.
    Given,
    /// The program has ended.
    Exited {
        /// Exit code of the program; `None` when a signal ended it.
        exit_code: Option<i32>,
        /// The signal that ended it.
        signal: Option<i32>,
    },
    /// No process is left.
    AllExited,
}

impl Order {
    /// The frame.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let writer = PayloadWriter::default();
        match self {
            Self::Start(start) => encode_frame(kind::START, start.write(writer)),
            Self::Input(text) => encode_frame(kind::INPUT, writer.text(text)),
            Self::Finish { grace_ms } => encode_frame(kind::FINISH, writer.u64(*grace_ms)),
        }
    }

    /// The next order, and nothing behind it; nothing at the end of the socket.
    ///
    /// # Errors
    /// When it cannot be read or is none.
    pub(crate) fn read(socket: &mut impl Read) -> io::Result<Option<Self>> {
        frame::read(socket, Self::decode)
    }

    fn decode(kind: u8, bytes: &[u8]) -> Result<Self> {
        let mut reader = PayloadReader::new(bytes);
        let order = match kind {
            kind::START => Self::Start(Start::read(&mut reader)?),
            kind::INPUT => Self::Input(reader.text()?),
            kind::FINISH => Self::Finish {
                grace_ms: reader.u64()?,
            },
            _ => return Err(Malformed::new("there is no such order")),
        };
        reader.end()?;
        Ok(order)
    }
}

impl Start {
    fn write(&self, writer: PayloadWriter) -> PayloadWriter {
        let texts = |writer: PayloadWriter, texts: &[String]| {
            writer.list(texts, |writer, text| writer.text(text))
        };
        let confinement = self.confinement.as_ref();
        texts(writer.text(&self.program), &self.arguments)
            .list(&self.env, |writer, (name, value)| {
                writer.text(name).text(value)
            })
            .option(self.dir.as_deref(), PayloadWriter::text)
            .u8(match self.input {
                StdinSource::Empty => 0,
                StdinSource::Text => 1,
                StdinSource::File => 2,
            })
            .u8(self.is_silent.into())
            .option(confinement, |writer, confinement| {
                texts(texts(writer, &confinement.hidden), &confinement.visible)
                    .u8(confinement.by_user_namespace.into())
                    .option(confinement.sandbox.as_ref(), |writer, sandbox| {
                        let paths = writer.list(&sandbox.write, |writer, path| {
                            writer.text(&path.to_string_lossy())
                        });
                        paths.u8(sandbox.network.into())
                    })
            })
    }

    fn read(reader: &mut PayloadReader<'_>) -> Result<Self> {
        Ok(Self {
            program: reader.text()?,
            arguments: reader.list(PayloadReader::text)?,
            env: reader.list(|reader| Ok((reader.text()?, reader.text()?)))?,
            dir: reader.option(PayloadReader::text)?,
            input: match reader.u8()? {
                0 => StdinSource::Empty,
                1 => StdinSource::Text,
                2 => StdinSource::File,
                _ => return Err(Malformed::new("there is no such input")),
            },
            is_silent: reader.u8()? == 1,
            confinement: reader.option(|reader| {
                Ok(Confinement {
                    hidden: reader.list(PayloadReader::text)?,
                    visible: reader.list(PayloadReader::text)?,
                    by_user_namespace: reader.u8()? == 1,
                    sandbox: reader.option(|reader| {
                        Ok(Sandbox {
                            write: reader.list(|reader| Ok(reader.text()?.into()))?,
                            network: reader.u8()? == 1,
                        })
                    })?,
                })
            })?,
        })
    }
}

impl SupervisorReport {
    /// The frame.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let writer = PayloadWriter::default();
        match self {
            Self::Started { gaps, leader } => {
                encode_frame(kind::STARTED, writer.u8(gaps.bits()).int(*leader))
            }
            Self::StartFailed { number, text } => {
                let number = writer.option(*number, PayloadWriter::int);
                encode_frame(kind::START_FAILED, number.text(text))
            }
            Self::Given => encode_frame(kind::INPUT_WRITTEN, writer),
            Self::Exited { exit_code, signal } => {
                let code = writer.option(*exit_code, PayloadWriter::int);
                encode_frame(kind::EXITED, code.option(*signal, PayloadWriter::int))
            }
            Self::AllExited => encode_frame(kind::ALL_EXITED, writer),
        }
    }

    fn decode(frame: RawFrame<'_>) -> Result<Self> {
        let mut reader = PayloadReader::new(frame.bytes);
        let report = match frame.kind {
            kind::STARTED => Self::Started {
                gaps: Gaps::from_bits(reader.u8()?),
                leader: reader.int()?,
            },
            kind::START_FAILED => Self::StartFailed {
                number: reader.option(PayloadReader::int)?,
                text: reader.text()?,
            },
            kind::INPUT_WRITTEN => Self::Given,
            kind::EXITED => Self::Exited {
                exit_code: reader.option(PayloadReader::int)?,
                signal: reader.option(PayloadReader::int)?,
            },
            kind::ALL_EXITED => Self::AllExited,
            _ => return Err(Malformed::new("there is no such report")),
        };
        reader.end()?;
        Ok(report)
    }

    /// The next whole report of a stream.
    ///
    /// # Errors
    /// When the bytes are none.
    pub(crate) fn next(stream: &mut Frames) -> Result<Option<Self>> {
        stream.next_frame()?.map(Self::decode).transpose()
    }
}

/// Neither belongs to a call.
fn encode_frame(kind: u8, fields: PayloadWriter) -> Vec<u8> {
    frame::encode(kind, 0, &[&fields.bytes()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_read_as_they_were_written() {
        let start = Start {
            program: "/bin/sh".into(),
            arguments: vec!["-c".into(), "true".into()],
            env: vec![("A".into(), "1".into())],
            dir: Some("/w".into()),
            input: StdinSource::Text,
            is_silent: true,
            confinement: Some(Confinement {
                hidden: vec!["/h".into()],
                visible: vec!["/h/v".into()],
                by_user_namespace: true,
                sandbox: Some(Sandbox {
                    write: vec!["/w".into(), "/t".into()],
                    network: true,
                }),
            }),
        };
        let orders = [
            Order::Start(start),
            Order::Start(Start::default()),
            Order::Input("echo \u{e9}\n".into()),
            Order::Finish { grace_ms: 500 },
        ];
        let bytes: Vec<u8> = orders.iter().flat_map(Order::encode).collect();
        let mut stream = bytes.as_slice();
        for order in orders {
            assert_eq!(Order::read(&mut stream).unwrap(), Some(order));
        }
        assert_eq!(Order::read(&mut stream).unwrap(), None);
    }

    #[test]
    fn reports_are_cut_wherever_the_bytes_are() {
        let reports = [
            SupervisorReport::Started {
                gaps: Gaps {
                    signals: true,
                    ..Gaps::default()
                },
                leader: 4711,
            },
            SupervisorReport::StartFailed {
                number: Some(2),
                text: "no shell".into(),
            },
            SupervisorReport::Exited {
                exit_code: None,
                signal: Some(9),
            },
            SupervisorReport::Given,
            SupervisorReport::AllExited,
        ];
        let bytes: Vec<u8> = reports.iter().flat_map(SupervisorReport::encode).collect();
        let (mut stream, mut read) = (Frames::default(), Vec::new());
        for byte in bytes {
            stream.push(&[byte]);
            read.extend(SupervisorReport::next(&mut stream).unwrap());
        }
        assert_eq!(read, reports);
    }
}
