//! What is asked of the agent, and what it answers.

pub use conjure_process_tree::Gaps;
use conjure_process_tree::field::{Malformed, PayloadReader, PayloadWriter};

use crate::files::{FileChange, RootKind};

type Result<T> = std::result::Result<T, Malformed>;

/// The request of a call to the agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AgentRequest {
    /// Runs a command.
    Bash(ShellCommand),
    /// Shows a file, or a directory two levels deep.
    View {
        /// Relative ones start at the working directory.
        path: String,
        /// First and last line, counted from 1; -1 as the last is the end.
        range: Option<(i64, i64)>,
    },
    /// Writes a file. Its bytes follow as data, up to an end.
    Create {
        /// Missing directories are made.
        path: String,
    },
    /// Writes a file under a name that is not taken yet. Its bytes follow as data, up to an end.
    Put {
        /// What it should be called; one component.
        name: String,
    },
    /// Replaces the only occurrence of a passage.
    Replace {
        /// The file.
        path: String,
        /// The passage.
        old: String,
        /// Replacement text.
        new: String,
    },
    /// Hands out a file's bytes as data, up to an end.
    Get {
        /// The file.
        path: String,
    },
}

/// A command and its limits.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ShellCommand {
    /// The shell, an absolute path; it gets `-c -- command`.
    pub shell: String,
    /// The command.
    pub command: String,
    /// Environment variables beside those that the agent itself has.
    pub env: Vec<(String, String)>,
    /// The directory that it begins in and whose files are looked at, unless the agent's.
    pub dir: Option<String>,
    /// Directories that it sees although they are in a hidden one.
    pub visible: Vec<String>,
    /// What alone it may change, where that is limited.
    pub sandbox: Option<ShellSandbox>,
    /// How long it may run, in milliseconds.
    pub time_ms: u64,
    /// How long its processes have to react to SIGTERM before SIGKILL, in milliseconds.
    pub grace_ms: u64,
}

/// What alone a command may change, and what it does not see.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ShellSandbox {
    /// Directories and files that it changes, absolute and without links.
    pub write: Vec<String>,
    /// Files and directories that it does not see, besides what all commands do not.
    pub hidden: Vec<String>,
    /// Whether it reaches the network.
    pub network: bool,
}

/// The reply of the agent to a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AgentReply {
    /// The end of a command; its output came before.
    Bash(CommandResult),
    /// What a file or directory looks like.
    View {
        /// The lines, or the listing.
        content: String,
        /// Whether it is a directory.
        directory: bool,
        /// Lines of the whole file.
        total_lines: Option<u64>,
        /// Where the whole file is, when only its beginning is shown, and its bytes.
        full_file: Option<(String, RootKind, u64)>,
    },
    /// A file was written.
    Written {
        /// Path of the file.
        path: String,
        /// The directory that it is in.
        kind: RootKind,
        /// Size in bytes.
        size: u64,
        /// Whether there was a file before.
        replaced: bool,
        /// Number of its state, as [`file_state`](crate::files::file_state) has it; 0 where it is gone
        /// again.
        state: u64,
    },
    /// A file was handed out; so many bytes.
    Sent(u64),
}

/// The result of a command.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CommandResult {
    /// The exit code; nothing when a signal ended it.
    pub exit_code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// Whether the time limit was exceeded.
    pub timed_out: bool,
    /// What of its confinement could not be had.
    pub gaps: Gaps,
    /// Files of the working directory that it made or changed, below that directory.
    pub files: Vec<FileChange>,
    /// How many more there are whose names are not UTF-8.
    pub unnamed_count: u64,
    /// Whether the directory has more entries than were looked at.
    pub is_truncated: bool,
}

impl AgentRequest {
    /// The bytes of the request.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let writer = PayloadWriter::default();
        match self {
            Self::Bash(bash) => writer
                .u8(1)
                .text(&bash.shell)
                .text(&bash.command)
                .list(&bash.env, |writer, (name, value)| {
                    writer.text(name).text(value)
                })
                .option(bash.dir.as_deref(), PayloadWriter::text)
                .list(&bash.visible, |writer, dir| writer.text(dir))
                .option(bash.sandbox.as_ref(), |writer, sandbox| {
                    let writer = writer.list(&sandbox.write, |writer, path| writer.text(path));
                    let writer = writer.list(&sandbox.hidden, |writer, path| writer.text(path));
                    writer.u8(sandbox.network.into())
                })
                .u64(bash.time_ms)
                .u64(bash.grace_ms),
            Self::View { path, range } => writer
                .u8(2)
                .text(path)
                .option(*range, |writer, (first, last)| writer.i64(first).i64(last)),
            Self::Create { path } => writer.u8(3).text(path),
            Self::Put { name } => writer.u8(4).text(name),
            Self::Replace { path, old, new } => writer.u8(5).text(path).text(old).text(new),
            Self::Get { path } => writer.u8(6).text(path),
        }
        .bytes()
    }

    /// Reads a request.
    ///
    /// # Errors
    /// When the bytes are none.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut reader = PayloadReader::new(bytes);
        let request = match reader.u8()? {
            1 => Self::Bash(ShellCommand {
                shell: reader.text()?,
                command: reader.text()?,
                env: reader.list(|reader| Ok((reader.text()?, reader.text()?)))?,
                dir: reader.option(PayloadReader::text)?,
                visible: reader.list(PayloadReader::text)?,
                sandbox: reader.option(|reader| {
                    Ok(ShellSandbox {
                        write: reader.list(PayloadReader::text)?,
                        hidden: reader.list(PayloadReader::text)?,
                        network: reader.u8()? == 1,
                    })
                })?,
                time_ms: reader.u64()?,
                grace_ms: reader.u64()?,
            }),
            2 => Self::View {
                path: reader.text()?,
                range: reader.option(|reader| Ok((reader.i64()?, reader.i64()?)))?,
            },
            3 => Self::Create {
                path: reader.text()?,
            },
            4 => Self::Put {
                name: reader.text()?,
            },
            5 => Self::Replace {
                path: reader.text()?,
                old: reader.text()?,
                new: reader.text()?,
            },
            6 => Self::Get {
                path: reader.text()?,
            },
            other => return Err(unknown("request", other)),
        };
        reader.end()?;
        Ok(request)
    }
}

impl AgentReply {
    /// The bytes of the reply.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let writer = PayloadWriter::default();
        match self {
            Self::Bash(ended) => writer
                .u8(1)
                .option(ended.exit_code, PayloadWriter::int)
                .option(ended.signal, PayloadWriter::int)
                .u8(ended.timed_out.into())
                .u8(ended.gaps.bits())
                .list(&ended.files, |writer, file| {
                    writer.text(&file.path).u64(file.size).u64(file.state)
                })
                .u64(ended.unnamed_count)
                .u8(ended.is_truncated.into()),
            Self::View {
                content,
                directory,
                total_lines,
                full_file: cut,
            } => writer
                .u8(2)
                .text(content)
                .u8((*directory).into())
                .option(*total_lines, PayloadWriter::u64)
                .option(cut.as_ref(), |writer, (path, kind, size)| {
                    writer.text(path).u8(kind_number(*kind)).u64(*size)
                }),
            Self::Written {
                path,
                kind,
                size,
                replaced,
                state,
            } => writer
                .u8(3)
                .text(path)
                .u8(kind_number(*kind))
                .u64(*size)
                .u8((*replaced).into())
                .u64(*state),
            Self::Sent(size) => writer.u8(4).u64(*size),
        }
        .bytes()
    }

    /// Reads a reply.
    ///
    /// # Errors
    /// When the bytes are none.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut reader = PayloadReader::new(bytes);
        let reply = match reader.u8()? {
            1 => Self::Bash(CommandResult {
                exit_code: reader.option(PayloadReader::int)?,
                signal: reader.option(PayloadReader::int)?,
                timed_out: reader.u8()? == 1,
                gaps: Gaps::from_bits(reader.u8()?),
                files: reader.list(|reader| {
                    Ok(FileChange {
                        path: reader.text()?,
                        size: reader.u64()?,
                        state: reader.u64()?,
                    })
                })?,
                unnamed_count: reader.u64()?,
                is_truncated: reader.u8()? == 1,
            }),
            2 => Self::View {
                content: reader.text()?,
                directory: reader.u8()? == 1,
                total_lines: reader.option(PayloadReader::u64)?,
                full_file: reader
                    .option(|reader| Ok((reader.text()?, kind(reader)?, reader.u64()?)))?,
            },
            3 => Self::Written {
                path: reader.text()?,
                kind: kind(&mut reader)?,
                size: reader.u64()?,
                replaced: reader.u8()? == 1,
                state: reader.u64()?,
            },
            4 => Self::Sent(reader.u64()?),
            other => return Err(unknown("reply", other)),
        };
        reader.end()?;
        Ok(reply)
    }
}

fn kind_number(kind: RootKind) -> u8 {
    match kind {
        RootKind::Working => 0,
        RootKind::Skill => 1,
        RootKind::Exchange => 2,
    }
}

fn kind(reader: &mut PayloadReader<'_>) -> Result<RootKind> {
    match reader.u8()? {
        0 => Ok(RootKind::Working),
        1 => Ok(RootKind::Skill),
        2 => Ok(RootKind::Exchange),
        other => Err(unknown("directory", other)),
    }
}

fn unknown(what: &str, number: u8) -> Malformed {
    Malformed::new(format!("there is no {what} of the kind {number}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requests() -> Vec<AgentRequest> {
        vec![
            AgentRequest::Bash(ShellCommand {
                shell: "/bin/sh".into(),
                command: "echo \u{e9}".into(),
                env: vec![("A".into(), "1".into()), ("B".into(), String::new())],
                dir: Some("/w".into()),
                visible: vec!["/d/s".into()],
                sandbox: Some(ShellSandbox {
                    write: vec!["/w".into()],
                    hidden: vec!["/h".into()],
                    network: true,
                }),
                time_ms: 30_000,
                grace_ms: 500,
            }),
            AgentRequest::View {
                path: "a".into(),
                range: Some((1, -1)),
            },
            AgentRequest::View {
                path: "a".into(),
                range: None,
            },
            AgentRequest::Create { path: "a".into() },
            AgentRequest::Put { name: "a".into() },
            AgentRequest::Replace {
                path: "a".into(),
                old: "o".into(),
                new: String::new(),
            },
            AgentRequest::Get { path: "a".into() },
        ]
    }

    fn replies() -> Vec<AgentReply> {
        vec![
            AgentReply::Bash(CommandResult {
                exit_code: None,
                signal: Some(9),
                timed_out: true,
                gaps: Gaps::from_bits(5),
                files: vec![FileChange {
                    path: "a/b".into(),
                    size: 3,
                    state: 4,
                }],
                unnamed_count: 1,
                is_truncated: true,
            }),
            AgentReply::View {
                content: "1\tx".into(),
                directory: false,
                total_lines: Some(1),
                full_file: Some(("/w/a".into(), RootKind::Skill, 9)),
            },
            AgentReply::Written {
                path: "/w/a".into(),
                kind: RootKind::Working,
                size: 3,
                replaced: true,
                state: 4,
            },
            AgentReply::Sent(u64::MAX),
        ]
    }

    #[test]
    fn what_is_written_is_read_again_and_no_cut_of_it_is() {
        for request in requests() {
            let bytes = request.encode();
            assert_eq!(AgentRequest::decode(&bytes), Ok(request));
            for end in 0..bytes.len() {
                assert!(AgentRequest::decode(&bytes[..end]).is_err());
            }
        }
        for reply in replies() {
            let bytes = reply.encode();
            assert_eq!(AgentReply::decode(&bytes), Ok(reply));
            for end in 0..bytes.len() {
                assert!(AgentReply::decode(&bytes[..end]).is_err());
            }
        }
    }

    #[test]
    fn more_than_a_message_is_refused() {
        let mut bytes = AgentRequest::Get { path: "a".into() }.encode();
        bytes.push(0);
        assert!(AgentRequest::decode(&bytes).is_err());
    }
}
