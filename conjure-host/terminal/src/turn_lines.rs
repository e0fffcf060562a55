//! A turn as lines: what is finished, to stay on the terminal, and what is not, to be drawn again.
//!
//! Events in, lines out. Reasoning is folded to a line, the answer is rendered as it comes, a call is a
//! line that grows and folds when it is over. Everything else that happens in a turn is told elsewhere;
//! what is told here besides, such as which keys show more, is in [`TurnHints`].

use std::time::{Duration, Instant};

use conjure_core::chat::{CallOutput, Event};
use serde_json::{Map, Value};

use crate::call::AnnouncedCall;
use crate::ended_call::{self, CallPreview};
use crate::stream::MarkdownStream;
use crate::text::{Color, Line, Style};
use crate::thoughts::{self, PastThoughts, Thoughts};
use crate::{live_calls, notes, numerals};

/// How long each of several marks stands.
const MARK_STEP: u128 = 100;
/// How long nothing comes before it is said that the work goes on.
const IDLE_NOTICE_DELAY: Duration = Duration::from_secs(1);

/// What is shown of a turn besides what happens in it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TurnHints {
    /// The marks of what runs, which stand there one after the other.
    pub(crate) run_marks: &'static [&'static str],
    /// Marks of reasoning.
    pub(crate) thought_marks: &'static [&'static str],
    /// Hint at how folded reasoning is shown.
    pub(crate) thoughts_hint: &'static str,
    /// Hint at how what runs is stopped.
    pub(crate) stop_hint: &'static str,
    /// Choice of the lines of an ended call's output that are shown.
    pub(crate) output: CallPreview,
}

impl TurnHints {
    /// Where nothing is typed while a turn runs. The time behind the mark says that it goes on.
    pub(crate) const WITHOUT_KEYS: Self = Self {
        run_marks: &["⠿"],
        thought_marks: &["∴"],
        thoughts_hint: "",
        stop_hint: "",
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
    /// Finished lines that came while a block of the answer was open, and stand behind it.
    lines_after_block: Vec<Line>,
    thoughts: Option<Thoughts>,
    past_thoughts: PastThoughts,
    /// Whether reasoning is shown whole.
    shows_thoughts: bool,
    calls: Vec<AnnouncedCall>,
    /// When the turn began that runs.
    started_at: Option<Instant>,
    /// When the last event came.
    last_event_at: Option<Instant>,
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
            lines_after_block: Vec::new(),
            thoughts: None,
            past_thoughts: PastThoughts::default(),
            shows_thoughts: false,
            calls: Vec::new(),
            started_at: None,
            last_event_at: None,
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
        self.started_at.is_some()
    }

    /// The host begins to work.
    pub(crate) fn begin(&mut self) {
        self.started_at = Some(Instant::now());
    }

    /// The host has ended its work.
    pub(crate) fn end(&mut self) {
        self.end_turn();
        self.started_at = None;
    }

    /// A turn has ended; the host may work on.
    pub(crate) fn end_turn(&mut self) {
        self.flush();
        self.past_thoughts.end_turn();
        self.calls.clear();
    }

    /// Takes an event in. Whether it is told here.
    pub(crate) fn event(&mut self, event: &Event) -> bool {
        self.last_event_at = Some(Instant::now());
        match event {
            Event::TurnStarted { .. } => self.begin(),
            Event::Thinking { delta } => self.push_thought(delta),
            Event::Content { delta } => self.push_answer(delta),
            Event::FunctionCall { calls } => {
                self.flush();
                self.calls.extend(calls.iter().map(AnnouncedCall::new));
            }
            Event::CallStarted {
                call_id, backend, ..
            } => {
                if let Some(call) = self.call(call_id) {
                    call.start(backend);
                }
            }
            Event::ToolOutput { call_id, chunk, .. } => {
                if let Some(call) = self.call(call_id) {
                    call.push_output(chunk);
                }
            }
            Event::FunctionCallOutput(result) => self.result(result),
            // It may come in the middle of an answer.
            Event::Notice { text } => {
                self.push(notes::lines("note: ", Color::Yellow, text, self.columns));
            }
            Event::Done { .. } => {
                self.end();
                return false;
            }
            _ => return false,
        }
        true
    }

    fn push_answer(&mut self, delta: &str) {
        self.flush_thoughts();
        if self.is_after_call && !delta.trim().is_empty() {
            self.push_blank();
            self.is_after_call = false;
        }
        self.answer.push(delta);
    }

    fn push_thought(&mut self, delta: &str) {
        self.flush_answer();
        if self.thoughts.is_none() {
            self.past_thoughts.begin();
        }
        let thoughts = self.thoughts.get_or_insert_with(Thoughts::begin);
        thoughts.text.push_str(delta);
    }

    /// A call that was announced and is not over.
    pub(crate) fn active_call(&self, id: &str) -> Option<&AnnouncedCall> {
        self.calls.iter().find(|call| call.id == id)
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
    pub(crate) fn set_overwritten(&mut self, call_id: &str, text: &str) {
        if let Some(call) = self.call(call_id) {
            call.overwritten = Some(text.to_owned());
        }
    }

    /// What is finished from here on belongs to calls, apart from what is above.
    pub(crate) fn begin_calls(&mut self) {
        self.flush();
        if !std::mem::replace(&mut self.is_after_call, true) {
            self.push_blank();
        }
    }

    /// Finished lines, behind what came before them. Where a block of the answer is open they wait for
    /// its end: its rest alone would be other Markdown.
    pub(crate) fn push(&mut self, lines: impl IntoIterator<Item = Line>) {
        if self.answer.is_empty() {
            self.done.extend(lines);
        } else {
            self.finish_blocks();
            self.lines_after_block.extend(lines);
        }
    }

    /// Finished lines that wait for nothing: a block of the answer that is open goes on below them.
    pub(crate) fn push_above(&mut self, lines: impl IntoIterator<Item = Line>) {
        let is_open = !self.answer.is_empty();
        if is_open {
            self.finish_blocks();
        }
        self.done.extend(lines);
        if is_open && self.answer.resume_below() {
            self.done.push(Line::new());
        }
    }

    /// Like [`Self::push_above`], but apart from what is above.
    pub(crate) fn push_spaced(&mut self, lines: impl IntoIterator<Item = Line>) {
        if !self.answer.is_empty() {
            self.finish_blocks();
        }
        self.push_blank();
        self.push_above(lines);
    }

    /// What was pushed last is a call's, unless an answer goes on below it.
    pub(crate) fn is_of_call(&mut self) {
        self.is_after_call |= self.answer.is_empty();
    }

    /// Lines that a turn begins below, apart from what is above; what comes meanwhile goes on behind
    /// them.
    pub(crate) fn push_beginning(&mut self, lines: impl IntoIterator<Item = Line>) {
        self.push_blank();
        self.done.extend(lines);
        self.done.push(Line::new());
        self.is_after_call = false;
    }

    /// An empty line, unless there is one or nothing is above.
    fn push_blank(&mut self) {
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
        self.done.append(&mut self.lines_after_block);
    }

    /// Finishes the blocks of the answer that are whole, and what waited for the end of one.
    fn finish_blocks(&mut self) {
        if let Some(blocks) = self.answer.finished_blocks(self.columns) {
            self.done.extend(blocks);
            self.done.append(&mut self.lines_after_block);
        }
    }

    fn flush_thoughts(&mut self) {
        let Some(thoughts) = self.thoughts.take() else {
            return;
        };
        self.push_blank();
        if self.shows_thoughts {
            let lines = thoughts::text_lines(&thoughts.text, self.columns);
            self.done.extend(lines);
        } else {
            let line = thoughts.summary_line(self.hints.thoughts_hint, self.columns);
            self.done.push(line);
        }
        self.done.push(Line::new());
        self.is_after_call = false;
        self.past_thoughts.add(thoughts.text);
    }

    /// Shows reasoning as it is from now on, that of the last turn first; or folds it again.
    pub(crate) fn toggle_thoughts(&mut self) {
        self.shows_thoughts = !self.shows_thoughts;
        if !self.shows_thoughts {
            return self.push_spaced([Line::of("Reasoning is folded.", Style::DIM)]);
        }
        let past = self.past_thoughts.lines(self.columns);
        if !past.is_empty() {
            self.push_spaced(past);
        } else if self.thoughts.is_none() {
            self.push_spaced([Line::of("Reasoning is shown from now on.", Style::DIM)]);
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
        if !self.lines_after_block.is_empty() {
            self.finish_blocks();
        }
        if !self.answer.is_empty() {
            // What says that the work goes on has rows of its own.
            let rows = if self.is_idle() {
                most.saturating_sub(2)
            } else {
                most
            };
            let (done, open) = self.answer.frame(self.columns, rows);
            self.done.extend(done);
            live.extend(open);
        }
        self.ends_empty = self.done.last().map_or(self.ends_empty, Line::is_empty);
        if !self.calls.is_empty() && !self.is_after_call && !self.ends_empty {
            live.push(Line::new());
        }
        let mark = self.mark(self.hints.run_marks);
        live.extend(live_calls::lines(&self.calls, mark, self.columns, most));
        if live.is_empty() {
            live.extend(self.working());
        } else if self.is_idle()
            && let Some(working) = self.working()
        {
            live.extend([Line::new(), working]);
        }
        live.drain(..live.len().saturating_sub(most));
        (std::mem::take(&mut self.done), live)
    }

    fn live_thoughts(&self) -> Vec<Line> {
        match &self.thoughts {
            None => Vec::new(),
            Some(thoughts) if self.shows_thoughts => {
                thoughts::text_lines(&thoughts.text, self.columns)
            }
            Some(thoughts) => {
                vec![thoughts.live(self.mark(self.hints.thought_marks), self.columns)]
            }
        }
    }

    /// Whether no event came for a while, and nothing that is shown moves.
    fn is_idle(&self) -> bool {
        let is_silent = self
            .last_event_at
            .is_some_and(|at| at.elapsed() >= IDLE_NOTICE_DELAY);
        let moves = !self.calls.is_empty() || (self.thoughts.is_some() && !self.shows_thoughts);
        is_silent && !moves
    }

    /// Line that stands there while nothing comes.
    fn working(&self) -> Option<Line> {
        let time = numerals::time_since(self.started_at?, "  ");
        let line = Line::of(self.mark(self.hints.run_marks), Style::of(Color::Cyan))
            .with(" Working", Style::PLAIN)
            .with(time, Style::DIM)
            .with(self.hints.stop_hint, Style::DIM);
        Some(line.truncate(self.columns))
    }

    /// Picks the mark that stands now, by the time since the turn began.
    fn mark(&self, marks: &'static [&'static str]) -> &'static str {
        let time = self
            .started_at
            .map_or(0, |began| began.elapsed().as_millis());
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
    fn what_is_told_within_a_block_of_the_answer_leaves_it_whole() {
        let note = Event::Notice {
            text: "a plugin".to_owned(),
        };
        // As high as the terminal allows, and with its first lines given out already.
        for most in [10, 1] {
            let mut turn = TurnLines::new(40, TurnHints::WITHOUT_KEYS);
            turn.event(&content("Before.\n\n```\none\ntwo\n"));
            let mut done = turn.frame(most).0;
            assert!(turn.event(&note));
            turn.push_spaced([Line::of("asked for", Style::PLAIN)]);
            done.extend(turn.frame(most).0);
            turn.event(&content("three\n```\n\nAfter.\n"));
            done.extend(turn.frame(most).0);
            turn.flush();
            done.extend(turn.frame(most).0);
            let asked = ["", "asked for", ""];
            let code = ["  one", "  two", "  three"];
            let code_begins = usize::from(most == 1);
            let (given_out, open) = code.split_at(code_begins);
            let mut shown = vec!["Before."];
            if code_begins > 0 {
                shown.push("");
            }
            shown.extend(given_out.iter().chain(&asked).chain(open));
            shown.extend(["note: a plugin", "", "After."]);
            assert_eq!(plain(&done), shown);
        }
    }

    #[test]
    fn what_is_told_behind_the_last_block_of_an_answer_stays_behind_it() {
        let mut turn = TurnLines::new(40, TurnHints::WITHOUT_KEYS);
        turn.event(&content("The answer.\n"));
        turn.push([Line::of("told", Style::PLAIN)]);
        turn.end_turn();
        assert_eq!(plain(&turn.frame(10).0), ["The answer.", "told"]);
    }

    #[test]
    fn silence_behind_a_text_shows_that_the_work_goes_on() {
        let mut turn = TurnLines::new(40, TurnHints::WITHOUT_KEYS);
        turn.begin();
        turn.event(&content("Some words"));
        turn.last_event_at = Instant::now().checked_sub(IDLE_NOTICE_DELAY);
        let live = plain(&turn.frame(10).1);
        assert_eq!(live[..2], ["Some words", ""]);
        assert!(live[2].starts_with("⠿ Working"), "{live:?}");
        assert_eq!(turn.frame(1).1.len(), 1);
        turn.end();
        assert_eq!(plain(&turn.frame(10).1), [""; 0]);
    }

    #[test]
    fn what_is_told_elsewhere_is_not_taken_and_the_end_ends_what_runs() {
        let mut turn = TurnLines::new(30, TurnHints::WITHOUT_KEYS);
        let started = Event::TurnStarted {
            turn_id: "t".to_owned(),
        };
        assert!(turn.event(&started));
        assert_eq!(plain(&turn.frame(5).1), ["⠿ Working"]);
        let cancelled = Event::ApprovalOver {
            call_id: "c".to_owned(),
            allowed: false,
        };
        assert!(!turn.event(&cancelled));
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
