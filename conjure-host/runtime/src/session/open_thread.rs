//! An open thread: its turn machine, its log and everything that a turn needs.
//!
//! An open thread runs on no task of its own. Whoever has it drives it: waits for what happens next,
//! and hands that back to it. So a session has one mailbox, whichever actor it belongs to.

use std::sync::Arc;

use conjure_core::chat::{Event, Message};
use conjure_core::cost::ThreadCost;
use conjure_core::log::{EntryBody, describe_limit, folds};
use conjure_core::routing::Rule;
use conjure_core::turn::{self, ApprovalDecision, EffectiveFrom, HostAction, Machine, TurnInput};
use conjure_skill_sdk::protocol::Observe;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::after_log::{AfterLog, Deferred, LoggedAnswer};
use super::approvals::{ApprovalMode, Approvals, PendingApproval};
use super::budget::Budget;
use super::compaction::{
    AfterSummary, CompactError, CompactionResult, SummaryPlan, UnfoldResult, check_unfold,
};
use super::current_settings::CurrentSettings;
use super::deadline::wait_until;
use super::decisions;
use super::derived::{catalog_request, room};
use super::error::SessionError;
use super::model::ActiveRequest;
use super::model_requests::ModelRequests;
use super::outgoing_request::OutgoingRequest;
use super::output_form::{OutputForm, TurnJudge};
use super::recorder::Recorder;
use super::routed_call::RoutedCall;
use super::running_calls::RunningCalls;
use super::settings::SessionSettings;
use super::showing;
use super::switch_check::SwitchCheck;
use super::table_updates;
use super::thread_event::ThreadEvent;
use super::thread_name::ThreadName;
use super::thread_resources::ThreadResources;
use super::tool_preview::{self, ToolPreview};
use super::tools::Tools;
use super::turns::{AnswerTo, Turns};
use super::user_files;
use crate::backend::reports::TaskReport;
use conjure_config::SessionSpec;
use conjure_store::StoreError;

/// An open thread.
pub(crate) struct OpenThread {
    pub(super) resources: ThreadResources,
    pub(super) machine: Machine,
    pub(super) settings: CurrentSettings,
    pub(super) approvals: Approvals,
    pub(super) tools: Tools,
    pub(super) recorder: Recorder,
    pub(super) after_log: AfterLog,
    pub(super) model: ModelRequests,
    pub(super) calls: RunningCalls,
    pub(super) budget: Budget,
    pub(super) turns: Turns,
    pub(super) name: ThreadName,
}

impl OpenThread {
    /// Hands what was done so far to the log, and waits for what happens next. Safe to drop and
    /// call again.
    pub(crate) async fn next(&mut self) -> ThreadEvent {
        self.hand_over();
        let out_of_time = self.budget.out_of_time_at();
        let patience = self.approvals.deadline();
        tokio::select! {
            biased;
            written = self.recorder.next_written() => ThreadEvent::Written(written),
            Some(report) = self.resources.report_receiver.recv() => ThreadEvent::Report(report),
            change = self.tools.change() => ThreadEvent::Tools(change),
            () = wait_until(out_of_time) => ThreadEvent::OutOfTime,
            () = wait_until(patience) => ThreadEvent::Unanswered,
        }
    }

    /// Does what is to be done about what happened. What is slow runs on tasks of its own.
    ///
    /// # Errors
    /// The log's: then the thread is to be [ended](super::ending::end).
    pub(crate) fn handle(&mut self, event: ThreadEvent) -> Result<(), StoreError> {
        match event {
            ThreadEvent::Written(written) => written?,
            ThreadEvent::Report(report) => self.report(*report),
            ThreadEvent::Tools(change) => table_updates::follow(self, change),
            ThreadEvent::OutOfTime => {
                let exhausted = self.budget.out_of_time();
                self.inputs(exhausted);
            }
            ThreadEvent::Unanswered => {
                let denied = self.approvals.deny_unanswered(&self.tools.current());
                decisions::apply_decisions(self, denied);
            }
        }
        Ok(())
    }

    /// Begins a turn in which this is said, or nothing new. While one runs, it waits for its end.
    pub(crate) fn begin(
        &mut self,
        turn_id: String,
        mut message: Option<Message>,
        answer: AnswerTo,
    ) {
        let notices = user_files::attach(self, &turn_id, message.as_mut());
        self.turns.wait(turn_id.clone(), answer);
        self.input(match message {
            Some(message) => TurnInput::User { turn_id, message },
            None => TurnInput::Continue { turn_id },
        });
        let tell = |reason| showing::notice(&mut self.recorder, reason);
        notices.into_iter().for_each(tell);
    }

    /// Ends the running turn, or the summary that a person wants.
    pub(crate) fn cancel(&mut self, drop_queued: bool) {
        let paid = self.model.cancel_summary();
        self.inputs(paid);
        self.input(TurnInput::Cancel { drop_queued });
    }

    /// Decides about a call that waits.
    pub(crate) fn decide(&mut self, call_id: String, decision: ApprovalDecision) {
        decisions::decide(self, call_id, decision);
    }

    /// Says whether somebody is there to decide.
    pub(crate) fn attend(&mut self, mode: ApprovalMode) {
        let denied = self.approvals.attend(mode, &self.tools.current());
        decisions::apply_decisions(self, denied);
    }

    /// Says what holds for the next turn, in place of what held for the one before.
    pub(crate) fn set_terms(&mut self, rules: Vec<Rule>, mode: ApprovalMode) {
        self.approvals.set_turn_rules(rules, self.settings.spec());
        self.attend(mode);
    }

    /// Says which form answers must have from the next turn on.
    pub(crate) fn set_form(&mut self, form: Option<Arc<OutputForm>>) {
        self.turns.set_form(form);
    }

    /// Adds a rule to the session's policy.
    pub(crate) fn add_rule(&mut self, rule: Rule) {
        self.approvals.add_rule(rule);
        let decided = self.approvals.decide_by_rules(self.tools.current().table());
        decisions::apply_decisions(self, decided);
    }

    /// The calls that wait for a decision.
    pub(crate) fn pending(&self) -> Vec<PendingApproval> {
        self.approvals.pending()
    }

    /// What the thread costs so far.
    pub(crate) fn cost(&mut self) -> ThreadCost {
        let (entries, models) = (self.recorder.entries(), &self.resources.host.models);
        self.budget.account(entries, models).cost().clone()
    }

    /// Changes settings on top of those that are to come.
    pub(crate) fn change(
        &mut self,
        change: &SessionSettings,
        when: EffectiveFrom,
    ) -> Result<(), SessionError> {
        let spec = self.settings.with_change(change);
        self.reconfigure(spec, when)
    }

    /// Uses another specification of the same directory and naming.
    pub(crate) fn reconfigure(
        &mut self,
        spec: SessionSpec,
        when: EffectiveFrom,
    ) -> Result<(), SessionError> {
        let ThreadResources {
            host,
            request_context,
            ..
        } = &self.resources;
        host.provider(&spec)?;
        let working_dir = &request_context.working_dir;
        let input = self.settings.revise(spec, &host.models, working_dir, when);
        self.input(input);
        Ok(())
    }

    /// A check of what changing these settings would change about the next request.
    pub(crate) fn check(&self, change: &SessionSettings) -> SwitchCheck {
        let spec = change.applied_to(self.settings.spec());
        let host = Arc::clone(&self.resources.host);
        SwitchCheck::new(host, spec, self.tools.current(), self.recorder.entries())
    }

    /// Tells the tools of the next request, and what the rules of now say of them. Asked on a task
    /// of its own: backends are asked what they add.
    pub(crate) fn preview_tools(&self, done: oneshot::Sender<ToolPreview>) {
        let Self {
            resources,
            settings,
            approvals,
            tools,
            ..
        } = self;
        tool_preview::send_preview(resources, settings.spec(), approvals.policy(), tools, done);
    }

    /// Gives room back that was for work.
    pub(crate) fn rest(&mut self) {
        self.recorder.rest();
        self.budget.shrink_to_fit();
        self.calls.shrink_to_fit();
        self.turns.shrink_to_fit();
        self.after_log.shrink_to_fit();
    }

    /// Lets the model read again what a compaction hides.
    pub(crate) fn unfold(&mut self, fold: Option<u64>, done: oneshot::Sender<UnfoldResult>) {
        match check_unfold(self.recorder.entries(), fold) {
            Ok((fold, tokens)) => {
                self.after_log
                    .answer(LoggedAnswer::Unfold(done, (fold, tokens)));
                self.input(TurnInput::Unfold { fold, tokens });
            }
            Err(error) => drop(done.send(Err(error))),
        }
    }

    /// Asks for a summary because a person wants it, while no turn runs.
    pub(crate) fn compact(&mut self, done: oneshot::Sender<CompactionResult>) {
        let room = room(self.settings.spec(), &self.resources.host.models);
        let refused = if self.machine.is_busy() || self.model.is_summarising() {
            CompactError::Busy
        } else if let Some(TurnInput::Exhausted { limit, value }) = self.exhausted() {
            CompactError::Failed {
                error: format!("the limit {} is reached", describe_limit(&limit, value)),
            }
        } else if let Some(plan) = SummaryPlan::of(self.recorder.entries(), room) {
            self.ask_for_summary(plan);
            self.model.set_summary_waiter(done);
            return;
        } else {
            CompactError::Nothing
        };
        let _ = done.send(Err(refused));
    }

    /// Whether a summary is on its way that a person wants: turns wait for it.
    pub(crate) fn is_compacting(&self) -> bool {
        self.model.has_summary_waiter()
    }

    /// Stops what runs beside the reply. Calls still report their end to whoever waits for it.
    pub(super) fn stop_all(&mut self) {
        drop(self.model.stop_summary());
        // Who wanted the summary is told that the session ended, not that somebody cancelled it.
        drop(self.model.take_summary_waiter());
        self.tools.stop_renewing();
        self.calls.stop_all();
    }

    /// Whether a turn runs.
    pub(crate) fn is_busy(&self) -> bool {
        self.machine.is_busy()
    }

    /// Lets backends tell what they saw in the last reply, so that the log has it.
    pub(super) async fn wait_for_observation(&mut self, deadline: Instant) {
        let observed = tokio::time::timeout_at(deadline, self.model.observation().wait());
        tokio::pin!(observed);
        loop {
            tokio::select! {
                biased;
                Some(report) = self.resources.report_receiver.recv() => self.report(*report),
                _ = &mut observed => break,
            }
        }
        while let Ok(report) = self.resources.report_receiver.try_recv() {
            self.report(*report);
        }
    }

    /// Tells all who wait, and closes the backends. Where the log failed, what is not in it did not
    /// happen.
    pub(super) async fn close(mut self: Box<Self>, failed: Option<&str>) {
        self.after_log.end(failed);
        self.turns.give_up(failed);
        self.name.wait().await;
        self.tools.toolbox.close().await;
    }

    /// Gives an input to the machine and does what it says, until nothing is left to do.
    pub(super) fn input(&mut self, input: TurnInput) {
        let mut inputs = vec![input];
        while !inputs.is_empty() {
            for input in std::mem::take(&mut inputs) {
                let snapshot = self.tools.current();
                let calls = self.approvals.judge(snapshot.table(), self.tools.removed());
                let form = self.turns.form();
                let judge = TurnJudge {
                    calls,
                    snapshot: &snapshot,
                    form,
                };
                for action in self.machine.handle(input, &judge) {
                    inputs.extend(self.perform(action));
                }
            }
        }
    }

    pub(super) fn inputs(&mut self, inputs: impl IntoIterator<Item = TurnInput>) {
        for input in inputs {
            self.input(input);
        }
    }

    fn perform(&mut self, action: HostAction) -> Option<TurnInput> {
        match action {
            HostAction::Write(body) => self.write(body),
            HostAction::Publish(event) => {
                if matches!(event, Event::Done { .. }) {
                    let (entries, models) = (self.recorder.entries(), &self.resources.host.models);
                    let cost = self.budget.cost_of_turn(entries, models);
                    cost.into_iter().for_each(|cost| self.recorder.event(cost));
                }
                self.recorder.event(event);
            }
            HostAction::UseTable { .. } => self.tools.use_newest(),
            HostAction::UseSettings(settings) => self.use_settings(&settings),
            HostAction::Request { request, .. } => {
                self.tools.refresh_same_table();
                self.after_log.defer(Deferred::Send(request));
                return self.exhausted();
            }
            HostAction::StopModel { request } => {
                if self.after_log.take_back(request) {
                    return Some(ActiveRequest::unsent_failure(request));
                }
                let stopped = self.model.take_reply()?;
                self.inputs(stopped.lost_usage());
                return Some(stopped.stop());
            }
            HostAction::Observe {
                provider,
                model,
                server_items,
                fields,
            } => {
                return self.observe(Observe {
                    provider,
                    model,
                    server_items,
                    fields,
                    error: None,
                });
            }
            HostAction::RunCall { call, route } => {
                self.calls.add(&call);
                self.after_log.defer(Deferred::Run { call, route });
            }
            HostAction::StopCall { call_id } => self.calls.stop(&call_id),
            HostAction::AskPerson { call, reason } => {
                return self.approvals.ask(call, reason, &self.tools.current());
            }
            HostAction::WithdrawApproval { call_id } => {
                self.approvals.take(&call_id);
            }
            HostAction::Compact {
                after_refusal: refused,
            } => return self.compact_for_turn(refused),
            HostAction::StopCompaction => return self.model.stop_summary(),
            HostAction::Dropped { turn_id } => {
                self.after_log
                    .answer_turn(self.turns.take_dropped(&turn_id));
            }
            HostAction::TurnOver { turn_id } => {
                self.budget.end_turn();
                self.name.assign(&self.resources.host, &self.recorder);
                let answer = self.turns.take_finished(&turn_id, self.recorder.entries());
                self.after_log.answer_turn(answer);
            }
        }
        None
    }

    fn write(&mut self, body: EntryBody) {
        match &body {
            EntryBody::TurnStarted { turn_id } => {
                self.turns.begin(self.recorder.thread(), turn_id);
                let limits = &self.settings.spec().budget;
                let (entries, models) = (self.recorder.entries(), &self.resources.host.models);
                self.budget.begin_turn(limits, entries, models);
            }
            EntryBody::TableChanged(change) => self.tools.table_changed(change),
            EntryBody::TurnEnded { outcome, usage, .. } => self.turns.end(outcome, usage),
            _ => {}
        }
        self.recorder.entry(body);
    }

    /// The limit that stands in the way of another request.
    fn exhausted(&mut self) -> Option<TurnInput> {
        let limits = &self.settings.spec().budget;
        let (entries, models) = (self.recorder.entries(), &self.resources.host.models);
        self.budget.exhausted(limits, entries, models)
    }

    /// Shows a reply to the backends; where none is to see it, it is seen.
    fn observe(&mut self, reply: Observe) -> Option<TurnInput> {
        let contributors = self.tools.contributors();
        if !self.model.observe(reply, contributors, &self.resources) {
            return Some(TurnInput::Observed);
        }
        let (observed, reports) = (self.model.observation(), self.resources.reports.clone());
        tokio::spawn(async move {
            observed.wait().await;
            let seen = TaskReport::Input(Box::new(TurnInput::Observed));
            let _ = reports.send(seen).await;
        });
        None
    }

    /// Hands what happened to the log, and does what had to wait until the log has it.
    fn hand_over(&mut self) {
        let holds = self.tools.is_renewing();
        for deferred in self.after_log.hand_over(&mut self.recorder, holds) {
            match deferred {
                Deferred::Send(number) => {
                    let request = self.outgoing_request().reply(number);
                    self.model.set_reply(request);
                }
                Deferred::Run { call, route } => {
                    let routed = RoutedCall::new(call, route, self.tools.current());
                    let (turns, resources) = (&self.turns, &self.resources);
                    self.calls
                        .run(routed, self.settings.spec(), turns, resources);
                }
            }
        }
    }

    fn outgoing_request(&mut self) -> OutgoingRequest<'_> {
        OutgoingRequest {
            resources: &self.resources,
            settings: &self.settings,
            turn_settings: self.machine.settings(),
            tools: &mut self.tools,
            recorder: &self.recorder,
            turn: self.turns.span(),
            observation: self.model.observation(),
            form: self.turns.form(),
        }
    }

    /// Asks the session's own provider for a summary of the older part of the log.
    fn compact_for_turn(&mut self, refused: bool) -> Option<TurnInput> {
        let mut room = room(self.settings.spec(), &self.resources.host.models);
        if refused {
            // Whatever is known of the window: so much was too much for it.
            let tokens = self.machine.next_input();
            room.window = Some(room.window.unwrap_or(tokens).min(tokens));
        }
        let Some(plan) = SummaryPlan::of(self.recorder.entries(), room) else {
            return Some(TurnInput::CompactionFailed {
                error: "there is nothing before its newest part that is worth it".to_owned(),
            });
        };
        self.ask_for_summary(plan);
        None
    }

    fn ask_for_summary(&mut self, plan: SummaryPlan) {
        let summary = self.outgoing_request().summary(plan);
        self.model.set_summary(summary);
    }

    /// Goes on where the request for a summary has its answer.
    fn handle_summary(&mut self, next: AfterSummary) {
        let input = match next {
            AfterSummary::Retry(plan) => return self.ask_for_summary(plan),
            AfterSummary::Done(input) => *input,
        };
        let Some(done) = self.model.take_summary_waiter() else {
            return self.input(input);
        };
        let error = match input {
            TurnInput::CompactionFailed { error } => CompactError::Failed { error },
            TurnInput::Compacted { tokens, .. } => {
                self.input(input);
                let folds = folds(self.recorder.entries());
                let newest = folds.last().map_or(0, |fold| fold.seq);
                let answer = LoggedAnswer::Compaction(done, (newest, tokens));
                return self.after_log.answer(answer);
            }
            other => {
                self.input(other);
                CompactError::Ended
            }
        };
        let _ = done.send(Err(error));
    }

    fn use_settings(&mut self, settings: &turn::TurnSettings) {
        let Some(spec) = self.settings.take_revision(settings.revision) else {
            return;
        };
        match self.resources.host.provider(&spec) {
            Ok(provider) => {
                self.resources.set_current_model(&provider, &settings.model);
                self.approvals.renew_policy(&spec);
                self.tools.set_catalog_request(catalog_request(&spec));
                let has_others = self.settings.spec().backends != spec.backends;
                self.settings.replace(spec, provider);
                if has_others {
                    table_updates::backends_changed(self);
                }
            }
            Err(error) => tracing::error!("the provider stays: {error}"),
        }
    }

    fn report(&mut self, report: TaskReport) {
        match report {
            TaskReport::Input(input) => self.handle_task_input(*input),
            TaskReport::CallDone(report) => {
                self.calls.remove(&report.output.call_id);
                if let Some((backend, state)) = &report.state {
                    self.tools.toolbox.keep_state(backend, state);
                }
                let artifacts = &self.resources.artifacts;
                let inputs = showing::call_report(&mut self.recorder, artifacts, *report);
                self.inputs(inputs);
            }
            TaskReport::Output {
                call_id,
                kind,
                bytes,
            } => {
                let output = self.calls.output(call_id, kind, &bytes);
                output.into_iter().for_each(|it| self.recorder.event(it));
            }
            // An answer that a switch has overtaken is another model's.
            TaskReport::Catalog { provider, .. } if provider != self.settings.spec().provider => {}
            TaskReport::Catalog { catalog: asked, .. } => {
                self.tools.toolbox.set_catalog(asked);
                table_updates::tools_changed(self);
            }
            TaskReport::SkillTools(listed) => {
                for (skill, tools) in listed {
                    self.tools.toolbox.set_skill_tools(&skill, tools);
                }
                table_updates::tools_changed(self);
            }
            TaskReport::BackendState { backend, state } => {
                self.tools.toolbox.keep_state(&backend, &state);
                self.recorder
                    .entry(EntryBody::BackendState { backend, state });
            }
            TaskReport::Event(event) => self.recorder.event(event),
            TaskReport::StateMoved(moved) => showing::state_moved(&mut self.recorder, moved),
            TaskReport::Files { backend, files } => {
                for artifact in files {
                    showing::file(&mut self.recorder, &artifact, &backend, None);
                }
            }
        }
    }

    fn handle_task_input(&mut self, mut input: TurnInput) {
        if let TurnInput::ModelDone { request, .. } | TurnInput::ModelFailed { request, .. } =
            &input
        {
            if let Some(summary) = self.model.take_summary_by(*request) {
                let end = summary.end(input, self.recorder.entries());
                if let Some(reply) = end.observe {
                    let contributors = self.tools.contributors();
                    self.model.observe(reply, contributors, &self.resources);
                }
                self.inputs(end.wasted);
                self.handle_summary(end.next);
                return;
            }
            if self.model.end_reply(*request) {
                self.calls.mark_requested();
            }
        }
        self.turns.unwrap_answer(&mut input);
        self.input(input);
    }
}
