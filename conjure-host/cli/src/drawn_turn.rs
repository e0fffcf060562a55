//! The turns that are drawn at the terminal, and room for whatever else is printed meanwhile.
//!
//! One place for the program, as there is one terminal. A face that has the terminal shows its turns
//! itself; this is for the verbs that have none, such as `conjure run`.

use std::io::{self, IsTerminal as _};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use conjure_core::chat::Event;
use conjure_terminal::TurnScreen;
use tokio::sync::Notify;
use tokio_util::task::AbortOnDropHandle;

/// Where turns are drawn. Nothing where they are printed as they come.
static DRAWN: Mutex<Option<TurnScreen>> = Mutex::new(None);
/// Set where what is said is read aloud: nothing is redrawn then.
const SCREEN_READER: &str = "CONJURE_SCREEN_READER";
/// Wakes whoever draws: it may be time for that sooner than it was.
static REDRAW: Notify = Notify::const_new();

/// Turns are drawn while it lives.
pub(crate) struct DrawnTurns(AbortOnDropHandle<()>);

impl Drop for DrawnTurns {
    fn drop(&mut self) {
        self.0.abort();
        resume();
        settle();
        *drawn() = None;
    }
}

/// Draws turns from here on, where standard output is a terminal that may be redrawn. Nothing where
/// they are printed as they come.
pub(crate) fn begin(as_json: bool, has_colors: bool) -> Option<DrawnTurns> {
    if as_json || !io::stdout().is_terminal() || !may_redraw() {
        return None;
    }
    // What happens beside the answer belongs to standard error, wherever that goes.
    let is_answer_only = !io::stderr().is_terminal();
    *drawn() = Some(TurnScreen::new(has_colors, is_answer_only).ok()?);
    let drawing = tokio::spawn(redraw_when_due());
    Some(DrawnTurns(AbortOnDropHandle::new(drawing)))
}

/// Whether a terminal may be redrawn, whichever it is.
pub(crate) fn may_redraw() -> bool {
    let var = std::env::var_os;
    var("TERM").is_none_or(|term| term != "dumb")
        && var(SCREEN_READER).is_none_or(|value| value.is_empty())
}

/// Shows an event where it is drawn; whether it was.
pub(crate) fn show(event: &Event) -> bool {
    let mut is_shown = false;
    update_screen(|screen| {
        is_shown = screen.event(event)?;
        Ok(())
    });
    is_shown
}

/// Has what came of the turn stand where it is, and makes room below it.
pub(crate) fn settle() {
    update_screen(TurnScreen::settle);
}

/// A call would write a file that has this text.
pub(crate) fn set_overwritten(call_id: &str, text: &str) {
    update_screen(|screen| {
        screen.set_overwritten(call_id, text);
        Ok(())
    });
}

/// Makes room for something that is printed.
pub(crate) fn make_room() {
    update_screen(TurnScreen::make_room);
}

/// Draws nothing while it lives, so that what somebody types stays whole.
pub(crate) struct DrawingHold(());

impl Drop for DrawingHold {
    fn drop(&mut self) {
        resume();
    }
}

/// Makes room for somebody who types, until what it gives back is dropped. One at a time.
pub(crate) fn hold() -> DrawingHold {
    update_screen(TurnScreen::hold);
    DrawingHold(())
}

fn resume() {
    update_screen(|screen| {
        screen.resume();
        Ok(())
    });
}

/// Draws what moves by itself, and what came too soon behind the last frame.
async fn redraw_when_due() {
    loop {
        let due = drawn().as_ref().and_then(TurnScreen::due);
        let Some(due) = due else {
            REDRAW.notified().await;
            continue;
        };
        tokio::select! {
            biased;
            () = tokio::time::sleep_until(due.into()) => on_screen(redraw),
            () = REDRAW.notified() => {}
        }
    }
}

/// Draws what is not finished anew, where it is time for that.
fn redraw(screen: &mut TurnScreen) -> io::Result<()> {
    match screen.due() {
        Some(due) if due <= Instant::now() => screen.draw(),
        _ => Ok(()),
    }
}

fn drawn() -> MutexGuard<'static, Option<TurnScreen>> {
    DRAWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Does something where turns are drawn, which may change when they are drawn again.
fn update_screen(work: impl FnOnce(&mut TurnScreen) -> io::Result<()>) {
    on_screen(work);
    REDRAW.notify_one();
}

/// Does something where turns are drawn. A terminal that is gone is left alone from then on.
fn on_screen(work: impl FnOnce(&mut TurnScreen) -> io::Result<()>) {
    let mut drawn = drawn();
    if drawn.as_mut().is_some_and(|screen| work(screen).is_err()) {
        *drawn = None;
    }
}
