//! The turns of a conversation as lines, with what is told besides: what the person said, notes, files,
//! and the outputs of calls that were over, whole.
//!
//! Events in, lines out; what a turn itself looks like is [`TurnLines`]'s.

use std::collections::VecDeque;

use conjure_core::chat::{CallOutput, Event};

use crate::ended_call::CallPreview;
use crate::text::{Color, Line, Style, lines_of};
use crate::turn_lines::{TurnHints, TurnLines};

/// What turns while something runs.
const SPINNER: [&str; 10] = ["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"];
/// Keys show more, and stop what runs.
const WITH_KEYS: TurnHints = TurnHints {
    runs: &SPINNER,
    thinks: &SPINNER,
    thoughts: " (Ctrl-T shows it)",
    working: "  Esc stops",
    output: CallPreview::First(" (Ctrl-O shows them)"),
};
/// The most bytes of an output that are held to be shown whole.
const MOST_HELD: usize = 256 * 1024;
/// The most calls whose outputs are held.
const MOST_OUTPUTS: usize = 16;

/// Makes lines of turns, and of what is told between them.
#[derive(Debug)]
pub(crate) struct TranscriptRenderer {
    lines: TurnLines,
    /// The outputs of the last calls, the newest first.
    outputs: VecDeque<CallOutput>,
    /// How many of them were shown whole since the newest came.
    shown_outputs: usize,
}

impl TranscriptRenderer {
    pub(crate) fn new(columns: usize) -> Self {
        Self {
            lines: TurnLines::new(columns, WITH_KEYS),
            outputs: VecDeque::new(),
            shown_outputs: 0,
        }
    }

    pub(crate) fn resize(&mut self, columns: usize) {
        self.lines.resize(columns);
    }

    /// Whether something is shown that changes by itself.
    pub(crate) fn is_moving(&self) -> bool {
        self.lines.is_moving()
    }

    /// A turn is about to begin, in which this was said.
    pub(crate) fn said(&mut self, text: &str) {
        let lines = said(text, self.lines.columns());
        self.lines.push_beginning(lines);
    }

    /// The host begins to work.
    pub(crate) fn begins(&mut self) {
        self.lines.begin();
    }

    /// The host has ended its work.
    pub(crate) fn ends(&mut self) {
        self.lines.end();
    }

    /// Something of the program's own, with its styles.
    pub(crate) fn print(&mut self, text: &str) {
        let columns = self.lines.columns();
        let lines = text.lines().flat_map(|text| {
            let line = Line::from_styled(text);
            let blank = text.len() - text.trim_start_matches(' ').len();
            // What does not fit goes on where the line began.
            let indent = Line::of(" ".repeat(blank.min(columns / 2)), Style::PLAIN);
            line.wrap(columns, &Line::new(), &indent)
        });
        self.lines.push(lines);
    }

    /// Finished lines.
    pub(crate) fn push(&mut self, lines: impl IntoIterator<Item = Line>) {
        self.lines.push(lines);
    }

    /// Finished lines, apart from what is above.
    pub(crate) fn push_apart(&mut self, lines: impl IntoIterator<Item = Line>) {
        self.lines.push_apart(lines);
    }

    /// An event of the turn.
    pub(crate) fn event(&mut self, event: &Event) {
        match event {
            // The host works before it and behind it too.
            Event::TurnStarted { .. } => {}
            Event::Done { .. } => self.lines.end_turn(),
            Event::FunctionCall { .. } => {
                // What is told while they wait stands with them.
                self.lines.begin_calls();
                self.lines.event(event);
            }
            Event::FunctionCallOutput(result) => {
                self.lines.event(event);
                self.hold(result);
            }
            Event::File { artifact, .. } => {
                let line = Line::of("  + ", Style::of(Color::Green))
                    .with(&artifact.id, Style::PLAIN)
                    .with(format!("  {}", artifact.name), Style::DIM);
                self.lines.push([line.cut(self.lines.columns())]);
                self.lines.is_of_call();
            }
            Event::Notice { text } => self.note("note: ", Color::Yellow, text),
            Event::Error(error) => self.note("error: ", Color::Red, &error.error),
            event => {
                self.lines.event(event);
            }
        }
    }

    /// A call would write a file that has this text.
    pub(crate) fn overwrites(&mut self, call_id: &str, text: &str) {
        self.lines.overwrites(call_id, text);
    }

    /// Keeps an output, to be shown whole.
    fn hold(&mut self, result: &CallOutput) {
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
        let columns = self.lines.columns();
        let first = Line::of(what, Style::of(color));
        let indent = Line::of("  ", Style::PLAIN);
        let mut texts = text.lines();
        let line = Line::of(texts.next().unwrap_or_default(), Style::PLAIN);
        let mut lines = line.wrap(columns, &first, &indent);
        for text in texts {
            let line = Line::of(text, Style::PLAIN);
            lines.extend(line.wrap(columns, &indent, &indent));
        }
        self.lines.push(lines);
    }

    /// Shows reasoning as it is from now on, the last one first; or folds it again.
    pub(crate) fn toggle_thoughts(&mut self) {
        self.lines.toggle_thoughts();
    }

    /// Shows all of the last call's output, and of the one before it when it is asked for once more.
    pub(crate) fn show_output(&mut self) {
        let columns = self.lines.columns();
        let Some(result) = self.outputs.get(self.shown_outputs) else {
            let words = match self.shown_outputs {
                0 => "No call has a result yet.",
                _ => {
                    "No call before that has a result here. Ctrl-O begins with the last one again."
                }
            };
            self.shown_outputs = 0;
            return self.lines.push([Line::of(words, Style::DIM).cut(columns)]);
        };
        self.shown_outputs += 1;
        let mut lines = vec![Line::of(&result.name, Style::BOLD)];
        let indent = Line::of("  ", Style::PLAIN);
        for line in lines_of(&result.output, Style::DIM) {
            lines.extend(line.chunks(columns, &indent, &indent));
        }
        self.lines.push_apart(lines);
        self.lines.is_of_call();
    }

    /// What is finished since the last time, and what is not: at most `most` lines of it.
    pub(crate) fn frame(&mut self, most: usize) -> (Vec<Line>, Vec<Line>) {
        self.lines.frame(most)
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

#[cfg(test)]
mod tests {
    use conjure_core::chat::CallAnnounced;
    use serde_json::json;

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

    /// A call of a turn that is over.
    fn over(id: &str) -> Event {
        Event::FunctionCallOutput(CallOutput {
            call_id: id.to_owned(),
            name: "sh".to_owned(),
            output: String::new(),
            is_error: false,
            backend: Some("local".to_owned()),
            duration_ms: 3,
        })
    }

    fn plain(transcript: &mut TranscriptRenderer) -> Vec<String> {
        let (lines, _) = transcript.frame(0);
        lines.iter().map(Line::plain).collect()
    }

    #[test]
    fn reasoning_behind_a_call_stands_between_single_empty_lines() {
        let mut transcript = TranscriptRenderer::new(80);
        let call = CallAnnounced {
            id: "c1".to_owned(),
            name: "sh".to_owned(),
            arguments: json!({ "command": "make" }),
        };
        transcript.event(&Event::FunctionCall { calls: vec![call] });
        transcript.event(&over("c1"));
        transcript.event(&Event::Thinking {
            delta: "It is made.".to_owned(),
        });
        transcript.event(&Event::Content {
            delta: "Made.\n".to_owned(),
        });
        transcript.ends();
        assert_eq!(
            plain(&mut transcript),
            [
                "✓ sh make  local, 3 ms",
                "",
                "∴ Thought: It is made. (Ctrl-T shows it)",
                "",
                "Made."
            ]
        );
    }

    #[test]
    fn a_file_that_was_overwritten_is_compared_with_what_it_had() {
        let mut transcript = TranscriptRenderer::new(80);
        let call = CallAnnounced {
            id: "c1".to_owned(),
            name: "sh".to_owned(),
            arguments: json!({ "path": "a", "file_text": "one\nTWO\n" }),
        };
        transcript.event(&Event::FunctionCall { calls: vec![call] });
        transcript.overwrites("c1", "one\ntwo\n");
        transcript.event(&over("c1"));
        assert_eq!(
            plain(&mut transcript),
            ["✓ sh a  local, 3 ms", "    one", "  - two", "  + TWO"]
        );
    }

    #[test]
    fn a_call_that_nobody_announced_is_shown_when_it_is_over() {
        let mut transcript = TranscriptRenderer::new(80);
        transcript.event(&over("c1"));
        assert_eq!(plain(&mut transcript), ["✓ sh   local, 3 ms"]);
    }
}
