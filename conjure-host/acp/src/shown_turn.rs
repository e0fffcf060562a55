//! A turn as a client sees it: events of the thread on one side, updates on the other.
//!
//! Pieces of text that follow each other quickly are put together, and so is live output of calls,
//! of which the end is shown. Asks nobody and writes nothing.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use agent_client_protocol::v1::schema::{
    Cost, Notice, NoticeSeverity, SessionUpdate, ToolCall, ToolCallContent, ToolCallUpdate,
    UsageUpdate,
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
    has_begun: bool,
    working_dir: PathBuf,
    /// Whether the client shows notices apart.
    supports_notices: bool,
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
    /// Moment since which there is output that was not shown; `None` where all was.
    unshown_since: Option<Instant>,
}

impl ShownTurn {
    pub(crate) fn new(turn: &str, working_dir: PathBuf, notices: bool) -> Self {
        Self {
            turn: turn.to_owned(),
            has_begun: false,
            working_dir,
            supports_notices: notices,
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
    pub(crate) fn set_table(&mut self, table: Arc<RoutingTable>) {
        self.table = Some(table);
    }

    /// The version of the table that is known.
    pub(crate) fn table_version(&self) -> Option<u64> {
        self.table.as_ref().map(|table| table.version())
    }

    /// The model that answers has a window of this size.
    pub(crate) fn set_window(&mut self, tokens: Option<u64>) {
        self.window = tokens;
    }

    pub(crate) fn route(&self, name: &str) -> Option<&Route> {
        self.table.as_ref()?.route(name)
    }

    /// Whether the turn has begun. What is told before that is no part of it.
    pub(crate) fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// What an event adds. What waits to be put together comes first, where it is older.
    pub(crate) fn show(&mut self, event: &Event) -> Vec<SessionUpdate> {
        if let Event::TurnStarted { turn_id } = event {
            self.has_begun = *turn_id == self.turn;
            return Vec::new();
        }
        if !self.has_begun {
            return Vec::new();
        }
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
            Event::ToolOutput { call_id, chunk, .. } => self.append_output(call_id, chunk),
            Event::FunctionCallOutput(output) => {
                self.flush_text(&mut updates);
                updates.push(self.finish_call(output));
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
        let output = self.calls.values().filter_map(|call| call.unshown_since);
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
                .unshown_since
                .is_some_and(|since| since + OUTPUT_DELAY <= now)
            {
                call.unshown_since = None;
                updates.push(SessionUpdate::ToolCallUpdate(
                    call_view::live_output_update(id, &call.live),
                ));
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

    /// A call, as it is announced.
    fn announce_call(&mut self, call: &CallAnnounced) -> ToolCall {
        let shown = self.tool_call(call);
        let known = ShownCall {
            has_diff: !shown.content.is_empty(),
            ..ShownCall::default()
        };
        self.calls.insert(call.id.clone(), known);
        shown
    }

    /// A call that the person is asked about: the change is that of the file as it is by now, which
    /// calls before this one may have changed.
    pub(crate) fn ask_about(&mut self, call: &CallAnnounced) -> ToolCallUpdate {
        let shown = self.tool_call(call);
        let known = self.calls.entry(call.id.clone()).or_default();
        known.has_diff |= !shown.content.is_empty();
        call_view::approval_update(shown)
    }

    /// A call with the change that it would make.
    fn tool_call(&self, call: &CallAnnounced) -> ToolCall {
        let route = self.route(&call.name);
        let diff = edits::diff(&call.arguments, route, &self.working_dir);
        let shown = call_view::tool_call(
            &call.id,
            &call.name,
            &call.arguments,
            route,
            &self.working_dir,
        );
        match diff {
            Some(diff) => shown.content(vec![ToolCallContent::Diff(diff)]),
            None => shown,
        }
    }

    fn append_output(&mut self, call_id: &str, chunk: &str) {
        let Some(call) = self.calls.get_mut(call_id) else {
            return;
        };
        if call.has_diff {
            // Its output would be shown in place of the change.
            return;
        }
        call.live.push_str(chunk);
        if call.live.len() > 2 * MAX_LIVE_BYTES {
            let from = call
                .live
                .ceil_char_boundary(call.live.len() - MAX_LIVE_BYTES);
            call.live.drain(..from);
        }
        call.unshown_since.get_or_insert_with(Instant::now);
    }

    fn finish_call(&mut self, output: &CallOutput) -> SessionUpdate {
        let known = self.calls.remove(&output.call_id);
        SessionUpdate::ToolCallUpdate(call_view::result_update(
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
        if self.supports_notices {
            let notice = Notice::new(NoticeSeverity::Info, text.to_owned());
            return SessionUpdate::Notice(notice);
        }
        self.messages += 1;
        let message = format!("{}-notice-{}", self.turn, self.messages);
        SessionUpdate::AgentMessageChunk(chunk(format!("*{text}*\n\n"), &message))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn turn(notices: bool) -> ShownTurn {
        ShownTurn::new("t-2", PathBuf::from("/w"), notices)
    }

    fn started(turn_id: &str) -> Event {
        Event::TurnStarted {
            turn_id: turn_id.to_owned(),
        }
    }

    fn noticed(text: &str) -> Event {
        Event::Notice {
            text: text.to_owned(),
        }
    }

    fn done(turn_id: &str) -> Event {
        Event::Done {
            turn_id: turn_id.to_owned(),
            outcome: "completed".to_owned(),
            stop_reason: None,
            text: String::new(),
        }
    }

    fn text(update: &SessionUpdate) -> String {
        let update = serde_json::to_value(update).unwrap();
        let text = update["content"]["text"].as_str();
        text.unwrap_or_else(|| panic!("{update}")).to_owned()
    }

    #[test]
    fn notices_of_the_turn_are_shown_as_the_client_shows_them() {
        let mut plain = turn(false);
        for event in [started("t-1"), noticed("of the turn before"), done("t-1")] {
            assert!(plain.show(&event).is_empty() && !plain.has_begun());
        }
        plain.show(&started("t-2"));
        assert!(plain.has_begun());
        let updates = plain.show(&noticed("in it"));
        let texts: Vec<String> = updates.iter().map(text).collect();
        assert_eq!(texts, ["*in it*\n\n"]);
        let mut apart = turn(true);
        apart.show(&started("t-2"));
        let updates = apart.show(&noticed("in it"));
        assert!(matches!(updates.as_slice(), [SessionUpdate::Notice(_)]));
    }

    #[test]
    fn no_update_takes_away_the_change_that_a_call_shows() {
        let mut turn = turn(false);
        turn.show(&started("t-2"));
        let call = CallAnnounced {
            id: "c-1".to_owned(),
            name: "local_str_replace".to_owned(),
            arguments: json!({ "path": "a.txt", "old_str": "one", "new_str": "two" }),
        };
        let announced = turn.show(&Event::FunctionCall {
            calls: vec![call.clone()],
        });
        let [SessionUpdate::ToolCall(announced)] = announced.as_slice() else {
            panic!("no call was announced: {announced:#?}")
        };
        let mut shown = announced.clone();
        let change = shown.content.clone();
        assert!(matches!(change.as_slice(), [ToolCallContent::Diff(_)]));
        let asked = turn.ask_about(&call);
        assert_eq!(asked.fields.content.as_ref(), Some(&change));
        shown.update(asked.fields);
        turn.show(&Event::ToolOutput {
            call_id: "c-1".to_owned(),
            stream: "stdout".to_owned(),
            chunk: "at work".to_owned(),
        });
        assert_eq!(turn.next_deadline(), None, "no output is to be shown");
        let ended = call_view::result_update("c-1", "", true, true, None, 1);
        shown.update(ended.fields);
        assert_eq!(shown.content, change);
    }

    #[test]
    fn a_question_about_a_call_leaves_what_it_has_nothing_to_show_for() {
        let mut turn = turn(false);
        turn.show(&started("t-2"));
        let call = CallAnnounced {
            id: "c-1".to_owned(),
            name: "local_bash_tool".to_owned(),
            arguments: json!({ "command": "ls" }),
        };
        assert_eq!(turn.ask_about(&call).fields.content, None);
    }
}
