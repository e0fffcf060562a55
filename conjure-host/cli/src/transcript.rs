//! Shows a turn as it happens: the answer to stdout, everything else to stderr. Where turns
//! are drawn, the answer, reasoning and calls are.

use std::io::{self, IsTerminal as _};

use conjure_core::chat::{CallAnnounced, Event};
use conjure_runtime::artifacts::Artifact;
use conjure_runtime::session::ChatError;

use super::answer_end::{CUT_SHORT, cut_short, note_empty_answer};
use super::args::display_path;
use super::cost_text;
use super::drawn_turn;
use super::output::{
    self, BOLD, CYAN, DIM, GREEN, RED, RESET, YELLOW, clean, clean_line, duration, print_note, size,
};
use super::shorten::{first_lines, one_line};

/// A call that needs the person's approval.
pub(crate) struct CallForApproval {
    pub(crate) call: CallAnnounced,
    pub(crate) reason: String,
    /// What the file has that the call would overwrite, where somebody looked.
    pub(crate) overwritten: Option<String>,
}

/// Shows events.
pub(crate) struct Transcript {
    json: bool,
    /// Whether the last piece of the answer did not end its line.
    open_line: bool,
    /// The line of reasoning that has not ended.
    thought: String,
    /// Whether words say where reasoning begins and where the answer does: both are on one terminal.
    marks_reasoning: bool,
    /// Whether what was shown last is reasoning.
    is_reasoning: bool,
    /// The error that was shown last.
    error: Option<String>,
    /// Why the answer of the turn that ended last would be one that was cut short.
    cut_short: Option<String>,
}

impl Transcript {
    pub(crate) fn new(json: bool) -> Self {
        Self {
            json,
            open_line: false,
            thought: String::new(),
            marks_reasoning: io::stdout().is_terminal() && io::stderr().is_terminal(),
            is_reasoning: false,
            error: None,
            cut_short: None,
        }
    }

    /// Shows one event. Gives back a call that waits for a person, where one is there.
    pub(crate) fn show(&mut self, event: &Event, attended: bool) -> Option<CallForApproval> {
        if let Event::Error(error) = event {
            self.error = Some(error.error.clone());
        }
        if let Event::Done {
            stop_reason, text, ..
        } = event
        {
            self.cut_short = Some(cut_short(stop_reason.as_deref(), text));
        }
        if self.json {
            output::json_line(event);
            return None;
        }
        if drawn_turn::show(event) {
            return None;
        }
        match event {
            Event::Content { delta } => {
                self.end_thought();
                let delta = clean(delta);
                if !delta.is_empty() {
                    self.begin_answer();
                    self.open_line = !delta.ends_with('\n');
                    output::piece(delta);
                }
            }
            Event::Thinking { delta } => {
                self.end_line();
                self.begin_reasoning();
                self.thought.push_str(delta);
                while let Some((line, rest)) = self.thought.split_once('\n') {
                    thought(line);
                    self.thought = rest.to_owned();
                }
            }
            Event::FunctionCall { calls } => {
                self.end();
                for call in calls {
                    let arguments = one_line(&call.arguments.to_string(), 100);
                    print_note(format_args!(
                        "{CYAN}→{RESET} {BOLD}{}{RESET} {arguments}",
                        clean(&call.name)
                    ));
                }
            }
            Event::Approval { call, reason } if attended => {
                self.end();
                return Some(CallForApproval {
                    call: call.clone(),
                    reason: reason.clone(),
                    overwritten: None,
                });
            }
            Event::FunctionCallOutput(result) => {
                self.end();
                let mark = if result.is_error {
                    format!("{RED}✗{RESET}")
                } else {
                    format!("{GREEN}✓{RESET}")
                };
                let by = match &result.backend {
                    Some(backend) => {
                        format!("on {}, {}", clean(backend), duration(result.duration_ms))
                    }
                    None => "not run".to_owned(),
                };
                print_note(format_args!(
                    "{mark} {} {DIM}({by}){RESET}",
                    clean(&result.name)
                ));
                for line in preview(&result.output, result.is_error) {
                    print_note(format_args!("  {DIM}{line}{RESET}"));
                }
            }
            Event::Cost { turn, .. } => {
                if let Some(spent) = cost_text::line(turn) {
                    self.end();
                    print_note(format_args!("{DIM}{spent}{RESET}"));
                }
            }
            Event::Notice { text } => {
                // It may come in the middle of an answer, which goes on where it is drawn.
                self.end_thought();
                self.end_printed_line();
                self.is_reasoning = false;
                print_note(format_args!("{YELLOW}note:{RESET} {}", clean(text)));
            }
            Event::Error(error) => {
                self.end();
                print_note(format_args!("{RED}error:{RESET} {}", clean(&error.error)));
            }
            Event::Done { .. } => {
                self.end();
                note_empty_answer(event);
            }
            _ => {}
        }
        None
    }

    /// Whether a failed turn's error was among the events, so that it need not be told again.
    pub(crate) fn has_shown(&self, error: &ChatError) -> bool {
        // A limit's event and its error say the same in other words.
        matches!(error, ChatError::Limit { .. }) && self.error.is_some()
            || self.has_shown_text(&error.to_string())
    }

    /// Whether an error of these words was among the events.
    pub(crate) fn has_shown_text(&self, error: &str) -> bool {
        self.error.as_deref() == Some(error)
    }

    /// Why the answer of the turn that ended last was cut short.
    pub(crate) fn cut_short(&self) -> String {
        let why = self.cut_short.clone();
        why.unwrap_or_else(|| CUT_SHORT.to_owned())
    }

    /// Lists the files that were made.
    pub(crate) fn files(&mut self, files: &[Artifact]) {
        if self.json || files.is_empty() {
            return;
        }
        self.end();
        print_note(format_args!("\n{BOLD}Files{RESET}"));
        for file in files {
            let (place, facts) = file_columns(file);
            print_note(format_args!(
                "  {}  {place}  {DIM}{facts}{RESET}",
                clean(&file.id)
            ));
        }
    }

    /// Ends what is open: a line of the answer, and one of reasoning.
    pub(crate) fn end(&mut self) {
        self.end_thought();
        self.end_line();
        self.is_reasoning = false;
    }

    /// Says that reasoning begins, where the answer is shown beside it.
    fn begin_reasoning(&mut self) {
        if self.marks_reasoning && !std::mem::replace(&mut self.is_reasoning, true) {
            print_note(format_args!("{DIM}Reasoning:{RESET}"));
        }
    }

    /// Says that the answer begins, where reasoning is shown above it.
    fn begin_answer(&mut self) {
        if std::mem::take(&mut self.is_reasoning) {
            print_note(format_args!("{DIM}Answer:{RESET}"));
        }
    }

    fn end_thought(&mut self) {
        if !self.thought.is_empty() {
            thought(&std::mem::take(&mut self.thought));
        }
    }

    fn end_line(&mut self) {
        drawn_turn::settle();
        self.end_printed_line();
    }

    fn end_printed_line(&mut self) {
        if self.open_line {
            output::line("");
            self.open_line = false;
        }
    }
}

/// Where a file is or what it is called, and what is known of it.
fn file_columns(file: &Artifact) -> (String, String) {
    let place = match (&file.path, &file.remote) {
        (Some(path), _) => display_path(path),
        (None, Some(_)) => format!("{} (not fetched)", clean_line(&file.name)),
        (None, None) => format!("{} (gone)", clean_line(&file.name)),
    };
    let mut facts: Vec<String> = file.size.map(size).into_iter().collect();
    facts.push(clean_line(&file.media_type).into_owned());
    facts.push(format!("from {}", clean_line(&file.source)));
    (place, facts.join(", "))
}

fn thought(line: &str) {
    print_note(format_args!("{DIM}{}{RESET}", clean(line).trim_end()));
}

/// The first lines of a result: a few of one that worked, more of one that failed.
pub(crate) fn preview(text: &str, is_error: bool) -> Vec<String> {
    first_lines(text, if is_error { 12 } else { 3 })
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use conjure_core::chat::ErrorEvent;

    use super::*;

    #[test]
    fn a_file_is_told_by_its_place_or_by_its_name_with_what_is_known_of_it() {
        let file = |path: Option<&str>, size, remote: Option<&str>| Artifact {
            id: "file-4".to_owned(),
            name: "a.txt".to_owned(),
            media_type: "text/plain".to_owned(),
            size,
            sha256: None,
            source: "mcp".to_owned(),
            path: path.map(PathBuf::from),
            remote: remote.map(str::to_owned),
            holder: None,
        };
        for (file, place, facts) in [
            (
                file(Some("/files/nl\nname.txt"), Some(1), None),
                "/files/nl\\nname.txt",
                "1 byte, text/plain, from mcp",
            ),
            (
                file(None, None, Some("x://4")),
                "a.txt (not fetched)",
                "text/plain, from mcp",
            ),
            (
                file(None, Some(12), None),
                "a.txt (gone)",
                "12 bytes, text/plain, from mcp",
            ),
        ] {
            assert_eq!(file_columns(&file), (place.to_owned(), facts.to_owned()));
        }
    }

    #[tokio::test]
    async fn words_say_where_reasoning_ends_and_the_answer_begins() {
        async fn turn(marks_reasoning: bool) {
            let mut transcript = Transcript::new(false);
            transcript.marks_reasoning = marks_reasoning;
            for delta in ["I have to ", "look.\nThen", " answer."] {
                let delta = delta.to_owned();
                transcript.show(&Event::Thinking { delta }, false);
            }
            for delta in ["", "\n"] {
                let delta = delta.to_owned();
                transcript.show(&Event::Content { delta }, false);
            }
            transcript.end();
        }
        // The answer itself goes past what is captured.
        let marked = output::capture(turn(true)).await;
        let lines = [
            "Reasoning:",
            "I have to look.",
            "Then answer.",
            "Answer:",
            "",
        ];
        assert_eq!(marked, lines.join("\n"));
        let plain = output::capture(turn(false)).await;
        assert_eq!(plain, "I have to look.\nThen answer.\n");
    }

    #[test]
    fn an_error_that_was_an_event_is_not_told_again() {
        let mut transcript = Transcript::new(true);
        let failed = |error: &str| ChatError::Provider {
            error: error.to_owned(),
            kind: "overloaded".to_owned(),
        };
        assert!(!transcript.has_shown(&failed("overloaded")));
        let event = Event::Error(ErrorEvent {
            error: "overloaded".to_owned(),
            kind: "overloaded".to_owned(),
        });
        transcript.show(&event, false);
        assert!(transcript.has_shown(&failed("overloaded")));
        assert!(!transcript.has_shown(&failed("another")));
    }
}
