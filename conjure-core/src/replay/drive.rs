//! Drives the turn machine along a log: gives it what must have happened, and holds what it does
//! against what was written.
//!
//! Here is what the machine does; what it is given, entry by entry, stands in `machine_inputs.rs`. Model
//! replies, results and decisions are the log's own: no tool runs and nothing is sent. What is
//! found on the way is told as facts, in order, to whoever asked.

use std::collections::{BTreeSet, HashMap};

use super::lookahead::{
    interrupted_turn_end, is_host_entry, is_same_refusal, is_same_unfit, logged_reply,
    may_be_host_entry,
};
use super::setup::{EffectiveSettings, ReplaySetup};
use crate::chat::FunctionCall;
use crate::context::CallRefusal;
use crate::log::{Entry, EntryBody, Spending};
use crate::routing::RoutingTable;
use crate::turn::{CallVerdict, HostAction, Judge, Machine, TableJudge, TurnInput};

/// Something that was found; `at` is the place of the entry that it belongs to.
pub(super) enum Fact<'a> {
    /// A model request was made, and this entry ended it.
    Requested {
        at: usize,
        request: DrivenRequest<'a>,
    },
    /// What the rules say of the calls of this reply, in their order.
    Judged {
        at: usize,
        verdicts: Vec<(String, CallVerdict)>,
    },
    /// The entry is not what the machine does now.
    Mismatch { at: usize, stuck: ReplayMismatch },
}

/// A model request, as far as the machine makes it.
pub(super) struct DrivenRequest<'a> {
    /// Number of the entries behind which the request was made.
    pub(super) entry_count: usize,
    /// Tokens of input that were expected.
    pub(super) tokens: u64,
    pub(super) table: &'a RoutingTable,
    pub(super) settings: &'a EffectiveSettings<'a>,
    /// The summary that the request asks for; none where it asks for a reply.
    pub(super) summary: Option<SummaryRequest>,
}

/// The summary that a request asks for.
#[derive(Debug, Clone, Copy)]
pub(super) struct SummaryRequest {
    /// The first entry that it leaves as it is.
    pub(super) visible_from: u64,
    /// Whether the provider refused the conversation as too long.
    pub(super) was_refused: bool,
}

/// Why the machine cannot go on along the log.
#[derive(Debug)]
pub(super) struct ReplayMismatch {
    pub(super) reason: String,
    /// The entry that the machine writes in place of the logged one.
    pub(super) actual_entry: Option<Box<EntryBody>>,
}

impl ReplayMismatch {
    pub(super) fn new(reason: impl Into<String>) -> Self {
        Self {
            reason: reason.into(),
            actual_entry: None,
        }
    }
}

/// A request that waits for its end.
#[derive(Debug, Clone, Copy)]
pub(super) struct PendingModelRequest {
    pub(super) number: u64,
    entry_count: usize,
    tokens: u64,
    /// Whether it asks for a summary, and then whether the conversation was refused.
    refused: Option<bool>,
}

/// What the machine waits for.
#[derive(Debug, Default)]
pub(super) struct OpenWork {
    pub(super) request: Option<PendingModelRequest>,
    pub(super) summary: Option<PendingModelRequest>,
    /// Calls of the step that have not begun.
    pub(super) calls: Vec<String>,
    pub(super) running: Vec<String>,
    pub(super) awaiting_approval: Vec<String>,
    /// Whether the turn was ended from outside.
    pub(super) is_ending: bool,
}

pub(super) struct Drive<'a, 'l> {
    pub(super) setup: &'a ReplaySetup,
    pub(super) script: &'a [Entry],
    tables: &'a [(RoutingTable, Vec<String>)],
    listener: &'l mut dyn FnMut(Fact<'_>) -> bool,
    /// Whether the listener has heard enough.
    stopped: bool,
    /// How many entries are written.
    pub(super) at: usize,
    /// How many changes of tools they have.
    table: usize,
    removed: BTreeSet<String>,
    /// The change of tools that the machine knows of already.
    pub(super) delivered_change: Option<usize>,
    pub(super) effective_settings: EffectiveSettings<'a>,
    pub(super) machine: Machine,
    pub(super) verdicts: HashMap<String, CallVerdict>,
    /// Whether the newest reply had not the form that it had to have.
    pub(super) is_unfit: bool,
    /// Whether the machine is given a reply that says nothing and is in no entry: older versions
    /// wrote none.
    pub(super) is_unlogged: bool,
    pub(super) pending: OpenWork,
    /// Replies that backends have not looked at: they did when the log goes on that waits for it.
    pub(super) unobserved: u32,
    /// The place of the newest entry that a request was told for.
    last_reported: Option<usize>,
}

/// Goes along a whole log, until a listener says no to a fact.
pub(super) fn drive(
    setup: &ReplaySetup,
    script: &[Entry],
    tables: &[(RoutingTable, Vec<String>)],
    listener: &mut dyn FnMut(Fact<'_>) -> bool,
) {
    let frame = EffectiveSettings::new(setup);
    let mut drive = Drive {
        machine: Machine::new(frame.turn_settings(&setup.settings), 1, &[]),
        setup,
        script,
        tables,
        listener,
        stopped: false,
        at: 0,
        table: 0,
        removed: BTreeSet::new(),
        delivered_change: None,
        effective_settings: frame,
        verdicts: HashMap::new(),
        is_unfit: false,
        is_unlogged: false,
        pending: OpenWork::default(),
        unobserved: 0,
        last_reported: None,
    };
    while drive.at < script.len() && !drive.stopped {
        let before = drive.at;
        let stuck = match drive.feed_next() {
            Err(stuck) => Some(stuck),
            Ok(()) if drive.at == before => {
                Some(ReplayMismatch::new("the turn machine writes nothing here"))
            }
            Ok(()) => None,
        };
        if let Some(stuck) = stuck
            && !drive.stopped
        {
            let at = drive.at;
            drive.report(Fact::Mismatch { at, stuck });
            drive.resume();
        }
    }
}

/// Whether this only tells what a reply cost that says nothing.
fn is_empty_reply(body: &EntryBody) -> bool {
    matches!(
        body,
        EntryBody::Spent {
            on: Spending::Reply,
            ..
        }
    )
}

/// What was decided about calls and answers, and who would have run the calls: as the log tells, else
/// by the tools that there were.
struct LoggedJudge<'a> {
    verdicts: &'a HashMap<String, CallVerdict>,
    is_unfit: bool,
    table: &'a RoutingTable,
}

impl Judge for LoggedJudge<'_> {
    fn judge(&self, call: &FunctionCall) -> CallVerdict {
        let verdict = self.verdicts.get(&call.call_id).cloned();
        verdict.unwrap_or_else(|| CallVerdict::Refuse(CallRefusal::default()))
    }

    fn backend(&self, tool: &str) -> Option<&str> {
        self.table.route(tool).map(|route| &*route.backend)
    }

    fn check_answer(&self, _answer: &str) -> Option<String> {
        self.is_unfit.then(String::new)
    }
}

impl<'a> Drive<'a, '_> {
    /// The entries from the next one on.
    pub(super) fn remaining(&self) -> &'a [Entry] {
        self.script.get(self.at..).unwrap_or_default()
    }

    /// Gives the machine an input, and holds what it does against the log.
    pub(super) fn feed(&mut self, input: TurnInput) -> Result<(), ReplayMismatch> {
        let judge = LoggedJudge {
            verdicts: &self.verdicts,
            is_unfit: self.is_unfit,
            table: self.table(),
        };
        self.pending.is_ending |= matches!(
            input,
            TurnInput::Cancel { .. } | TurnInput::Exhausted { .. }
        );
        let actions = self.machine.handle(input, &judge);
        for action in actions {
            self.perform(action)?;
        }
        Ok(())
    }

    fn perform(&mut self, action: HostAction) -> Result<(), ReplayMismatch> {
        let waiting = &mut self.pending;
        match action {
            HostAction::Write(body) => return self.write(body),
            HostAction::Request { request, .. } => {
                waiting.request = Some(PendingModelRequest {
                    number: request,
                    entry_count: self.at,
                    tokens: self.machine.next_input(),
                    refused: None,
                });
            }
            HostAction::Compact {
                after_refusal: refused,
            } => {
                waiting.summary = Some(PendingModelRequest {
                    number: 0,
                    entry_count: self.at,
                    tokens: self.machine.next_input(),
                    refused: Some(refused),
                });
            }
            HostAction::StopCompaction => waiting.summary = None,
            HostAction::AskPerson { call, .. } => waiting.awaiting_approval.push(call.call_id),
            HostAction::WithdrawApproval { call_id } => {
                waiting.awaiting_approval.retain(|id| *id != call_id);
            }
            HostAction::Observe { .. } => self.unobserved += 1,
            HostAction::TurnOver { .. } => *waiting = OpenWork::default(),
            // A call begins where its entry does; the rest is for a host that runs things.
            HostAction::RunCall { .. }
            | HostAction::StopModel { .. }
            | HostAction::StopCall { .. }
            | HostAction::Publish(_)
            | HostAction::UseTable { .. }
            | HostAction::UseSettings(_)
            | HostAction::Dropped { .. } => {}
        }
        Ok(())
    }

    /// Holds what the machine writes against the next entry that is its own.
    fn write(&mut self, body: EntryBody) -> Result<(), ReplayMismatch> {
        if matches!(body, EntryBody::TurnEnded { .. })
            && let Some(end) = interrupted_turn_end(self.script, self.at)
        {
            // The host ended before it could write that.
            self.at = end + 1;
            self.reopen();
            return Ok(());
        }
        if self.is_unlogged && is_empty_reply(&body) {
            return Ok(());
        }
        while let Some(entry) = self.script.get(self.at) {
            let is_same_unfit = self.is_unfit && is_same_unfit(&entry.body, &body);
            if entry.body == body || is_same_refusal(&entry.body, &body) || is_same_unfit {
                self.accept_written(&body);
                return Ok(());
            }
            if !self.is_skippable(&entry.body, &body) {
                break;
            }
            self.skip_entry();
        }
        Err(ReplayMismatch {
            reason: "the turn machine writes something else".to_owned(),
            actual_entry: Some(Box::new(body)),
        })
    }

    /// Whether the host wrote an entry in between, while this is what the machine writes.
    fn is_skippable(&self, entry: &EntryBody, written: &EntryBody) -> bool {
        if is_host_entry(entry) {
            return true;
        }
        let mut behind = self.remaining().iter().skip(1).map(|entry| &entry.body);
        match (entry, written) {
            (EntryBody::Notice { .. }, EntryBody::Notice { .. }) => behind
                .find(|body| *body == written || !may_be_host_entry(body))
                .is_some_and(|body| body == written),
            (EntryBody::Notice { .. }, _) => true,
            _ => false,
        }
    }

    /// Takes an entry as it is: the host wrote it.
    pub(super) fn skip_entry(&mut self) {
        self.at += 1;
    }

    fn accept_written(&mut self, body: &EntryBody) {
        self.at += 1;
        self.apply(body);
        let waiting = &mut self.pending;
        match body {
            EntryBody::CallStarted { call_id, .. } => {
                waiting.calls.retain(|id| id != call_id);
                waiting.awaiting_approval.retain(|id| id != call_id);
                waiting.running.push(call_id.clone());
            }
            EntryBody::CallEnded { output, .. } => {
                let id = &output.call_id;
                waiting.calls.retain(|waits| waits != id);
                waiting.awaiting_approval.retain(|asked| asked != id);
                waiting.running.retain(|running| running != id);
            }
            body => {
                if let Some(answer) = logged_reply(body) {
                    waiting.calls = answer.calls().map(|call| call.call_id.clone()).collect();
                    waiting.running.clear();
                    waiting.awaiting_approval.clear();
                }
            }
        }
    }

    /// Takes in what an entry changes for what comes behind it.
    fn apply(&mut self, body: &EntryBody) {
        self.effective_settings.apply(body);
        if let EntryBody::TableChanged(change) = body {
            self.table += 1;
            self.removed.extend(change.removed.iter().cloned());
            self.removed.retain(|name| !change.added.contains(name));
        }
    }

    fn table(&self) -> &'a RoutingTable {
        static EMPTY: std::sync::LazyLock<RoutingTable> =
            std::sync::LazyLock::new(RoutingTable::default);
        self.tables
            .get(self.table)
            .map_or(&EMPTY, |(table, _)| table)
    }

    /// What the rules say of calls, with a person nearby; told, and given back.
    pub(super) fn judge<'c>(
        &mut self,
        calls: impl Iterator<Item = &'c FunctionCall>,
    ) -> Vec<CallVerdict> {
        let judge = TableJudge::new(self.table(), &self.setup.policy)
            .with_removed(self.removed.iter().cloned());
        let verdicts: Vec<(String, CallVerdict)> = calls
            .map(|call| (call.call_id.clone(), judge.judge(call)))
            .collect();
        let own = verdicts
            .iter()
            .map(|(_, verdict)| verdict.clone())
            .collect();
        if !verdicts.is_empty() {
            let at = self.at;
            self.report(Fact::Judged { at, verdicts });
        }
        own
    }

    /// Tells of a request that the next entry ends.
    pub(super) fn report_request(&mut self, asked: PendingModelRequest, upto: Option<u64>) {
        if self.last_reported == Some(self.at) {
            return;
        }
        self.last_reported = Some(self.at);
        let summary = asked.refused.and_then(|refused| {
            Some(SummaryRequest {
                visible_from: upto?,
                was_refused: refused,
            })
        });
        if asked.refused.is_some() && summary.is_none() {
            return;
        }
        let request = DrivenRequest {
            entry_count: asked.entry_count,
            tokens: asked.tokens,
            table: self.table(),
            settings: &self.effective_settings,
            summary,
        };
        let at = self.at;
        self.stopped |= !(self.listener)(Fact::Requested { at, request });
    }

    fn report(&mut self, fact: Fact<'_>) {
        self.stopped |= !(self.listener)(fact);
    }

    /// A machine as a host makes it that opens the thread here.
    pub(super) fn reopen(&mut self) {
        let before = self.script.get(..self.at).unwrap_or_default();
        let settings = self.effective_settings.turn_settings(&self.setup.settings);
        self.machine = Machine::new(settings, self.table().version(), before);
        self.pending = OpenWork::default();
        self.unobserved = 0;
        self.delivered_change = None;
    }

    /// Goes on with the next turn; requests of the rest of this one are told as the log has them.
    fn resume(&mut self) {
        let mut is_first = true;
        while let Some(entry) = self.script.get(self.at)
            && !self.stopped
            && (is_first || !matches!(entry.body, EntryBody::TurnStarted { .. }))
        {
            is_first = false;
            if let Some(answer) = logged_reply(&entry.body)
                && answer.meta.is_some()
            {
                let asked = PendingModelRequest {
                    number: 0,
                    entry_count: self.at,
                    tokens: 0,
                    refused: None,
                };
                self.report_request(asked, None);
                self.judge(answer.calls());
            }
            self.apply(&entry.body);
            self.at += 1;
        }
        self.reopen();
    }
}
