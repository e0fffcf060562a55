//! What the model reads of a call's result.
//!
//! The words are made here and nowhere else: a failing command's output and exit code, a notice
//! of what was cut and where all of it is, the files that a call made.

use std::borrow::Cow;
use std::fmt::Write as _;

use super::CallFailureKind;
use crate::chat::ArtifactRef;
use crate::foreign_text::escape_line;
use crate::numerals::count;

/// How a command ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CommandEnd<'a> {
    /// What it wrote to standard output, as far as it is kept.
    pub stdout: &'a str,
    /// What it wrote to standard error, as far as it is kept.
    pub stderr: &'a str,
    /// The command's exit code.
    pub exit_code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// The time limit that ended it, in milliseconds.
    pub timed_out_after_ms: Option<u64>,
    /// Bytes of output that are not in `stdout` and `stderr`.
    pub dropped_bytes: u64,
    /// Where all of the output is.
    pub full_output: Option<&'a ArtifactRef>,
}

impl CommandEnd<'_> {
    /// Whether the model should take it as a failure.
    pub fn has_failed(&self) -> bool {
        self.exit_code != Some(0) || self.timed_out_after_ms.is_some()
    }

    /// What the model is told behind [`CommandEnd::text`] where the command failed.
    pub fn failure_kind(&self) -> Option<CallFailureKind<'static>> {
        match self.timed_out_after_ms {
            Some(limit_ms) => Some(CallFailureKind::TimedOut {
                limit_ms,
                plugin: None,
            }),
            None => self.has_failed().then_some(CallFailureKind::CommandFailed),
        }
    }

    /// The text for the model: output first, then how it ended. Of a time limit that ended it
    /// [`CommandEnd::failure_kind`] tells.
    pub fn text(&self) -> String {
        let mut text = self.output();
        match (self.timed_out_after_ms, self.exit_code, self.signal) {
            // A line of its own follows, without an empty one between.
            (Some(_), _, _) => text.truncate(text.trim_end_matches('\n').len()),
            (None, Some(0), _) => {}
            (None, Some(code), _) => {
                end_line(&mut text);
                let _ = write!(text, "[exit code {code}]");
            }
            (None, None, Some(signal)) => {
                end_line(&mut text);
                let _ = write!(text, "[ended by signal {signal}]");
            }
            (None, None, None) => {
                end_line(&mut text);
                text.push_str("[ended without an exit code]");
            }
        }
        if text.is_empty() && !self.has_failed() {
            text.push_str("(no output)");
        }
        text
    }

    /// What it wrote, as far as it is kept, and where the rest is.
    fn output(&self) -> String {
        let mut text = self.stdout.to_owned();
        if !self.stderr.is_empty() {
            end_line(&mut text);
            text.push_str("[stderr]\n");
            text.push_str(self.stderr);
        }
        if self.dropped_bytes > 0 {
            end_line(&mut text);
            let _ = write!(
                text,
                "[{} bytes of output before this are left out",
                self.dropped_bytes
            );
            match self.full_output {
                Some(file) => {
                    let _ = write!(text, "; all of it is in {}]", describe_file(file));
                }
                None => text.push(']'),
            }
        }
        text
    }
}

/// The beginning of each line about a file, by which a text is known to name it already.
pub fn file_line_start(id: &str) -> String {
    format!("[file] {id} ")
}

/// One line about a file that a call made: handle, name, type, size, and where it is when the
/// tools of the session can open it there. A place that is written with escapes is none that they
/// can, but its handle is.
pub fn file_line(file: &ArtifactRef, path: Option<&str>) -> String {
    match path.map(escape_line) {
        Some(Cow::Borrowed(place)) => format!("[file] {} at {place}", describe_file(file)),
        Some(Cow::Owned(escaped)) => format!(
            "[file] {} at {escaped} (with escapes); write {} where a path is wanted",
            describe_file(file),
            file.id
        ),
        None => format!(
            "[file] {}, elsewhere; write {} where a path is wanted",
            describe_file(file),
            file.id
        ),
    }
}

/// A text cut to about `most` bytes, its beginning and its end kept; nothing when it fits.
///
/// `file` is where all of it is.
pub fn cut(text: &str, most: usize, file: Option<&ArtifactRef>) -> Option<String> {
    if text.len() <= most {
        return None;
    }
    let head = floor_boundary(text, most * 3 / 4);
    let tail = ceil_boundary(text, text.len() - most / 4);
    let dropped = tail - head;
    let place = file.map(|file| format!("; all of it is in {}", describe_file(file)));
    Some(format!(
        "{}\n[{} left out here{}]\n{}",
        text.get(..head).unwrap_or_default(),
        count(dropped as u64, "byte"),
        place.unwrap_or_default(),
        text.get(tail..).unwrap_or_default()
    ))
}

/// What a file is called and what it is: ``file-2 `output.txt` (text/plain, 9 bytes)``.
pub fn describe_file(file: &ArtifactRef) -> String {
    match file.size {
        Some(size) => format!(
            "{} `{}` ({}, {})",
            file.id,
            file.name,
            file.media_type,
            count(size, "byte")
        ),
        None => format!("{} `{}` ({})", file.id, file.name, file.media_type),
    }
}

fn end_line(text: &mut String) {
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
}

fn floor_boundary(text: &str, mut at: usize) -> usize {
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

fn ceil_boundary(text: &str, mut at: usize) -> usize {
    while !text.is_char_boundary(at) {
        at += 1;
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file() -> ArtifactRef {
        ArtifactRef {
            id: "file-2".into(),
            name: "output.txt".into(),
            media_type: "text/plain".into(),
            size: Some(9),
        }
    }

    #[test]
    fn b01_a_failing_commands_output_and_code_reach_the_model() {
        let end = CommandEnd {
            stdout: "line",
            stderr: "no such file\n",
            exit_code: Some(2),
            ..CommandEnd::default()
        };
        assert!(end.has_failed());
        assert_eq!(end.text(), "line\n[stderr]\nno such file\n[exit code 2]");
    }

    #[test]
    fn a_failing_command_is_told_as_a_failure_and_another_is_not() {
        let failing = CommandEnd {
            exit_code: Some(2),
            ..CommandEnd::default()
        };
        let late = CommandEnd {
            timed_out_after_ms: Some(3000),
            ..CommandEnd::default()
        };
        let fine = CommandEnd {
            exit_code: Some(0),
            ..CommandEnd::default()
        };
        assert_eq!(
            [failing, late, fine].map(|end| end.failure_kind()),
            [
                Some(CallFailureKind::CommandFailed),
                Some(CallFailureKind::TimedOut {
                    limit_ms: 3000,
                    plugin: None
                }),
                None
            ]
        );
    }

    #[test]
    fn a_quiet_success_says_so() {
        let end = CommandEnd {
            exit_code: Some(0),
            ..CommandEnd::default()
        };
        assert!(!end.has_failed());
        assert_eq!(end.text(), "(no output)");
    }

    #[test]
    fn a_file_is_told_in_one_line_wherever_it_is() {
        let mut file = file();
        file.size = Some(1);
        for (place, line) in [
            (
                Some("out/a.txt"),
                "[file] file-2 `output.txt` (text/plain, 1 byte) at out/a.txt",
            ),
            (
                Some("nl\nname.txt"),
                "[file] file-2 `output.txt` (text/plain, 1 byte) at nl\\nname.txt (with escapes); \
                 write file-2 where a path is wanted",
            ),
            (
                None,
                "[file] file-2 `output.txt` (text/plain, 1 byte), elsewhere; write file-2 where a \
                 path is wanted",
            ),
        ] {
            assert_eq!(file_line(&file, place), line);
        }
    }

    #[test]
    fn what_was_cut_is_said_with_its_handle() {
        let file = file();
        let end = CommandEnd {
            stdout: "tail\n",
            dropped_bytes: 70,
            full_output: Some(&file),
            timed_out_after_ms: Some(1500),
            ..CommandEnd::default()
        };
        assert_eq!(
            end.text(),
            "tail\n[70 bytes of output before this are left out; all of it is in file-2 \
             `output.txt` (text/plain, 9 bytes)]"
        );
    }

    #[test]
    fn a_cut_keeps_both_ends_and_never_splits_a_character() {
        let text = "äöü".repeat(100);
        let cut = cut(&text, 101, Some(&file())).unwrap();
        assert!(cut.starts_with("äöü") && cut.ends_with("äöü"), "{cut}");
        assert!(cut.contains("file-2"));
        assert_eq!(super::cut("short", 100, None), None);
    }
}
