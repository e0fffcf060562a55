//! The actor of a session: one task that owns the turn machine, the log and the backends, and
//! takes what happens in order from one mailbox.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use arc_swap::ArcSwap;
use conjure_core::chat::{Event, Meta, Usage};
use conjure_core::cost::Account;
use conjure_core::log::{self, EntryBody, Outcome, Spending};
use conjure_core::routing::{Policy, Rule};
use conjure_core::turn::{Input, Machine, TableJudge};
use conjure_skill_sdk::protocol::Spent;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::AbortHandle;
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::Span;

use super::after_log::AfterBatch;
use super::asking::{ApprovalMode, Asking};
use super::budget::{Budget, OutOfTime, SpentBefore};
use super::compaction::{Compacted, Compaction};
use super::derived::turn_settings;
use super::handle::{Answer, ChatError};
use super::host_state::HostState;
use super::mailbox::Command;
use super::model::{Pieces, Request};
use super::naming::ThreadName;
use super::perform::Deferred;
use super::questions::Questions;
use super::recorder::Recorder;
use super::session_dirs::{Exchange, SessionDirs};
use crate::artifacts::Artifacts;
use crate::backend::contributors::Observed;
use crate::backend::reports::{Report, Reports};
use crate::backend::request_context::RequestContext;
use crate::backend::sampling::{Asked, AskedModel};
use crate::backend::{CallReport, Snapshot, Toolbox};
use conjure_config::SessionSpec;
use conjure_providers::Provider;

/// What a turn came to, for whoever waits for it.
pub(super) type Answered = Result<Answer, ChatError>;

/// The state of a running session.
pub(super) struct Actor {
    pub(super) machine: Machine,
    pub(super) policy: Policy,
    /// Rules that came while it ran.
    pub(super) allowed: Vec<Rule>,
    /// Rules that hold for the running turn only.
    pub(super) turn_rules: Vec<Rule>,
    pub(super) registry: watch::Receiver<u64>,
    pub(super) shared: Arc<HostState>,
    pub(super) spec: SessionSpec,
    pub(super) provider: Arc<dyn Provider>,
    pub(super) recorder: Recorder,
    pub(super) toolbox: Toolbox,
    /// The snapshot that the next step uses.
    pub(super) newest: Arc<Snapshot>,
    /// The snapshot of the running step.
    pub(super) current: Arc<ArcSwap<Snapshot>>,
    pub(super) artifacts: Arc<Artifacts>,
    pub(super) request_context: RequestContext,
    pub(super) asked_by_plugins: Asked,
    /// Ends with the actor.
    _exchange: Exchange,
    pub(super) internal: Reports,
    pub(super) reports: mpsc::Receiver<Box<Report>>,
    pub(super) commands: mpsc::Receiver<Box<Command>>,
    pub(super) request: Option<Box<Request>>,
    pub(super) compaction: Option<Box<Compaction>>,
    /// Who wants the compaction that is on its way, where no turn does.
    pub(super) wanted: Option<oneshot::Sender<Compacted>>,
    /// Turns that wait for it.
    behind: VecDeque<Command>,
    /// What the thread costs.
    pub(super) account: Account,
    /// What the session may use up, and has.
    pub(super) budget: Budget,
    /// How many entries the two know.
    pub(super) accounted: usize,
    /// Tokens of the tools of the newest table that was asked for, by its version.
    pub(super) tool_tokens: (u64, u64),
    pub(super) calls: HashMap<String, CancellationToken>,
    pub(super) asked: BTreeMap<String, Asking>,
    pub(super) attended: ApprovalMode,
    questions: Option<Arc<Questions>>,
    records: bool,
    pub(super) waiting: HashMap<String, oneshot::Sender<Result<Answer, ChatError>>>,
    /// When the running turn is out of time, and which limit that is.
    pub(super) wall: Option<OutOfTime>,
    pub(super) turn_id: Option<Arc<str>>,
    /// The running turn's.
    pub(super) span: Span,
    /// When the newest reply was there, whose calls run.
    pub(super) asked_at: Option<Instant>,
    /// Bytes of live output shown so far, by call.
    pub(super) live: HashMap<String, usize>,
    /// Tools that the thread once had.
    pub(super) removed: BTreeSet<String>,
    pub(super) answers: Vec<(oneshot::Sender<Answered>, Answered)>,
    pub(super) deferred: Vec<Deferred>,
    pub(super) name: ThreadName,
    /// Settings that were asked for and are not used yet, by their number.
    pub(super) revisions: BTreeMap<u64, SessionSpec>,
    pub(super) revision: u64,
    /// What waits for the log, each with the batch that it waits for.
    pub(super) waiting_for_log: VecDeque<AfterBatch>,
    /// Whether the model is another provider's than the catalogs are for.
    pub(super) outdated: bool,
    /// Resolves when the backends have seen the newest reply.
    pub(super) observed: Observed,
}

/// What a session is started with.
pub(super) struct Start {
    pub(super) shared: Arc<HostState>,
    pub(super) spec: SessionSpec,
    pub(super) dirs: SessionDirs,
    pub(super) provider: Arc<dyn Provider>,
    pub(super) recorder: Recorder,
    pub(super) toolbox: Toolbox,
    pub(super) snapshot: Arc<Snapshot>,
    pub(super) current: Arc<ArcSwap<Snapshot>>,
    /// What the session used up before, in other threads or at other times.
    pub(super) spent_before: SpentBefore,
    /// Whether the thread is to know the session's settings.
    pub(super) records: bool,
    pub(super) approvals: ApprovalMode,
    /// What plugins ask the person, where somebody may come.
    pub(super) questions: Option<Arc<Questions>>,
}

impl Actor {
    /// Starts the actor on a task of its own.
    pub(super) fn start(
        start: Start,
        commands: mpsc::Receiver<Box<Command>>,
        ended: DropGuard,
    ) -> AbortHandle {
        let Start {
            shared,
            spec,
            dirs,
            provider,
            recorder,
            toolbox,
            snapshot,
            current,
            spent_before,
            records,
            approvals,
            questions,
        } = start;
        let (internal, reports) = Reports::channel();
        if let Some(questions) = &questions {
            questions.tell(internal.clone());
        }
        let asked = AskedModel {
            provider: Arc::clone(&provider),
            model: spec.model.clone().unwrap_or_default(),
            session: Some(internal.clone()),
        };
        dirs.asked.store(Some(Arc::new(asked)));
        let version = snapshot.table().version();
        let removed = log::removed_tools(recorder.entries());
        let actor = Box::new(Self {
            machine: Machine::new(
                turn_settings(&spec, &shared.models),
                version,
                recorder.entries(),
            ),
            policy: spec.call_policy(),
            allowed: Vec::new(),
            turn_rules: Vec::new(),
            registry: shared.instances.registry.subscribe(),
            shared,
            spec,
            provider,
            recorder,
            toolbox,
            newest: snapshot,
            current,
            artifacts: dirs.services.artifacts,
            request_context: dirs.request_context,
            asked_by_plugins: dirs.asked,
            _exchange: dirs.exchange,
            internal,
            reports,
            commands,
            request: None,
            compaction: None,
            wanted: None,
            behind: VecDeque::new(),
            account: Account::default(),
            budget: Budget::new(spent_before),
            accounted: 0,
            tool_tokens: (0, 0),
            calls: HashMap::new(),
            asked: BTreeMap::new(),
            attended: approvals,
            questions,
            records,
            waiting: HashMap::new(),
            wall: None,
            turn_id: None,
            span: Span::none(),
            asked_at: None,
            live: HashMap::new(),
            removed,
            answers: Vec::new(),
            deferred: Vec::new(),
            name: ThreadName::default(),
            revisions: BTreeMap::new(),
            revision: 0,
            waiting_for_log: VecDeque::new(),
            outdated: false,
            observed: Observed::default(),
        });
        tokio::spawn(actor.run(ended)).abort_handle()
    }

    async fn run(mut self: Box<Self>, ended: DropGuard) {
        self.recorder.recover();
        if self.records {
            self.record_settings();
        }
        self.compare_versions();
        if let Some(text) = self.provider.notice() {
            self.recorder.event(Event::Notice { text });
        }
        self.hand_over();
        let mut failure = None;
        while failure.is_none() {
            let pieces = self
                .request
                .as_ref()
                .map(|request| Arc::clone(request.pieces()));
            let wall = self.wall.as_ref().map(|wall| wall.at);
            let patience = self.asked.values().filter_map(Asking::until).min();
            let changes = Arc::clone(self.toolbox.changes());
            tokio::select! {
                biased;
                written = self.recorder.next_written() => {
                    failure = written.err();
                    self.after_written();
                    continue;
                }
                command = self.commands.recv() => match command {
                    Some(command) if !matches!(*command, Command::End) => {
                        self.command(*command).await;
                    }
                    _ => break,
                },
                Some(report) = self.reports.recv() => {
                    self.take_pieces();
                    self.report(*report);
                }
                () = arrived(pieces.as_deref()) => self.take_pieces(),
                Ok(()) = self.registry.changed() => self.plugins_changed(),
                () = changes.arrived.notified() => self.backends_changed(),
                () = passed(wall) => {
                    if let Some(wall) = self.wall.take() {
                        self.input(wall.into());
                    }
                }
                () = passed(patience) => self.deny_unanswered(),
            }
            while self.wanted.is_none()
                && let Some(turn) = self.behind.pop_front()
            {
                Box::pin(self.command(turn)).await;
            }
            if self.outdated {
                // Boxed, as what follows: what is seldom waited for takes no room in every session.
                Box::pin(self.renew_catalogs()).await;
            }
            self.hand_over();
        }
        Box::pin(self.stop(failure.map(|error| error.to_string()))).await;
        // Also when it is aborted: whoever waits for its end must not wait for ever.
        drop(ended);
    }

    async fn command(&mut self, command: Command) {
        match command {
            turn @ (Command::GoOn { .. } | Command::Say { .. }) if self.wanted.is_some() => {
                self.behind.push_back(turn);
            }
            Command::GoOn { turn_id, done } => {
                self.waiting.insert(turn_id.clone(), done);
                self.input(Input::GoOn { turn_id });
            }
            Command::Say {
                turn_id,
                message,
                done,
            } => {
                self.waiting.insert(turn_id.clone(), done);
                self.input(Input::User { turn_id, message });
            }
            Command::Cancel { drop_queued } => {
                self.stop_compacting();
                self.input(Input::Cancel { drop_queued });
            }
            Command::Decide { call_id, decision } => {
                self.asked.remove(&call_id);
                self.input(Input::Decided { call_id, decision });
            }
            Command::Attend(mode) => self.attend(mode),
            Command::Terms { rules, approvals } => {
                if self.turn_rules != rules {
                    self.turn_rules = rules;
                    self.renew_policy();
                }
                self.attend(approvals);
            }
            Command::Pending(done) => {
                let pending = self.asked.values().map(Asking::pending);
                let _ = done.send(pending.collect());
            }
            Command::Change {
                settings,
                when,
                done,
            } => {
                let _ = done.send(self.change(&settings, when));
            }
            Command::Reconfigure { spec, when, done } => {
                let _ = done.send(self.reconfigure(*spec, when));
            }
            Command::Messages(done) => {
                let _ = done.send(log::messages(self.recorder.entries()));
            }
            Command::Status(done) => {
                let _ = done.send(self.toolbox.status());
            }
            Command::ToolPreview(done) => self.look_ahead(done),
            Command::Check { settings, done } => {
                let _ = done.send(self.check(&settings));
            }
            Command::Unfold { fold, done } => {
                let _ = done.send(self.unfold(fold));
            }
            Command::Compact(done) => self.compact_for_person(done),
            Command::Cost(done) => {
                let _ = done.send(self.account().cost().clone());
            }
            Command::Entries(done) => {
                let _ = done.send(self.recorder.entries().to_vec());
            }
            Command::Allow(rule) => {
                self.policy.rules.push(rule.clone());
                self.allowed.push(rule);
                self.decide_asked();
            }
            Command::Rest => self.rest(),
            Command::End => {}
            #[cfg(test)]
            Command::Hang => std::future::pending().await,
        }
    }

    fn attend(&mut self, mode: ApprovalMode) {
        self.attended = mode;
        if let Some(questions) = &self.questions {
            questions.attend(mode != ApprovalMode::Unattended);
        }
        if mode == ApprovalMode::Unattended {
            self.deny_asked();
        }
    }

    /// The rules of the settings, with those that came while it ran and those of the turn.
    pub(super) fn renew_policy(&mut self) {
        self.policy = self.spec.call_policy();
        let added = self.allowed.iter().chain(&self.turn_rules);
        self.policy.rules.extend(added.cloned());
    }

    fn rest(&mut self) {
        self.recorder.rest();
        self.account.shrink_to_fit();
        self.calls.shrink_to_fit();
        self.waiting.shrink_to_fit();
        self.live.shrink_to_fit();
        self.answers.shrink_to_fit();
        self.deferred.shrink_to_fit();
        self.waiting_for_log.shrink_to_fit();
    }

    pub(super) fn report(&mut self, report: Report) {
        match report {
            Report::Input(input) => {
                let (finished, compaction) = match &*input {
                    Input::ModelDone { request, .. } | Input::ModelFailed { request, .. } => (
                        self.request
                            .as_ref()
                            .is_some_and(|known| known.number() == *request),
                        self.compaction
                            .as_ref()
                            .is_some_and(|asked| asked.request.number() == *request),
                    ),
                    _ => (false, false),
                };
                if compaction {
                    self.compacted(*input);
                    return;
                }
                if finished {
                    self.request = None;
                    self.asked_at = Some(Instant::now());
                }
                self.input(*input);
            }
            Report::CallDone(report) => self.call_ended(*report),
            Report::Output {
                call_id,
                kind,
                bytes,
            } => self.output(call_id, kind, &bytes),
            // An answer that a switch has overtaken is another model's.
            Report::Catalog { provider, .. } if provider != self.spec.provider => {}
            Report::Catalog {
                backend, catalog, ..
            } => {
                self.toolbox.set_catalog(&backend, catalog);
                self.plugins_changed();
            }
            Report::SkillTools(listed) => {
                for (skill, tools) in listed {
                    self.toolbox.set_skill_tools(&skill, tools);
                }
                self.plugins_changed();
            }
            Report::BackendState { backend, state } => {
                self.recorder
                    .entry(EntryBody::BackendState { backend, state });
            }
            Report::Event(event) => self.recorder.event(event),
            Report::Notice { text } => self.note(text),
            Report::Files { backend, files } => {
                for artifact in files {
                    self.file(&artifact, &backend, None);
                }
            }
        }
    }

    fn call_ended(&mut self, report: CallReport) {
        let call_id = report.output.call_id.clone();
        self.calls.remove(&call_id);
        self.live.remove(&call_id);
        for artifact in &report.files {
            self.file(artifact, &artifact.source.clone(), Some(&call_id));
        }
        for artifact in &report.beside {
            self.file(artifact, &artifact.source.clone(), None);
        }
        if let Some((backend, state)) = report.state {
            self.recorder
                .entry(EntryBody::BackendState { backend, state });
        }
        for (backend, spent) in report.spent {
            self.input(delegated(backend, spent));
        }
        self.input(Input::CallDone {
            output: report.output,
            end: report.end,
            duration_ms: u64::try_from(report.duration.as_millis()).unwrap_or(u64::MAX),
            meta: report.structured,
        });
    }

    /// Gives an input to the machine and does what it says, until nothing is left to do.
    pub(super) fn input(&mut self, input: Input) {
        let mut inputs = vec![input];
        while !inputs.is_empty() {
            for input in std::mem::take(&mut inputs) {
                let snapshot = self.current.load_full();
                let judge = TableJudge::new(snapshot.table(), &self.policy)
                    .with_removed(self.removed.iter().cloned());
                let judge = match self.attended {
                    ApprovalMode::Attended | ApprovalMode::Within(_) => judge,
                    ApprovalMode::Unattended => judge.unattended(),
                };
                for action in self.machine.handle(input, &judge) {
                    inputs.extend(self.perform(action));
                }
            }
        }
    }

    pub(super) fn turn_over(&mut self, turn_id: &str) {
        self.wall = None;
        self.name.give(&self.shared, &self.recorder);
        let Some(done) = self.waiting.remove(turn_id) else {
            return;
        };
        let entries = self.recorder.entries();
        let ended = entries.iter().rev().find_map(|entry| match &entry.body {
            EntryBody::TurnEnded {
                turn_id: id,
                outcome,
                usage,
                stop_reason,
            } if id == turn_id => Some((entry.turn, outcome.clone(), *usage, stop_reason.clone())),
            _ => None,
        });
        let Some((turn, outcome, usage, stop_reason)) = ended else {
            return;
        };
        let text = entries
            .iter()
            .rev()
            .take_while(|entry| entry.turn == turn)
            .find_map(|entry| match &entry.body {
                EntryBody::Message { message } if message.meta.is_some() => {
                    Some(message.text()).filter(|text| !text.is_empty())
                }
                _ => None,
            });
        let answer = match outcome {
            Outcome::Completed | Outcome::CutShort => Ok(Answer {
                turn_id: turn_id.to_owned(),
                text: text.unwrap_or_default(),
                outcome,
                usage,
                stop_reason,
            }),
            Outcome::Cancelled => Err(ChatError::Cancelled),
            Outcome::Limit { limit, value } => Err(ChatError::Limit { limit, value }),
            Outcome::Failed { error, kind } => Err(ChatError::Provider { error, kind }),
            Outcome::Interrupted => Err(ChatError::Ended { reason: None }),
        };
        self.answers.push((done, answer));
    }
}

/// What a backend paid for at a model of its own.
fn delegated(backend: String, spent: Spent) -> Input {
    Input::Spent {
        on: Spending::Delegated { backend },
        meta: Meta {
            provider: spent.provider,
            model: spent.model,
            usage: Usage {
                input: spent.input,
                cache_read: spent.cache_read,
                cache_write: spent.cache_write,
                output: spent.output,
                reasoning: spent.reasoning,
            },
            ..Meta::default()
        },
    }
}

async fn arrived(pieces: Option<&Pieces>) {
    match pieces {
        Some(pieces) => pieces.arrived().await,
        None => std::future::pending().await,
    }
}

/// Resolves at a time; never where there is none.
pub(crate) async fn passed(at: Option<tokio::time::Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}
