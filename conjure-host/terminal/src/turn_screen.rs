//! Turns that are shown at a terminal where nothing is typed, as `conjure run` shows them.
//!
//! Draws at the cursor and knows no task of its own: whoever holds it gives it the events, draws again
//! when it is due, and has it make room before anything else is printed.

use std::io;
use std::time::{Duration, Instant};

use conjure_core::chat::Event;

use crate::face::FRAME;
use crate::pick::size;
use crate::screen::Screen;
use crate::turn_lines::{TurnHints, TurnLines};

/// How often what moves by itself is drawn.
const STEP: Duration = Duration::from_secs(1);
/// Part of the time that frames may be drawn in, as one in so many, and the longest time between two: a
/// long paragraph is rendered whole each time.
const SHARE: u32 = 80;
const MAX_PAUSE: Duration = Duration::from_millis(500);

/// Shows turns.
pub struct TurnScreen {
    screen: Screen,
    size: (usize, usize),
    lines: TurnLines,
    /// Whether only the answer is shown.
    is_answer_only: bool,
    drawn_at: Instant,
    /// The least time between two frames.
    pause: Duration,
    /// Whether something came that is not drawn.
    is_stale: bool,
    visibility: Visibility,
}

/// Whether what is not finished is on the screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Visibility {
    Visible,
    /// Something else is printed, until more of the turn comes.
    Hidden,
    /// Something else is printed, and the turn stays away whatever comes: somebody types there.
    Suspended,
}

impl TurnScreen {
    /// Shows turns at standard output; with `is_answer_only` what else happens in them is told by
    /// somebody else.
    ///
    /// # Errors
    /// When there is no terminal.
    pub fn new(has_colors: bool, is_answer_only: bool) -> io::Result<Self> {
        let size = size()?;
        let screen = Screen::new(Box::new(io::stdout()), has_colors, size);
        Ok(Self {
            lines: TurnLines::new(screen.columns(), TurnHints::WITHOUT_KEYS),
            screen,
            size,
            is_answer_only,
            drawn_at: Instant::now(),
            pause: Duration::ZERO,
            is_stale: false,
            visibility: Visibility::Visible,
        })
    }

    /// Takes an event in. Whether it is shown here.
    ///
    /// # Errors
    /// When the terminal is gone.
    pub fn event(&mut self, event: &Event) -> io::Result<bool> {
        if self.is_answer_only && !matches!(event, Event::Content { .. }) {
            return Ok(false);
        }
        if !self.lines.event(event) {
            return Ok(false);
        }
        // Output of a call is no reason to draw over a question that it may have asked.
        if self.visibility == Visibility::Hidden && !matches!(event, Event::ToolOutput { .. }) {
            self.visibility = Visibility::Visible;
        }
        self.is_stale = true;
        if self.drawn_at.elapsed() >= self.pause {
            self.draw()?;
        }
        Ok(true)
    }

    /// A call would write a file that has this text.
    pub fn set_overwritten(&mut self, call_id: &str, text: &str) {
        self.lines.set_overwritten(call_id, text);
    }

    /// When it is to be drawn again, if nothing happens before.
    #[must_use]
    pub fn due(&self) -> Option<Instant> {
        match (self.visibility, self.is_stale) {
            (Visibility::Hidden | Visibility::Suspended, _) => None,
            (Visibility::Visible, true) => Some(self.drawn_at + self.pause),
            (Visibility::Visible, false) => self.lines.is_moving().then(|| self.drawn_at + STEP),
        }
    }

    /// Draws what is not finished anew.
    ///
    /// # Errors
    /// When the terminal is gone.
    pub fn draw(&mut self) -> io::Result<()> {
        if self.visibility != Visibility::Visible {
            return Ok(());
        }
        let begun = Instant::now();
        self.fit()?;
        let (above, live) = self.lines.frame(self.screen.rows());
        let cursor = (live.len().saturating_sub(1), 0);
        self.screen.draw(&above, &live, cursor)?;
        self.drawn_at = Instant::now();
        self.pause = (self.drawn_at.duration_since(begun) * SHARE).clamp(FRAME, MAX_PAUSE);
        self.is_stale = false;
        Ok(())
    }

    /// Takes away what is not finished, so that something else can be printed. It comes back with the
    /// next event.
    ///
    /// # Errors
    /// When the terminal is gone.
    pub fn make_room(&mut self) -> io::Result<()> {
        if self.visibility != Visibility::Visible {
            return Ok(());
        }
        self.visibility = Visibility::Hidden;
        self.is_stale = false;
        self.fit()?;
        let (above, _) = self.lines.frame(self.screen.rows());
        self.lines.is_interrupted();
        self.screen.draw(&above, &[], (0, 0))
    }

    /// Makes room for somebody who types: nothing is drawn until [`TurnScreen::resume`], so that what
    /// they typed stays where it is. What comes meanwhile is kept.
    ///
    /// # Errors
    /// When the terminal is gone.
    pub fn hold(&mut self) -> io::Result<()> {
        self.make_room()?;
        self.visibility = Visibility::Suspended;
        Ok(())
    }

    /// Draws again; what came meanwhile is due now.
    pub fn resume(&mut self) {
        self.visibility = match self.visibility {
            Visibility::Visible => Visibility::Visible,
            Visibility::Hidden | Visibility::Suspended if self.is_stale => Visibility::Visible,
            Visibility::Hidden | Visibility::Suspended => Visibility::Hidden,
        };
    }

    /// Makes room for something else, and what came of the answer and of the reasoning is finished.
    /// While somebody types it is finished, and drawn later.
    ///
    /// # Errors
    /// When the terminal is gone.
    pub fn settle(&mut self) -> io::Result<()> {
        self.lines.flush();
        if self.visibility == Visibility::Suspended {
            self.is_stale = true;
            return Ok(());
        }
        self.visibility = Visibility::Visible;
        self.make_room()
    }

    /// The terminal may have another size by now.
    fn fit(&mut self) -> io::Result<()> {
        let size = size()?;
        if size != self.size {
            self.size = size;
            self.screen.resize(size.0, size.1)?;
            self.lines.resize(self.screen.columns());
        }
        Ok(())
    }
}
