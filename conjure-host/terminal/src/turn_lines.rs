//! A turn as lines, where nothing is typed while it runs and no key shows more: what is finished, to
//! stay on the terminal, and what is not, to be drawn again.
//!
//! Reasoning is folded to a line, the answer is rendered as it comes, a call is a line that grows and
//! ends with what it said last. Everything else that happens in a turn is told elsewhere.

use std::time::{Duration, Instant};

use conjure_core::chat::{CallAnnounced, CallOutput, Event};
use serde_json::Value;

use crate::call::AnnouncedCall;
use crate::ended_call;
use crate::stream::MarkdownStream;
use crate::text::{Color, Line, Style};
use crate::words;

/// What stands before something that runs. The time behind it says that it goes on.
const RUNS: &str = "⠿";

/// Makes lines of turns.
#[derive(Debug)]
pub(crate) struct TurnLines {
    columns: usize,
    /// Lines that are finished and were not taken.
    done: Vec<Line>,
    answer: MarkdownStream,
    thoughts: Option<FoldedThoughts>,
    calls: Vec<WatchedCall>,
    /// When the turn began that runs.
    began: Option<Instant>,
    /// Whether the last finished line belongs to a call.
    is_after_call: bool,
    /// Whether what stands above needs no empty line behind it.
    ends_empty: bool,
}

/// Reasoning that comes.
#[derive(Debug)]
struct FoldedThoughts {
    text: String,
    began: Instant,
}

/// A call that is not over.
#[derive(Debug)]
struct WatchedCall {
    shown: AnnouncedCall,
    arguments: Value,
}

impl TurnLines {
    pub(crate) fn new(columns: usize) -> Self {
        Self {
            columns,
            done: Vec::new(),
            answer: MarkdownStream::default(),
            thoughts: None,
            calls: Vec::new(),
            began: None,
            is_after_call: false,
            ends_empty: true,
        }
    }

    pub(crate) fn resize(&mut self, columns: usize) {
        self.columns = columns;
    }

    /// Whether something is shown that changes by itself.
    pub(crate) fn is_moving(&self) -> bool {
        self.began.is_some()
    }

    /// Takes an event in. Whether it is told here.
    pub(crate) fn event(&mut self, event: &Event) -> bool {
        match event {
            Event::TurnStarted { .. } => self.began = Some(Instant::now()),
            Event::Thinking { delta } => {
                self.flush_answer();
                let thoughts = self.thoughts.get_or_insert_with(|| FoldedThoughts {
                    text: String::new(),
                    began: Instant::now(),
                });
                thoughts.text.push_str(delta);
            }
            Event::Content { delta } => self.say(delta),
            Event::FunctionCall { calls } => {
                self.flush();
                self.calls.extend(calls.iter().map(WatchedCall::of));
            }
            Event::CallStarted {
                call_id, backend, ..
            } => {
                if let Some(call) = self.call(call_id) {
                    call.begins(backend);
                }
            }
            Event::ToolOutput { call_id, chunk, .. } => {
                if let Some(call) = self.call(call_id) {
                    call.hears(chunk);
                }
            }
            Event::FunctionCallOutput(result) => self.result(result),
            Event::Done { .. } => {
                self.flush();
                self.calls.clear();
                self.began = None;
                return false;
            }
            _ => return false,
        }
        true
    }

    fn say(&mut self, delta: &str) {
        self.flush_thoughts();
        if self.is_after_call && !delta.trim().is_empty() {
            self.space();
            self.is_after_call = false;
        }
        self.answer.push(delta);
    }

    fn call(&mut self, id: &str) -> Option<&mut AnnouncedCall> {
        let mut calls = self.calls.iter_mut();
        let found = calls.find(|call| call.shown.id == id);
        found.map(|call| &mut call.shown)
    }

    fn result(&mut self, result: &CallOutput) {
        self.flush();
        let mut calls = self.calls.iter();
        let at = calls.position(|call| call.shown.id == result.call_id);
        let arguments = at.map(|at| self.calls.remove(at).arguments);
        let arguments = arguments.unwrap_or_else(|| Value::Object(serde_json::Map::new()));
        if !self.is_after_call {
            self.space();
        }
        let lines = ended_call::lines(&arguments, result, self.columns);
        self.done.extend(lines);
        self.is_after_call = true;
    }

    /// An empty line, unless there is one or nothing is above.
    fn space(&mut self) {
        if !self.done.last().map_or(self.ends_empty, Line::is_empty) {
            self.done.push(Line::new());
        }
    }

    /// Finishes the text and the reasoning that came; what runs goes on.
    pub(crate) fn flush(&mut self) {
        self.flush_thoughts();
        self.flush_answer();
    }

    fn flush_answer(&mut self) {
        let rest = self.answer.finish(self.columns);
        self.done.extend(rest);
    }

    fn flush_thoughts(&mut self) {
        let Some(thoughts) = self.thoughts.take() else {
            return;
        };
        self.space();
        self.done.push(thoughts.folded(self.columns));
        self.done.push(Line::new());
        self.is_after_call = false;
    }

    /// Something else is printed below what was taken.
    pub(crate) fn is_interrupted(&mut self) {
        self.ends_empty = true;
    }

    /// What is finished since the last time, and what is not: at most `most` lines of it.
    pub(crate) fn frame(&mut self, most: usize) -> (Vec<Line>, Vec<Line>) {
        let mut live = Vec::new();
        if let Some(thoughts) = &self.thoughts {
            live.push(thoughts.live(self.columns));
        }
        if !self.answer.is_empty() {
            let (done, open) = self.answer.frame(self.columns, most);
            self.done.extend(done);
            live.extend(open);
        }
        self.ends_empty = self.done.last().map_or(self.ends_empty, Line::is_empty);
        if !self.calls.is_empty() && !self.is_after_call && !self.ends_empty {
            live.push(Line::new());
        }
        for call in &self.calls {
            live.extend(call.shown.live(RUNS, self.columns));
        }
        if live.is_empty() {
            live.extend(self.working());
        }
        let over = live.len().saturating_sub(most);
        live.drain(..over);
        (std::mem::take(&mut self.done), live)
    }

    /// What stands there while nothing comes.
    fn working(&self) -> Option<Line> {
        let time = time(self.began?, "  ");
        let line = Line::of(RUNS, Style::of(Color::Cyan))
            .with(" Working", Style::PLAIN)
            .with(time, Style::DIM);
        Some(line.cut(self.columns))
    }
}

impl FoldedThoughts {
    /// Its end: what is being thought now.
    fn live(&self, columns: usize) -> Line {
        let text = self.text.split_whitespace().collect::<Vec<_>>().join(" ");
        let head = "∴ Thinking: ";
        let room = columns.saturating_sub(head.chars().count() + 1);
        let skipped = text.chars().count().saturating_sub(room);
        let end: String = text.chars().skip(skipped).collect();
        Line::of(head, Style::DIM)
            .with(end.trim_start(), Style::DIM)
            .cut(columns)
    }

    /// Its beginning, when it is over.
    fn folded(&self, columns: usize) -> Line {
        let time = time(self.began, " for ");
        Line::of(format!("∴ Thought{time}: "), Style::DIM)
            .with(self.text.trim(), Style::DIM)
            .cut(columns)
    }
}

impl WatchedCall {
    fn of(call: &CallAnnounced) -> Self {
        Self {
            shown: AnnouncedCall::new(call),
            arguments: call.arguments.clone(),
        }
    }
}

/// How long it has taken, in whole seconds, with this before it; nothing for less than one.
fn time(since: Instant, before: &str) -> String {
    match since.elapsed().as_secs() {
        0 => String::new(),
        seconds => format!("{before}{}", words::duration(Duration::from_secs(seconds))),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn plain(lines: &[Line]) -> Vec<String> {
        lines.iter().map(Line::plain).collect()
    }

    fn content(delta: &str) -> Event {
        Event::Content {
            delta: delta.to_owned(),
        }
    }

    #[test]
    fn a_turn_is_folded_reasoning_calls_and_a_rendered_answer() {
        let mut turn = TurnLines::new(30);
        let thinking = Event::Thinking {
            delta: "I should look at the file before anything.".to_owned(),
        };
        assert!(turn.event(&thinking));
        let (done, live) = turn.frame(10);
        assert_eq!(plain(&done), [""; 0]);
        assert_eq!(plain(&live), ["∴ Thinking: before anything."]);
        let call = CallAnnounced {
            id: "c1".to_owned(),
            name: "sh".to_owned(),
            arguments: json!({ "command": "make all" }),
        };
        turn.event(&Event::FunctionCall { calls: vec![call] });
        turn.event(&Event::CallStarted {
            call_id: "c1".to_owned(),
            backend: "local".to_owned(),
            plugin: None,
        });
        turn.event(&Event::ToolOutput {
            call_id: "c1".to_owned(),
            stream: "stdout".to_owned(),
            chunk: "half\n".to_owned(),
        });
        let (done, live) = turn.frame(10);
        assert_eq!(plain(&done), ["∴ Thought: I should look at t…", ""]);
        assert_eq!(plain(&live), ["⠿ sh make all  local", "  ┊ half"]);
        turn.event(&Event::FunctionCallOutput(CallOutput {
            call_id: "c1".to_owned(),
            name: "sh".to_owned(),
            backend: Some("local".to_owned()),
            output: "whole\n".to_owned(),
            is_error: false,
            duration_ms: 3,
        }));
        turn.event(&content("**Made** it.\n\n- one"));
        turn.flush();
        let (done, live) = turn.frame(10);
        assert_eq!(
            plain(&done),
            [
                "✓ sh make all  local, 3 ms",
                "  whole",
                "",
                "Made it.",
                "",
                "• one"
            ]
        );
        assert_eq!(plain(&live), [""; 0]);
    }

    #[test]
    fn what_is_told_elsewhere_is_not_taken_and_the_end_ends_what_runs() {
        let mut turn = TurnLines::new(30);
        let started = Event::TurnStarted {
            turn_id: "t".to_owned(),
        };
        assert!(turn.event(&started));
        assert_eq!(plain(&turn.frame(5).1), ["⠿ Working"]);
        let note = Event::Notice {
            text: "n".to_owned(),
        };
        assert!(!turn.event(&note));
        let over = Event::Done {
            turn_id: "t".to_owned(),
            outcome: "completed".to_owned(),
            stop_reason: None,
            text: String::new(),
        };
        assert!(!turn.event(&over));
        assert!(!turn.is_moving());
        assert_eq!(plain(&turn.frame(5).1), [""; 0]);
    }
}
