//! What the turn machine is given for each entry of a log.
//!
//! An entry says what was written; what is fed for it is the input after which the machine writes it.

use super::drive::{Drive, PendingModelRequest, Stuck};
use super::lookahead::{
    LoggedReply, after_reply, all_refused, by_machine, closing, compaction, ends_the_turn,
    is_cut_here, is_ended, is_last_reply, is_limit, is_outside, is_unfit, limits, reason, reply,
    table_change, turn_end, until_closing, verdicts,
};
use crate::chat::{FunctionCallOutput, Meta, Response, Role, Stop, StopReason, Usage};
use crate::context::CallRefusal;
use crate::log::{CallEnd, Entry, EntryBody, NotRun, NoticeReason, TurnOutcome, turn_usage};
use crate::request::view_tokens;
use crate::turn::{ApprovalDecision, CompactionTrigger, ModelFailure, TurnInput, When};

impl Drive<'_, '_> {
    /// Gives the machine the input after which it writes the next entry.
    pub(super) fn feed_next(&mut self) -> Result<(), Stuck> {
        let Some(entry) = self.rest().first() else {
            return Ok(());
        };
        let busy = self.machine.is_busy();
        if busy && self.host_ended() {
            return Ok(());
        }
        if let Some(answer) = reply(&entry.body) {
            return self.replied(answer);
        }
        match &entry.body {
            body if is_outside(body) => {
                self.pass();
                Ok(())
            }
            EntryBody::TurnStarted { .. } if busy => {
                Err(Stuck::new("a turn begins inside another one"))
            }
            EntryBody::TurnStarted { turn_id } => self.turn_started(turn_id),
            EntryBody::SettingsChanged { .. } => self.settings_changed(&entry.body),
            EntryBody::CallStarted { call_id, .. } => self.call_started(call_id),
            EntryBody::CallEnded {
                output,
                end,
                reason,
                duration_ms,
                meta,
            } => {
                let done = TurnInput::CallDone {
                    output: output.clone(),
                    end: *end,
                    duration_ms: *duration_ms,
                    meta: meta.clone(),
                };
                self.call_ended(output, *end, reason.clone(), done)
            }
            EntryBody::Compacted {
                upto,
                summary,
                meta,
            } => {
                let asked = self.summary_asked()?;
                self.tell_asked(asked, Some(*upto));
                let tokens = self.tokens_behind();
                self.give(TurnInput::Compacted {
                    upto: *upto,
                    summary: summary.clone(),
                    meta: meta.clone().unwrap_or_default(),
                    tokens,
                })
            }
            EntryBody::Unfolded { fold } => {
                let tokens = self.tokens_behind();
                self.input(TurnInput::Unfold {
                    fold: *fold,
                    tokens,
                })
            }
            EntryBody::Spent { on, meta } => self.input(TurnInput::Spent {
                on: on.clone(),
                meta: meta.clone(),
            }),
            EntryBody::Notice { reason, .. } => self.noticed(reason.as_ref()),
            EntryBody::TurnEnded {
                outcome,
                usage,
                stop_reason,
                ..
            } => {
                let at = self.at;
                if self.waiting.request.is_some() || self.waiting.summary.is_some() {
                    self.turn_ended(outcome, *usage, stop_reason.as_deref())?;
                }
                // Nothing else is left to do than that backends look at replies.
                while self.at == at && self.unobserved > 0 {
                    self.unobserved -= 1;
                    self.input(TurnInput::Observed)?;
                }
                Ok(())
            }
            EntryBody::TableChanged(_) => {
                Err(Stuck::new("the tools change where no request begins"))
            }
            EntryBody::Message { .. } | EntryBody::File { .. } | EntryBody::BackendState { .. } => {
                Err(Stuck::new("a message that begins no turn"))
            }
        }
    }

    /// An input after which the machine may ask the model: with the tools that the log has then,
    /// and with a summary first where the log has one.
    fn give(&mut self, input: TurnInput) -> Result<(), Stuck> {
        let rest = self.rest();
        if let Some((ahead, change)) = table_change(rest)
            && self.change_given != Some(self.at + ahead)
        {
            self.change_given = Some(self.at + ahead);
            self.input(TurnInput::Table(change.clone()))?;
        }
        let compaction = compaction(rest);
        if matches!(compaction, CompactionTrigger::At(_)) {
            self.machine.put_off_nothing();
        }
        self.machine.settings_mut().compaction = compaction;
        self.input(input)
    }

    /// Goes over what was written when the thread was opened again, where the host ended here.
    fn host_ended(&mut self) -> bool {
        let Some(end) = closing(self.script, self.at) else {
            return false;
        };
        if let Some(asked) = self.waiting.request {
            self.tell_asked(asked, None);
        }
        self.at = end + 1;
        self.reopen();
        true
    }

    fn turn_started(&mut self, turn_id: &str) -> Result<(), Stuck> {
        let rest = self.rest();
        let limits = limits(rest, &self.setup.settings);
        let now = self.machine.settings_mut();
        now.max_iterations = limits.max_iterations;
        now.max_pauses = limits.max_pauses;
        now.budget = limits.budget;
        let turn_id = turn_id.to_owned();
        let said = rest.get(1).map(|entry| &entry.body);
        match said {
            Some(EntryBody::Message { message }) if message.role == Role::User => {
                self.give(TurnInput::User {
                    turn_id,
                    message: message.clone(),
                })
            }
            _ => self.give(TurnInput::GoOn { turn_id }),
        }
    }

    fn settings_changed(&mut self, body: &EntryBody) -> Result<(), Stuck> {
        // A turn that ends anyway makes no request again.
        let asked = self.waiting.request.filter(|_| !self.waiting.is_ending);
        let Some(asked) = asked else {
            return self.input(self.settings(self.rest(), body));
        };
        self.tell_asked(asked, None);
        self.input(self.settings(self.rest(), body))?;
        self.unanswered(asked, None, None)
    }

    /// The settings of the first of these entries.
    fn settings(&self, rest: &[Entry], body: &EntryBody) -> TurnInput {
        let mut frame = self.frame.clone();
        frame.take(body);
        let mut settings = frame.settings(self.machine.settings());
        settings.compaction = compaction(rest);
        TurnInput::Settings {
            settings: Box::new(settings),
            entry: Box::new(body.clone()),
            when: When::Now,
        }
    }

    /// Ends the turn from outside, where this is how the log goes on.
    fn end_before(&mut self, next: Option<&EntryBody>) -> Result<(), Stuck> {
        match next {
            Some(EntryBody::TurnEnded { outcome, .. }) => match outcome {
                TurnOutcome::Cancelled => self.input(TurnInput::Cancel { drop_queued: false }),
                TurnOutcome::Limit { limit, value } => self.input(TurnInput::Exhausted {
                    limit: limit.clone(),
                    value: *value,
                }),
                _ => Ok(()),
            },
            _ => Ok(()),
        }
    }

    fn unanswered(
        &mut self,
        asked: PendingModelRequest,
        failure: Option<ModelFailure>,
        partial: Option<(Response, Meta)>,
    ) -> Result<(), Stuck> {
        self.waiting.request = None;
        self.give(TurnInput::ModelFailed {
            request: asked.number,
            failure: failure.unwrap_or_else(stopped),
            partial,
        })
    }

    fn replied(&mut self, answer: LoggedReply<'_>) -> Result<(), Stuck> {
        let Some(asked) = self.waiting.request else {
            return Err(Stuck::new("a reply where no request was made"));
        };
        self.tell_asked(asked, None);
        let whole = self.rest();
        let rest = match turn_end(whole) {
            Some((end, _)) => whole.get(..=end).unwrap_or(whole),
            None => whole,
        };
        let judged = self.judge(answer.calls());
        let lived = until_closing(self.script, self.at, rest);
        self.verdicts = verdicts(lived, answer, &judged);
        let meta = answer.meta.cloned().unwrap_or_default();
        let next = after_reply(rest, answer);
        self.is_unfit = is_unfit(next);
        let is_last = is_last_reply(answer, next) && (meta.partial || ends_the_turn(rest, answer));
        let asked = if is_last {
            self.paused_before(rest, answer)?;
            self.waiting.request.unwrap_or(asked)
        } else {
            asked
        };
        if meta.superseded {
            let at = self.begin_again(rest)?;
            let calls = answer.calls().next().is_some();
            if calls && all_refused(rest, answer, |why| *why == NotRun::TurnEnded) {
                self.end_before(rest.get(at + 1).map(|entry| &entry.body))?;
            }
        } else if meta.partial
            || (is_ended(next) && all_refused(rest, answer, |why| *why == NotRun::TurnEnded))
        {
            self.end_before(next)?;
        }
        self.waiting.request = None;
        let parts = answer.parts.to_vec();
        let response = |stop| Response {
            parts,
            usage: meta.usage,
            complete: !meta.partial,
            stop,
            ..Response::default()
        };
        if meta.partial {
            let response = response(None);
            return self.give(TurnInput::ModelFailed {
                request: asked.number,
                failure: failure_of(next),
                partial: Some((response, meta)),
            });
        }
        let reason = reason(rest, answer, next);
        let stop = meta.stop_reason.clone().map(|raw| Stop {
            reason,
            raw,
            sequence: None,
        });
        let response = response(stop);
        self.give(TurnInput::ModelDone {
            request: asked.number,
            response,
            meta,
        })
    }

    /// Gives the machine the settings for which a reply was begun again. The place of their entry.
    fn begin_again(&mut self, rest: &[Entry]) -> Result<usize, Stuck> {
        let changes = |entry: &Entry| matches!(entry.body, EntryBody::SettingsChanged { .. });
        let found = rest.iter().position(changes);
        let Some((at, entry)) = found.and_then(|at| Some((at, rest.get(at)?))) else {
            return Err(Stuck::new("a reply was begun again without other settings"));
        };
        if !self.waiting.is_ending {
            self.input(self.settings(rest.get(at..).unwrap_or_default(), &entry.body))?;
        }
        Ok(at)
    }

    /// Whether the turn ends for another reason than its own end, which backends may only have to
    /// see yet.
    fn is_ended_from_outside(&self) -> bool {
        !matches!(
            turn_end(self.rest()),
            Some((
                _,
                TurnOutcome::Completed | TurnOutcome::CutShort | TurnOutcome::Failed { .. }
            ))
        )
    }

    fn call_started(&mut self, call_id: &str) -> Result<(), Stuck> {
        if !self.waiting.asked.iter().any(|id| id == call_id) {
            return Err(Stuck::new("a call begins that waits for nobody"));
        }
        self.input(TurnInput::Decided {
            call_id: call_id.to_owned(),
            decision: ApprovalDecision::Allow,
        })
    }

    fn call_ended(
        &mut self,
        output: &FunctionCallOutput,
        end: CallEnd,
        reason: Option<NotRun>,
        done: TurnInput,
    ) -> Result<(), Stuck> {
        let id = &output.call_id;
        let rest = self.rest();
        let next = turn_end(rest).and_then(|(at, _)| rest.get(at));
        let next = next.map(|entry| &entry.body);
        let untold = match next {
            Some(EntryBody::TurnEnded { usage, .. }) => self.missing(*usage) != Usage::default(),
            _ => false,
        };
        if end == CallEnd::Cancelled && self.waiting.calls.contains(id) {
            return match next {
                next if is_limit(next) => self.end_before(next),
                // Whatever ended the turn then: a host that ended itself may stand there now.
                _ => self.input(TurnInput::Cancel { drop_queued: false }),
            };
        }
        if is_cut_here(rest) && !untold && self.waiting.calls.is_empty() {
            self.end_before(next)?;
        }
        if self.waiting.running.contains(id) {
            return self.give(done);
        }
        if self.waiting.asked.contains(id) {
            return self.give(TurnInput::Refused {
                call_id: id.clone(),
                refusal: CallRefusal {
                    text: output.joined_text(),
                    reason,
                },
            });
        }
        Err(Stuck::new("a result of a call that does not run"))
    }

    fn noticed(&mut self, reason: Option<&NoticeReason>) -> Result<(), Stuck> {
        if let (Some(NoticeReason::NotSummarised { error }), Some(_)) =
            (reason, self.waiting.summary)
        {
            let error = error.clone();
            self.waiting.summary = None;
            return self.give(TurnInput::CompactionFailed { error });
        }
        if let (Some(NoticeReason::TooLong { error }), Some(asked)) = (reason, self.waiting.request)
        {
            self.tell_asked(asked, None);
            let failure = ModelFailure {
                error: error.clone(),
                kind: "too_large".to_owned(),
            };
            return self.unanswered(asked, Some(failure), None);
        }
        if let Some(NoticeReason::Dropped { messages }) = reason
            && self.machine.is_busy()
            && self.is_ended_from_outside()
        {
            let rest = self.rest();
            let turn = turn_end(rest).and_then(|(end, _)| rest.get(..end));
            let next = turn.and_then(|turn| turn.iter().find_map(|entry| reply(&entry.body)));
            let meta = next.and_then(|answer| answer.meta);
            if self.waiting.request.is_some() && meta.is_some_and(|meta| meta.superseded) {
                self.begin_again(rest)?;
            }
            let end = turn_end(rest).and_then(|(end, _)| rest.get(end));
            let end = end.map(|entry| &entry.body);
            if is_limit(end) {
                // It came first: a turn ends for one reason.
                self.end_before(end)?;
            }
            // No session lets so many wait; a forged log may say any number.
            for n in 0..(*messages).min(u64::from(u16::MAX)) {
                self.input(TurnInput::GoOn {
                    turn_id: format!("dropped {n}"),
                })?;
            }
            return self.input(TurnInput::Cancel { drop_queued: true });
        }
        self.pass();
        Ok(())
    }

    fn turn_ended(
        &mut self,
        outcome: &TurnOutcome,
        usage: Usage,
        stop_reason: Option<&str>,
    ) -> Result<(), Stuck> {
        let entry = self.rest().first();
        let next = entry.map(|entry| &entry.body);
        if self.waiting.summary.is_some() {
            return self.end_before(next);
        }
        let Some(asked) = self.waiting.request else {
            return Ok(());
        };
        self.tell_asked(asked, None);
        // In an older thread a reply that says nothing is in no entry; what it cost is in the turn's
        // sum.
        let missing = self.missing(usage);
        let reason = match outcome {
            TurnOutcome::Cancelled => StopReason::EndTurn,
            TurnOutcome::Limit { limit, .. } if by_machine(limit) => StopReason::Pause,
            TurnOutcome::Limit { .. } | TurnOutcome::Completed => StopReason::EndTurn,
            TurnOutcome::CutShort => StopReason::MaxTokens,
            TurnOutcome::Failed { .. } | TurnOutcome::Interrupted => {
                let failure = failure_of(next);
                let nothing = missing == Usage::default();
                let partial = (!nothing).then(|| empty(missing, reason_of(stop_reason)));
                return self.without_entry(|drive| drive.unanswered(asked, Some(failure), partial));
            }
        };
        if is_ended(next) {
            self.end_before(next)?;
            if missing == Usage::default() {
                return self.unanswered(asked, None, None);
            }
        }
        let (mut response, meta) = empty(missing, reason_of(stop_reason));
        if let Some(stop) = &mut response.stop {
            stop.reason = reason;
        }
        response.complete = true;
        self.waiting.request = None;
        let done = TurnInput::ModelDone {
            request: asked.number,
            response,
            meta,
        };
        self.without_entry(|drive| drive.give(done))
    }

    /// Replies that said nothing and were only paused, before a reply that ends the turn: an older
    /// thread has no entry of them.
    fn paused_before(&mut self, rest: &[Entry], answer: LoggedReply<'_>) -> Result<(), Stuck> {
        let Some(EntryBody::TurnEnded { outcome, usage, .. }) = rest.last().map(|it| &it.body)
        else {
            return Ok(());
        };
        let mut missing = self.missing(*usage);
        let own = turn_usage(rest);
        missing = less(missing, own);
        let limit = match outcome {
            TurnOutcome::Limit { limit, value } if limit == "max_pauses" => Some(*value),
            _ => None,
        };
        let seen = self.pauses(answer);
        let count = match limit {
            Some(most) => (most + 1).saturating_sub(seen),
            None => u64::from(missing != Usage::default()),
        };
        if limit.is_none() && count > 0 {
            self.machine.settings_mut().max_pauses = u32::MAX;
        }
        for _ in 0..count.min(100) {
            let Some(asked) = self.waiting.request.take() else {
                return Ok(());
            };
            let (mut response, meta) = empty(std::mem::take(&mut missing), None);
            response.complete = true;
            response.stop = Some(Stop {
                reason: StopReason::Pause,
                raw: String::new(),
                sequence: None,
            });
            let done = TurnInput::ModelDone {
                request: asked.number,
                response,
                meta,
            };
            self.without_entry(|drive| drive.give(done))?;
        }
        Ok(())
    }

    /// Gives a reply of which the log has no entry, though the machine writes one.
    fn without_entry(
        &mut self,
        give: impl FnOnce(&mut Self) -> Result<(), Stuck>,
    ) -> Result<(), Stuck> {
        self.is_unlogged = true;
        let given = give(self);
        self.is_unlogged = false;
        given
    }

    /// How many paused replies of the turn are in the log, with this one.
    fn pauses(&self, answer: LoggedReply<'_>) -> u64 {
        let before = self.script.get(..self.at).unwrap_or_default();
        let of_turn = before
            .iter()
            .rev()
            .take_while(|entry| !matches!(entry.body, EntryBody::TurnStarted { .. }));
        let whole = |answer: &LoggedReply<'_>| {
            let is_whole = |meta: &Meta| !meta.partial && !meta.superseded;
            answer.calls().next().is_none() && answer.meta.is_none_or(is_whole)
        };
        let paused = of_turn.filter_map(|entry| reply(&entry.body));
        let paused = paused.filter(whole).count() as u64;
        paused + u64::from(whole(&answer))
    }

    /// What of the turn's tokens no entry tells.
    fn missing(&self, sum: Usage) -> Usage {
        let before = self.script.get(..self.at).unwrap_or_default();
        let begins = |entry: &Entry| matches!(entry.body, EntryBody::TurnStarted { .. });
        let from = before.iter().rposition(begins).unwrap_or(0);
        less(sum, turn_usage(before.get(from..).unwrap_or_default()))
    }

    fn summary_asked(&mut self) -> Result<PendingModelRequest, Stuck> {
        let asked = self.waiting.summary.take();
        asked.ok_or_else(|| Stuck::new("a summary where none was asked for"))
    }

    /// Tokens of what the model reads with the next entry.
    fn tokens_behind(&self) -> u64 {
        view_tokens(self.script.get(..=self.at).unwrap_or_default())
    }
}

fn less(sum: Usage, known: Usage) -> Usage {
    Usage {
        input: sum.input.saturating_sub(known.input),
        cache_read: sum.cache_read.saturating_sub(known.cache_read),
        cache_write: sum.cache_write.saturating_sub(known.cache_write),
        output: sum.output.saturating_sub(known.output),
        reasoning: sum.reasoning.saturating_sub(known.reasoning),
    }
}

fn reason_of(raw: Option<&str>) -> Option<Stop> {
    raw.map(|raw| Stop {
        reason: StopReason::Other,
        raw: raw.to_owned(),
        sequence: None,
    })
}

/// A reply that says nothing.
fn empty(usage: Usage, stop: Option<Stop>) -> (Response, Meta) {
    let meta = Meta {
        usage,
        stop_reason: stop.as_ref().map(|stop| stop.raw.clone()),
        ..Meta::default()
    };
    let response = Response {
        usage,
        stop,
        ..Response::default()
    };
    (response, meta)
}

fn stopped() -> ModelFailure {
    ModelFailure {
        error: "stopped".to_owned(),
        kind: "stopped".to_owned(),
    }
}

fn failure_of(next: Option<&EntryBody>) -> ModelFailure {
    match next {
        Some(EntryBody::TurnEnded {
            outcome: TurnOutcome::Failed { error, kind },
            ..
        }) => ModelFailure {
            error: error.clone(),
            kind: kind.clone(),
        },
        _ => stopped(),
    }
}
