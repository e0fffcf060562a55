//! Where words go: results to stdout, everything else to stderr, JSON when asked for. Nothing is
//! printed but through here, where what steers a terminal is taken out.

use std::fmt::Display;
use std::io::{self, Write as _};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use conjure_terminal::Update;
use serde::Serialize;
use serde_json::json;
use tokio::sync::mpsc::Sender;
use tokio::sync::mpsc::error::TrySendError;

use super::drawn_turn;
use super::error::CliError;
pub(crate) use super::table::Table;
pub(crate) use conjure_core::foreign_text::{clean, clean_line};
use conjure_core::foreign_text::{for_terminal, in_json};
use conjure_core::numerals::count;

/// The face that has the terminal, which shows what is printed meanwhile.
static FACE: Mutex<Option<Sender<Update>>> = Mutex::new(None);
/// How long a face that has much to do is waited for, in steps of this.
const FACE_STEP: Duration = Duration::from_millis(5);
const FACE_STEPS: u32 = 400;

fn face() -> MutexGuard<'static, Option<Sender<Update>>> {
    FACE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Has what is printed from here on shown by a face, or by the terminal itself again.
pub(crate) fn show_in(shown_by: Option<Sender<Update>>) {
    *face() = shown_by;
}

/// Tells the face that has the terminal. Whether somebody took it.
pub(crate) fn send_to_face(update: Update) -> bool {
    let Some(told) = face().clone() else {
        return false;
    };
    let mut update = update;
    for _ in 0..FACE_STEPS {
        match told.try_send(update) {
            Ok(()) => return true,
            Err(TrySendError::Closed(_)) => return false,
            Err(TrySendError::Full(back)) => update = back,
        }
        std::thread::sleep(FACE_STEP);
    }
    false
}

tokio::task_local! {
    /// What a task prints that is to be told elsewhere.
    static CAPTURED: Mutex<String>;
}

/// Does something, and gives back what it printed meanwhile, without styles.
pub(crate) async fn capture(work: impl Future<Output = ()>) -> String {
    let capturing = async {
        work.await;
        CAPTURED.with(|printed| {
            std::mem::take(&mut *printed.lock().unwrap_or_else(PoisonError::into_inner))
        })
    };
    let printed = CAPTURED.scope(Mutex::default(), capturing).await;
    anstream::adapter::strip_str(&printed).to_string()
}

/// Whether what the task prints is told elsewhere.
fn try_capture(text: &str) -> bool {
    let take = |printed: &Mutex<String>| {
        let mut printed = printed.lock().unwrap_or_else(PoisonError::into_inner);
        printed.push_str(text);
        printed.push('\n');
    };
    CAPTURED.try_with(take).is_ok()
}

/// Whether a face took the text, which it cleans itself.
fn print_in_face(text: &str) -> bool {
    face().is_some() && send_to_face(Update::Print(text.to_owned()))
}

/// Prints what is logged: to standard error, unless a face has the terminal.
pub(crate) fn log(text: &str) -> std::io::Result<()> {
    if print_in_face(text) {
        return Ok(());
    }
    drawn_turn::make_room();
    std::io::stderr().write_all(text.as_bytes())
}

/// Prints a line of the result.
pub(crate) fn line(text: impl Display) {
    let text = text.to_string();
    if try_capture(&text) || print_in_face(&text) {
        return;
    }
    drawn_turn::make_room();
    record_write(writeln!(anstream::stdout(), "{}", for_terminal(&text)));
}

/// Why the first result that could not be written was not.
static WRITE_ERROR: OnceLock<io::Error> = OnceLock::new();

/// Takes note of a result that could not be written. Whoever closed a pipe wanted no more.
pub(crate) fn record_write(done: io::Result<()>) {
    match done {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => drop(WRITE_ERROR.set(error)),
        _ => {}
    }
}

/// Writes what of the results is not written yet. Why a part of them is lost, if one is.
pub(crate) fn finish() -> Option<CliError> {
    record_write(io::stdout().flush());
    let error = WRITE_ERROR.get()?;
    let error = match error.raw_os_error() {
        Some(number) => io::Error::from_raw_os_error(number),
        None => io::Error::from(error.kind()),
    };
    Some(
        CliError::host_from(error)
            .context("not all of the result could be written to standard output"),
    )
}

/// Prints a piece of the result, at once.
pub(crate) fn piece(text: impl Display) {
    let text = text.to_string();
    drawn_turn::make_room();
    let mut stdout = anstream::stdout();
    record_write(write!(stdout, "{}", for_terminal(&text)).and_then(|()| stdout.flush()));
}

/// Prints a line beside the result.
pub(crate) fn print_note(text: impl Display) {
    let text = text.to_string();
    if try_capture(&text) || print_in_face(&text) {
        return;
    }
    drawn_turn::make_room();
    let _ = writeln!(anstream::stderr(), "{}", for_terminal(&text));
}

/// Prints a value as JSON, for programs: one line in a stream of them, pretty when it is alone.
pub(crate) fn json(value: &impl Serialize) {
    if let Ok(text) = serde_json::to_string_pretty(value) {
        line(in_json(&text));
    }
}

/// Prints one line of a stream of JSON lines.
pub(crate) fn json_line(value: &impl Serialize) {
    if let Ok(text) = serde_json::to_string(value) {
        line(in_json(&text));
    }
}

/// Prints text that is JSON already, as it is but for what a terminal would not show.
pub(crate) fn json_text(text: &str) {
    let mut stdout = std::io::stdout();
    record_write(write!(stdout, "{}", in_json(text)).and_then(|()| stdout.flush()));
}

/// Prints text of the program's own as it is.
pub(crate) fn raw(text: &[u8]) {
    record_write(io::stdout().write_all(text));
}

/// Says why a verb could not do what it was asked to, and what can be done.
pub(crate) fn error(error: &CliError, as_json: bool) {
    if as_json {
        error_line(error);
    }
    error_aside(error);
}

/// Prints an error for programs alone, where a person has read it already.
pub(crate) fn error_line(error: &CliError) {
    let message = error.to_string();
    json_line(&match error.hints() {
        [] => json!({ "type": "error", "error": message }),
        hints => json!({ "type": "error", "error": message, "hints": hints }),
    });
}

/// Says that a part of what a verb does failed, while the rest goes on.
pub(crate) fn error_aside(error: &CliError) {
    print_note(format_args!(
        "{RED}error:{RESET} {}",
        clean(&error.to_string())
    ));
    for hint in error.hints() {
        print_note(format_args!("{CYAN}hint:{RESET} {}", clean(hint)));
    }
}

pub(crate) const RED: &str = "\u{1b}[31m";
pub(crate) const GREEN: &str = "\u{1b}[32m";
pub(crate) const YELLOW: &str = "\u{1b}[33m";
pub(crate) const CYAN: &str = "\u{1b}[36m";
pub(crate) const DIM: &str = "\u{1b}[2m";
pub(crate) const BOLD: &str = "\u{1b}[1m";
pub(crate) const RESET: &str = "\u{1b}[0m";

/// `1.2 s`, `35 ms`.
pub(crate) fn duration(milliseconds: u64) -> String {
    if milliseconds >= 1000 {
        format!("{:.1} s", milliseconds as f64 / 1000.0)
    } else {
        format!("{milliseconds} ms")
    }
}

/// `1.2 KB`, `7 bytes`, `1 byte`.
pub(crate) fn size(bytes: u64) -> String {
    match bytes {
        0..1000 => count(bytes, "byte"),
        1000..1_000_000 => format!("{:.1} KB", bytes as f64 / 1e3),
        _ => format!("{:.1} MB", bytes as f64 / 1e6),
    }
}

/// The mark of a call that is over.
pub(crate) fn end_mark(is_error: bool) -> String {
    let (color, sign) = if is_error {
        (RED, '✗')
    } else {
        (GREEN, '✓')
    };
    format!("{color}{sign}{RESET}")
}
