//! What the turn machine is given for each entry of a log.
//!
//! An entry says what was written; what is fed for it is the input after which the machine writes it.

use super::drive::{Drive, PendingModelRequest, ReplayMismatch};
use super::lookahead::{
    LoggedReply, after_reply, all_refused, before_interruption, compaction_trigger,
    effective_limits, ends_the_turn, interrupted_turn_end, is_ended_externally, is_host_entry,
    is_last_reply, is_limit, is_machine_limit, is_step_cancelled, is_unfit, logged_reply,
    stop_reason_of, table_change, turn_end, verdicts,
};
use super::model_outcomes::{empty_reply, failure_of, other_stop, stopped_failure};
use crate::chat::{FunctionCallOutput, Meta, Response, Role, Stop, StopReason, Usage};
use crate::context::CallRefusal;
use crate::log::{CallEnd, Entry, EntryBody, NotRun, NoticeReason, TurnOutcome, turn_usage};
use crate::request::view_tokens;
use crate::turn::{ApprovalDecision, CompactionTrigger, EffectiveFrom, ModelFailure, TurnInput};

impl Drive<'_, '_> {
    /// Gives the machine the input after which it writes the next entry.
    pub(super) fn feed_next(&mut self) -> Result<(), ReplayMismatch> {
        let Some(entry) = self.remaining().first() else {
            return Ok(());
        };
        let busy = self.machine.is_busy();
        if busy && self.skip_interrupted_end() {
            return Ok(());
        }
        if let Some(answer) = logged_reply(&entry.body) {
            return self.feed_reply(answer);
        }
        match &entry.body {
            body if is_host_entry(body) => {
                self.skip_entry();
                Ok(())
            }
            EntryBody::TurnStarted { .. } if busy => {
                Err(ReplayMismatch::new("a turn begins inside another one"))
            }
            EntryBody::TurnStarted { turn_id } => self.feed_turn_start(turn_id),
            EntryBody::SettingsChanged { .. } => self.feed_settings_change(&entry.body),
            EntryBody::CallStarted { call_id, .. } => self.feed_approval(call_id),
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
                self.feed_call_result(output, *end, reason.clone(), done)
            }
            EntryBody::Compacted {
                upto,
                summary,
                meta,
            } => {
                let asked = self.take_summary_request()?;
                self.report_request(asked, Some(*upto));
                let tokens = self.tokens_after_entry();
                self.feed_request_input(TurnInput::Compacted {
                    visible_from: *upto,
                    summary: summary.clone(),
                    meta: meta.clone().unwrap_or_default(),
                    tokens,
                })
            }
            EntryBody::Unfolded { fold } => {
                let tokens = self.tokens_after_entry();
                self.feed(TurnInput::Unfold {
                    fold: *fold,
                    tokens,
                })
            }
            EntryBody::Spent { on, meta } => self.feed(TurnInput::Spent {
                purpose: on.clone(),
                meta: meta.clone(),
            }),
            EntryBody::Notice { reason, .. } => self.feed_notice(reason.as_ref()),
            EntryBody::TurnEnded {
                outcome,
                usage,
                stop_reason,
                ..
            } => {
                let at = self.at;
                if self.pending.request.is_some() || self.pending.summary.is_some() {
                    self.feed_turn_outcome(outcome, *usage, stop_reason.as_deref())?;
                }
                // Nothing else is left to do than that backends look at replies.
                while self.at == at && self.unobserved > 0 {
                    self.unobserved -= 1;
                    self.feed(TurnInput::Observed)?;
                }
                Ok(())
            }
            EntryBody::TableChanged(_) => Err(ReplayMismatch::new(
                "the tools change where no request begins",
            )),
            EntryBody::Message { .. } | EntryBody::File { .. } | EntryBody::BackendState { .. } => {
                Err(ReplayMismatch::new("a message that begins no turn"))
            }
        }
    }

    /// An input after which the machine may ask the model: with the tools that the log has then,
    /// and with a summary first where the log has one.
    fn feed_request_input(&mut self, input: TurnInput) -> Result<(), ReplayMismatch> {
        let rest = self.remaining();
        if let Some((ahead, change)) = table_change(rest)
            && self.delivered_change != Some(self.at + ahead)
        {
            self.delivered_change = Some(self.at + ahead);
            self.feed(TurnInput::Table(change.clone()))?;
        }
        let compaction = compaction_trigger(rest);
        if matches!(compaction, CompactionTrigger::At(_)) {
            self.machine.allow_summary();
        }
        self.machine.settings_mut().compaction = compaction;
        self.feed(input)
    }

    /// Goes over what was written when the thread was opened again, where the host ended here.
    fn skip_interrupted_end(&mut self) -> bool {
        let Some(end) = interrupted_turn_end(self.script, self.at) else {
            return false;
        };
        if let Some(asked) = self.pending.request {
            self.report_request(asked, None);
        }
        self.at = end + 1;
        self.reopen();
        true
    }

    fn feed_turn_start(&mut self, turn_id: &str) -> Result<(), ReplayMismatch> {
        let rest = self.remaining();
        let limits = effective_limits(rest, &self.setup.settings);
        let now = self.machine.settings_mut();
        now.max_iterations = limits.max_iterations;
        now.max_pauses = limits.max_pauses;
        now.budget = limits.budget;
        let turn_id = turn_id.to_owned();
        let first_message = rest.get(1).map(|entry| &entry.body);
        match first_message {
            Some(EntryBody::Message { message }) if message.role == Role::User => self
                .feed_request_input(TurnInput::User {
                    turn_id,
                    message: message.clone(),
                }),
            _ => self.feed_request_input(TurnInput::Continue { turn_id }),
        }
    }

    fn feed_settings_change(&mut self, body: &EntryBody) -> Result<(), ReplayMismatch> {
        // A turn that ends anyway makes no request again.
        let asked = self.pending.request.filter(|_| !self.pending.is_ending);
        let Some(asked) = asked else {
            return self.feed(self.settings_input(self.remaining(), body));
        };
        self.report_request(asked, None);
        self.feed(self.settings_input(self.remaining(), body))?;
        self.feed_model_failure(asked, None, None)
    }

    /// The settings of the first of these entries.
    fn settings_input(&self, rest: &[Entry], body: &EntryBody) -> TurnInput {
        let mut frame = self.effective_settings.clone();
        frame.apply(body);
        let mut settings = frame.turn_settings(self.machine.settings());
        settings.compaction = compaction_trigger(rest);
        TurnInput::Settings {
            settings: Box::new(settings),
            entry: Box::new(body.clone()),
            when: EffectiveFrom::Now,
        }
    }

    /// Ends the turn from outside, where this is how the log goes on.
    fn feed_turn_end(&mut self, next: Option<&EntryBody>) -> Result<(), ReplayMismatch> {
        match next {
            Some(EntryBody::TurnEnded { outcome, .. }) => match outcome {
                TurnOutcome::Cancelled => self.feed(TurnInput::Cancel { drop_queued: false }),
                TurnOutcome::Limit { limit, value } => self.feed(TurnInput::Exhausted {
                    limit: limit.clone(),
                    value: *value,
                }),
                _ => Ok(()),
            },
            _ => Ok(()),
        }
    }

    fn feed_model_failure(
        &mut self,
        asked: PendingModelRequest,
        failure: Option<ModelFailure>,
        partial: Option<(Response, Meta)>,
    ) -> Result<(), ReplayMismatch> {
        self.pending.request = None;
        self.feed_request_input(TurnInput::ModelFailed {
            request: asked.number,
            failure: failure.unwrap_or_else(stopped_failure),
            partial,
        })
    }

    fn feed_reply(&mut self, answer: LoggedReply<'_>) -> Result<(), ReplayMismatch> {
        let Some(asked) = self.pending.request else {
            return Err(ReplayMismatch::new("a reply where no request was made"));
        };
        self.report_request(asked, None);
        let whole = self.remaining();
        let rest = match turn_end(whole) {
            Some((end, _)) => whole.get(..=end).unwrap_or(whole),
            None => whole,
        };
        let judged = self.judge(answer.calls());
        let lived = before_interruption(self.script, self.at, rest);
        self.verdicts = verdicts(lived, answer, &judged);
        let meta = answer.meta.cloned().unwrap_or_default();
        let next = after_reply(rest, answer);
        self.is_unfit = is_unfit(next);
        let is_last = is_last_reply(answer, next) && (meta.partial || ends_the_turn(rest, answer));
        let asked = if is_last {
            self.feed_missing_pauses(rest, answer)?;
            self.pending.request.unwrap_or(asked)
        } else {
            asked
        };
        if meta.superseded {
            let at = self.feed_restart_settings(rest)?;
            let calls = answer.calls().next().is_some();
            if calls && all_refused(rest, answer, |why| *why == NotRun::TurnEnded) {
                self.feed_turn_end(rest.get(at + 1).map(|entry| &entry.body))?;
            }
        } else if meta.partial
            || (is_ended_externally(next)
                && all_refused(rest, answer, |why| *why == NotRun::TurnEnded))
        {
            self.feed_turn_end(next)?;
        }
        self.pending.request = None;
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
            return self.feed_request_input(TurnInput::ModelFailed {
                request: asked.number,
                failure: failure_of(next),
                partial: Some((response, meta)),
            });
        }
        let reason = stop_reason_of(rest, answer, next);
        let stop = meta.stop_reason.clone().map(|raw| Stop {
            reason,
            raw,
            sequence: None,
        });
        let response = response(stop);
        self.feed_request_input(TurnInput::ModelDone {
            request: asked.number,
            response,
            meta,
        })
    }

    /// Gives the machine the settings for which a reply was begun again. The place of their entry.
    fn feed_restart_settings(&mut self, rest: &[Entry]) -> Result<usize, ReplayMismatch> {
        let changes = |entry: &Entry| matches!(entry.body, EntryBody::SettingsChanged { .. });
        let found = rest.iter().position(changes);
        let Some((at, entry)) = found.and_then(|at| Some((at, rest.get(at)?))) else {
            return Err(ReplayMismatch::new(
                "a reply was begun again without other settings",
            ));
        };
        if !self.pending.is_ending {
            self.feed(self.settings_input(rest.get(at..).unwrap_or_default(), &entry.body))?;
        }
        Ok(at)
    }

    /// Whether the turn ends for another reason than its own end, which backends may only have to
    /// see yet.
    fn is_ended_from_outside(&self) -> bool {
        !matches!(
            turn_end(self.remaining()),
            Some((
                _,
                TurnOutcome::Completed | TurnOutcome::CutShort | TurnOutcome::Failed { .. }
            ))
        )
    }

    fn feed_approval(&mut self, call_id: &str) -> Result<(), ReplayMismatch> {
        if !self
            .pending
            .awaiting_approval
            .iter()
            .any(|id| id == call_id)
        {
            return Err(ReplayMismatch::new("a call begins that waits for nobody"));
        }
        self.feed(TurnInput::Decided {
            call_id: call_id.to_owned(),
            decision: ApprovalDecision::Allow,
        })
    }

    fn feed_call_result(
        &mut self,
        output: &FunctionCallOutput,
        end: CallEnd,
        reason: Option<NotRun>,
        done: TurnInput,
    ) -> Result<(), ReplayMismatch> {
        let id = &output.call_id;
        let rest = self.remaining();
        let next = turn_end(rest).and_then(|(at, _)| rest.get(at));
        let next = next.map(|entry| &entry.body);
        let untold = match next {
            Some(EntryBody::TurnEnded { usage, .. }) => {
                self.unlogged_usage(*usage) != Usage::default()
            }
            _ => false,
        };
        if end == CallEnd::Cancelled && self.pending.calls.contains(id) {
            return match next {
                next if is_limit(next) => self.feed_turn_end(next),
                // Whatever ended the turn then: a host that ended itself may stand there now.
                _ => self.feed(TurnInput::Cancel { drop_queued: false }),
            };
        }
        if is_step_cancelled(rest) && !untold && self.pending.calls.is_empty() {
            self.feed_turn_end(next)?;
        }
        if self.pending.running.contains(id) {
            return self.feed_request_input(done);
        }
        if self.pending.awaiting_approval.contains(id) {
            return self.feed_request_input(TurnInput::Refused {
                call_id: id.clone(),
                refusal: CallRefusal {
                    text: output.joined_text(),
                    reason,
                },
            });
        }
        Err(ReplayMismatch::new("a result of a call that does not run"))
    }

    fn feed_notice(&mut self, reason: Option<&NoticeReason>) -> Result<(), ReplayMismatch> {
        if let (Some(NoticeReason::NotSummarised { error }), Some(_)) =
            (reason, self.pending.summary)
        {
            let error = error.clone();
            self.pending.summary = None;
            return self.feed_request_input(TurnInput::CompactionFailed { error });
        }
        if let (Some(NoticeReason::TooLong { error }), Some(asked)) = (reason, self.pending.request)
        {
            self.report_request(asked, None);
            let failure = ModelFailure {
                error: error.clone(),
                kind: "too_large".to_owned(),
            };
            return self.feed_model_failure(asked, Some(failure), None);
        }
        if let Some(NoticeReason::Dropped { messages }) = reason
            && self.machine.is_busy()
            && self.is_ended_from_outside()
        {
            let rest = self.remaining();
            let turn = turn_end(rest).and_then(|(end, _)| rest.get(..end));
            let next =
                turn.and_then(|turn| turn.iter().find_map(|entry| logged_reply(&entry.body)));
            let meta = next.and_then(|answer| answer.meta);
            if self.pending.request.is_some() && meta.is_some_and(|meta| meta.superseded) {
                self.feed_restart_settings(rest)?;
            }
            let end = turn_end(rest).and_then(|(end, _)| rest.get(end));
            let end = end.map(|entry| &entry.body);
            if is_limit(end) {
                // It came first: a turn ends for one reason.
                self.feed_turn_end(end)?;
            }
            // No session lets so many wait; a forged log may say any number.
            for n in 0..(*messages).min(u64::from(u16::MAX)) {
                self.feed(TurnInput::Continue {
                    turn_id: format!("dropped {n}"),
                })?;
            }
            return self.feed(TurnInput::Cancel { drop_queued: true });
        }
        self.skip_entry();
        Ok(())
    }

    fn feed_turn_outcome(
        &mut self,
        outcome: &TurnOutcome,
        usage: Usage,
        stop_reason: Option<&str>,
    ) -> Result<(), ReplayMismatch> {
        let entry = self.remaining().first();
        let next = entry.map(|entry| &entry.body);
        if self.pending.summary.is_some() {
            return self.feed_turn_end(next);
        }
        let Some(asked) = self.pending.request else {
            return Ok(());
        };
        self.report_request(asked, None);
        // In an older thread a reply that says nothing is in no entry; what it cost is in the turn's
        // sum.
        let missing = self.unlogged_usage(usage);
        let reason = match outcome {
            TurnOutcome::Cancelled => StopReason::EndTurn,
            TurnOutcome::Limit { limit, .. } if is_machine_limit(limit) => StopReason::Pause,
            TurnOutcome::Limit { .. } | TurnOutcome::Completed => StopReason::EndTurn,
            TurnOutcome::CutShort => StopReason::MaxTokens,
            TurnOutcome::Failed { .. } | TurnOutcome::Interrupted => {
                let failure = failure_of(next);
                let nothing = missing == Usage::default();
                let partial = (!nothing).then(|| empty_reply(missing, other_stop(stop_reason)));
                return self.feed_unlogged(|drive| {
                    drive.feed_model_failure(asked, Some(failure), partial)
                });
            }
        };
        if is_ended_externally(next) {
            self.feed_turn_end(next)?;
            if missing == Usage::default() {
                return self.feed_model_failure(asked, None, None);
            }
        }
        let (mut response, meta) = empty_reply(missing, other_stop(stop_reason));
        if let Some(stop) = &mut response.stop {
            stop.reason = reason;
        }
        response.complete = true;
        self.pending.request = None;
        let done = TurnInput::ModelDone {
            request: asked.number,
            response,
            meta,
        };
        self.feed_unlogged(|drive| drive.feed_request_input(done))
    }

    /// Replies that said nothing and were only paused, before a reply that ends the turn: an older
    /// thread has no entry of them.
    fn feed_missing_pauses(
        &mut self,
        rest: &[Entry],
        answer: LoggedReply<'_>,
    ) -> Result<(), ReplayMismatch> {
        let Some(EntryBody::TurnEnded { outcome, usage, .. }) = rest.last().map(|it| &it.body)
        else {
            return Ok(());
        };
        let mut missing = self.unlogged_usage(*usage);
        let own = turn_usage(rest);
        missing = subtract_usage(missing, own);
        let limit = match outcome {
            TurnOutcome::Limit { limit, value } if limit == "max_pauses" => Some(*value),
            _ => None,
        };
        let seen = self.count_pauses(answer);
        let count = match limit {
            Some(most) => (most + 1).saturating_sub(seen),
            None => u64::from(missing != Usage::default()),
        };
        if limit.is_none() && count > 0 {
            self.machine.settings_mut().max_pauses = u32::MAX;
        }
        for _ in 0..count.min(100) {
            let Some(asked) = self.pending.request.take() else {
                return Ok(());
            };
            let (mut response, meta) = empty_reply(std::mem::take(&mut missing), None);
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
            self.feed_unlogged(|drive| drive.feed_request_input(done))?;
        }
        Ok(())
    }

    /// Gives a reply of which the log has no entry, though the machine writes one.
    fn feed_unlogged(
        &mut self,
        give: impl FnOnce(&mut Self) -> Result<(), ReplayMismatch>,
    ) -> Result<(), ReplayMismatch> {
        self.is_unlogged = true;
        let given = give(self);
        self.is_unlogged = false;
        given
    }

    /// How many paused replies of the turn are in the log, with this one.
    fn count_pauses(&self, answer: LoggedReply<'_>) -> u64 {
        let before = self.script.get(..self.at).unwrap_or_default();
        let of_turn = before
            .iter()
            .rev()
            .take_while(|entry| !matches!(entry.body, EntryBody::TurnStarted { .. }));
        let whole = |answer: &LoggedReply<'_>| {
            let is_whole = |meta: &Meta| !meta.partial && !meta.superseded;
            answer.calls().next().is_none() && answer.meta.is_none_or(is_whole)
        };
        let paused = of_turn.filter_map(|entry| logged_reply(&entry.body));
        let paused = paused.filter(whole).count() as u64;
        paused + u64::from(whole(&answer))
    }

    /// What of the turn's tokens no entry tells.
    fn unlogged_usage(&self, sum: Usage) -> Usage {
        let before = self.script.get(..self.at).unwrap_or_default();
        let begins = |entry: &Entry| matches!(entry.body, EntryBody::TurnStarted { .. });
        let from = before.iter().rposition(begins).unwrap_or(0);
        subtract_usage(sum, turn_usage(before.get(from..).unwrap_or_default()))
    }

    fn take_summary_request(&mut self) -> Result<PendingModelRequest, ReplayMismatch> {
        let asked = self.pending.summary.take();
        asked.ok_or_else(|| ReplayMismatch::new("a summary where none was asked for"))
    }

    /// Tokens of what the model reads with the next entry.
    fn tokens_after_entry(&self) -> u64 {
        view_tokens(self.script.get(..=self.at).unwrap_or_default())
    }
}

fn subtract_usage(sum: Usage, known: Usage) -> Usage {
    Usage {
        input: sum.input.saturating_sub(known.input),
        cache_read: sum.cache_read.saturating_sub(known.cache_read),
        cache_write: sum.cache_write.saturating_sub(known.cache_write),
        output: sum.output.saturating_sub(known.output),
        reasoning: sum.reasoning.saturating_sub(known.reasoning),
    }
}
