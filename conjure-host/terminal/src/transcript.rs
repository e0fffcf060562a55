//! A turn as it happens: what is finished, to stay on the terminal, and what is not, to be redrawn.
//!
//! Events in, lines out. Reasoning is folded to a line, a call grows and folds when it is over, the
//! answer is rendered as it comes.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use conjure_core::chat::{CallOutput, Event};

use crate::call::AnnouncedCall;
use crate::stream::MarkdownStream;
use crate::text::{Color, Line, Style, lines_of};
use crate::words;

/// What turns while something runs.
const SPINNER: [&str; 10] = ["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"];
/// How long each of them stands.
const SPINNER_STEP: u128 = 100;
/// The most bytes of an output that are held to be shown whole.
const MOST_HELD: usize = 256 * 1024;
/// The most calls whose outputs are held.
const MOST_OUTPUTS: usize = 16;

/// Reasoning that comes, or has come.
#[derive(Debug, Default)]
struct Thoughts {
    text: String,
    began: Option<Instant>,
}

/// Makes lines of turns.
#[derive(Debug)]
pub(crate) struct TranscriptRenderer {
    columns: usize,
    /// Lines that are finished and were not taken.
    done: Vec<Line>,
    answer: MarkdownStream,
    thoughts: Thoughts,
    last_thoughts: String,
    shows_thoughts: bool,
    calls: Vec<AnnouncedCall>,
    /// The outputs of the last calls, the newest first.
    outputs: VecDeque<CallOutput>,
    /// How many of them were shown whole since the newest came.
    shown_outputs: usize,
    /// When the turn began that runs.
    began: Option<Instant>,
    /// Whether the last finished line belongs to a call.
    is_after_call: bool,
    /// Whether the last line that was taken is empty.
    ends_empty: bool,
}

impl TranscriptRenderer {
    pub(crate) fn new(columns: usize) -> Self {
        Self {
            columns,
            done: Vec::new(),
            answer: MarkdownStream::default(),
            thoughts: Thoughts::default(),
            last_thoughts: String::new(),
            shows_thoughts: false,
            calls: Vec::new(),
            outputs: VecDeque::new(),
            shown_outputs: 0,
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

    /// A turn is about to begin, in which this was said.
    pub(crate) fn said(&mut self, text: &str) {
        self.space();
        self.done.extend(said(text, self.columns));
        self.done.push(Line::new());
        self.is_after_call = false;
    }

    /// The host begins to work.
    pub(crate) fn begins(&mut self) {
        self.began = Some(Instant::now());
    }

    /// The host has ended its work.
    pub(crate) fn ends(&mut self) {
        self.flush();
        self.began = None;
        self.calls.clear();
    }

    /// Something of the program's own, with its styles.
    pub(crate) fn print(&mut self, text: &str) {
        self.flush();
        for text in text.lines() {
            let line = Line::from_styled(text);
            let blank = text.len() - text.trim_start_matches(' ').len();
            // What does not fit goes on where the line began.
            let indent = Line::of(" ".repeat(blank.min(self.columns / 2)), Style::PLAIN);
            let lines = line.wrap(self.columns, &Line::new(), &indent);
            self.done.extend(lines);
        }
    }

    /// Finished lines.
    pub(crate) fn push(&mut self, lines: impl IntoIterator<Item = Line>) {
        self.flush();
        self.done.extend(lines);
    }

    /// An event of the turn.
    pub(crate) fn event(&mut self, event: &Event) {
        match event {
            Event::Thinking { delta } => {
                self.flush_answer();
                self.thoughts.began.get_or_insert_with(Instant::now);
                self.thoughts.text.push_str(delta);
            }
            Event::Content { delta } => {
                self.flush_thoughts();
                if self.is_after_call && !delta.trim().is_empty() {
                    self.done.push(Line::new());
                    self.is_after_call = false;
                }
                self.answer.push(delta);
            }
            Event::FunctionCall { calls } => {
                self.flush();
                if !self.is_after_call {
                    self.space();
                }
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
            Event::File { artifact, .. } => {
                let line = Line::of("  + ", Style::of(Color::Green))
                    .with(&artifact.id, Style::PLAIN)
                    .with(format!("  {}", artifact.name), Style::DIM);
                self.push([line.cut(self.columns)]);
                self.is_after_call = true;
            }
            Event::Notice { text } => self.note("note: ", Color::Yellow, text),
            Event::Error(error) => self.note("error: ", Color::Red, &error.error),
            Event::Done { .. } => {
                self.flush();
                self.calls.clear();
            }
            _ => {}
        }
    }

    fn call(&mut self, id: &str) -> Option<&mut AnnouncedCall> {
        self.calls.iter_mut().find(|call| call.id == id)
    }

    fn result(&mut self, result: &CallOutput) {
        self.flush();
        let at = self.calls.iter().position(|call| call.id == result.call_id);
        if let Some(at) = at {
            let call = self.calls.remove(at);
            self.done.extend(call.over(result, self.columns));
            self.is_after_call = true;
        }
        let mut held = result.clone();
        if held.output.len() > MOST_HELD {
            let cut = held.output.floor_char_boundary(MOST_HELD);
            held.output.truncate(cut);
        }
        self.outputs.push_front(held);
        self.outputs.truncate(MOST_OUTPUTS);
        self.shown_outputs = 0;
    }

    pub(crate) fn note(&mut self, what: &str, color: Color, text: &str) {
        self.flush();
        let first = Line::of(what, Style::of(color));
        let mut lines = text.lines();
        let line = Line::of(lines.next().unwrap_or_default(), Style::PLAIN);
        let indent = Line::of("  ", Style::PLAIN);
        self.done.extend(line.wrap(self.columns, &first, &indent));
        for line in lines {
            let line = Line::of(line, Style::PLAIN);
            self.done.extend(line.wrap(self.columns, &indent, &indent));
        }
    }

    /// An empty line, unless there is one or nothing is above.
    fn space(&mut self) {
        if !self.done.last().map_or(self.ends_empty, Line::is_empty) {
            self.done.push(Line::new());
        }
    }

    /// Finished lines, apart from what is above.
    pub(crate) fn push_apart(&mut self, lines: impl IntoIterator<Item = Line>) {
        self.flush();
        self.space();
        self.done.extend(lines);
    }

    fn flush(&mut self) {
        self.flush_thoughts();
        self.flush_answer();
    }

    fn flush_answer(&mut self) {
        let rest = self.answer.finish(self.columns);
        self.done.extend(rest);
    }

    fn flush_thoughts(&mut self) {
        let thoughts = std::mem::take(&mut self.thoughts);
        let Some(began) = thoughts.began else { return };
        if self.shows_thoughts {
            self.done.extend(thought(&thoughts.text, self.columns));
        } else {
            let time = Duration::from_secs(began.elapsed().as_secs());
            let time = match time.as_secs() {
                0 => String::new(),
                _ => format!(" for {}", words::duration(time)),
            };
            let line = Line::of(format!("∴ Thought{time}: "), Style::DIM)
                .with(thoughts.text.trim(), Style::DIM);
            let hint = " (Ctrl-T shows it)";
            let mut line = line.cut(self.columns.saturating_sub(hint.len()));
            line.push(hint, Style::DIM);
            self.done.push(line);
        }
        self.done.push(Line::new());
        self.last_thoughts = thoughts.text;
    }

    /// Shows reasoning as it is from now on, the last one first; or folds it again.
    pub(crate) fn toggle_thoughts(&mut self) {
        self.shows_thoughts = !self.shows_thoughts;
        if !self.shows_thoughts {
            return self.push_apart([Line::of("Reasoning is folded.", Style::DIM)]);
        }
        let text = self.last_thoughts.clone();
        if self.thoughts.began.is_none() {
            self.push_apart(if text.is_empty() {
                vec![Line::of("Reasoning is shown from now on.", Style::DIM)]
            } else {
                thought(&text, self.columns)
            });
        }
    }

    /// Shows all of the last call's output, and of the one before it when it is asked for once more.
    pub(crate) fn show_output(&mut self) {
        let Some(result) = self.outputs.get(self.shown_outputs).cloned() else {
            let words = match self.shown_outputs {
                0 => "No call has a result yet.",
                _ => {
                    "No call before that has a result here. Ctrl-O begins with the last one again."
                }
            };
            self.shown_outputs = 0;
            return self.push([Line::of(words, Style::DIM).cut(self.columns)]);
        };
        self.shown_outputs += 1;
        self.push_apart([Line::of(&result.name, Style::BOLD)]);
        let indent = Line::of("  ", Style::PLAIN);
        for line in lines_of(&result.output, Style::DIM) {
            self.done
                .extend(line.chunks(self.columns, &indent, &indent));
        }
        self.is_after_call = true;
    }

    /// What is finished since the last time, and what is not: at most `most` lines of it.
    pub(crate) fn frame(&mut self, most: usize) -> (Vec<Line>, Vec<Line>) {
        let began = self.began.map(|began| began.elapsed());
        let step = began.unwrap_or_default().as_millis() / SPINNER_STEP;
        let step = usize::try_from(step).unwrap_or_default() % SPINNER.len();
        let spinner = SPINNER.get(step).copied().unwrap_or_default();
        let mut live = Vec::new();
        if self.thoughts.began.is_some() {
            if self.shows_thoughts {
                live.extend(thought(&self.thoughts.text, self.columns));
                live = live.split_off(live.len().saturating_sub(most));
            } else {
                // The end of it: what is being thought now.
                let text: String = self
                    .thoughts
                    .text
                    .split_whitespace()
                    .collect::<Vec<_>>()
                    .join(" ");
                let head = format!("{spinner} Thinking: ");
                let room = self.columns.saturating_sub(head.chars().count() + 1);
                let skipped = text.chars().count().saturating_sub(room);
                let end: String = text.chars().skip(skipped).collect();
                let line = Line::of(head, Style::DIM).with(end, Style::DIM);
                live.push(line.cut(self.columns));
            }
        }
        if !self.answer.is_empty() {
            let (done, open) = self.answer.frame(self.columns, most);
            self.done.extend(done);
            live.extend(open);
        }
        for call in &self.calls {
            live.extend(call.live(spinner, self.columns));
        }
        let live_most = live.len().saturating_sub(most);
        live.drain(..live_most);
        if let Some(began) = began
            && live.is_empty()
        {
            let seconds = Duration::from_secs(began.as_secs());
            let time = match seconds.as_secs() {
                0 => String::new(),
                _ => format!("  {}", words::duration(seconds)),
            };
            let line = Line::of(spinner, Style::of(Color::Cyan))
                .with(" Working", Style::PLAIN)
                .with(format!("{time}  Esc stops"), Style::DIM);
            live.push(line.cut(self.columns));
        }
        if let Some(last) = self.done.last() {
            self.ends_empty = last.is_empty();
        }
        (std::mem::take(&mut self.done), live)
    }
}

/// What the person said.
pub(crate) fn said(text: &str, columns: usize) -> Vec<Line> {
    let mut first = Line::of("› ", Style::of(Color::Cyan).bold());
    let indent = Line::of("  ", Style::PLAIN);
    let mut lines = Vec::new();
    for line in text.lines() {
        let line = Line::of(line, Style::BOLD);
        lines.extend(line.wrap(columns, &first, &indent));
        first.clone_from(&indent);
    }
    lines
}

/// Reasoning, whole.
pub(crate) fn thought(text: &str, columns: usize) -> Vec<Line> {
    let bar = Line::of("∴ ", Style::DIM);
    let style = Style {
        italic: true,
        ..Style::DIM
    };
    let mut lines = Vec::new();
    for line in text.trim().lines() {
        lines.extend(Line::of(line, style).wrap(columns, &bar, &bar));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_are_shown_one_after_the_other_the_newest_first() {
        let mut transcript = TranscriptRenderer::new(80);
        let output = |text: &str| CallOutput {
            call_id: text.to_owned(),
            name: "sh".to_owned(),
            output: text.to_owned(),
            is_error: false,
            backend: None,
            duration_ms: 0,
        };
        let shown = |transcript: &mut TranscriptRenderer| {
            transcript.show_output();
            let (lines, _) = transcript.frame(0);
            lines.last().map(Line::plain).unwrap_or_default()
        };
        assert_eq!(shown(&mut transcript), "No call has a result yet.");
        for text in ["one", "two"] {
            transcript.event(&Event::FunctionCallOutput(output(text)));
        }
        assert_eq!(shown(&mut transcript), "  two");
        assert_eq!(shown(&mut transcript), "  one");
        assert!(shown(&mut transcript).starts_with("No call before that"));
        assert_eq!(shown(&mut transcript), "  two");
        transcript.event(&Event::FunctionCallOutput(output("three")));
        assert_eq!(shown(&mut transcript), "  three");
    }
}
