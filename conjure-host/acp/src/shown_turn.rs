//! A turn as a client sees it: events of the thread on one side, updates on the other.
//!
//! Pieces of text that follow each other quickly are put together, and so is live output of calls,
//! of which the end is shown. Asks nobody and writes nothing.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use agent_client_protocol::v1::schema::{
    Cost, Notice, NoticeSeverity, SessionUpdate, ToolCall, ToolCallContent, UsageUpdate,
};
use conjure_core::chat::{CallAnnounced, CallOutput, Event};
use conjure_core::routing::{Route, RoutingTable};
use tokio::time::Instant;

use super::updates::chunk;
use super::{call_view, edits};

/// How long a piece of text waits for the next one.
const TEXT_DELAY: Duration = Duration::from_millis(20);
/// How long live output waits for more.
const OUTPUT_DELAY: Duration = Duration::from_millis(150);
/// The most bytes of live output that are shown of a call: its end.
const MAX_LIVE_BYTES: usize = 8 * 1024;

/// What a client is shown of one turn.
pub(crate) struct ShownTurn {
    turn: String,
    working_dir: PathBuf,
    /// Whether the client shows notices apart.
    notices: bool,
    table: Option<Arc<RoutingTable>>,
    /// The size of the model's window, where it is known.
    window: Option<u64>,
    /// Messages of the turn so far.
    messages: u32,
    text: Option<PendingText>,
    calls: BTreeMap<String, ShownCall>,
    /// Tokens of the turn before the newest reply, and with it.
    tokens: u64,
    context: u64,
}

struct PendingText {
    is_thought: bool,
    text: String,
    since: Instant,
}

#[derive(Default)]
struct ShownCall {
    /// Whether the call shows the change that it makes.
    has_diff: bool,
    live: String,
    /// Since when there is output that was not shown.
    unshown: Option<Instant>,
}

impl ShownTurn {
    pub(crate) fn new(turn: &str, working_dir: PathBuf, notices: bool) -> Self {
        Self {
            turn: turn.to_owned(),
            working_dir,
            notices,
            table: None,
            window: None,
            messages: 0,
            text: None,
            calls: BTreeMap::new(),
            tokens: 0,
            context: 0,
        }
    }

    /// From here on calls are looked up in this table.
    pub(crate) fn knows(&mut self, table: Arc<RoutingTable>) {
        self.table = Some(table);
    }

    /// The version of the table that is known.
    pub(crate) fn table_version(&self) -> Option<u64> {
        self.table.as_ref().map(|table| table.version())
    }

    /// The model that answers has a window of this size.
    pub(crate) fn has_window(&mut self, tokens: Option<u64>) {
        self.window = tokens;
    }

    pub(crate) fn route(&self, name: &str) -> Option<&Route> {
        self.table.as_ref()?.route(name)
    }

    /// What an event adds. What waits to be put together comes first, where it is older.
    pub(crate) fn show(&mut self, event: &Event) -> Vec<SessionUpdate> {
        let mut updates = Vec::new();
        match event {
            Event::Thinking { delta } => self.push_text(true, delta, &mut updates),
            Event::Content { delta } => self.push_text(false, delta, &mut updates),
            Event::FunctionCall { calls } => {
                self.flush_text(&mut updates);
                self.messages += 1;
                for call in calls {
                    updates.push(SessionUpdate::ToolCall(self.announce_call(call)));
                }
            }
            Event::CallStarted { call_id, .. } => {
                updates.push(SessionUpdate::ToolCallUpdate(call_view::running_update(
                    call_id,
                )));
            }
            Event::ToolOutput { call_id, chunk, .. } => self.put_out(call_id, chunk),
            Event::FunctionCallOutput(output) => {
                self.flush_text(&mut updates);
                updates.push(self.ended(output));
            }
            Event::Usage(usage) => {
                self.context = usage.total_tokens.saturating_sub(self.tokens);
                self.tokens = usage.total_tokens;
                updates.extend(self.usage(None));
            }
            Event::Cost { thread, .. } => updates.extend(self.usage(Some(thread.cost.usd))),
            Event::Notice { text } => {
                self.flush_text(&mut updates);
                updates.push(self.notice(text));
            }
            Event::Error(_) | Event::Done { .. } => self.flush_text(&mut updates),
            Event::TurnStarted { .. }
            | Event::Round { .. }
            | Event::Approval { .. }
            | Event::Question(_)
            | Event::QuestionOver { .. }
            | Event::ApprovalOver { .. }
            | Event::File { .. } => {}
        }
        updates
    }

    /// When something is to be shown that waits.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        let text = self.text.iter().map(|text| text.since + TEXT_DELAY);
        let output = self.calls.values().filter_map(|call| call.unshown);
        text.chain(output.map(|since| since + OUTPUT_DELAY)).min()
    }

    /// Updates whose delay is over.
    pub(crate) fn flush_due(&mut self, now: Instant) -> Vec<SessionUpdate> {
        let mut updates = Vec::new();
        if self
            .text
            .as_ref()
            .is_some_and(|text| text.since + TEXT_DELAY <= now)
        {
            self.flush_text(&mut updates);
        }
        for (id, call) in &mut self.calls {
            if call
                .unshown
                .is_some_and(|since| since + OUTPUT_DELAY <= now)
            {
                call.unshown = None;
                updates.push(SessionUpdate::ToolCallUpdate(call_view::live(
                    id, &call.live,
                )));
            }
        }
        updates
    }

    /// Updates with all waiting text.
    pub(crate) fn flush(&mut self) -> Vec<SessionUpdate> {
        let mut updates = Vec::new();
        self.flush_text(&mut updates);
        updates
    }

    fn push_text(&mut self, is_thought: bool, delta: &str, updates: &mut Vec<SessionUpdate>) {
        if self
            .text
            .as_ref()
            .is_some_and(|text| text.is_thought != is_thought)
        {
            self.flush_text(updates);
        }
        let text = self.text.get_or_insert_with(|| PendingText {
            is_thought,
            text: String::new(),
            since: Instant::now(),
        });
        text.text.push_str(delta);
    }

    fn flush_text(&mut self, updates: &mut Vec<SessionUpdate>) {
        let Some(pending) = self.text.take() else {
            return;
        };
        let kind = if pending.is_thought {
            "thought"
        } else {
            "answer"
        };
        let message = format!("{}-{kind}-{}", self.turn, self.messages);
        let chunk = chunk(pending.text, &message);
        updates.push(if pending.is_thought {
            SessionUpdate::AgentThoughtChunk(chunk)
        } else {
            SessionUpdate::AgentMessageChunk(chunk)
        });
    }

    /// A call with the change that it would make.
    fn announce_call(&mut self, call: &CallAnnounced) -> ToolCall {
        let route = self.route(&call.name);
        let diff = edits::diff(&call.arguments, route, &self.working_dir);
        let shown = call_view::tool_call(
            &call.id,
            &call.name,
            &call.arguments,
            route,
            &self.working_dir,
        );
        let known = ShownCall {
            has_diff: diff.is_some(),
            ..ShownCall::default()
        };
        self.calls.insert(call.id.clone(), known);
        match diff {
            Some(diff) => shown.content(vec![ToolCallContent::Diff(diff)]),
            None => shown,
        }
    }

    fn put_out(&mut self, call_id: &str, chunk: &str) {
        let Some(call) = self.calls.get_mut(call_id) else {
            return;
        };
        call.live.push_str(chunk);
        if call.live.len() > 2 * MAX_LIVE_BYTES {
            let from = call
                .live
                .ceil_char_boundary(call.live.len() - MAX_LIVE_BYTES);
            call.live.drain(..from);
        }
        call.unshown.get_or_insert_with(Instant::now);
    }

    fn ended(&mut self, output: &CallOutput) -> SessionUpdate {
        let known = self.calls.remove(&output.call_id);
        SessionUpdate::ToolCallUpdate(call_view::ended(
            &output.call_id,
            &output.output,
            output.is_error,
            known.is_some_and(|known| known.has_diff),
            output.backend.as_deref(),
            output.duration_ms,
        ))
    }

    fn usage(&self, usd: Option<f64>) -> Option<SessionUpdate> {
        let usage = UsageUpdate::new(self.context, self.window?);
        let cost = usd.map(|usd| Cost::new(usd, "USD"));
        Some(SessionUpdate::UsageUpdate(usage.cost(cost)))
    }

    fn notice(&mut self, text: &str) -> SessionUpdate {
        if self.notices {
            let notice = Notice::new(NoticeSeverity::Info, text.to_owned());
            return SessionUpdate::Notice(notice);
        }
        self.messages += 1;
        let message = format!("{}-notice-{}", self.turn, self.messages);
        SessionUpdate::AgentMessageChunk(chunk(format!("*{text}*\n\n"), &message))
    }
}
