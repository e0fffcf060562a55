//! A turn as lines: what is finished, to stay on the terminal, and what is not, to be drawn again.
//!
//! Events in, lines out. Reasoning is folded to a line, the answer is rendered as it comes, a call is a
//! line that grows and folds when it is over. Everything else that happens in a turn is told elsewhere;
//! what is told here besides, such as which keys show more, is in [`TurnHints`].

use std::time::Instant;

use conjure_core::chat::{CallOutput, Event};
use serde_json::{Map, Value};

use crate::call::AnnouncedCall;
use crate::ended_call::{self, CallPreview};
use crate::stream::MarkdownStream;
use crate::text::{Color, Line, Style};
use crate::thoughts::{self, Thoughts};
use crate::words;

/// How long each of several marks stands.
const MARK_STEP: u128 = 100;

/// What is shown of a turn besides what happens in it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TurnHints {
    /// The marks of what runs, which stand there one after the other.
    pub(crate) runs: &'static [&'static str],
    /// Those of reasoning.
    pub(crate) thinks: &'static [&'static str],
    /// How reasoning is shown that is folded.
    pub(crate) thoughts: &'static str,
    /// How what runs is stopped.
    pub(crate) working: &'static str,
    /// What is shown of the output of a call that is over.
    pub(crate) output: CallPreview,
}

impl TurnHints {
    /// Where nothing is typed while a turn runs. The time behind the mark says that it goes on.
    pub(crate) const WITHOUT_KEYS: Self = Self {
        runs: &["⠿"],
        thinks: &["∴"],
        thoughts: "",
        working: "",
        output: CallPreview::Last,
    };
}

/// Makes lines of turns.
#[derive(Debug)]
pub(crate) struct TurnLines {
    columns: usize,
    hints: TurnHints,
    /// Lines that are finished and were not taken.
    done: Vec<Line>,
    answer: MarkdownStream,
    thoughts: Option<Thoughts>,
    last_thoughts: String,
    /// Whether reasoning is shown whole.
    shows_thoughts: bool,
    calls: Vec<AnnouncedCall>,
    /// When the turn began that runs.
    began: Option<Instant>,
    /// Whether the last finished line belongs to calls.
    is_after_call: bool,
    /// Whether what stands above needs no empty line behind it.
    ends_empty: bool,
}

impl TurnLines {
    pub(crate) fn new(columns: usize, hints: TurnHints) -> Self {
        Self {
            columns,
            hints,
            done: Vec::new(),
            answer: MarkdownStream::default(),
            thoughts: None,
            last_thoughts: String::new(),
            shows_thoughts: false,
            calls: Vec::new(),
            began: None,
            is_after_call: false,
            ends_empty: true,
        }
    }

    pub(crate) fn resize(&mut self, columns: usize) {
        self.columns = columns;
    }

    pub(crate) fn columns(&self) -> usize {
        self.columns
    }

    /// Whether something is shown that changes by itself.
    pub(crate) fn is_moving(&self) -> bool {
        self.began.is_some()
    }

    /// The host begins to work.
    pub(crate) fn begin(&mut self) {
        self.began = Some(Instant::now());
    }

    /// The host has ended its work.
    pub(crate) fn end(&mut self) {
        self.end_turn();
        self.began = None;
    }

    /// A turn has ended; the host may work on.
    pub(crate) fn end_turn(&mut self) {
        self.flush();
        self.calls.clear();
    }

    /// Takes an event in. Whether it is told here.
    pub(crate) fn event(&mut self, event: &Event) -> bool {
        match event {
            Event::TurnStarted { .. } => self.begin(),
            Event::Thinking { delta } => {
                self.flush_answer();
                let thoughts = self.thoughts.get_or_insert_with(Thoughts::begin);
                thoughts.text.push_str(delta);
            }
            Event::Content { delta } => self.say(delta),
            Event::FunctionCall { calls } => {
                self.flush();
                self.calls.extend(calls.iter().map(AnnouncedCall::new));
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
                self.end();
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
        self.calls.iter_mut().find(|call| call.id == id)
    }

    fn result(&mut self, result: &CallOutput) {
        self.begin_calls();
        let at = self.calls.iter().position(|call| call.id == result.call_id);
        let (arguments, before) = match at.map(|at| self.calls.remove(at)) {
            Some(call) => (call.arguments, call.overwritten),
            // One that nobody announced is over all the same.
            None => (Value::Object(Map::new()), None),
        };
        self.done.extend(ended_call::lines(
            &arguments,
            before.as_deref(),
            result,
            self.columns,
            self.hints.output,
        ));
    }

    /// A call would write a file that has this text.
    pub(crate) fn overwrites(&mut self, call_id: &str, text: &str) {
        if let Some(call) = self.call(call_id) {
            call.overwritten = Some(text.to_owned());
        }
    }

    /// What is finished from here on belongs to calls, apart from what is above.
    pub(crate) fn begin_calls(&mut self) {
        self.flush();
        if !std::mem::replace(&mut self.is_after_call, true) {
            self.space();
        }
    }

    /// Finished lines.
    pub(crate) fn push(&mut self, lines: impl IntoIterator<Item = Line>) {
        self.flush();
        self.done.extend(lines);
    }

    /// Finished lines, apart from what is above.
    pub(crate) fn push_apart(&mut self, lines: impl IntoIterator<Item = Line>) {
        self.flush();
        self.space();
        self.done.extend(lines);
    }

    /// What was pushed last is a call's.
    pub(crate) fn is_of_call(&mut self) {
        self.is_after_call = true;
    }

    /// Lines that a turn begins below, apart from what is above; what comes meanwhile goes on behind
    /// them.
    pub(crate) fn push_beginning(&mut self, lines: impl IntoIterator<Item = Line>) {
        self.space();
        self.done.extend(lines);
        self.done.push(Line::new());
        self.is_after_call = false;
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
        if self.shows_thoughts {
            let lines = thoughts::whole(&thoughts.text, self.columns);
            self.done.extend(lines);
        } else {
            let line = thoughts.folded(self.hints.thoughts, self.columns);
            self.done.push(line);
        }
        self.done.push(Line::new());
        self.is_after_call = false;
        self.last_thoughts = thoughts.text;
    }

    /// Shows reasoning as it is from now on, the last one first; or folds it again.
    pub(crate) fn toggle_thoughts(&mut self) {
        self.shows_thoughts = !self.shows_thoughts;
        if !self.shows_thoughts {
            return self.push_apart([Line::of("Reasoning is folded.", Style::DIM)]);
        }
        if self.thoughts.is_none() {
            self.push_apart(if self.last_thoughts.is_empty() {
                vec![Line::of("Reasoning is shown from now on.", Style::DIM)]
            } else {
                thoughts::whole(&self.last_thoughts, self.columns)
            });
        }
    }

    /// Something else is printed below what was taken.
    pub(crate) fn is_interrupted(&mut self) {
        self.ends_empty = true;
    }

    /// What is finished since the last time, and what is not: at most `most` lines of it.
    pub(crate) fn frame(&mut self, most: usize) -> (Vec<Line>, Vec<Line>) {
        let mut live = self.live_thoughts();
        // The end of them: what is being thought now.
        live.drain(..live.len().saturating_sub(most));
        if !self.answer.is_empty() {
            let (done, open) = self.answer.frame(self.columns, most);
            self.done.extend(done);
            live.extend(open);
        }
        self.ends_empty = self.done.last().map_or(self.ends_empty, Line::is_empty);
        if !self.calls.is_empty() && !self.is_after_call && !self.ends_empty {
            live.push(Line::new());
        }
        let mark = self.mark(self.hints.runs);
        for call in &self.calls {
            live.extend(call.live(mark, self.columns));
        }
        live.drain(..live.len().saturating_sub(most));
        if live.is_empty() {
            live.extend(self.working());
        }
        (std::mem::take(&mut self.done), live)
    }

    fn live_thoughts(&self) -> Vec<Line> {
        match &self.thoughts {
            None => Vec::new(),
            Some(thoughts) if self.shows_thoughts => thoughts::whole(&thoughts.text, self.columns),
            Some(thoughts) => vec![thoughts.live(self.mark(self.hints.thinks), self.columns)],
        }
    }

    /// What stands there while nothing comes.
    fn working(&self) -> Option<Line> {
        let time = words::time_since(self.began?, "  ");
        let line = Line::of(self.mark(self.hints.runs), Style::of(Color::Cyan))
            .with(" Working", Style::PLAIN)
            .with(time, Style::DIM)
            .with(self.hints.working, Style::DIM);
        Some(line.cut(self.columns))
    }

    /// Which of these marks it is the turn of.
    fn mark(&self, marks: &'static [&'static str]) -> &'static str {
        let time = self.began.map_or(0, |began| began.elapsed().as_millis());
        let step = usize::try_from(time / MARK_STEP).unwrap_or_default();
        let mark = marks.get(step % marks.len().max(1));
        mark.copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use conjure_core::chat::CallAnnounced;
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
        let mut turn = TurnLines::new(30, TurnHints::WITHOUT_KEYS);
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
        let mut turn = TurnLines::new(30, TurnHints::WITHOUT_KEYS);
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
