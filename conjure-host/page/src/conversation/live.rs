//! A turn while it runs, made of its events: what of it is in the page already, and the pieces that
//! bring the page up to date.
//!
//! Text goes out block by block. A block that nothing can change any more is sent once and never
//! touched; the one that is being written is sent again as a whole. What a call says and what the
//! model thinks goes out as it comes, and is never sent twice.

use conjure_core::chat::{Event, Usage};
use conjure_core::log::{CallEnd, Entry, EntryBody};
use conjure_runtime::uploads;
use maud::{Markup, html};

use super::address::{ConversationAddress, thought_id};
use super::card;
use super::live_item::{LiveContent, LiveItem};
use super::live_text::LiveText;
use super::model::{CallCard, CallProgress};

/// A turn that runs.
#[derive(Debug)]
pub(crate) struct LiveTurn {
    /// Id of the turn.
    turn: String,
    items: Vec<LiveItem>,
    /// The model that answers.
    model: String,
    /// Number of the reply of the turn that comes, from 1; 0 before the first.
    reply: usize,
    /// The last entry up to which all ends of calls are taken: see [`LiveTurn::take_ends`].
    ends_read_to: u64,
    /// What its replies took so far; nothing before the first one is over.
    pub(super) usage: Option<Usage>,
}

impl LiveTurn {
    pub(crate) fn new(turn: &str) -> Self {
        Self {
            turn: turn.to_owned(),
            items: Vec::new(),
            model: String::new(),
            reply: 0,
            ends_read_to: 0,
            usage: None,
        }
    }

    /// Takes an event of the turn in.
    pub(crate) fn apply(&mut self, event: &Event) {
        match event {
            Event::Round { model, .. } => {
                self.end_text();
                self.model.clone_from(model);
                self.reply += 1;
            }
            Event::Content { delta } => {
                self.end_thought();
                let model = self.model.clone();
                match self.items.last_mut() {
                    Some(LiveItem {
                        content: LiveContent::Text(text),
                        is_changed,
                        ..
                    }) => {
                        text.push(delta);
                        *is_changed = true;
                    }
                    _ => self.add(LiveContent::Text(LiveText::new(delta, model))),
                }
            }
            Event::Thinking { delta } => match self.items.last_mut() {
                Some(LiveItem {
                    content:
                        LiveContent::Thought {
                            text,
                            is_over: false,
                            ..
                        },
                    is_changed,
                    ..
                }) => {
                    text.push_str(delta);
                    *is_changed = true;
                }
                _ => self.add_thought(delta),
            },
            Event::FunctionCall { calls } => {
                self.end_thought();
                for call in calls {
                    let call = CallCard::new(&call.id, &call.name, call.arguments.clone());
                    self.add(LiveContent::Call {
                        call: Box::new(call),
                        sent: 0,
                        is_otherwise: false,
                    });
                }
            }
            Event::Approval { call, reason } => self.with_call(&call.id, |call| {
                call.state = CallProgress::Asks {
                    reason: reason.clone(),
                };
            }),
            Event::ApprovalOver { call_id, allowed } => self.with_call(call_id, |call| {
                call.state = CallProgress::Decided { allowed: *allowed };
            }),
            Event::CallStarted {
                call_id,
                backend,
                plugin,
            } => self.with_call(call_id, |call| {
                call.state = CallProgress::Runs;
                call.backend = Some(backend.clone());
                call.plugin.clone_from(plugin);
            }),
            Event::ToolOutput { call_id, chunk, .. } => self.add_output(call_id, chunk),
            Event::FunctionCallOutput(output) => self.with_call(&output.call_id, |call| {
                let never_ran = output.backend.is_none();
                call.state = CallProgress::Over(match (never_ran, output.is_error) {
                    (true, _) => CallEnd::Refused,
                    (false, true) => CallEnd::Failed,
                    (false, false) => CallEnd::Done,
                });
                call.output.clone_from(&output.output);
                call.is_error = output.is_error;
                call.duration_ms = output.duration_ms;
            }),
            Event::File { source, .. } if source == uploads::SOURCE => {}
            Event::File {
                artifact, call_id, ..
            } => {
                let is_known = call_id.as_deref().is_some_and(|id| self.call(id).is_some());
                match call_id {
                    Some(id) if is_known => self.with_call(id, |call| call.add_file(artifact)),
                    _ => self.add(LiveContent::File(artifact.clone())),
                }
            }
            Event::Question(asked) => self.add(LiveContent::Question {
                question: Box::new(asked.clone()),
                outcome: None,
            }),
            Event::QuestionOver { id, action } => {
                for item in &mut self.items {
                    if let LiveContent::Question {
                        question: asked,
                        outcome: over,
                    } = &mut item.content
                        && asked.id == *id
                    {
                        *over = Some(action.clone());
                        item.is_changed = true;
                    }
                }
            }
            Event::Notice { text } => self.add(LiveContent::Notice(text.clone())),
            Event::Error(error) => self.add(LiveContent::Error {
                kind: error.kind.clone(),
                text: error.error.clone(),
            }),
            Event::Usage(usage) => self.usage = Some(usage.usage),
            Event::TurnStarted { .. } | Event::Cost { .. } | Event::Done { .. } => {}
        }
    }

    /// Nobody runs it any more.
    pub(crate) fn abandon(&mut self) {
        self.end_thought();
        for item in &mut self.items {
            if let LiveContent::Call { call, .. } = &mut item.content {
                call.abandon();
            }
        }
    }

    /// Whether it waits for a person.
    pub(crate) fn is_waiting(&self) -> bool {
        self.items.iter().any(|item| match &item.content {
            LiveContent::Question { outcome: over, .. } => over.is_none(),
            LiveContent::Call { call, .. } => matches!(call.state, CallProgress::Asks { .. }),
            _ => false,
        })
    }

    fn add(&mut self, shown: LiveContent) {
        self.end_thought();
        self.items.push(LiveItem::new(shown));
    }

    /// The first of a reply is called as it will be when the reply is settled, as one thought.
    fn add_thought(&mut self, text: &str) {
        let mut id = thought_id(&self.turn, self.reply);
        let is_it = |item: &LiveItem| matches!(&item.content, LiveContent::Thought { id: known, .. } if *known == id);
        if self.items.iter().any(is_it) {
            id = format!("{id}-{}", self.items.len());
        }
        self.add(LiveContent::Thought {
            id,
            text: text.to_owned(),
            sent: 0,
            is_over: false,
        });
    }

    /// A text that comes later is another one.
    fn end_text(&mut self) {
        self.end_thought();
    }

    fn end_thought(&mut self) {
        if let Some(LiveItem {
            content: LiveContent::Thought { is_over, .. },
            is_changed,
            ..
        }) = self.items.last_mut()
            && !*is_over
        {
            *is_over = true;
            *is_changed = true;
        }
    }

    fn call(&mut self, id: &str) -> Option<&mut LiveItem> {
        self.items
            .iter_mut()
            .rev()
            .find(|item| match &item.content {
                LiveContent::Call { call, .. } => call.id == id,
                _ => false,
            })
    }

    fn with_call(&mut self, id: &str, change: impl FnOnce(&mut CallCard)) {
        if let Some(item) = self.call(id)
            && let LiveContent::Call {
                call, is_otherwise, ..
            } = &mut item.content
        {
            change(call);
            *is_otherwise = true;
            item.is_changed = true;
        }
    }

    fn add_output(&mut self, id: &str, chunk: &str) {
        if let Some(item) = self.call(id)
            && let LiveContent::Call { call, .. } = &mut item.content
            && call.live.len() < card::MAX_LIVE_BYTES
        {
            let room = card::MAX_LIVE_BYTES - call.live.len();
            let end = chunk.floor_char_boundary(room.min(chunk.len()));
            call.live.push_str(chunk.get(..end).unwrap_or_default());
            if end < chunk.len() {
                call.live
                    .push_str("\n… more; the result will say all of it");
            }
            item.is_changed = true;
        }
    }

    /// Whether a call ended of which the events do not say how: it was cancelled, its time was up, or
    /// it never ran for a reason.
    pub(crate) fn lacks_ends(&self) -> bool {
        self.items.iter().any(LiveItem::lacks_end)
    }

    /// Behind which entry the ends are that such calls lack.
    pub(crate) fn ends_read_to(&self) -> u64 {
        self.ends_read_to
    }

    /// Takes from the thread's entries how such calls ended. An end that is written before it is told is
    /// wanted once more, and so is all behind it.
    pub(crate) fn take_ends(&mut self, entries: &[Entry]) {
        let mut all_taken = true;
        for entry in entries {
            all_taken &= self.take_end(entry);
            if all_taken {
                self.ends_read_to = entry.seq;
            }
        }
    }

    /// Whether it is not wanted any more.
    fn take_end(&mut self, entry: &Entry) -> bool {
        let EntryBody::CallEnded {
            output,
            end,
            reason,
            ..
        } = &entry.body
        else {
            return true;
        };
        let Some(item) = self.call(&output.call_id) else {
            return false;
        };
        if item.lacks_end() {
            self.with_call(&output.call_id, |call| {
                call.state = CallProgress::Over(*end);
                call.reason.clone_from(reason);
                call.ended_seq = Some(entry.seq);
            });
            return true;
        }
        matches!(&item.content, LiveContent::Call { call, .. } if matches!(call.state, CallProgress::Over(_)))
    }

    /// All of it, as a page that has nothing of it needs it. What changes later is sent in pieces, and
    /// then there is no whole any more.
    pub(crate) fn render_full(&mut self, address: &ConversationAddress) -> Markup {
        for item in &mut self.items {
            item.settle();
        }
        html! {
            @for (at, item) in self.items.iter().enumerate() { (item.markup(address, at)) }
        }
    }

    /// What brings the page up to date.
    pub(crate) fn changes(&mut self, address: &ConversationAddress) -> Vec<Markup> {
        let mut pieces = Vec::new();
        for (at, item) in self.items.iter_mut().enumerate() {
            item.update(address, at, &mut pieces);
        }
        pieces
    }
}

#[cfg(test)]
mod tests {
    use conjure_core::chat::{
        CallAnnounced, CallOutput, Content, FunctionCallOutput, Message, Part, Role,
    };
    use conjure_core::log::NotRun;
    use serde_json::json;

    use super::super::{model, render};
    use super::*;

    fn address() -> ConversationAddress {
        ConversationAddress {
            session: "s".to_owned(),
            name: "s".to_owned(),
            thread: None,
            shared: None,
        }
    }

    fn content(delta: &str) -> Event {
        Event::Content {
            delta: delta.to_owned(),
        }
    }

    fn changes(turn: &mut LiveTurn) -> Vec<String> {
        let changes = turn.changes(&address());
        changes.into_iter().map(Markup::into_string).collect()
    }

    #[test]
    fn a_finished_block_is_sent_once_and_the_open_one_again() {
        let mut turn = LiveTurn::new("turn");
        turn.apply(&content("# One\n\nsome"));
        let first = changes(&mut turn);
        assert_eq!(first.len(), 1);
        assert!(first[0].contains("data-target=\"live-items\""), "{first:?}");
        turn.apply(&content(" words\n\n"));
        let second = changes(&mut turn);
        assert!(second.concat().contains("some words"), "{second:?}");
        turn.apply(&content("- a\n"));
        let third = changes(&mut turn);
        assert_eq!(third.len(), 2, "{third:?}");
        assert!(third[0].contains("data-swap=\"append\" data-target=\"live-0-done\""));
        assert!(third[0].contains("some words"));
        assert!(third[1].contains("data-swap=\"inner\" data-target=\"live-0-open\""));
        assert!(!third[1].contains("some words"));
        assert!(!third.concat().contains("One"), "{third:?}");
        assert!(changes(&mut turn).is_empty());
    }

    #[test]
    fn what_a_page_that_comes_late_sees_is_what_one_that_was_there_has() {
        let deltas = [
            "# T",
            "itle\n\nOne ",
            "*two*\n\n```rust\nfn ",
            "a() {}\n```\n",
            "\nend",
        ];
        let mut there = LiveTurn::new("turn");
        let mut done = String::new();
        let mut open = String::new();
        for delta in deltas {
            there.apply(&content(delta));
            for piece in there.changes(&address()) {
                let piece = piece.into_string();
                let body = piece.split_once('>').unwrap().1;
                let body = body.strip_suffix("</template>").unwrap();
                if piece.contains("live-0-done\">") && !piece.contains("live-items") {
                    done.push_str(body);
                } else if piece.contains("live-0-open\">") && !piece.contains("live-items") {
                    open = body.to_owned();
                }
            }
        }
        let mut late = LiveTurn::new("turn");
        deltas.iter().for_each(|delta| late.apply(&content(delta)));
        let whole = late.render_full(&address()).into_string();
        let flat = |text: &str| text.replace('\n', "");
        assert!(flat(&whole).contains(&flat(&done)), "{done} in {whole}");
        assert!(flat(&whole).contains(&flat(&open)), "{open} in {whole}");
    }

    #[test]
    fn output_of_a_call_is_added_and_its_end_is_another_card() {
        let mut turn = LiveTurn::new("turn");
        let call = CallAnnounced {
            id: "c1".to_owned(),
            name: "bash".to_owned(),
            arguments: json!({ "command": "make" }),
        };
        turn.apply(&Event::FunctionCall { calls: vec![call] });
        assert!(changes(&mut turn).concat().contains("Waits"));
        turn.apply(&Event::CallStarted {
            call_id: "c1".to_owned(),
            backend: "local".to_owned(),
            plugin: None,
        });
        assert!(changes(&mut turn).concat().contains("Runs"));
        let output = |chunk: &str| Event::ToolOutput {
            call_id: "c1".to_owned(),
            stream: "stdout".to_owned(),
            chunk: chunk.to_owned(),
        };
        turn.apply(&output("one <b>\n"));
        let added = changes(&mut turn);
        assert_eq!(added.len(), 1);
        assert!(
            added[0].contains("data-target=\"call-c1-live\""),
            "{added:?}"
        );
        assert!(added[0].contains("one &lt;b&gt;"));
        turn.apply(&output("two\n"));
        assert!(!changes(&mut turn).concat().contains("one"));
        turn.apply(&output(&"x".repeat(2 * card::MAX_LIVE_BYTES)));
        turn.apply(&output("lost"));
        let added = changes(&mut turn).concat();
        assert!(added.contains("… more") && !added.contains("lost"));
        turn.apply(&Event::FunctionCallOutput(CallOutput {
            call_id: "c1".to_owned(),
            name: "bash".to_owned(),
            backend: Some("local".to_owned()),
            output: "done".to_owned(),
            is_error: false,
            duration_ms: 3,
        }));
        let over = changes(&mut turn).concat();
        assert!(
            over.contains("data-swap=\"outer\"") && over.contains("Done"),
            "{over}"
        );
    }

    #[test]
    fn a_call_that_was_cancelled_or_not_run_says_so_while_its_turn_runs() {
        let mut turn = LiveTurn::new("turn");
        let ends = [
            (
                "stopped",
                Some("local"),
                CallEnd::Cancelled,
                None,
                "Cancelled",
            ),
            ("slow", Some("local"), CallEnd::TimedOut, None, "Timed out"),
            (
                "wrong",
                None,
                CallEnd::Refused,
                Some(NotRun::BadArguments),
                "do not fit the tool",
            ),
        ];
        for (id, backend, ..) in &ends {
            let call = CallAnnounced {
                id: (*id).to_owned(),
                name: "bash".to_owned(),
                arguments: json!({}),
            };
            turn.apply(&Event::FunctionCall { calls: vec![call] });
            turn.apply(&Event::FunctionCallOutput(CallOutput {
                call_id: (*id).to_owned(),
                name: "bash".to_owned(),
                backend: backend.map(str::to_owned),
                output: "no".to_owned(),
                is_error: true,
                duration_ms: 3,
            }));
        }
        assert!(turn.lacks_ends());
        let entries = ends
            .iter()
            .zip(7..)
            .map(|((id, _, end, reason, _), seq)| Entry {
                seq,
                turn: 1,
                at_ms: 5,
                body: EntryBody::CallEnded {
                    output: FunctionCallOutput::text(*id, "no", true),
                    end: *end,
                    reason: reason.clone(),
                    duration_ms: 3,
                    meta: None,
                },
            });
        let mut entries = entries.collect::<Vec<_>>();
        turn.take_ends(&entries);
        assert!(!turn.lacks_ends());
        assert_eq!(turn.ends_read_to(), 9);
        let shown = changes(&mut turn);
        for ((id, .., words), card) in ends.iter().zip(&shown) {
            assert!(card.contains(words), "{id}: {card}");
        }
        // Written, and not told yet.
        let mut untold = entries.pop().unwrap();
        untold.seq = 10;
        if let EntryBody::CallEnded { output, .. } = &mut untold.body {
            "later".clone_into(&mut output.call_id);
        }
        turn.take_ends(&[untold]);
        assert_eq!(turn.ends_read_to(), 9);
    }

    #[test]
    fn a_thought_is_called_as_it_is_when_its_reply_is_settled() {
        let think = |delta: &str| Event::Thinking {
            delta: delta.to_owned(),
        };
        let round = |round: u32| Event::Round {
            round,
            provider: "p".to_owned(),
            model: "m".to_owned(),
            table: 1,
        };
        let mut turn = LiveTurn::new("t-1");
        turn.apply(&round(1));
        turn.apply(&think("Hm"));
        turn.apply(&content("Yes"));
        turn.apply(&think("Or"));
        turn.apply(&round(2));
        turn.apply(&think("So"));
        let live = turn.render_full(&address()).into_string();
        let entry = |seq: u64, body: EntryBody| Entry {
            seq,
            turn: 1,
            at_ms: 5,
            body,
        };
        let said = |thought: &str| {
            let text = thought.to_owned();
            let part = Part::from(Content::Reasoning { text });
            let message = Message::new(Role::Assistant, vec![part]);
            EntryBody::Message { message }
        };
        let begin = EntryBody::TurnStarted {
            turn_id: "t-1".to_owned(),
        };
        let entries = [entry(1, begin), entry(2, said("Hm")), entry(3, said("So"))];
        let settled = render::items(&address(), &model::items(&entries)).into_string();
        for (number, shown) in [(1, "Hm"), (2, "So")] {
            let id = thought_id("t-1", number);
            for html in [&live, &settled] {
                let place = format!("id=\"{id}-text\">");
                let (_, of_it) = html
                    .split_once(&place)
                    .unwrap_or_else(|| panic!("{place} in {html}"));
                assert!(of_it.starts_with(shown), "{html}");
            }
        }
    }

    #[test]
    fn thoughts_are_added_and_folded_when_the_answer_begins() {
        let mut turn = LiveTurn::new("turn");
        let think = |delta: &str| Event::Thinking {
            delta: delta.to_owned(),
        };
        turn.apply(&think("Hm"));
        assert!(changes(&mut turn).concat().contains("Thinking…"));
        turn.apply(&think(", so"));
        let added = changes(&mut turn).concat();
        assert!(added.contains(", so") && !added.contains("Hm"), "{added}");
        turn.apply(&content("Yes"));
        let over = changes(&mut turn).concat();
        assert!(
            over.contains("Thoughts") && over.contains("Hm, so"),
            "{over}"
        );
    }
}
