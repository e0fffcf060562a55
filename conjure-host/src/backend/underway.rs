//! A call on its way, and what its plugin's answers mean for it.

use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use conjure_abi::EmitKind;
use conjure_core::chat::FunctionCall;
use conjure_core::context::{CommandEnd, failure};
use conjure_core::log::CallEnd;
use conjure_core::routing::Route;
use conjure_skill_sdk::protocol::{BashOutput, FileRef, PluginEvent, Spent, ToolResult};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::results::Output;
use crate::artifacts::Artifact;

/// The most files that a call may tell of while it runs.
const MOST_FILES: usize = 10_000;

/// A call on its way.
pub(super) struct Underway<'a> {
    pub(super) call: &'a FunctionCall,
    pub(super) route: &'a Route,
    /// Its limit, waits for what it needs included.
    pub(super) timeout: Duration,
    pub(super) begun: Instant,
    /// Whether it was over its limit and answered when it was told to stop.
    pub(super) overdue: AtomicBool,
    /// Files that the call told of while it ran.
    pub(super) files: Mutex<Vec<FileRef>>,
}

impl Underway<'_> {
    /// What is left of its limit.
    pub(super) fn left(&self) -> Duration {
        self.timeout.saturating_sub(self.begun.elapsed())
    }

    /// Takes note of an event that concerns the result.
    pub(super) fn note(&self, kind: EmitKind, bytes: &[u8]) {
        if kind == EmitKind::Event
            && let Ok(PluginEvent::File { file }) = serde_json::from_slice(bytes)
        {
            let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
            if files.len() < MOST_FILES {
                files.push(file);
            }
        }
    }

    pub(super) fn not_json(&self, error: &serde_json::Error) -> Failed {
        Failed::new(failure(&self.call.name, &error.to_string()))
    }

    pub(super) fn into_files(self) -> Vec<FileRef> {
        self.files
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// A call that gave no answer of its own.
pub(super) struct Failed {
    pub(super) text: String,
    pub(super) end: CallEnd,
}

impl Failed {
    pub(super) fn new(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            end: CallEnd::Failed,
        }
    }
}

/// A call that gave an answer.
pub(super) struct Ran {
    pub(super) is_error: bool,
    pub(super) structured: Option<Value>,
    pub(super) state: Option<Value>,
    pub(super) spent: Vec<Spent>,
    /// How it ended, when it was told to stop and answered all the same.
    pub(super) stopped: Option<CallEnd>,
}

impl Ran {
    pub(super) fn well() -> Self {
        Self {
            is_error: false,
            structured: None,
            state: None,
            spent: Vec::new(),
            stopped: None,
        }
    }
}

pub(super) fn take(output: &mut Output<'_>, mut result: ToolResult) -> Ran {
    Ran {
        is_error: result.is_error,
        state: result.state.take(),
        spent: std::mem::take(&mut result.spent),
        structured: output.tool_result(result),
        stopped: None,
    }
}

pub(super) fn command_result(
    reply: &BashOutput,
    timeout: Duration,
    output: &mut Output<'_>,
) -> Ran {
    let full = reply
        .full_output
        .as_ref()
        .and_then(|file| output.keep(file));
    let full = full.as_ref().map(Artifact::reference);
    let kept = (reply.stdout.len() + reply.stderr.len()) as u64;
    let end = CommandEnd {
        stdout: &reply.stdout,
        stderr: &reply.stderr,
        exit_code: reply.exit_code,
        signal: reply.signal,
        timed_out_after_ms: reply
            .timed_out
            .then(|| u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX)),
        dropped_bytes: match &reply.full_output {
            Some(_) => (reply.stdout_bytes + reply.stderr_bytes).saturating_sub(kept),
            None => 0,
        },
        full_output: full.as_ref(),
    };
    let is_error = end.failed();
    output.text(&end.text());
    for file in &reply.files {
        output.found(file);
    }
    Ran {
        is_error,
        structured: None,
        state: None,
        spent: Vec::new(),
        stopped: reply.timed_out.then_some(CallEnd::TimedOut),
    }
}

#[derive(Deserialize)]
pub(super) struct Command {
    pub(super) command: String,
}

pub(super) fn arguments<T: DeserializeOwned>(call: &FunctionCall) -> Result<T, Failed> {
    serde_json::from_value(call.arguments.clone()).map_err(|error| Failed {
        text: format!("The arguments of `{}` do not fit: {error}.", call.name),
        end: CallEnd::Refused,
    })
}

pub(super) fn decode<R: DeserializeOwned>(
    underway: &Underway<'_>,
    op: &str,
    reply: &[u8],
) -> Result<R, Failed> {
    decode_with(underway, op, reply, |text| serde_json::from_str(text))
}

pub(super) fn tool_result(
    underway: &Underway<'_>,
    op: &str,
    reply: &[u8],
) -> Result<ToolResult, Failed> {
    decode_with(underway, op, reply, ToolResult::from_json)
}

fn decode_with<R>(
    underway: &Underway<'_>,
    op: &str,
    reply: &[u8],
    read: impl Fn(&str) -> serde_json::Result<R>,
) -> Result<R, Failed> {
    // Checking the whole text at once is cheaper than string by string.
    let decoded = match std::str::from_utf8(reply) {
        Ok(text) => read(text).map_err(|error| error.to_string()),
        Err(error) => Err(format!("it is not UTF-8 ({error})")),
    };
    decoded.map_err(|error| {
        let origin = &underway.route.definition.origin;
        let plugin = origin.plugin.as_deref().unwrap_or(&underway.route.backend);
        let what = format!("the plugin `{plugin}` gave a reply to {op} that does not fit: {error}");
        Failed::new(failure(&underway.call.name, &what))
    })
}
