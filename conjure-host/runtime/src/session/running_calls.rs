//! The calls of a step that run: each on a task of its own, with what of its output is shown.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use conjure_abi::EmitKind;
use conjure_config::SessionSpec;
use conjure_core::chat::{Event, FunctionCall};
use futures_util::FutureExt as _;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::derived::{call_timeout, most_bytes};
use super::routed_call::RoutedCall;
use super::skill_lists::{ListKind, changed_lists, run_time_tools};
use super::thread_resources::ThreadResources;
use super::turns::Turns;
use crate::backend::LiveOutput;
use crate::backend::backend_changes::updated_resource;
use crate::backend::reports::{ReportSender, TaskReport};
use crate::backend::run::Runner;
use crate::spans;

/// Bytes of live output of one call that subscribers see; the result holds more.
const LIVE_BYTES: usize = 256 * 1024;

/// The calls that run or are about to.
#[derive(Default)]
pub(super) struct RunningCalls {
    cancels: HashMap<String, CancellationToken>,
    /// Bytes of live output shown so far, by call.
    shown_bytes: HashMap<String, usize>,
    /// When the newest reply was there, whose calls run.
    requested_at: Option<Instant>,
}

impl RunningCalls {
    /// Whether no call runs.
    pub(super) fn is_empty(&self) -> bool {
        self.cancels.is_empty()
    }

    /// A reply is whole; its calls are asked for from here on.
    pub(super) fn mark_requested(&mut self) {
        self.requested_at = Some(Instant::now());
    }

    /// A call is about to run. It can be stopped from here on.
    pub(super) fn add(&mut self, call: &FunctionCall) {
        self.cancels
            .insert(call.call_id.clone(), CancellationToken::new());
    }

    pub(super) fn stop(&self, call_id: &str) {
        if let Some(cancel) = self.cancels.get(call_id) {
            cancel.cancel();
        }
    }

    pub(super) fn stop_all(&self) {
        for cancel in self.cancels.values() {
            cancel.cancel();
        }
    }

    /// A call has its result.
    pub(super) fn remove(&mut self, call_id: &str) {
        self.cancels.remove(call_id);
        self.shown_bytes.remove(call_id);
    }

    /// Gives room back.
    pub(super) fn shrink_to_fit(&mut self) {
        self.cancels.shrink_to_fit();
        self.shown_bytes.shrink_to_fit();
    }

    /// What is shown of a call's output as it comes; nothing where enough was.
    pub(super) fn output(
        &mut self,
        call_id: String,
        kind: EmitKind,
        bytes: &[u8],
    ) -> Option<Event> {
        let shown = self.shown_bytes.entry(call_id.clone()).or_default();
        if *shown >= LIVE_BYTES {
            return None;
        }
        *shown += bytes.len();
        let end = if *shown >= LIVE_BYTES {
            "\n[more output is not shown live]\n"
        } else {
            ""
        };
        let stream = match kind {
            EmitKind::Stdout => "stdout",
            EmitKind::Stderr => "stderr",
            EmitKind::Event => "progress",
        };
        Some(Event::ToolOutput {
            call_id,
            stream: stream.to_owned(),
            chunk: format!("{}{end}", String::from_utf8_lossy(bytes)),
        })
    }

    /// Runs a call that was added.
    pub(super) fn run(
        &self,
        routed: RoutedCall,
        spec: &SessionSpec,
        turns: &Turns,
        resources: &ThreadResources,
    ) {
        let Some(cancel) = self.cancels.get(&routed.call().call_id).cloned() else {
            return;
        };
        let request_context = resources.request_context.clone();
        let (artifacts, reports) = (Arc::clone(&resources.artifacts), resources.reports.clone());
        let turn_id = turns.running().cloned();
        let (timeout, most_bytes) = (call_timeout(spec), most_bytes(spec));
        let timeouts = spec.timeouts.clone();
        let queued = self.requested_at.map(|asked| asked.elapsed());
        let queued = queued.unwrap_or_default();
        let span = spans::tool_call(turns.span(), routed.call(), routed.route(), queued);
        let traceparent = spans::traceparent(&span);
        tokio::spawn(async move {
            let (outputs, pieces) = mpsc::channel(64);
            let tools_changed = Arc::new(AtomicBool::new(false));
            let shown = tokio::spawn(forward(
                routed.call().call_id.clone(),
                pieces,
                reports.clone(),
            ));
            let running = async {
                let session = Arc::clone(&request_context.session);
                let live = live_output(outputs, session, Arc::clone(&tools_changed));
                let runner = Runner {
                    request_context: &request_context,
                    artifacts: &artifacts,
                    turn_id: turn_id.as_ref(),
                    traceparent: traceparent.as_deref(),
                    timeout,
                    timeouts: &timeouts,
                    most_bytes,
                    verbatim: false,
                    cancel: &cancel,
                    live: &live,
                };
                routed.run(&runner).await
            };
            let report = match AssertUnwindSafe(running).catch_unwind().await {
                Ok(report) => report,
                Err(_) => routed.broken(),
            };
            spans::record_call(&span, &report);
            drop(span);
            // Live output stands before the result in the log.
            let _ = shown.await;
            if let Some(moved) = routed.take_outcome() {
                // Before the result: the request that has it tells the model.
                let _ = reports.send(TaskReport::StateMoved(moved)).await;
            }
            if tools_changed.load(Ordering::Relaxed) {
                // Before the result: the next step has the tools that this call brought.
                let listed = run_time_tools(
                    routed.snapshot(),
                    &request_context,
                    &CancellationToken::new(),
                )
                .await;
                let _ = reports.send(TaskReport::SkillTools(listed)).await;
            }
            let _ = reports.send(TaskReport::CallDone(Box::new(report))).await;
        });
    }
}

/// Live output is for eyes: what a slow log cannot take is left out of it, never out of the result.
/// What a skill says of its lists is for the session, and shown to nobody.
fn live_output(
    outputs: mpsc::Sender<(EmitKind, Vec<u8>)>,
    session: Arc<str>,
    tools_changed: Arc<AtomicBool>,
) -> LiveOutput {
    let shown = AtomicUsize::new(0);
    Arc::new(move |kind, bytes| {
        if kind == EmitKind::Event {
            if let Some(kinds) = changed_lists(bytes, &session) {
                tools_changed.fetch_or(kinds.contains(&ListKind::Tools), Ordering::Relaxed);
                return;
            }
            if updated_resource(bytes, &session).is_some() {
                return;
            }
        }
        if shown.fetch_add(bytes.len(), Ordering::Relaxed) < LIVE_BYTES {
            let _ = outputs.try_send((kind, bytes.to_vec()));
        }
    })
}

async fn forward(
    call_id: String,
    mut pieces: mpsc::Receiver<(EmitKind, Vec<u8>)>,
    reports: ReportSender,
) {
    while let Some((kind, bytes)) = pieces.recv().await {
        let call_id = call_id.clone();
        let sent = reports
            .send(TaskReport::Output {
                call_id,
                kind,
                bytes,
            })
            .await;
        if !sent {
            break;
        }
    }
}
