//! The machine itself: one for each open thread.
//!
//! Here are its inputs and the life of a turn; what becomes of a reply and of its calls stands in
//! the modules below.

mod answers;
mod calls;
mod compaction;
mod replies;
mod summary_history;

pub(crate) use answers::UNFIT_ANSWER;

use std::collections::{HashSet, VecDeque};

use super::input::{EffectiveFrom, HostAction, ModelFailure, TurnInput};
use super::judge::Judge;
use super::notice::{describe_notice, describe_unfold};
use super::settings::TurnSettings;
use super::step::CallStep;
use crate::chat::{CallAnnounced, ErrorEvent, Event, FunctionCall, Message, Usage};
use crate::context::{CallFailure, CallFailureKind};
use crate::log::{
    self, CallEnd, Entry, EntryBody, NoticeReason, TableChange, TurnOutcome, describe_limit,
};
use crate::request::{counted_tokens, entry_tokens, next_input_tokens};
use summary_history::SummaryHistory;

/// The turn loop of one thread.
#[derive(Debug)]
pub struct Machine {
    settings: TurnSettings,
    /// Settings that wait for the running request to stop.
    restart_settings: Option<Box<(TurnSettings, EntryBody)>>,
    /// Settings that wait for the next turn.
    next_settings: Option<Box<(TurnSettings, EntryBody)>>,
    table: u64,
    next_table: Option<TableChange>,
    /// Turns that wait, each with what is said in it.
    queue: VecDeque<(String, Option<Message>)>,
    requests: u64,
    /// Tokens of input that the next request will have, about.
    next_input: u64,
    summaries: SummaryHistory,
    call_ids: HashSet<String>,
    /// Replies that the backends have not seen yet.
    unobserved: u32,
    turn: Option<TurnProgress>,
    actions: Vec<HostAction>,
}

#[derive(Debug)]
struct TurnProgress {
    id: String,
    rounds: u32,
    pauses: u32,
    calls: u32,
    /// How often an answer did not have the form that it must have.
    unfit_answers: u32,
    usage: Usage,
    /// Whether the log could not be compacted: once a turn is enough.
    compaction_failed: bool,
    /// Whether the conversation was compacted because the provider refused it as too long.
    was_too_long: bool,
    stop_reason: Option<String>,
    text: String,
    /// Set when the turn is to end as soon as nothing runs any more.
    ending: Option<TurnOutcome>,
    phase: TurnPhase,
}

#[derive(Debug)]
enum TurnPhase {
    Model {
        request: u64,
        restart: bool,
    },
    Calls(CallStep),
    Compacting,
    /// All is said; the backends look at the reply yet.
    Observing,
}

impl Machine {
    /// A machine for a thread with these entries.
    pub fn new(settings: TurnSettings, table: u64, entries: &[Entry]) -> Self {
        Self {
            settings,
            restart_settings: None,
            next_settings: None,
            table,
            next_table: None,
            queue: VecDeque::new(),
            requests: 0,
            next_input: next_input_tokens(entries),
            summaries: SummaryHistory::of(entries),
            call_ids: log::call_ids(entries).map(str::to_owned).collect(),
            unobserved: 0,
            turn: None,
            actions: Vec::new(),
        }
    }

    /// Whether a turn runs.
    pub fn is_busy(&self) -> bool {
        self.turn.is_some()
    }

    /// How many follow-ups wait.
    pub fn queued(&self) -> usize {
        self.queue.len()
    }

    /// Tokens of input that the next request will have, about.
    pub fn next_input(&self) -> u64 {
        self.next_input
    }

    /// The settings that requests use now.
    pub fn settings(&self) -> &TurnSettings {
        &self.settings
    }

    /// The settings, for a replay: what a thread tells of its limits wins over what is set.
    pub(crate) fn settings_mut(&mut self) -> &mut TurnSettings {
        &mut self.settings
    }

    /// Takes something that happened, and says what is to be done, in this order.
    pub fn handle(&mut self, input: TurnInput, judge: &dyn Judge) -> Vec<HostAction> {
        match input {
            TurnInput::User { turn_id, message } => {
                self.enqueue(turn_id, Some(message));
            }
            TurnInput::Continue { turn_id } => self.enqueue(turn_id, None),
            TurnInput::ModelDone {
                request,
                response,
                meta,
            } => {
                if let Some((_, restart)) = self.pending_request(request) {
                    if response.complete {
                        self.accept_reply(response, meta, restart, judge);
                    } else {
                        self.fail_reply(cut_stream(), Some((response, meta)), restart, judge);
                    }
                }
            }
            TurnInput::ModelFailed {
                request,
                failure,
                partial,
            } => {
                if let Some((_, restart)) = self.pending_request(request) {
                    self.fail_reply(failure, partial, restart, judge);
                }
            }
            TurnInput::CallDone {
                output,
                end,
                duration_ms,
                meta,
            } => {
                self.complete_call(output, end, duration_ms, meta);
            }
            TurnInput::Observed => {
                self.unobserved = self.unobserved.saturating_sub(1);
                if self.unobserved == 0 && self.is_observing() {
                    self.end_turn();
                }
            }
            TurnInput::Decided { call_id, decision } => self.apply_decision(&call_id, decision),
            TurnInput::Refused { call_id, refusal } => self.refuse_pending(&call_id, refusal),
            TurnInput::Cancel { drop_queued } => {
                if drop_queued {
                    self.drop_queue();
                }
                self.end_when_quiet(TurnOutcome::Cancelled);
            }
            TurnInput::Exhausted { limit: name, value } => self.end_when_quiet(limit(&name, value)),
            TurnInput::Settings {
                settings,
                entry,
                when,
            } => self.change_settings(*settings, *entry, when),
            TurnInput::Table(change) => self.change_table(change),
            TurnInput::Compacted {
                visible_from: upto,
                summary,
                meta,
                tokens,
            } => self.apply_compaction(upto, summary, meta, tokens),
            TurnInput::CompactionFailed { error } => self.fail_compaction(error),
            TurnInput::Spent { purpose: on, meta } => {
                self.add_usage(&meta);
                self.write(EntryBody::Spent { on, meta });
            }
            TurnInput::Unfold { fold, tokens } => {
                self.write(EntryBody::Unfolded { fold });
                self.next_input = tokens;
                self.summaries.record_unfold();
                let text = describe_unfold(tokens);
                self.publish(Event::Notice { text });
            }
        }
        std::mem::take(&mut self.actions)
    }

    fn enqueue(&mut self, turn_id: String, message: Option<Message>) {
        if self.turn.is_none() && self.queue.is_empty() {
            self.begin_turn(turn_id, message);
        } else {
            self.queue.push_back((turn_id, message));
        }
    }

    fn next_turn(&mut self) {
        if let Some((turn_id, message)) = self.queue.pop_front() {
            self.begin_turn(turn_id, message);
        }
    }

    fn begin_turn(&mut self, turn_id: String, message: Option<Message>) {
        if let Some(next) = self.next_settings.take() {
            let (settings, entry) = *next;
            self.use_settings(settings, entry);
        }
        self.write(EntryBody::TurnStarted {
            turn_id: turn_id.clone(),
        });
        self.publish(Event::TurnStarted {
            turn_id: turn_id.clone(),
        });
        if let Some(message) = message {
            self.write(EntryBody::Message { message });
        }
        self.turn = Some(TurnProgress {
            id: turn_id,
            rounds: 0,
            pauses: 0,
            calls: 0,
            unfit_answers: 0,
            usage: Usage::default(),
            compaction_failed: false,
            was_too_long: false,
            stop_reason: None,
            text: String::new(),
            ending: None,
            phase: TurnPhase::Compacting,
        });
        self.request();
    }

    /// Begins a step: with the newest table, and with a compaction first where one is due.
    fn request(&mut self) {
        if let Some(change) = self.next_table.take() {
            self.table = change.version;
            self.actions.push(HostAction::UseTable {
                version: change.version,
            });
            self.write(EntryBody::TableChanged(change));
        }
        if self.is_compaction_due() {
            self.compact(false);
        } else {
            self.ask();
        }
    }

    /// Asks the model.
    fn ask(&mut self) {
        let Some(turn) = &mut self.turn else { return };
        self.requests += 1;
        turn.rounds += 1;
        turn.phase = TurnPhase::Model {
            request: self.requests,
            restart: false,
        };
        let round = turn.rounds;
        self.publish(Event::Round {
            round,
            provider: self.settings.provider.clone(),
            model: self.settings.model.clone(),
            table: self.table,
        });
        self.actions.push(HostAction::Request {
            request: self.requests,
            round,
        });
    }

    /// Whether this request is the one that the turn waits for, and whether it is to be made
    /// again.
    fn pending_request(&self, request: u64) -> Option<(u64, bool)> {
        match self.turn.as_ref()?.phase {
            TurnPhase::Model {
                request: awaited,
                restart,
            } if awaited == request => Some((request, restart)),
            _ => None,
        }
    }

    /// Ends the turn as soon as nothing runs any more, and ends what runs.
    fn end_when_quiet(&mut self, outcome: TurnOutcome) {
        if self.is_observing() {
            self.end_turn();
            return;
        }
        let Some(turn) = &mut self.turn else { return };
        if turn.ending.is_some() {
            return;
        }
        turn.ending = Some(outcome);
        match &mut turn.phase {
            TurnPhase::Model { request, .. } => {
                let request = *request;
                self.actions.push(HostAction::StopModel { request });
            }
            TurnPhase::Compacting => {
                self.actions.push(HostAction::StopCompaction);
                self.end_turn();
            }
            TurnPhase::Observing => {}
            TurnPhase::Calls(step) => {
                let dropped = step.drop_waiting();
                let running: Vec<String> =
                    step.running().map(|call| call.call_id.clone()).collect();
                for (call_id, asked) in dropped {
                    if asked {
                        self.actions.push(HostAction::WithdrawApproval {
                            call_id: call_id.clone(),
                        });
                    }
                    let (name, backend) = self.call_and_backend(&call_id);
                    let failure = CallFailure {
                        tool: &name,
                        backend: backend.as_deref(),
                        kind: CallFailureKind::TurnEnded,
                    };
                    let refusal = failure.into();
                    self.end_without_run(&call_id, name, refusal, CallEnd::Cancelled);
                }
                self.actions.extend(
                    running
                        .into_iter()
                        .map(|call_id| HostAction::StopCall { call_id }),
                );
                self.run_calls();
            }
        }
    }

    fn change_settings(&mut self, settings: TurnSettings, entry: EntryBody, when: EffectiveFrom) {
        if self.turn.is_none() {
            self.use_settings(settings, entry);
            return;
        }
        if when == EffectiveFrom::NextTurn {
            self.next_settings = Some(Box::new((settings, entry)));
            return;
        }
        // What was to come is older than what holds now.
        self.next_settings = None;
        if let Some(TurnProgress {
            phase: TurnPhase::Model { request, restart },
            ending: None,
            ..
        }) = &mut self.turn
        {
            let request = *request;
            if !std::mem::replace(restart, true) {
                self.actions.push(HostAction::StopModel { request });
            }
            self.restart_settings = Some(Box::new((settings, entry)));
        } else {
            // The step's calls go on; the next request uses the new settings.
            self.use_settings(settings, entry);
        }
    }

    fn use_settings(&mut self, settings: TurnSettings, entry: EntryBody) {
        // Another model may manage the summary that failed.
        self.summaries.reset();
        self.settings = settings.clone();
        self.actions
            .push(HostAction::UseSettings(Box::new(settings)));
        self.write(entry);
    }

    fn change_table(&mut self, change: TableChange) {
        let change = match self.next_table.take() {
            None => change,
            Some(waiting) => waiting.followed_by(&change),
        };
        self.next_table = Some(change);
    }

    fn continue_turn(&mut self) {
        let restarted = matches!(
            &self.turn,
            Some(TurnProgress {
                phase: TurnPhase::Model { restart: true, .. },
                ..
            })
        );
        if restarted {
            if let Some(restart) = self.restart_settings.take() {
                let (settings, entry) = *restart;
                self.use_settings(settings, entry);
            }
            if let Some(turn) = &mut self.turn {
                turn.rounds = turn.rounds.saturating_sub(1);
            }
        }
        self.request();
    }

    fn is_ending(&self) -> bool {
        self.turn.as_ref().is_some_and(|turn| turn.ending.is_some())
    }

    fn is_observing(&self) -> bool {
        let phase = self.turn.as_ref().map(|turn| &turn.phase);
        matches!(phase, Some(TurnPhase::Observing))
    }

    fn finish(&mut self, outcome: TurnOutcome) {
        if let Some(turn) = &mut self.turn {
            turn.ending.get_or_insert(outcome);
            if self.unobserved > 0 {
                turn.phase = TurnPhase::Observing;
                return;
            }
        }
        self.end_turn();
    }

    fn end_turn(&mut self) {
        let Some(turn) = self.turn.take() else { return };
        if let Some(restart) = self.restart_settings.take() {
            let (settings, entry) = *restart;
            self.use_settings(settings, entry);
        }
        let outcome = turn.ending.unwrap_or(TurnOutcome::Completed);
        if let TurnOutcome::Limit { limit, .. } = &outcome {
            self.publish(Event::Error(ErrorEvent {
                error: format!("The turn was ended: {}.", describe(&outcome)),
                kind: limit.clone(),
            }));
        }
        self.write(EntryBody::TurnEnded {
            turn_id: turn.id.clone(),
            outcome: outcome.clone(),
            usage: turn.usage,
            stop_reason: turn.stop_reason.clone(),
        });
        self.publish(Event::Done {
            turn_id: turn.id.clone(),
            outcome: outcome.as_str().to_owned(),
            stop_reason: turn.stop_reason,
            text: turn.text,
        });
        self.actions.push(HostAction::TurnOver { turn_id: turn.id });
        self.next_turn();
    }

    fn drop_queue(&mut self) {
        let dropped: Vec<String> = self.queue.drain(..).map(|(turn_id, _)| turn_id).collect();
        if !dropped.is_empty() {
            let messages = dropped.len() as u64;
            self.notice(NoticeReason::Dropped { messages });
        }
        for turn_id in dropped {
            self.actions.push(HostAction::Dropped { turn_id });
        }
    }

    fn notice(&mut self, reason: NoticeReason) {
        let text = describe_notice(&reason);
        self.write(EntryBody::Notice {
            text: text.clone(),
            reason: Some(reason),
        });
        self.publish(Event::Notice { text });
    }

    fn write(&mut self, body: EntryBody) {
        self.next_input = match counted_tokens(&body) {
            Some(tokens) => tokens,
            None => self.next_input + entry_tokens(&body),
        };
        self.actions.push(HostAction::Write(body));
    }

    fn publish(&mut self, event: Event) {
        self.actions.push(HostAction::Publish(event));
    }
}

fn announcement(call: &FunctionCall) -> CallAnnounced {
    CallAnnounced {
        id: call.call_id.clone(),
        name: call.name.clone(),
        arguments: call.arguments.clone(),
    }
}

fn limit(name: &str, value: u64) -> TurnOutcome {
    TurnOutcome::Limit {
        limit: name.to_owned(),
        value,
    }
}

fn describe(outcome: &TurnOutcome) -> String {
    match outcome {
        TurnOutcome::Limit { limit, value } => {
            format!("the limit {} is reached", describe_limit(limit, *value))
        }
        other => other.as_str().to_owned(),
    }
}

fn cut_stream() -> ModelFailure {
    ModelFailure {
        error: "The provider's reply broke off before its end. What came is kept; send the \
                message again to go on."
            .to_owned(),
        kind: "cut".to_owned(),
    }
}
