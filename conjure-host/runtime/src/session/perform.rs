//! What a session's actor does when the turn machine says so.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use conjure_abi::EmitKind;
use conjure_core::chat::{Event, FunctionCall, Meta};
use conjure_core::cost::Account;
use conjure_core::log::EntryBody;
use conjure_core::repair::Target;
use conjure_core::request::ModelRequest;
use conjure_core::request::{compile, tool_tokens};
use conjure_core::turn::{Action, Input};
use conjure_skill_sdk::protocol::Observe;
use futures_util::FutureExt as _;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::Span;

use super::actor::Actor;
use super::derived::{call_timeout, compile_settings, most_bytes};
use super::handle::ChatError;
use super::model::Request;
use super::showing::LIVE_BYTES;
use super::skill_lists::{Kind, changed_lists, run_time_tools};
use crate::backend::contributors::{Observed, Share};
use crate::backend::reports::{Report, Reports};
use crate::backend::run::Runner;
use crate::backend::watching::updated_resource;
use crate::backend::{CallReport, LiveOutput, Snapshot};
use crate::spans;

impl Actor {
    pub(super) fn perform(&mut self, action: Action) -> Option<Input> {
        match action {
            Action::Write(body) => {
                if let EntryBody::TurnStarted { turn_id } = &body {
                    self.turn_id = Some(Arc::from(turn_id.as_str()));
                    self.wall = self.out_of_time();
                    self.span = spans::turn(self.recorder.thread().as_str(), turn_id);
                }
                if let EntryBody::TableChanged(change) = &body {
                    self.removed.extend(change.removed.iter().cloned());
                    self.removed.retain(|name| !change.added.contains(name));
                }
                if let EntryBody::TurnEnded { outcome, usage, .. } = &body {
                    spans::turn_ended(&self.span, outcome, usage);
                    self.span = Span::none();
                }
                self.recorder.entry(body);
            }
            Action::Tell(event) => {
                if matches!(event, Event::Done { .. }) {
                    self.tell_cost();
                }
                self.recorder.event(event);
            }
            Action::UseTable { .. } => self.current.store(Arc::clone(&self.newest)),
            Action::UseSettings(settings) => self.use_settings(&settings),
            Action::Request { request, .. } => {
                self.deferred.push(Deferred::Send(request));
                return self.exhausted();
            }
            Action::StopModel { request } => {
                self.take_pieces();
                if self.is_unsent(request) {
                    return Some(Request::never_sent(request));
                }
                let stopped = self.request.take()?;
                if let Some(lost) = stopped.lost() {
                    self.input(lost);
                }
                return Some(stopped.stop());
            }
            Action::Observe {
                provider,
                model,
                server_items,
                fields,
            } => {
                let reply = Observe {
                    provider,
                    model,
                    server_items,
                    fields,
                    error: None,
                };
                if !self.observe(reply) {
                    return Some(Input::Observed);
                }
                let (observed, internal) = (self.observed.clone(), self.internal.clone());
                tokio::spawn(async move {
                    observed.wait().await;
                    let seen = Report::Input(Box::new(Input::Observed));
                    let _ = internal.send(seen).await;
                });
            }
            Action::RunCall(call) => {
                self.calls
                    .insert(call.call_id.clone(), CancellationToken::new());
                self.deferred.push(Deferred::Run(call));
            }
            Action::StopCall { call_id } => {
                if let Some(cancel) = self.calls.get(&call_id) {
                    cancel.cancel();
                }
            }
            Action::AskPerson { call, reason } => {
                return self.ask_person(call, reason);
            }
            Action::Unask { call_id } => {
                self.asked.remove(&call_id);
            }
            Action::Compact { refused } => return self.compact(refused),
            Action::StopCompaction => {
                return self.compaction.take().and_then(|asked| asked.stop());
            }
            Action::Dropped { turn_id } => {
                if let Some(done) = self.waiting.remove(&turn_id) {
                    self.answers.push((done, Err(ChatError::Cancelled)));
                }
            }
            Action::TurnOver { turn_id } => self.turn_over(&turn_id),
        }
        None
    }

    /// Takes a request back that waits for the log; false when it left already.
    fn is_unsent(&mut self, request: u64) -> bool {
        let waiting = self.waiting_for_log.iter_mut();
        let waiting = waiting.map(|after| &mut after.deferred);
        waiting.chain([&mut self.deferred]).any(|deferred| {
            let before = deferred.len();
            deferred.retain(|it| !matches!(it, Deferred::Send(number) if *number == request));
            deferred.len() < before
        })
    }

    /// Does what had to wait until the log says that it is done.
    pub(super) fn perform_deferred(&mut self, deferred: Vec<Deferred>) {
        for deferred in deferred {
            match deferred {
                Deferred::Send(request) => self.send(request),
                Deferred::Run(call) => self.run_call(call),
            }
        }
    }

    fn send(&mut self, number: u64) {
        let snapshot = self.current.load_full();
        let request = self.compile(&snapshot);
        let meta = self.meta(&request);
        self.request = Some(Box::new(self.begin(number, request, meta)));
    }

    /// Lets a request leave, with what backends add to it.
    pub(super) fn begin(&self, number: u64, request: ModelRequest, meta: Meta) -> Request {
        let share = Share {
            contributors: self.toolbox.contributors(),
            request_context: self.request_context.clone(),
            artifacts: Arc::clone(&self.artifacts),
            observed: self.observed.clone(),
            internal: self.internal.clone(),
            request,
        };
        let provider = Arc::clone(&self.provider);
        let thread = self.recorder.thread().as_str();
        let span = spans::model_call(&self.span, thread, &meta.provider, &meta.model);
        let (done, wakes) = (self.internal.clone(), Arc::clone(&self.shared.wakes));
        Request::send(number, provider, meta, share, span, done, wakes)
    }

    /// Whom the conversation is sent to, and over which wire: the name alone does not say it.
    pub(super) fn target(&self) -> Target {
        let settings = self.machine.settings();
        Target {
            provider: settings.provider.clone(),
            ..self.provider.target(&settings.model)
        }
    }

    pub(super) fn compile(&self, snapshot: &Snapshot) -> ModelRequest {
        let (spec, models) = (&self.spec, &self.shared.models);
        let settings = compile_settings(spec, models, snapshot, self.target());
        compile(self.recorder.entries(), snapshot.table(), &settings)
    }

    pub(super) fn meta(&mut self, request: &ModelRequest) -> Meta {
        let table = self.current.load().table().version();
        if self.tool_tokens.0 != table {
            self.tool_tokens = (table, tool_tokens(&request.tools));
        }
        let auth = self.provider.auth();
        Meta {
            provider: request.provider.clone(),
            model: request.model.clone(),
            auth_type: auth.map(|auth| auth.kind.clone()),
            auth_name: auth.map(|auth| auth.name.clone()),
            tools: request.tools.len(),
            tool_tokens: self.tool_tokens.1,
            ..Meta::default()
        }
    }

    /// What the thread costs so far.
    pub(super) fn account(&mut self) -> &Account {
        let models = &self.shared.models;
        let price = |provider: &str, model: &str| Some(models.facts(provider, model)?.price);
        let entries = self.recorder.entries();
        for entry in entries.get(self.accounted..).unwrap_or_default() {
            self.account.add(entry, &price);
            self.budget.used.add(entry);
        }
        self.accounted = entries.len();
        &self.account
    }

    /// Tells what the turn cost that is about to be over.
    fn tell_cost(&mut self) {
        let turn = self.recorder.entries().last().map_or(0, |entry| entry.turn);
        let account = self.account();
        let told = account.turn(turn).map(|cost| Event::Cost {
            turn: cost.clone(),
            thread: account.cost().total.clone(),
        });
        if let Some(event) = told {
            self.recorder.event(event);
        }
    }

    fn run_call(&mut self, call: FunctionCall) {
        let Some(cancel) = self.calls.get(&call.call_id).cloned() else {
            return;
        };
        let snapshot = self.current.load_full();
        let (request_context, artifacts) =
            (self.request_context.clone(), Arc::clone(&self.artifacts));
        let internal = self.internal.clone();
        let turn_id = self.turn_id.clone();
        let (timeout, most_bytes) = (call_timeout(&self.spec), most_bytes(&self.spec));
        let timeouts = self.spec.timeouts.clone();
        let route = snapshot.look_up(&call.name).map(|(route, _)| route);
        let queued = self
            .asked_at
            .map(|asked| asked.elapsed())
            .unwrap_or_default();
        let span = spans::tool_call(&self.span, &call, route, queued);
        let traceparent = spans::traceparent(&span);
        tokio::spawn(async move {
            let (outputs, pieces) = mpsc::channel(64);
            let tools_changed = Arc::new(AtomicBool::new(false));
            let shown = tokio::spawn(forward(call.call_id.clone(), pieces, internal.clone()));
            let running = async {
                let session = Arc::clone(&request_context.session);
                let live = live_output(outputs, session, Arc::clone(&tools_changed));
                let runner = Runner {
                    snapshot: &snapshot,
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
                runner.run(&call).await
            };
            let report = match AssertUnwindSafe(running).catch_unwind().await {
                Ok(report) => report,
                Err(_) => {
                    let found = snapshot.look_up(&call.name);
                    CallReport::broken(&call, found.map(|(route, _)| &*route.backend))
                }
            };
            spans::called(&span, &report);
            drop(span);
            // Live output stands before the result in the log.
            let _ = shown.await;
            if let Some(text) = snapshot.take_outcome(&call.name) {
                let _ = internal.send(Report::Notice { text }).await;
            }
            if tools_changed.load(Ordering::Relaxed) {
                // Before the result: the next step has the tools that this call brought.
                let listed =
                    run_time_tools(&snapshot, &request_context, &CancellationToken::new()).await;
                let _ = internal.send(Report::SkillTools(listed)).await;
            }
            let _ = internal.send(Report::CallDone(Box::new(report))).await;
        });
    }

    /// Shows a reply to the backends with a share in its request, one reply after the other.
    /// Whether there are any.
    pub(super) fn observe(&mut self, reply: Observe) -> bool {
        let contributors = self.toolbox.contributors();
        if contributors.is_empty() {
            return false;
        }
        let (request_context, artifacts) =
            (self.request_context.clone(), Arc::clone(&self.artifacts));
        let internal = self.internal.clone();
        let before = self.observed.clone();
        self.observed = Observed::by(async move {
            before.wait().await;
            contributors
                .show(&request_context, &artifacts, reply, &internal)
                .await;
        });
        true
    }
}

/// Something that leaves the session, and so waits for the log.
pub(super) enum Deferred {
    /// Ask the model.
    Send(u64),
    /// Run a call.
    Run(FunctionCall),
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
                tools_changed.fetch_or(kinds.contains(&Kind::Tools), Ordering::Relaxed);
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
    internal: Reports,
) {
    while let Some((kind, bytes)) = pieces.recv().await {
        let call_id = call_id.clone();
        let sent = internal
            .send(Report::Output {
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
