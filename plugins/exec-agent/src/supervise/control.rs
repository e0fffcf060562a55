//! What a supervisor is told and what it reports, over a socket that only the agent holds the
//! other end of. Each message has its length before it.

use std::io::{self, Read};

use crate::error::{Error, Result};
use crate::field::{Reader, Writer};
use crate::gaps::Gaps;

/// The longest message; a command and its environment are shorter.
const MAX: usize = 4 * 1024 * 1024;

/// What a supervisor is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Order {
    /// Starts the shell. The first order, and given once.
    Start(Start),
    /// The text for the standard input of a shell that waits for it.
    Give(String),
    /// Ends everything: SIGTERM, so many milliseconds to react, SIGKILL.
    End {
        /// How long.
        grace_ms: u64,
    },
}

/// How a shell is started.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Start {
    /// Its file.
    pub(crate) shell: String,
    /// Its arguments.
    pub(crate) arguments: Vec<String>,
    /// Environment variables beside those of the supervisor.
    pub(crate) env: Vec<(String, String)>,
    /// Where it begins, unless where the supervisor is.
    pub(crate) dir: Option<String>,
    /// Whether its standard input comes with [`Order::Give`]; else it is empty.
    pub(crate) waits: bool,
    /// How it is confined, if it is.
    pub(crate) confinement: Option<Confinement>,
}

/// What is kept from a command.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Confinement {
    /// Files and directories that it does not see.
    pub(crate) hidden: Vec<String>,
    /// Directories below hidden ones that it does see.
    pub(crate) visible: Vec<String>,
    /// Whether a user namespace may be made where nothing can be hidden without.
    pub(crate) by_user_namespace: bool,
}

/// What a supervisor reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Report {
    /// The shell runs.
    Begun {
        /// What of its confinement could not be had.
        gaps: Gaps,
        /// The number of its process.
        leader: i32,
    },
    /// The shell was not started.
    NotBegun {
        /// The error number of the system, if it was one.
        number: Option<i32>,
        /// What the system says.
        text: String,
    },
    /// A shell that waited has its text.
    Given,
    /// The shell has ended.
    Ended {
        /// Its exit code; nothing when a signal ended it.
        exit_code: Option<i32>,
        /// The signal that ended it.
        signal: Option<i32>,
    },
    /// No process is left.
    Gone,
}

impl Order {
    /// The message, with its length.
    pub(crate) fn encode(&self) -> Vec<u8> {
        with_length(match self {
            Self::Start(start) => {
                let confinement = start.confinement.as_ref();
                Writer::default()
                    .u8(1)
                    .text(&start.shell)
                    .list(&start.arguments, |writer, text| writer.text(text))
                    .list(&start.env, |writer, (name, value)| {
                        writer.text(name).text(value)
                    })
                    .option(start.dir.as_deref(), Writer::text)
                    .u8(start.waits.into())
                    .option(confinement, |writer, confinement| {
                        writer
                            .list(&confinement.hidden, |writer, text| writer.text(text))
                            .list(&confinement.visible, |writer, text| writer.text(text))
                            .u8(confinement.by_user_namespace.into())
                    })
            }
            Self::Give(text) => Writer::default().u8(2).text(text),
            Self::End { grace_ms } => Writer::default().u8(3).u64(*grace_ms),
        })
    }

    /// The next order; nothing at the end of the socket.
    ///
    /// # Errors
    /// When it cannot be read or is none.
    pub(crate) fn read(socket: &mut impl Read) -> io::Result<Option<Self>> {
        let mut length = [0; 4];
        match socket.read_exact(&mut length) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            Err(error) => return Err(error),
        }
        let length = u32::from_le_bytes(length) as usize;
        if length > MAX {
            return Err(io::Error::other("an order is too long"));
        }
        let mut bytes = vec![0; length];
        socket.read_exact(&mut bytes)?;
        Self::decode(&bytes).map(Some).map_err(io::Error::other)
    }

    fn decode(bytes: &[u8]) -> Result<Self> {
        let mut reader = Reader::new(bytes);
        let order = match reader.u8()? {
            1 => Self::Start(Start {
                shell: reader.text()?,
                arguments: reader.list(Reader::text)?,
                env: reader.list(|reader| Ok((reader.text()?, reader.text()?)))?,
                dir: reader.option(Reader::text)?,
                waits: reader.u8()? == 1,
                confinement: reader.option(|reader| {
                    Ok(Confinement {
                        hidden: reader.list(Reader::text)?,
                        visible: reader.list(Reader::text)?,
                        by_user_namespace: reader.u8()? == 1,
                    })
                })?,
            }),
            2 => Self::Give(reader.text()?),
            3 => Self::End {
                grace_ms: reader.u64()?,
            },
            _ => return Err(Error::invalid("there is no such order")),
        };
        reader.end()?;
        Ok(order)
    }
}

impl Report {
    /// The message, with its length.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let number = |writer: Writer, number: i32| writer.i64(number.into());
        with_length(match self {
            Self::Begun { gaps, leader } => {
                number(Writer::default().u8(1).u8(gaps.bits()), *leader)
            }
            Self::NotBegun {
                number: errno,
                text,
            } => Writer::default().u8(2).option(*errno, number).text(text),
            Self::Ended { exit_code, signal } => Writer::default()
                .u8(3)
                .option(*exit_code, number)
                .option(*signal, number),
            Self::Gone => Writer::default().u8(4),
            Self::Given => Writer::default().u8(5),
        })
    }

    fn decode(bytes: &[u8]) -> Result<Self> {
        let number = |reader: &mut Reader<'_>| {
            i32::try_from(reader.i64()?).map_err(|_| Error::invalid("a number is too large"))
        };
        let mut reader = Reader::new(bytes);
        let report = match reader.u8()? {
            1 => Self::Begun {
                gaps: Gaps::from_bits(reader.u8()?),
                leader: number(&mut reader)?,
            },
            2 => Self::NotBegun {
                number: reader.option(number)?,
                text: reader.text()?,
            },
            3 => Self::Ended {
                exit_code: reader.option(number)?,
                signal: reader.option(number)?,
            },
            4 => Self::Gone,
            5 => Self::Given,
            _ => return Err(Error::invalid("there is no such report")),
        };
        reader.end()?;
        Ok(report)
    }
}

/// Cuts a stream of bytes into reports.
#[derive(Debug, Default)]
pub(crate) struct Reports(Vec<u8>);

impl Reports {
    /// Takes bytes.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    /// The next whole report.
    ///
    /// # Errors
    /// When the bytes are none.
    pub(crate) fn next(&mut self) -> Result<Option<Report>> {
        let Some((length, rest)) = self.0.split_first_chunk() else {
            return Ok(None);
        };
        let length = u32::from_le_bytes(*length) as usize;
        if length > MAX {
            return Err(Error::invalid("a report is too long"));
        }
        let Some(bytes) = rest.get(..length) else {
            return Ok(None);
        };
        let report = Report::decode(bytes)?;
        self.0.drain(..4 + length);
        Ok(Some(report))
    }
}

fn with_length(writer: Writer) -> Vec<u8> {
    let bytes = writer.bytes();
    let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    [length.to_le_bytes().as_slice(), &bytes].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_read_as_they_were_written() {
        let start = Start {
            shell: "/bin/sh".into(),
            arguments: vec!["-c".into(), "true".into()],
            env: vec![("A".into(), "1".into())],
            dir: Some("/w".into()),
            waits: true,
            confinement: Some(Confinement {
                hidden: vec!["/h".into()],
                visible: vec!["/h/v".into()],
                by_user_namespace: true,
            }),
        };
        let orders = [
            Order::Start(start),
            Order::Start(Start::default()),
            Order::Give("echo \u{e9}\n".into()),
            Order::End { grace_ms: 500 },
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
            Report::Begun {
                gaps: Gaps {
                    signals: true,
                    ..Gaps::default()
                },
                leader: 4711,
            },
            Report::NotBegun {
                number: Some(2),
                text: "no shell".into(),
            },
            Report::Ended {
                exit_code: None,
                signal: Some(9),
            },
            Report::Given,
            Report::Gone,
        ];
        let bytes: Vec<u8> = reports.iter().flat_map(Report::encode).collect();
        let (mut cutter, mut read) = (Reports::default(), Vec::new());
        for byte in bytes {
            cutter.push(&[byte]);
            read.extend(cutter.next().unwrap());
        }
        assert_eq!(read, reports);
    }
}
