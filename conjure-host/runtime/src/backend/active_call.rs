//! A call on its way, and what its plugin's answers mean for it.

use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use conjure_abi::{EmitKind, code};
use conjure_core::chat::FunctionCall;
use conjure_core::context::{CallFailure, CallFailureKind, CommandEnd};
use conjure_core::log::CallEnd;
use conjure_core::routing::Route;
use conjure_skill_sdk::protocol::{BashOutput, FileRef, PluginEvent, Spent, ToolResult};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::error_text::without_rust_types;
use super::results::OutputCollector;
use super::run::LiveOutput;
use crate::artifacts::{Artifact, CallLocation, LocationSlot};

/// The most files that a call may tell of while it runs.
const MOST_FILES: usize = 10_000;

/// A call on its way.
pub(super) struct ActiveCall<'a> {
    pub(super) call: &'a FunctionCall,
    pub(super) route: &'a Route,
    /// Time limit of the call, waits for what it needs included.
    pub(super) timeout: Duration,
    pub(super) started_at: Instant,
    /// Whether it was over its limit and answered when it was told to stop.
    pub(super) overdue: AtomicBool,
    /// Files that the call told of while it ran.
    pub(super) files: Mutex<Vec<FileRef>>,
    /// Slot for the location where the call works, once it runs beside others; nothing where its
    /// backend is no executor.
    pub(super) location: OnceLock<Option<LocationSlot>>,
}

impl ActiveCall<'_> {
    /// What is left of its limit.
    pub(super) fn remaining(&self) -> Duration {
        self.timeout.saturating_sub(self.started_at.elapsed())
    }

    /// Takes what the call's plugin emits: live output for `live`, and events that concern the result.
    pub(super) fn emitted(&self, kind: EmitKind, bytes: &[u8], live: &LiveOutput) {
        let is_shown = kind != EmitKind::Event || self.takes_event(bytes);
        if is_shown {
            live(kind, bytes);
        }
    }

    /// Takes note of an event, and says whether others may want it too.
    fn takes_event(&self, bytes: &[u8]) -> bool {
        match serde_json::from_slice(bytes) {
            Ok(PluginEvent::File { file }) => {
                let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
                if files.len() < MOST_FILES {
                    files.push(file);
                }
            }
            Ok(event) => {
                if let Some(Some(slot)) = self.location.get()
                    && let Some(location) = CallLocation::from_event(event)
                {
                    slot.get_or_init(|| location);
                    return false;
                }
            }
            Err(_) => {}
        }
        true
    }

    /// The call as a failure of this kind, for the words that the model reads.
    pub(super) fn failure<'k>(&'k self, kind: CallFailureKind<'k>) -> CallFailure<'k> {
        CallFailure {
            tool: &self.call.name,
            backend: Some(&self.route.backend),
            kind,
        }
    }

    /// What came of the call, when it gave no answer of its own.
    pub(super) fn failed(&self, kind: CallFailureKind<'_>) -> FailedCall {
        use CallFailureKind as Kind;
        let end = match kind {
            Kind::BadArguments { .. } => CallEnd::Refused,
            Kind::TimedOut { .. } | Kind::WorkerKilled { .. } | Kind::Abandoned { .. } => {
                CallEnd::TimedOut
            }
            Kind::Cancelled | Kind::CancelledBefore => CallEnd::Cancelled,
            _ => CallEnd::Failed,
        };
        FailedCall {
            text: self.failure(kind).to_string(),
            end,
        }
    }

    /// Like [`Self::failed`], when what the call needs is not there.
    pub(super) fn not_ready(&self, reason: &str) -> FailedCall {
        self.failed(CallFailureKind::NotReady { reason })
    }

    /// Like [`Self::failed`], when the call's plugin failed.
    pub(super) fn plugin_failed(&self, error: &conjure_plugins::PluginCallFailure) -> FailedCall {
        use CallFailureKind as Kind;
        use conjure_plugins::{AfterStop, PluginCallFailure as Error};
        let said = error.to_string();
        let said = without_rust_types(&said);
        let said = said.as_ref();
        let limit_ms = self.limit_ms();
        self.failed(match error {
            Error::Fault { code, .. } => match *code {
                code::PANIC | code::GONE => Kind::Crashed { reason: said },
                code::UNSUPPORTED => Kind::NotReady { reason: said },
                code::CANCELLED => Kind::Cancelled,
                code::BUSY => Kind::Busy { reason: said },
                code::INVALID | code::NOT_FOUND => Kind::ToolError { message: said },
                // Whether its words say what to do, its code does not tell.
                _ => Kind::BackendFailed {
                    message: said,
                    has_remedy: false,
                },
            },
            // Of which a part may have gone by before the plugin was asked.
            Error::TimedOut {
                after: AfterStop::StillRunning,
                plugin,
                ..
            } => Kind::Abandoned { limit_ms, plugin },
            Error::TimedOut {
                after: AfterStop::WorkerKilled,
                plugin,
                ..
            } => Kind::WorkerKilled { limit_ms, plugin },
            Error::TimedOut {
                after: AfterStop::WorkerDied,
                ..
            } => Kind::Crashed { reason: said },
            Error::TimedOut { plugin, .. } => Kind::TimedOut {
                limit_ms,
                plugin: Some(plugin),
            },
            Error::Cancelled { .. } => Kind::Cancelled,
            Error::Busy { .. } | Error::NoThread { .. } => Kind::Busy { reason: said },
            Error::BadReply { .. } => Kind::BadReply { reason: said },
            Error::Quarantined { .. } | Error::NoWorker { .. } => Kind::NotReady { reason: said },
            Error::WorkerEnded { .. } => Kind::Crashed { reason: said },
        })
    }

    /// The plugin behind the tool.
    pub(super) fn plugin(&self) -> &str {
        let origin = &self.route.definition.origin;
        origin.plugin.as_deref().unwrap_or(&self.route.backend)
    }

    pub(super) fn limit_ms(&self) -> u64 {
        u64::try_from(self.timeout.as_millis()).unwrap_or(u64::MAX)
    }

    pub(super) fn not_json(&self, error: &serde_json::Error) -> FailedCall {
        let reason = without_rust_types(&error.to_string()).into_owned();
        self.failed(CallFailureKind::BadArguments { reason: &reason })
    }

    pub(super) fn into_files(self) -> Vec<FileRef> {
        self.files
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// A call that ended without a result of its own.
pub(super) struct FailedCall {
    pub(super) text: String,
    pub(super) end: CallEnd,
}

/// A call that gave an answer.
pub(super) struct CallAnswer {
    /// Why it is an error, if it is one.
    pub(super) failure: Option<CallFailureKind<'static>>,
    pub(super) structured: Option<Value>,
    pub(super) state: Option<Value>,
    pub(super) spent: Vec<Spent>,
    /// End of the call, when it was told to stop and answered all the same.
    pub(super) stopped: Option<CallEnd>,
}

impl CallAnswer {
    pub(super) fn success() -> Self {
        Self {
            failure: None,
            structured: None,
            state: None,
            spent: Vec::new(),
            stopped: None,
        }
    }
}

pub(super) fn collect_answer(
    output: &mut OutputCollector<'_>,
    mut result: ToolResult,
) -> CallAnswer {
    CallAnswer {
        failure: result.is_error.then(|| match has_remedy(&result) {
            true => CallFailureKind::BackendFailed {
                message: "",
                has_remedy: true,
            },
            false => CallFailureKind::ToolError { message: "" },
        }),
        state: result.state.take(),
        spent: std::mem::take(&mut result.spent),
        structured: output.tool_result(result),
        stopped: None,
    }
}

/// Whether a failed result is the plugin's own, and says what to do: its data for programs tells.
fn has_remedy(result: &ToolResult) -> bool {
    let meta = result.meta.as_ref();
    meta.and_then(|meta| meta.get("has_remedy")) == Some(&Value::Bool(true))
}

pub(super) fn command_result(
    reply: &BashOutput,
    timeout: Duration,
    output: &mut OutputCollector<'_>,
) -> CallAnswer {
    let full = reply
        .full_output
        .as_ref()
        .and_then(|file| output.register(file));
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
    let failure = end.failure_kind();
    output.text(&end.text());
    for file in &reply.files {
        output.add_found(file);
    }
    CallAnswer {
        failure,
        structured: None,
        state: None,
        spent: Vec::new(),
        stopped: reply.timed_out.then_some(CallEnd::TimedOut),
    }
}

#[derive(Deserialize)]
pub(super) struct CommandArguments {
    pub(super) command: String,
}

pub(super) fn arguments<T: DeserializeOwned>(
    active_call: &ActiveCall<'_>,
) -> Result<T, FailedCall> {
    serde_json::from_value(active_call.call.arguments.clone())
        .map_err(|error| active_call.not_json(&error))
}

pub(super) fn decode<R: DeserializeOwned>(
    active_call: &ActiveCall<'_>,
    op: &str,
    reply: &[u8],
) -> Result<R, FailedCall> {
    decode_with(active_call, op, reply, |text| serde_json::from_str(text))
}

pub(super) fn tool_result(
    active_call: &ActiveCall<'_>,
    op: &str,
    reply: &[u8],
) -> Result<ToolResult, FailedCall> {
    decode_with(active_call, op, reply, ToolResult::from_json)
}

fn decode_with<R>(
    active_call: &ActiveCall<'_>,
    op: &str,
    reply: &[u8],
    read: impl Fn(&str) -> serde_json::Result<R>,
) -> Result<R, FailedCall> {
    // Checking the whole text at once is cheaper than string by string.
    let decoded = match std::str::from_utf8(reply) {
        Ok(text) => read(text).map_err(|error| error.to_string()),
        Err(error) => Err(format!("it is not UTF-8 ({error})")),
    };
    decoded.map_err(|error| {
        let plugin = active_call.plugin();
        let error = without_rust_types(&error);
        let reason = format!("the reply of the plugin `{plugin}` to {op} does not fit: {error}");
        active_call.failed(CallFailureKind::BadReply { reason: &reason })
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use conjure_core::routing::{CatalogTool, EffectLevel};
    use serde_json::json;

    use super::*;

    /// How many of these events listeners get, and the location that they tell.
    fn heard(slot: Option<Option<LocationSlot>>, events: &[Value]) -> (usize, bool) {
        let call = FunctionCall {
            call_id: "1".to_owned(),
            name: "a_do".to_owned(),
            arguments: json!({}),
            arguments_text: None,
        };
        let definition = CatalogTool::new("do", "backend.call", EffectLevel::Write);
        let route = Route {
            name: conjure_core::routing::ToolName::new("a_do").unwrap(),
            backend: Arc::from("a"),
            kind: Arc::from("a"),
            definition: Arc::new(definition),
        };
        let active_call = ActiveCall {
            call: &call,
            route: &route,
            timeout: Duration::from_secs(1),
            started_at: Instant::now(),
            overdue: AtomicBool::new(false),
            files: Mutex::default(),
            location: slot.map(OnceLock::from).unwrap_or_default(),
        };
        let count = Arc::new(AtomicUsize::new(0));
        let live: LiveOutput = {
            let count = Arc::clone(&count);
            Arc::new(move |_, _| {
                count.fetch_add(1, Ordering::Relaxed);
            })
        };
        for event in events {
            active_call.emitted(EmitKind::Event, event.to_string().as_bytes(), &live);
        }
        let slot = active_call.location.into_inner().flatten();
        let is_known = slot.is_some_and(|slot| slot.get().is_some());
        (count.load(Ordering::Relaxed), is_known)
    }

    #[test]
    fn an_event_named_location_is_a_location_only_of_an_executor_and_in_its_form() {
        let location = json!({ "event": "location", "machine": "m", "dirs": ["1:1"] });
        let own = [
            json!({ "event": "location", "city": "Ulm" }),
            json!({ "event": "location", "machine": 5, "dirs": [] }),
            json!({ "event": "location", "machine": "m", "dirs": "1:1" }),
        ];
        let executor = || Some(Some(LocationSlot::default()));
        assert_eq!(
            heard(executor(), std::slice::from_ref(&location)),
            (0, true)
        );
        assert_eq!(heard(executor(), &own), (3, false));
        for slot in [None, Some(None)] {
            assert_eq!(heard(slot, std::slice::from_ref(&location)), (1, false));
        }
    }
}
