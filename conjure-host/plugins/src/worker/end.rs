//! How a worker ended, in words for people and models.

use std::fmt;
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::time::Duration;

use rustix::process::Signal;

use super::WorkerLimits;
use super::process::VIOLATION;

/// The most characters that are kept of what a worker last said.
const MAX_LAST_LINE_CHARS: usize = 300;

/// How a worker ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WorkerEnd {
    cause: EndCause,
    /// The last line that it wrote to its standard error.
    last_line: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum EndCause {
    /// The host ended it, for this reason.
    Host(&'static str),
    /// The host ended it, since what it sent is not the protocol.
    Violation(String),
    Memory {
        limit: u64,
    },
    Processor {
        limit: Duration,
    },
    /// The host ended it, for time of processors beyond what it is given back.
    Busy {
        limit: Duration,
    },
    /// The host ended it.
    Threads {
        limit: usize,
    },
    /// The host ended it, for what it and all that it started are together.
    Processes {
        count: usize,
        limit: usize,
    },
    /// The host ended it, for what it and all that it started have together.
    TreeMemory {
        bytes: u64,
        limit: u64,
    },
    Signal(i32),
    Exit(i32),
    Unknown(String),
}

impl WorkerEnd {
    /// An end that the system reports. `limits` is what the worker might use.
    pub(super) fn from_status(
        status: &ExitStatus,
        last_line: Option<String>,
        limits: &WorkerLimits,
    ) -> Self {
        let is_allocation = |line: &String| line.contains("memory allocation of");
        let cause = match (status.signal(), status.code()) {
            (Some(signal), _)
                if signal == Signal::ABORT.as_raw()
                    && last_line.as_ref().is_some_and(is_allocation) =>
            {
                EndCause::Memory {
                    limit: limits.memory,
                }
            }
            (Some(signal), _) if signal == Signal::XCPU.as_raw() => EndCause::Processor {
                limit: limits.processor_time,
            },
            (Some(signal), _) => EndCause::Signal(signal),
            (None, Some(code)) => EndCause::Exit(code),
            (None, None) => EndCause::Unknown(status.to_string()),
        };
        Self { cause, last_line }
    }

    /// An end that the host made.
    pub(super) fn by_host(reason: &'static str) -> Self {
        Self {
            cause: EndCause::Host(reason),
            last_line: None,
        }
    }

    /// An end that the host made of one that took too much time of processors.
    pub(super) fn busy(limit: Duration) -> Self {
        Self {
            cause: EndCause::Busy { limit },
            last_line: None,
        }
    }

    /// An end that the host made of one with too many threads.
    pub(super) fn too_many_threads(limit: usize) -> Self {
        Self {
            cause: EndCause::Threads { limit },
            last_line: None,
        }
    }

    /// An end that the host made of one that is too many processes with what it started.
    pub(super) fn too_many_processes(count: usize, limit: usize) -> Self {
        Self {
            cause: EndCause::Processes { count, limit },
            last_line: None,
        }
    }

    /// An end that the host made of one that has too much memory with what it started.
    pub(super) fn too_much_memory(bytes: u64, limit: u64) -> Self {
        Self {
            cause: EndCause::TreeMemory { bytes, limit },
            last_line: None,
        }
    }

    /// Whether the worker itself brought about an end that the host made.
    pub(super) fn is_caused_by_worker(&self) -> bool {
        match &self.cause {
            EndCause::Host(reason) => *reason == VIOLATION,
            EndCause::Busy { .. }
            | EndCause::Threads { .. }
            | EndCause::Processes { .. }
            | EndCause::TreeMemory { .. } => true,
            _ => false,
        }
    }

    /// An end that the host made of one that does not keep to the protocol.
    pub(super) fn violation(what: String) -> Self {
        Self {
            cause: EndCause::Violation(what),
            last_line: None,
        }
    }

    /// An end of which nobody could tell the cause.
    pub(super) fn unknown(reason: impl Into<String>) -> Self {
        Self {
            cause: EndCause::Unknown(reason.into()),
            last_line: None,
        }
    }
}

impl fmt::Display for WorkerEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.cause {
            EndCause::Host(reason) => write!(f, "was ended by the host because {reason}")?,
            EndCause::Violation(what) => write!(
                f,
                "was ended by the host because what it wrote to its standard output is not the protocol \
                 ({what})"
            )?,
            EndCause::Memory { limit } => write!(
                f,
                "ended because it needed more memory than a worker may use ({} MiB)",
                limit / 1024 / 1024
            )?,
            EndCause::Processor { limit } => write!(
                f,
                "ended because it used more time of processors than a worker may ({} s)",
                limit.as_secs()
            )?,
            EndCause::Busy { limit } => write!(
                f,
                "was ended by the host because it used more time of processors than a worker may ({} s \
                 beyond a quarter of one processor)",
                limit.as_secs()
            )?,
            EndCause::Threads { limit } => write!(
                f,
                "was ended by the host because it has more threads than a worker may ({limit})"
            )?,
            EndCause::Processes { count, limit } => write!(
                f,
                "was ended by the host because it and the programs that it started were {count} processes, \
                 and a worker may have {limit}"
            )?,
            EndCause::TreeMemory { bytes, limit } => write!(
                f,
                "was ended by the host because it and the programs that it started had {} MiB of memory, \
                 and together they may have {} MiB",
                bytes / 1024 / 1024,
                limit / 1024 / 1024
            )?,
            EndCause::Signal(signal) => match Signal::from_named_raw(*signal) {
                Some(Signal::SEGV) => f.write_str("ended with a segmentation fault (SIGSEGV)")?,
                Some(Signal::ABORT) => f.write_str("aborted (SIGABRT)")?,
                Some(Signal::BUS) => f.write_str("ended with a bus error (SIGBUS)")?,
                Some(Signal::ILL) => f.write_str("ended with an illegal instruction (SIGILL)")?,
                Some(Signal::KILL) => {
                    f.write_str("was killed (SIGKILL), by a person or because memory ran out")?;
                }
                _ => write!(f, "was ended by signal {signal}")?,
            },
            EndCause::Exit(code) => write!(f, "called `exit` with code {code}")?,
            EndCause::Unknown(reason) => write!(f, "ended ({reason})")?,
        }
        if let Some(said) = &self.last_line {
            write!(f, "; its last words were: {said}")?;
        }
        Ok(())
    }
}

/// The last line of what a worker wrote that says something, cut to a bearable length.
pub(super) fn last_line(text: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(text);
    let line = text
        .lines()
        .rev()
        .map(str::trim)
        .find(|line| !line.is_empty() && !line.starts_with("note:"))?;
    let words = line
        .chars()
        .filter(|c| !c.is_control())
        .take(MAX_LAST_LINE_CHARS);
    Some(words.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(raw: i32, said: Option<&str>) -> String {
        let status = ExitStatus::from_raw(raw);
        let limits = WorkerLimits {
            memory: 64 * 1024 * 1024,
            processor_time: Duration::from_secs(3600),
            ..WorkerLimits::default()
        };
        WorkerEnd::from_status(&status, said.map(str::to_owned), &limits).to_string()
    }

    #[test]
    fn every_end_says_how_and_what_was_said_last() {
        assert_eq!(end(11, None), "ended with a segmentation fault (SIGSEGV)");
        assert_eq!(
            end(6, Some("stack overflow")),
            "aborted (SIGABRT); its last words were: stack overflow"
        );
        assert!(
            end(6, Some("memory allocation of 99 bytes failed"))
                .starts_with("ended because it needed more memory than a worker may use (64 MiB)")
        );
        assert_eq!(
            end(24, None),
            "ended because it used more time of processors than a worker may (3600 s)"
        );
        assert_eq!(end(3 << 8, None), "called `exit` with code 3");
        assert!(end(9, None).starts_with("was killed (SIGKILL)"));
        assert_eq!(end(64, None), "was ended by signal 64");
    }

    #[test]
    fn what_a_tree_has_too_much_of_is_said_with_the_limit_and_is_its_own_doing() {
        let many = WorkerEnd::too_many_processes(1030, 1024);
        let expected = "was ended by the host because it and the programs that it started were 1030 \
                        processes, and a worker may have 1024";
        assert_eq!(many.to_string(), expected);
        let much = WorkerEnd::too_much_memory(300 << 20, 256 << 20);
        let expected = "was ended by the host because it and the programs that it started had 300 MiB of \
                        memory, and together they may have 256 MiB";
        assert_eq!(much.to_string(), expected);
        assert!(many.is_caused_by_worker() && much.is_caused_by_worker());
    }

    #[test]
    fn last_words_are_one_line_without_control_characters() {
        let text = b"first\nthe \x1b[31mlast\nnote: run with RUST_BACKTRACE\n\n";
        assert_eq!(last_line(text).as_deref(), Some("the [31mlast"));
        assert_eq!(last_line(b" \n"), None);
        assert_eq!(
            last_line(&[b'x'; 9000]).map(|l| l.len()),
            Some(MAX_LAST_LINE_CHARS)
        );
    }
}
