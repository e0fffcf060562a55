//! Running one call: from a public name and arguments to a result, whatever happens in between.
//!
//! Nothing here fails: an unknown tool, bad arguments, a panic, a time-out are results too.

use std::borrow::Cow;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use conjure_abi::EmitKind;
use conjure_core::chat::{FunctionCall, FunctionCallOutput};
use conjure_core::context::{
    CallFailureKind, FilePaths, handles_of_arguments, handles_of_command, with_argument_paths,
    with_command_paths,
};
use conjure_core::log::CallEnd;
use conjure_core::routing::{PolicyCall, Route};
use conjure_skill_sdk::protocol::{BackendCall, ToolResult, op};
use serde::Serialize;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::active_call::{ActiveCall, CallAnswer, FailedCall, collect_answer, tool_result};
use super::attached_files::attached_files;
use super::backend_lease::BackendLease;
use super::lease::SkillLease;
use super::report::CallReport;
use super::request_context::{CallScope, RequestContext};
use super::results::{CallFiles, CollectedOutput, OutputCollector, fetch_with};
use super::snapshot::CallTarget;
use super::staged_files::StagedFiles;
use crate::artifacts::Artifacts;
use conjure_config::TimeoutSpec;
use conjure_plugins::{CallOptions, Emit, Instance, PluginCallFailure, emit_channel};

/// The most bytes of a request's buffer that a thread keeps for its next call in place.
const RETAINED_BYTES: usize = 64 * 1024;

thread_local! {
    /// Where this thread writes the requests of calls in place.
    static REQUEST: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Takes live output: the stream (`stdout`, `stderr`, `event`) and its bytes.
pub type LiveOutput = Arc<dyn Fn(EmitKind, &[u8]) + Send + Sync>;

/// What a call is run with.
pub(crate) struct Runner<'a> {
    pub(crate) request_context: &'a RequestContext,
    pub(crate) artifacts: &'a Artifacts,
    pub(crate) turn_id: Option<&'a Arc<str>>,
    /// The trace that its calls belong to.
    pub(crate) traceparent: Option<&'a str>,
    pub(crate) timeout: Duration,
    pub(crate) timeouts: &'a [TimeoutSpec],
    pub(crate) most_bytes: usize,
    /// Whether the report has what the plugin said word for word.
    pub(crate) verbatim: bool,
    pub(crate) cancel: &'a CancellationToken,
    pub(crate) live: &'a LiveOutput,
}

impl Runner<'_> {
    /// Runs a call to its one terminal result.
    pub(crate) async fn run(
        &self,
        call: &FunctionCall,
        (route, target): (&Route, &CallTarget),
    ) -> CallReport {
        let begun = Instant::now();
        let timeout = self
            .configured_timeout(call, route)
            .or(route.definition.timeout_ms)
            .map_or(self.timeout, Duration::from_millis);
        let active_call = ActiveCall {
            call,
            route,
            timeout,
            started_at: begun,
            overdue: AtomicBool::new(false),
            files: Mutex::default(),
            location: OnceLock::new(),
        };
        let fetch = match target {
            CallTarget::Backend(lease) | CallTarget::Executor(lease, _) => {
                fetch_with(lease, self.request_context)
            }
            CallTarget::Skill(_) => None,
        };
        let finds = matches!(target, CallTarget::Executor(..));
        let files = CallFiles::new(self.artifacts, &route.backend, fetch, finds, self.cancel);
        let working_dir = &self.request_context.working_dir;
        let mut output =
            OutputCollector::new(files, working_dir, self.most_bytes).verbatim(self.verbatim);
        let ran = match self.run_inline(&active_call, target, &mut output) {
            Some(ran) => ran,
            None => {
                // Whatever a tool says of its effects: what it wrote is not another one's.
                active_call.location.get_or_init(|| output.open_window());
                // Behind a pointer, so that a call at once moves next to nothing.
                Box::pin(self.run_async(&active_call, target, &mut output)).await
            }
        };
        self.report(active_call, output, ran, begun.elapsed())
    }

    /// The time that the session sets for such calls, in milliseconds.
    fn configured_timeout(&self, call: &FunctionCall, route: &Route) -> Option<u64> {
        let call = PolicyCall {
            name: &call.name,
            backend: &route.backend,
            effects: route.definition.effects,
            arguments: &call.arguments,
        };
        let mut sets = self.timeouts.iter();
        let set = sets.find(|set| set.tools.touches_text(&call));
        set.map(|set| set.ms)
    }

    /// Runs a call that has earned it on this very thread.
    fn run_inline(
        &self,
        active_call: &ActiveCall<'_>,
        target: &CallTarget,
        output: &mut OutputCollector<'_>,
    ) -> Option<Result<CallAnswer, FailedCall>> {
        let CallTarget::Skill(lease) = target else {
            return None;
        };
        if !active_call.route.definition.in_place || self.cancel.is_cancelled() {
            return None;
        }
        if self.names_files(active_call) {
            return None;
        }
        let _entered = lease.try_enter()?;
        let instance = lease.current_instance()?;
        let op = active_call.route.op();
        if !instance.can_run_in_place(op) {
            return None;
        }
        let mut json = REQUEST.take();
        json.clear();
        let written = self.request_context.request_into(
            &mut json,
            self.call_scope(active_call, None),
            &active_call.call.arguments,
        );
        if let Err(error) = written {
            return Some(Err(active_call.not_json(&error)));
        }
        let window = self.artifacts.begin_inline(&active_call.route.backend);
        let reply = instance.request_in_place(op, &json);
        drop(window);
        if json.capacity() <= RETAINED_BYTES {
            REQUEST.set(json);
        }
        let ran = match reply? {
            Ok(reply) => {
                for emit in reply.output() {
                    active_call.emitted(emit.kind, &emit.bytes, self.live);
                }
                tool_result(active_call, op, &reply).map(|result| collect_answer(output, result))
            }
            Err(fault) => Err(active_call.plugin_failed(&PluginCallFailure::Fault {
                plugin: instance.plugin().id().to_string(),
                code: fault.code,
                message: fault.text().into_owned(),
            })),
        };
        Some(ran)
    }

    /// Runs a call on a thread of the plugin pool, or wherever its plugin does.
    async fn run_async(
        &self,
        active_call: &ActiveCall<'_>,
        target: &CallTarget,
        output: &mut OutputCollector<'_>,
    ) -> Result<CallAnswer, FailedCall> {
        let ran = match target {
            CallTarget::Skill(lease) => self.skill(active_call, lease, output).await,
            CallTarget::Executor(lease, folders) => {
                self.executor(active_call, lease, folders, output).await
            }
            CallTarget::Backend(lease) => self.backend(active_call, lease, output).await,
        };
        match ran {
            Ok(ran) if self.cancel.is_cancelled() => Ok(CallAnswer {
                stopped: Some(CallEnd::Cancelled),
                ..ran
            }),
            ran => ran,
        }
    }

    fn report(
        &self,
        active_call: ActiveCall<'_>,
        mut output: OutputCollector<'_>,
        ran: Result<CallAnswer, FailedCall>,
        duration: Duration,
    ) -> CallReport {
        let backend = &active_call.route.backend;
        let (mut state, mut spent, mut note) = (None, Vec::new(), None);
        let (is_error, end, structured) = match ran {
            Ok(ran) => {
                let (failure, end) = call_end(&active_call, &ran);
                let told = match end {
                    CallEnd::Cancelled => Some(CallFailureKind::Cancelled),
                    _ => failure,
                };
                if let Some(kind) = told {
                    let has_said = !output.is_empty();
                    let text = active_call.failure(kind).note(has_said);
                    output.note(text.clone());
                    note = Some(text);
                }
                state = ran.state.map(|state| (backend.to_string(), state));
                spent.extend(ran.spent.into_iter().map(|it| (backend.to_string(), it)));
                (failure.is_some(), end, ran.structured)
            }
            Err(failed) => {
                output.text(&failed.text);
                (true, failed.end, None)
            }
        };
        let call_id = active_call.call.call_id.clone();
        output.add_files(&active_call.into_files());
        if output.is_empty() {
            output.text("(no output)");
        }
        let CollectedOutput {
            parts,
            files,
            other_files: beside,
            plugin_result: said,
            server_items,
        } = output.finish();
        CallReport {
            output: FunctionCallOutput {
                call_id,
                output: parts,
                is_error,
            },
            end,
            duration,
            files,
            other_files: beside,
            structured,
            server_items,
            state,
            spent,
            plugin_result: said,
            note,
        }
    }

    async fn skill(
        &self,
        active_call: &ActiveCall<'_>,
        lease: &SkillLease,
        output: &mut OutputCollector<'_>,
    ) -> Result<CallAnswer, FailedCall> {
        let instance = match lease.current_instance() {
            Some(instance) => Arc::clone(instance),
            None => self.create_instance(active_call, lease).await?,
        };
        let _entered = self
            .wait_within_limit(active_call, || not_ready(lease), lease.enter())
            .await?;
        // Shared state may have moved on while this call waited.
        let instance = lease.current_instance().map_or(instance, Arc::clone);
        let body = self.with_files(active_call).await?;
        let result = self
            .tool_result(&instance, active_call, active_call.route.op(), &body, None)
            .await?;
        Ok(collect_answer(output, result))
    }

    /// Makes the instance.
    async fn create_instance(
        &self,
        active_call: &ActiveCall<'_>,
        lease: &SkillLease,
    ) -> Result<Arc<Instance>, FailedCall> {
        let made = self
            .wait_within_limit(
                active_call,
                || not_ready(lease),
                lease.instance(self.request_context),
            )
            .await?;
        made.map_err(|reason| active_call.not_ready(&reason))
    }

    /// Waits for what a call needs, within the call's own limit; `not_there` begins the sentence
    /// that says that it did not come.
    async fn wait_within_limit<T>(
        &self,
        active_call: &ActiveCall<'_>,
        not_there: impl FnOnce() -> String,
        ready: impl Future<Output = T>,
    ) -> Result<T, FailedCall> {
        tokio::select! {
            biased;
            ready = ready => Ok(ready),
            () = self.cancel.cancelled() => {
                Err(active_call.failed(CallFailureKind::CancelledBefore))
            }
            () = tokio::time::sleep(active_call.remaining()) => {
                let reason = format!("{} within {:?}", not_there(), active_call.timeout);
                Err(FailedCall {
                    end: CallEnd::TimedOut,
                    ..active_call.not_ready(&reason)
                })
            }
        }
    }

    /// Waits until the state of the version before is there, if there is one.
    pub(super) async fn enter_lease(
        &self,
        active_call: &ActiveCall<'_>,
        lease: &BackendLease,
    ) -> Result<(), FailedCall> {
        let not_there = || format!("{} did not take its state over", lease.plugin.id());
        self.wait_within_limit(active_call, not_there, lease.enter())
            .await
    }

    async fn backend(
        &self,
        active_call: &ActiveCall<'_>,
        lease: &BackendLease,
        output: &mut OutputCollector<'_>,
    ) -> Result<CallAnswer, FailedCall> {
        self.enter_lease(active_call, lease).await?;
        let mut arguments = Cow::Borrowed(&active_call.call.arguments);
        let takes_files = lease.serving_plugin().manifest().has("call.files/1");
        let files = if takes_files && arguments.get("files").is_some() {
            let attached = attached_files(
                self.artifacts,
                &self.request_context.working_dir,
                &arguments,
            );
            let not_there = || "its files were not there".to_owned();
            self.wait_within_limit(active_call, not_there, attached)
                .await?
                .map_err(|reason| active_call.not_ready(&reason))?
        } else {
            arguments = self.with_files(active_call).await?;
            Vec::new()
        };
        let body = BackendCall {
            name: active_call.route.tool().to_owned(),
            skill: active_call.route.skill().map(str::to_owned),
            arguments: arguments.into_owned(),
            files,
        };
        let result = self
            .tool_result(lease.instance(), active_call, op::BACKEND_CALL, &body, None)
            .await?;
        Ok(collect_answer(output, result))
    }

    pub(super) fn files(&self) -> StagedFiles<'_> {
        StagedFiles {
            artifacts: self.artifacts,
            request_context: self.request_context,
        }
    }

    /// Whether a call of a skill names files by their handles.
    fn names_files(&self, active_call: &ActiveCall<'_>) -> bool {
        if self.artifacts.is_empty() {
            return false;
        }
        let files = self.files();
        let is_handle = |word: &str| files.is_handle(word);
        let arguments = &active_call.call.arguments;
        command_of(active_call, arguments)
            .is_some_and(|command| !handles_of_command(command, is_handle).is_empty())
            || !handles_of_arguments(arguments, is_handle).is_empty()
    }

    /// Where files are that a call names by their handles, within the call's limit.
    pub(super) async fn staged_paths(
        &self,
        active_call: &ActiveCall<'_>,
        handles: BTreeSet<String>,
        to: Option<&BackendLease>,
    ) -> Result<FilePaths, FailedCall> {
        if handles.is_empty() {
            return Ok(FilePaths::new());
        }
        let not_there = || "its files were not there".to_owned();
        let bringing = self.files();
        self.wait_within_limit(active_call, not_there, bringing.paths(handles, to))
            .await?
            .map_err(|reason| active_call.not_ready(&reason))
    }

    /// A command with the paths of the files that it names by their handles.
    pub(super) async fn with_files_in(
        &self,
        active_call: &ActiveCall<'_>,
        command: String,
        to: Option<&BackendLease>,
    ) -> Result<String, FailedCall> {
        if self.artifacts.is_empty() {
            return Ok(command);
        }
        let files = self.files();
        let handles = handles_of_command(&command, |word| files.is_handle(word));
        let paths = self.staged_paths(active_call, handles, to).await?;
        Ok(match paths.is_empty() {
            true => command,
            false => with_command_paths(&command, &paths),
        })
    }

    /// A call's arguments with the paths of the files that they name by their handles.
    async fn with_files<'v>(
        &self,
        active_call: &ActiveCall<'v>,
    ) -> Result<Cow<'v, Value>, FailedCall> {
        let mut arguments = Cow::Borrowed(&active_call.call.arguments);
        if self.artifacts.is_empty() {
            return Ok(arguments);
        }
        if let Some(command) = command_of(active_call, &arguments) {
            let with_paths = self
                .with_files_in(active_call, command.to_owned(), None)
                .await?;
            if with_paths != command {
                arguments.to_mut()["command"] = with_paths.into();
            }
        }
        let files = self.files();
        let handles = handles_of_arguments(&arguments, |word| files.is_handle(word));
        let paths = self.staged_paths(active_call, handles, None).await?;
        Ok(match paths.is_empty() {
            true => arguments,
            false => Cow::Owned(with_argument_paths(&arguments, &paths)),
        })
    }

    async fn tool_result<B: Serialize>(
        &self,
        instance: &Instance,
        active_call: &ActiveCall<'_>,
        op: &str,
        body: &B,
        skill_dir: Option<&str>,
    ) -> Result<ToolResult, FailedCall> {
        let json = self.envelope(active_call, body, skill_dir)?;
        let reply = self
            .request(instance, active_call, op, json, active_call.remaining())
            .await?;
        tool_result(active_call, op, &reply)
    }

    pub(super) fn envelope<B: Serialize>(
        &self,
        active_call: &ActiveCall<'_>,
        body: &B,
        skill_dir: Option<&str>,
    ) -> Result<Vec<u8>, FailedCall> {
        self.request_context
            .request(self.call_scope(active_call, skill_dir), body)
            .map_err(|error| active_call.not_json(&error))
    }

    fn call_scope<'r>(
        &'r self,
        active_call: &ActiveCall<'r>,
        skill_dir: Option<&'r str>,
    ) -> CallScope<'r> {
        CallScope {
            call_id: Some(&active_call.call.call_id),
            turn_id: self.turn_id.map(AsRef::as_ref),
            skill_dir,
            traceparent: self.traceparent,
            deadline_ms: u64::try_from(active_call.remaining().as_millis()).unwrap_or(u64::MAX),
        }
    }

    pub(super) async fn request(
        &self,
        instance: &Instance,
        active_call: &ActiveCall<'_>,
        op: &str,
        json: Vec<u8>,
        deadline: Duration,
    ) -> Result<Vec<u8>, FailedCall> {
        let (sink, mut stream) = emit_channel();
        let live = self.live;
        let options = CallOptions {
            deadline: Some(deadline),
            sink: Some(sink),
            cancel: self.cancel.clone(),
            meta: conjure_plugins::CallMeta {
                session: Some(Arc::clone(&self.request_context.session)),
                call_id: Some(Arc::from(active_call.call.call_id.as_str())),
                turn_id: self.turn_id.cloned(),
            },
        };
        let answer = instance.request(op, json, options);
        tokio::pin!(answer);
        let answer = loop {
            tokio::select! {
                biased;
                Some(Emit { kind, bytes }) = stream.next() => {
                    active_call.emitted(kind, &bytes, live);
                }
                answer = &mut answer => break answer,
            }
        };
        while let Some(Emit { kind, bytes }) = stream.try_next() {
            active_call.emitted(kind, &bytes, live);
        }
        match answer {
            Ok(reply) => Ok(reply),
            // What it managed to say while it was told to stop is worth more than our words.
            Err(PluginCallFailure::Cancelled {
                late: Some(Ok(reply)),
                ..
            }) if answers_after_cancel(op) => Ok(reply),
            Err(PluginCallFailure::TimedOut {
                late: Some(Ok(reply)),
                ..
            }) if answers_after_cancel(op) => {
                // An executor says itself that its time was over.
                let overdue = is_backend_call(op);
                active_call.overdue.fetch_or(overdue, Ordering::Relaxed);
                Ok(reply)
            }
            // It may be an agent that stands still, and no command that takes long.
            Err(PluginCallFailure::TimedOut {
                plugin,
                late: Some(Err(fault)),
                ..
            }) if op.starts_with("executor.") => Err(FailedCall {
                end: CallEnd::TimedOut,
                ..active_call.plugin_failed(&PluginCallFailure::Fault {
                    plugin,
                    code: fault.code,
                    message: fault.text().into_owned(),
                })
            }),
            Err(error) => Err(active_call.plugin_failed(&error)),
        }
    }
}

/// Why a call that gave an answer is an error, if it is one, and how it ended.
fn call_end<'u>(
    active_call: &'u ActiveCall<'_>,
    ran: &CallAnswer,
) -> (Option<CallFailureKind<'u>>, CallEnd) {
    let is_overdue = active_call.overdue.load(Ordering::Relaxed);
    match (ran.stopped, ran.failure) {
        (Some(CallEnd::Cancelled), failure) => (failure, CallEnd::Cancelled),
        (_, _) if is_overdue => {
            let failure = CallFailureKind::TimedOut {
                limit_ms: active_call.limit_ms(),
                plugin: Some(active_call.plugin()),
            };
            (Some(failure), CallEnd::TimedOut)
        }
        (stopped, Some(failure)) => (Some(failure), stopped.unwrap_or(CallEnd::Failed)),
        (stopped, None) => (None, stopped.unwrap_or(CallEnd::Done)),
    }
}

/// The command among the arguments of a skill's `execute`.
fn command_of<'v>(active_call: &ActiveCall<'_>, arguments: &'v Value) -> Option<&'v str> {
    (active_call.route.op() == op::SKILL_EXECUTE)
        .then(|| arguments.get("command").and_then(Value::as_str))
        .flatten()
}

/// Whether an answer after the end was asked for tells what came until then.
fn answers_after_cancel(name: &str) -> bool {
    name.starts_with("executor.") || is_backend_call(name)
}

fn is_backend_call(name: &str) -> bool {
    name == op::BACKEND_CALL
}

fn not_ready(lease: &SkillLease) -> String {
    lease.not_ready()
}
