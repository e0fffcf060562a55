//! What the model is told of a call that failed, was not run or has no known result.
//!
//! The one place for these words: each names the tool by its public name, the backend that runs it,
//! what happened and why, and what to do next, which depends on the kind of failure. Decides nothing.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::log::{NotRun, describe_limit};
use crate::sentence::sentence;

/// The most characters of a tool's name that are repeated: a model may write any.
const NAME_CHARS: usize = 80;

/// A failed call, in words by its `Display`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallFailure<'a> {
    /// The tool's public name.
    pub tool: &'a str,
    /// The backend instance that runs it; none where the call came to no backend, or where nobody
    /// knows to which, which its kind tells.
    pub backend: Option<&'a str>,
    /// What happened.
    pub kind: CallFailureKind<'a>,
}

/// What happened to a call. Reasons may be sentences or parts of one, with a full stop or without.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallFailureKind<'a> {
    /// Not run: the session has no tool of this name that can be used.
    NoSuchTool {
        /// Why there is none.
        reason: &'a str,
        /// Sentence about the tools that there are instead.
        alternatives: &'a str,
    },
    /// Not run: the arguments are no JSON object, or do not fit the tool's schema.
    BadArguments {
        /// What is wrong with them.
        reason: &'a str,
    },
    /// Not run: the session's policy denies it.
    Denied {
        /// The rule or default that says so.
        reason: &'a str,
    },
    /// Not run: a person would have to allow it, and nobody is there.
    NobodyToAsk {
        /// The rule or default that asks.
        reason: &'a str,
    },
    /// Not run: a person was asked and said no.
    PersonRefused {
        /// What they said; may be empty.
        reason: &'a str,
    },
    /// Not run: its turn was ended first.
    TurnEnded,
    /// Not run: it was cancelled while it waited for what it needs.
    CancelledBefore,
    /// Not run: the session's settings changed first.
    SettingsChanged,
    /// Not run: the reply that asked for it was cut short by a limit or by the provider.
    ReplyCutShort,
    /// Not run: the reply that asked for it broke off.
    ReplyBrokeOff,
    /// Not run: a limit of the session is reached.
    OverLimit {
        /// Name of the limit, such as `max_iterations`.
        limit: &'a str,
        /// Value of the limit.
        value: u64,
    },
    /// Not run: what it needs is not there, such as the plugin or a file that it names.
    NotReady {
        /// What is missing.
        reason: &'a str,
    },
    /// Not run: too much is going on at once.
    Busy {
        /// What there is too much of.
        reason: &'a str,
    },
    /// Not run: the host ended before it was begun.
    HostEndedBefore,
    /// The call may have run: the host ended, and its result was never seen.
    HostEndedDuring,
    /// The call ran too long and was ended.
    TimedOut {
        /// Time limit of the call, in milliseconds.
        limit_ms: u64,
        /// The plugin whose code stopped when it was told to; nothing for a command, which is ended
        /// with everything that it had started.
        plugin: Option<&'a str>,
    },
    /// The call ran too long and did not stop when told to, so the process that it ran in is ended.
    WorkerKilled {
        /// Time limit of the call, in milliseconds.
        limit_ms: u64,
        /// The plugin whose process that is.
        plugin: &'a str,
    },
    /// The call ran too long, did not stop when it was told to, and was left to itself.
    Abandoned {
        /// Time limit of the call, in milliseconds.
        limit_ms: u64,
        /// The plugin whose code goes on.
        plugin: &'a str,
    },
    /// The call was cancelled while it ran.
    Cancelled,
    /// The code behind the tool broke: a fault, a panic, a lost connection.
    Crashed {
        /// The plugin or server, and what it says.
        reason: &'a str,
    },
    /// The code behind the tool gave a reply that cannot be read.
    BadReply {
        /// What is wrong with it.
        reason: &'a str,
    },
    /// The host itself broke.
    HostFailed,
    /// The tool ran and says that it failed: its own words, which come first.
    ToolError {
        /// What the tool says; may be empty.
        message: &'a str,
    },
    /// What runs the tool failed, which need not have to do with the arguments: its own words come
    /// first.
    BackendFailed {
        /// What the backend says; may be empty.
        message: &'a str,
        /// Whether these words are known to say what to do, so that the host adds nothing of its own.
        has_remedy: bool,
    },
    /// A command ended with a failure; its output and how it ended come first.
    CommandFailed,
}

impl CallFailureKind<'_> {
    /// The reason as data, for a call that was not run because the session would not or could not.
    #[must_use]
    pub fn not_run(&self) -> Option<NotRun> {
        Some(match *self {
            Self::NoSuchTool { .. } => NotRun::NoSuchTool,
            Self::BadArguments { .. } => NotRun::BadArguments,
            Self::Denied { .. } => NotRun::Denied,
            Self::NobodyToAsk { .. } => NotRun::NobodyToAsk,
            Self::PersonRefused { reason } => NotRun::PersonRefused {
                said: reason.to_owned(),
            },
            Self::TurnEnded => NotRun::TurnEnded,
            Self::SettingsChanged => NotRun::SettingsChanged,
            Self::ReplyCutShort => NotRun::ReplyCutShort,
            Self::ReplyBrokeOff => NotRun::ReplyBrokeOff,
            Self::OverLimit { limit, value } => NotRun::OverLimit {
                limit: limit.to_owned(),
                value,
            },
            Self::NotReady { .. } => NotRun::NotReady,
            Self::Busy { .. } => NotRun::Busy,
            Self::HostEndedBefore => NotRun::HostEnded,
            _ => return None,
        })
    }
}

/// What the model is told of a call that is not run, and why it is not.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CallRefusal {
    /// What the model is told, so that it can go on.
    pub text: String,
    /// The reason as data; absent in older recordings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<NotRun>,
}

impl From<CallFailure<'_>> for CallRefusal {
    fn from(failure: CallFailure<'_>) -> Self {
        Self {
            text: failure.to_string(),
            reason: failure.kind.not_run(),
        }
    }
}

impl fmt::Display for CallFailure<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        use CallFailureKind as Kind;
        match self.kind {
            Kind::ToolError { message: said } | Kind::BackendFailed { message: said, .. } => {
                let said = said.trim_end();
                if !said.is_empty() {
                    writeln!(out, "{said}")?;
                }
                return out.write_str(&self.note(!said.is_empty()));
            }
            Kind::CommandFailed => return out.write_str(&self.note(true)),
            _ => {}
        }
        write!(out, "{} ", self.call())?;
        match self.kind {
            Kind::NoSuchTool { reason, .. } => not_run(out, reason),
            Kind::BadArguments { reason } => not_run(out, reason),
            Kind::Denied { reason } => {
                write!(
                    out,
                    "was not run: the session's policy does not allow it ({}).",
                    without_full_stop(reason)
                )
            }
            Kind::NobodyToAsk { reason } => write!(
                out,
                "was not run: a person would have to allow it ({}), and nobody is there to be asked.",
                without_full_stop(reason)
            ),
            Kind::PersonRefused { reason } if without_full_stop(reason).is_empty() => {
                not_run(out, "the person did not allow it")
            }
            Kind::PersonRefused { reason } => write!(
                out,
                "was not run: the person did not allow it and said: {}",
                Sentence(reason)
            ),
            Kind::CancelledBefore => not_run(out, "it was cancelled before it was begun"),
            Kind::TurnEnded => not_run(out, "the turn was ended before this call was run"),
            Kind::SettingsChanged => not_run(out, "the settings changed before it was begun"),
            Kind::ReplyCutShort => not_run(out, "the reply was cut short"),
            Kind::ReplyBrokeOff => not_run(out, "the reply broke off"),
            Kind::OverLimit { limit, value } => write!(
                out,
                "was not run: the limit {} is reached.",
                describe_limit(limit, value)
            ),
            Kind::NotReady { reason } | Kind::Busy { reason } => not_run(out, reason),
            Kind::HostEndedBefore => out.write_str(
                "has no result. The host ended before this call was begun, as far as its log tells.",
            ),
            Kind::HostEndedDuring => out.write_str(
                "has no result. The host ended while this call ran. Whether it took effect is not \
                 known; it was not repeated.",
            ),
            Kind::TimedOut { limit_ms, plugin } => {
                let seconds = seconds(limit_ms);
                write!(out, "was ended by its time limit of {seconds} s")?;
                match plugin {
                    Some(plugin) => write!(out, "; {plugin} stopped when it was told to."),
                    None => out.write_str(", with everything that it had started."),
                }
            }
            Kind::WorkerKilled { limit_ms, plugin } => write!(
                out,
                "was given up after its time limit of {} s: {plugin} did not stop when it was told \
                 to, so its process is ended, and what it kept in memory is lost.",
                seconds(limit_ms)
            ),
            Kind::Abandoned { limit_ms, plugin } => write!(
                out,
                "was given up after its time limit of {} s: {plugin} did not stop when it was told \
                 to, and may go on.",
                seconds(limit_ms)
            ),
            Kind::Cancelled => out.write_str("was cancelled."),
            Kind::Crashed { reason } => write!(out, "failed: {}", Sentence(reason)),
            Kind::BadReply { reason } => {
                write!(out, "gave a reply that cannot be read: {}", Sentence(reason))
            }
            Kind::HostFailed => {
                out.write_str("failed: the host broke while it ran the call; this is a bug of it.")
            }
            Kind::ToolError { .. } | Kind::BackendFailed { .. } | Kind::CommandFailed => Ok(()),
        }?;
        write!(out, " {}", self.remedy())
    }
}

impl CallFailure<'_> {
    /// The line that stands behind what a tool or a command said itself.
    pub fn note(&self, has_output: bool) -> String {
        use CallFailureKind as Kind;
        let reason = match self.kind {
            Kind::ToolError { .. } | Kind::BackendFailed { .. } | Kind::CommandFailed
                if has_output =>
            {
                "failed with what stands above."
            }
            Kind::ToolError { .. } | Kind::BackendFailed { .. } | Kind::CommandFailed => {
                "failed and gave no reason."
            }
            _ => return format!("[{self}]"),
        };
        let remedy = match self.kind {
            Kind::BackendFailed { .. } if !has_output => {
                "Do it in another way, or tell the person.".to_owned()
            }
            Kind::BackendFailed {
                has_remedy: true, ..
            } => return format!("[{} {reason}]", self.call()),
            _ => self.remedy(),
        };
        format!("[{} {reason} {remedy}]", self.call())
    }

    /// Beginning of every sentence: the call's tool and its backend.
    fn call(&self) -> String {
        let tool: String = self.tool.chars().take(NAME_CHARS).collect();
        match self.backend {
            Some(backend) => format!("The call of `{tool}` on backend `{backend}`"),
            // It had a backend, which no log holds before a call is begun.
            None if self.kind == CallFailureKind::HostEndedBefore => {
                format!("The call of `{tool}`")
            }
            None => format!("The call of `{tool}`, which came to no backend,"),
        }
    }

    /// What the model does next.
    fn remedy(&self) -> String {
        use CallFailureKind as Kind;
        let tools = match self.backend {
            Some(backend) => format!("the tools of `{backend}`"),
            None => "its tools".to_owned(),
        };
        match self.kind {
            Kind::NoSuchTool { alternatives: instead, .. } => instead.to_owned(),
            Kind::BadArguments { .. } => {
                "Call it again with arguments that fit its schema.".to_owned()
            }
            Kind::Denied { .. } => "Do not try to reach the same in another way.".to_owned(),
            Kind::NobodyToAsk { .. } => {
                let tool: String = self.tool.chars().take(NAME_CHARS).collect();
                format!("Whoever started this session can allow it with `--allow '{tool}'`.")
            }
            Kind::PersonRefused { .. } => {
                "Do not call it again like this unless the person asks for it.".to_owned()
            }
            Kind::TurnEnded
            | Kind::CancelledBefore
            | Kind::SettingsChanged
            | Kind::HostEndedBefore => {
                "It did nothing; call it again if it is still needed.".to_owned()
            }
            Kind::ReplyCutShort => {
                "It did nothing; call it again, with shorter arguments or in several steps."
                    .to_owned()
            }
            Kind::ReplyBrokeOff => "It did nothing; call it again.".to_owned(),
            Kind::OverLimit { .. } => {
                "Say what is done and what is left, so that the person can go on.".to_owned()
            }
            Kind::NotReady { .. } => "Correct what is missing if you can; otherwise go on without \
                                      this tool and say so."
                .to_owned(),
            Kind::HostEndedDuring => "Check before you call it again.".to_owned(),
            Kind::TimedOut { .. } => format!(
                "Do less at a time; the person can give {tools} more time with `[[timeout]]` in the \
                 session file."
            ),
            Kind::Busy { .. } => "It did nothing; call it again later.".to_owned(),
            Kind::WorkerKilled { .. } | Kind::Abandoned { .. } | Kind::Cancelled => {
                "Whether it took effect is not known; check before you call it again.".to_owned()
            }
            Kind::Crashed { .. } | Kind::BadReply { .. } => {
                "Whether it took effect is not known. Try another way; if that fails too, tell the \
                 person."
                    .to_owned()
            }
            Kind::HostFailed => {
                "Whether it took effect is not known; check before you call it again, and tell the \
                 person."
                    .to_owned()
            }
            Kind::ToolError { .. } => {
                "Correct the arguments or do it in another way; the same call may fail again."
                    .to_owned()
            }
            Kind::BackendFailed { .. } => {
                "Go on as its reason says; where it says nothing of that, correct the arguments if they \
                 are the reason, otherwise do it in another way or tell the person."
                    .to_owned()
            }
            Kind::CommandFailed => "Correct the command, or do it in another way.".to_owned(),
        }
    }
}

fn not_run(out: &mut fmt::Formatter<'_>, reason: &str) -> fmt::Result {
    write!(out, "was not run: {}", Sentence(reason))
}

/// A reason without what ends a sentence.
fn without_full_stop(reason: &str) -> &str {
    reason.trim().trim_end_matches('.')
}

/// A reason as the end of a sentence, with one full stop whatever it came with.
struct Sentence<'a>(&'a str);

impl fmt::Display for Sentence<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if without_full_stop(self.0).is_empty() {
            return out.write_str("it gave no reason.");
        }
        out.write_str(&sentence(self.0))
    }
}

fn seconds(milliseconds: u64) -> String {
    if milliseconds.is_multiple_of(1000) {
        (milliseconds / 1000).to_string()
    } else {
        format!("{:.1}", milliseconds as f64 / 1000.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KINDS: [CallFailureKind<'static>; 28] = [
        CallFailureKind::BadArguments {
            reason: "missing field `command`",
        },
        CallFailureKind::Denied {
            reason: "deny by the rule `x`",
        },
        CallFailureKind::NobodyToAsk {
            reason: "ask by the rule `x`",
        },
        CallFailureKind::PersonRefused { reason: "" },
        CallFailureKind::PersonRefused {
            reason: "use the other cache",
        },
        CallFailureKind::TurnEnded,
        CallFailureKind::SettingsChanged,
        CallFailureKind::ReplyCutShort,
        CallFailureKind::ReplyBrokeOff,
        CallFailureKind::OverLimit {
            limit: "calls",
            value: 5,
        },
        CallFailureKind::NotReady {
            reason: "there is no file file-9",
        },
        CallFailureKind::HostEndedBefore,
        CallFailureKind::HostEndedDuring,
        CallFailureKind::TimedOut {
            limit_ms: 3000,
            plugin: None,
        },
        CallFailureKind::TimedOut {
            limit_ms: 3000,
            plugin: Some("skill 1.0.0"),
        },
        CallFailureKind::Cancelled,
        CallFailureKind::Crashed {
            reason: "skill 1.0.0: reload it to try again.",
        },
        CallFailureKind::BadReply {
            reason: "it is not UTF-8",
        },
        CallFailureKind::HostFailed,
        CallFailureKind::ToolError {
            message: "The skill refused the task.",
        },
        CallFailureKind::CommandFailed,
        CallFailureKind::NoSuchTool {
            reason: "no backend of this session has it",
            alternatives: "Did you mean `analyzer_view`?",
        },
        CallFailureKind::CancelledBefore,
        CallFailureKind::Busy {
            reason: "skill 1.0.0: all of its 4 threads are busy",
        },
        CallFailureKind::Abandoned {
            limit_ms: 1500,
            plugin: "skill 1.0.0",
        },
        CallFailureKind::WorkerKilled {
            limit_ms: 1500,
            plugin: "skill 1.0.0",
        },
        CallFailureKind::BackendFailed {
            message: "There is no image `x`.",
            has_remedy: false,
        },
        CallFailureKind::BackendFailed {
            message: "The server has ended. Make the page again.",
            has_remedy: true,
        },
    ];

    fn told(backend: Option<&str>, kind: CallFailureKind<'_>) -> String {
        let tool = "analyzer_bash_tool";
        CallFailure {
            tool,
            backend,
            kind,
        }
        .to_string()
    }

    #[test]
    fn every_kind_names_tool_and_backend_and_what_to_do() {
        let all: Vec<String> = KINDS.map(|kind| told(Some("local-2"), kind)).into();
        for text in &all {
            assert!(text.contains("`analyzer_bash_tool`"), "{text}");
            assert!(text.contains("backend `local-2`"), "{text}");
            assert!(!text.contains("..") && !text.contains("  "), "{text}");
        }
        insta::assert_snapshot!(all.join("\n"));
    }

    #[test]
    fn a_fault_that_says_what_to_do_gets_no_remedy_of_the_hosts() {
        let failed = |said, has_remedy| {
            told(
                Some("pages"),
                CallFailureKind::BackendFailed {
                    message: said,
                    has_remedy,
                },
            )
        };
        let said = "The server has ended. Make the page again.";
        assert_eq!(
            failed(said, true),
            format!(
                "{said}\n[The call of `analyzer_bash_tool` on backend `pages` failed with what stands \
                 above.]"
            )
        );
        // Without a word, or where nobody knows whether the words say what to do, the host does.
        let silent = failed("", true);
        assert!(silent.ends_with("gave no reason. Do it in another way, or tell the person.]"));
        let text = failed("No engine.", false);
        assert!(text.contains("Go on as its reason says"), "{text}");
        assert!(!text.contains("the same call may fail again"), "{text}");
    }

    #[test]
    fn a_call_that_came_to_no_backend_says_so() {
        for kind in KINDS {
            let text = told(None, kind);
            // Of a call that was not begun the log has no backend, which is not that there was none.
            let is_told = kind != CallFailureKind::HostEndedBefore;
            assert_eq!(text.contains("which came to no backend"), is_told, "{text}");
            assert!(!text.contains("``"), "{text}");
        }
    }

    #[test]
    fn a_reason_ends_in_one_full_stop_and_a_long_name_is_cut() {
        for reason in ["no disk", "no disk.", "no disk..", " no disk. "] {
            let text = told(Some("b"), CallFailureKind::Crashed { reason });
            assert!(text.contains("failed: no disk. Whether"), "{text}");
        }
        for reason in ["no disk...", "no disk…"] {
            let text = told(Some("b"), CallFailureKind::Crashed { reason });
            assert!(
                text.contains(&format!("failed: {reason} Whether")),
                "{text}"
            );
        }
        let long = CallFailure {
            tool: &"x".repeat(500),
            backend: None,
            kind: CallFailureKind::TurnEnded,
        };
        assert!(long.to_string().len() < 250);
    }
}
