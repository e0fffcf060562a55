//! The turns of a conversation as lines, with what is told besides: what the person said, notes, files,
//! and the outputs of calls that were over, whole.
//!
//! Events in, lines out; what a turn itself looks like is [`TurnLines`]'s.

use conjure_core::chat::Event;

use crate::ended_call::CallPreview;
use crate::notes;
use crate::recent_calls::{RecentCall, RecentCalls};
use crate::text::{Color, Line, Style};
use crate::turn_lines::{TurnHints, TurnLines};

/// What turns while something runs.
const SPINNER: [&str; 10] = ["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"];
/// Keys show more, and stop what runs.
const WITH_KEYS: TurnHints = TurnHints {
    run_marks: &SPINNER,
    thought_marks: &SPINNER,
    thoughts_hint: " (Ctrl-T: the last turn's)",
    stop_hint: "  Esc stops",
    output: CallPreview::First(" (Ctrl-O shows them)"),
};

/// Makes lines of turns, and of what is told between them.
#[derive(Debug)]
pub(crate) struct TranscriptRenderer {
    lines: TurnLines,
    /// The last calls that were over.
    calls: RecentCalls,
}

impl TranscriptRenderer {
    pub(crate) fn new(columns: usize) -> Self {
        Self {
            lines: TurnLines::new(columns, WITH_KEYS),
            calls: RecentCalls::default(),
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
    pub(crate) fn push_message(&mut self, text: &str) {
        let lines = message_lines(text, self.lines.columns());
        self.lines.push_beginning(lines);
    }

    /// The host begins to work.
    pub(crate) fn begin(&mut self) {
        self.lines.begin();
    }

    /// The host has ended its work.
    pub(crate) fn end(&mut self) {
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

    /// Finished lines. Where a block of the answer is open they wait for its end.
    pub(crate) fn push(&mut self, lines: impl IntoIterator<Item = Line>) {
        self.lines.push(lines);
    }

    /// Finished lines that the person waits for, above a block that is open.
    pub(crate) fn push_above(&mut self, lines: impl IntoIterator<Item = Line>) {
        self.lines.push_above(lines);
    }

    /// Like [`Self::push_above`], but apart from what is above.
    pub(crate) fn push_spaced(&mut self, lines: impl IntoIterator<Item = Line>) {
        self.lines.push_spaced(lines);
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
                let announced = self.lines.active_call(&result.call_id);
                self.calls.push(RecentCall::new(announced, result));
                self.lines.event(event);
            }
            Event::File { artifact, .. } => {
                let line = Line::of("  + ", Style::of(Color::Green))
                    .with(&artifact.id, Style::PLAIN)
                    .with(format!("  {}", artifact.name), Style::DIM);
                self.lines.push([line.truncate(self.lines.columns())]);
                self.lines.is_of_call();
            }
            Event::Error(error) => {
                // No more of the reply comes.
                self.lines.flush();
                let columns = self.lines.columns();
                let lines = notes::lines("error: ", Color::Red, &error.error, columns);
                self.lines.push(lines);
            }
            event => {
                self.lines.event(event);
            }
        }
    }

    /// A call would write a file that has this text.
    pub(crate) fn set_overwritten(&mut self, call_id: &str, text: &str) {
        self.lines.set_overwritten(call_id, text);
    }

    /// Tells something that the person waits for.
    pub(crate) fn note(&mut self, text: &str) {
        let columns = self.lines.columns();
        let lines = notes::lines("note: ", Color::Yellow, text, columns);
        self.lines.push_above(lines);
    }

    /// Shows reasoning as it is from now on, that of the last turn first; or folds it again.
    pub(crate) fn toggle_thoughts(&mut self) {
        self.lines.toggle_thoughts();
    }

    /// Shows all of the last call that is over, and of the one before it when it is asked for once more.
    pub(crate) fn show_output(&mut self) {
        let columns = self.lines.columns();
        match self.calls.next(columns) {
            Ok(lines) => {
                self.lines.push_spaced(lines);
                self.lines.is_of_call();
            }
            Err(words) => {
                let line = Line::of(words, Style::DIM).truncate(columns);
                self.lines.push_above([line]);
            }
        }
    }

    /// What is finished since the last time, and what is not: at most `most` lines of it.
    pub(crate) fn frame(&mut self, most: usize) -> (Vec<Line>, Vec<Line>) {
        self.lines.frame(most)
    }
}

/// What the person said.
pub(crate) fn message_lines(text: &str, columns: usize) -> Vec<Line> {
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
    use conjure_core::chat::{CallAnnounced, CallOutput};
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
        let none = "No call has had a result since this chat was opened.";
        assert_eq!(shown(&mut transcript), none);
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
        transcript.end();
        assert_eq!(
            plain(&mut transcript),
            [
                "✓ sh make  local, 3 ms",
                "",
                "∴ Thought: It is made. (Ctrl-T: the last turn's)",
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
        transcript.set_overwritten("c1", "one\ntwo\n");
        transcript.event(&over("c1"));
        assert_eq!(
            plain(&mut transcript),
            ["✓ sh a  local, 3 ms", "    one", "  - two", "  + TWO"]
        );
    }

    /// A call that says this, from beginning to end.
    fn call_says(transcript: &mut TranscriptRenderer, command: &str, output: &str) {
        let call = CallAnnounced {
            id: command.to_owned(),
            name: "sh".to_owned(),
            arguments: json!({ "command": command }),
        };
        transcript.event(&Event::FunctionCall { calls: vec![call] });
        transcript.event(&Event::FunctionCallOutput(CallOutput {
            call_id: command.to_owned(),
            name: "sh".to_owned(),
            output: output.to_owned(),
            is_error: false,
            backend: Some("local".to_owned()),
            duration_ms: 3,
        }));
    }

    #[test]
    fn what_a_call_said_is_shown_below_its_line_however_many_came_after_it() {
        let mut transcript = TranscriptRenderer::new(80);
        for n in 1..=40 {
            call_says(&mut transcript, &format!("make {n}"), &format!("out {n}\n"));
        }
        plain(&mut transcript);
        for n in (1..=40).rev() {
            transcript.show_output();
            let shown = plain(&mut transcript);
            let head = format!("✓ sh make {n}  local, 3 ms");
            assert_eq!(shown, [String::new(), head, format!("  out {n}")]);
        }
    }

    #[test]
    fn a_long_difference_is_shown_whole() {
        let mut transcript = TranscriptRenderer::new(80);
        let text: String = (1..=40).map(|n| format!("line {n}\n")).collect();
        let call = CallAnnounced {
            id: "c1".to_owned(),
            name: "sh".to_owned(),
            arguments: json!({ "path": "a", "file_text": text }),
        };
        transcript.event(&Event::FunctionCall { calls: vec![call] });
        transcript.event(&over("c1"));
        let folded = plain(&mut transcript);
        let more = "  … 16 more lines (Ctrl-O shows them)";
        assert_eq!(folded.last().map(String::as_str), Some(more));
        transcript.show_output();
        let shown = plain(&mut transcript);
        assert_eq!(shown.last().map(String::as_str), Some("  + line 40"));
    }

    #[test]
    fn all_reasoning_of_the_last_turn_is_opened() {
        let mut transcript = TranscriptRenderer::new(80);
        let thinks = |transcript: &mut TranscriptRenderer, text: &str| {
            transcript.event(&Event::Thinking {
                delta: text.to_owned(),
            });
        };
        thinks(&mut transcript, "Of the turn before.");
        transcript.end();
        thinks(&mut transcript, "First.");
        call_says(&mut transcript, "make", "");
        thinks(&mut transcript, "Second.");
        transcript.end();
        plain(&mut transcript);
        for _ in 0..2 {
            transcript.toggle_thoughts();
            assert_eq!(plain(&mut transcript), ["∴ First.", "", "∴ Second."]);
            transcript.toggle_thoughts();
            assert_eq!(plain(&mut transcript), ["", "Reasoning is folded."]);
            transcript.push([Line::new()]);
            plain(&mut transcript);
        }
    }

    #[test]
    fn a_call_that_nobody_announced_is_shown_when_it_is_over() {
        let mut transcript = TranscriptRenderer::new(80);
        transcript.event(&over("c1"));
        assert_eq!(plain(&mut transcript), ["✓ sh   local, 3 ms"]);
    }
}
