//! The region at the bottom of the terminal that is redrawn, and the lines above it that never are.
//!
//! What is finished is written above the region once, and from there on is the terminal's own: it
//! scrolls, is copied and searched as any other output. A frame is one write. Lines that did not
//! change are not written again, and none is erased before it is written, so nothing flickers. No
//! line is as wide as the terminal: no terminal breaks one by itself.

use std::fmt::Write as _;
use std::io::{self, Write};

use crate::text::{Drawing, Line};

/// Begins and ends a frame, for terminals that show it as a whole.
const FRAME: (&str, &str) = ("\u{1b}[?2026h\u{1b}[?25l", "\u{1b}[?25h\u{1b}[?2026l");
/// Erases from the cursor on to the end of the screen: the line, and from its next column on the rest.
/// Where all of a screen is erased, from its first row and column on, tmux takes it for a screen that is
/// left and moves it into its scrollback.
const ERASE_BELOW: &str = "\u{1b}[K\u{1b}[1C\u{1b}[J";

/// Draws the region.
pub(crate) struct Screen {
    out: Box<dyn Write + Send>,
    has_colors: bool,
    columns: usize,
    rows: usize,
    /// The region's lines as they were written, and how wide each is.
    drawn: Vec<(String, usize)>,
    /// The cursor's row and column in it.
    cursor: (usize, usize),
    /// Lines of the region that the terminal moved into its scrollback when it lost rows.
    scrolled_away: Vec<String>,
}

impl Screen {
    /// A region at the cursor, in a terminal of so many columns and rows.
    pub(crate) fn new(
        out: Box<dyn Write + Send>,
        has_colors: bool,
        (columns, rows): (usize, usize),
    ) -> Self {
        Self {
            out,
            has_colors,
            columns,
            rows,
            drawn: Vec::new(),
            cursor: (0, 0),
            scrolled_away: Vec::new(),
        }
    }

    /// How many columns a line may have.
    pub(crate) fn columns(&self) -> usize {
        self.columns.saturating_sub(1).max(1)
    }

    /// How many lines the region may have.
    pub(crate) fn rows(&self) -> usize {
        self.rows.saturating_sub(1).max(1)
    }

    /// Writes lines above the region, and the region with the cursor in this row and column of it.
    ///
    /// # Errors
    /// When the terminal is gone.
    pub(crate) fn draw(
        &mut self,
        above: &[Line],
        region: &[Line],
        cursor: (usize, usize),
    ) -> io::Result<()> {
        let region = region.iter().take(self.rows());
        let region: Vec<(String, usize)> = region.map(|line| self.encode(line)).collect();
        let cursor = (
            cursor.0.min(region.len().saturating_sub(1)),
            cursor.1.min(self.columns()),
        );
        if above.is_empty() && region == self.drawn && cursor == self.cursor {
            return Ok(());
        }
        let above = self.unwritten(above);
        let mut out = String::from(FRAME.0);
        move_up(&mut out, self.cursor.0);
        out.push('\r');
        for line in above {
            if let Some(drawing) = line.drawing() {
                self.draw_image(&mut out, drawing);
                continue;
            }
            let _ = write!(out, "{}\u{1b}[K\r\n", self.encode(line).0);
        }
        let shrinks = region.len() < self.drawn.len() || !above.is_empty();
        for (at, (line, _)) in region.iter().enumerate() {
            if at > 0 {
                out.push_str("\r\n");
            }
            let is_same =
                above.is_empty() && self.drawn.get(at).is_some_and(|(drawn, _)| drawn == line);
            let is_last = at + 1 == region.len();
            if is_last && shrinks {
                let _ = write!(out, "{line}{ERASE_BELOW}");
            } else if !is_same {
                let _ = write!(out, "{line}\u{1b}[K");
            }
        }
        if region.is_empty() {
            out.push_str(ERASE_BELOW);
        }
        move_up(&mut out, region.len().saturating_sub(1) - cursor.0);
        out.push('\r');
        if cursor.1 > 0 {
            let _ = write!(out, "\u{1b}[{}C", cursor.1);
        }
        out.push_str(FRAME.1);
        self.drawn = region;
        self.cursor = cursor;
        self.out.write_all(out.as_bytes())?;
        self.out.flush()
    }

    /// A line as it is written, and how wide it is.
    fn encode(&self, line: &Line) -> (String, usize) {
        let line = line.truncate(self.columns());
        (line.to_terminal(self.has_colors), line.width())
    }

    /// Returns the finished lines that do not stand in the scrollback already.
    fn unwritten<'a>(&mut self, above: &'a [Line]) -> &'a [Line] {
        let scrolled_away = std::mem::take(&mut self.scrolled_away);
        let pairs = above.iter().zip(&scrolled_away);
        let is_there = pairs.map(|(line, text)| {
            let is_text = line.drawing().is_none();
            is_text && self.encode(line).0 == *text
        });
        let count = is_there.take_while(|is_there| *is_there).count();
        above.split_at(count).1
    }

    /// Makes room for an image and has it drawn there. Terminals leave the cursor at different
    /// places behind one, so it is put back.
    fn draw_image(&self, out: &mut String, drawing: &Drawing) {
        if drawing.rows > self.rows() {
            return;
        }
        for _ in 0..drawing.rows {
            out.push_str("\u{1b}[K\r\n");
        }
        move_up(out, drawing.rows);
        let _ = write!(out, "\u{1b}7{}\u{1b}8", drawing.sequence);
        let _ = write!(out, "\u{1b}[{}B\r", drawing.rows);
    }

    /// The terminal has another size. What was drawn is taken away: terminals break lines anew that
    /// do not fit any more, so its rows are counted in the new width.
    ///
    /// # Errors
    /// When the terminal is gone.
    pub(crate) fn resize(&mut self, columns: usize, rows: usize) -> io::Result<()> {
        let columns = columns.max(1);
        let above = self.drawn.iter().take(self.cursor.0);
        let above: usize = above.map(|(_, width)| width.div_ceil(columns).max(1)).sum();
        let above = above + self.cursor.1 / columns;
        let rows = rows.max(2);
        if columns == self.columns {
            // The cursor stays on the screen: what has no room above it went into the scrollback.
            let over = (above + 1).saturating_sub(rows);
            let gone = self.drawn.iter().take(over);
            self.scrolled_away
                .extend(gone.map(|(line, _)| line.clone()));
        } else {
            self.scrolled_away.clear();
        }
        (self.columns, self.rows) = (columns, rows);
        self.erase(above.min(self.rows))
    }

    /// Takes the region away; the cursor stands where it began.
    ///
    /// # Errors
    /// When the terminal is gone.
    pub(crate) fn clear(&mut self) -> io::Result<()> {
        // Something else may be printed below what is in the scrollback.
        self.scrolled_away.clear();
        self.erase(self.cursor.0)
    }

    fn erase(&mut self, above: usize) -> io::Result<()> {
        let mut out = String::new();
        move_up(&mut out, above);
        let _ = write!(out, "\r{ERASE_BELOW}\r");
        self.drawn.clear();
        self.cursor = (0, 0);
        self.out.write_all(out.as_bytes())?;
        self.out.flush()
    }
}

fn move_up(out: &mut String, rows: usize) {
    if rows > 0 {
        let _ = write!(out, "\u{1b}[{rows}A");
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::text::Style;

    /// A terminal that keeps what is written to it.
    #[derive(Clone, Default)]
    pub(crate) struct Written(Arc<Mutex<Vec<u8>>>);

    impl Write for Written {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Written {
        pub(crate) fn take(&self) -> String {
            String::from_utf8(std::mem::take(&mut *self.0.lock().unwrap())).unwrap()
        }
    }

    fn lines(texts: &[&str]) -> Vec<Line> {
        texts
            .iter()
            .map(|text| Line::of(text, Style::PLAIN))
            .collect()
    }

    #[test]
    fn only_what_changed_is_written() {
        let written = Written::default();
        let mut screen = Screen::new(Box::new(written.clone()), true, (40, 10));
        screen.draw(&[], &lines(&["one", "two"]), (1, 3)).unwrap();
        written.take();
        screen.draw(&[], &lines(&["one", "two"]), (1, 3)).unwrap();
        assert_eq!(written.take(), "");
        screen.draw(&[], &lines(&["one", "twos"]), (1, 4)).unwrap();
        let frame = written.take();
        assert!(!frame.contains("one"), "{frame:?}");
        assert!(frame.contains("twos\u{1b}[K"), "{frame:?}");
        screen
            .draw(&lines(&["done"]), &lines(&["two"]), (0, 0))
            .unwrap();
        let frame = written.take();
        assert!(
            frame.contains("done\u{1b}[K\r\ntwo\u{1b}[K\u{1b}[1C\u{1b}[J"),
            "{frame:?}"
        );
    }

    #[test]
    fn an_image_has_its_room_and_the_cursor_is_put_back() {
        let written = Written::default();
        let mut screen = Screen::new(Box::new(written.clone()), true, (40, 10));
        let image = |rows| {
            Line::drawn(Drawing {
                sequence: "IMAGE".into(),
                rows,
            })
        };
        screen.draw(&[image(2)], &lines(&["one"]), (0, 0)).unwrap();
        let frame = written.take();
        let drawn = "\u{1b}[K\r\n\u{1b}[K\r\n\u{1b}[2A\u{1b}7IMAGE\u{1b}8\u{1b}[2B\rone";
        assert!(frame.contains(drawn), "{frame:?}");
        // A terminal that has become too small shows none.
        screen.draw(&[image(10)], &lines(&["one"]), (0, 0)).unwrap();
        assert!(!written.take().contains("IMAGE"));
    }

    #[test]
    fn a_narrower_terminal_has_broken_what_was_drawn() {
        let written = Written::default();
        let mut screen = Screen::new(Box::new(written.clone()), true, (40, 10));
        let wide = "x".repeat(39);
        screen.draw(&[], &lines(&[&wide, "two"]), (1, 3)).unwrap();
        written.take();
        screen.resize(20, 10).unwrap();
        let taken_away = "\u{1b}[2A\r\u{1b}[K\u{1b}[1C\u{1b}[J\r";
        assert_eq!(written.take(), taken_away);
    }

    #[test]
    fn what_a_lower_terminal_scrolled_away_is_not_written_again() {
        let written = Written::default();
        let drawn_again = |above: &[&str]| {
            let mut screen = Screen::new(Box::new(written.clone()), true, (40, 6));
            let region = lines(&["one", "two", "three", "four", "five"]);
            screen.draw(&[], &region, (4, 0)).unwrap();
            screen.resize(40, 3).unwrap();
            written.take();
            let region = lines(&["four", "five"]);
            screen.draw(&lines(above), &region, (1, 0)).unwrap();
            written.take()
        };
        let frame = drawn_again(&["one", "two", "three"]);
        assert!(
            !frame.contains("one") && !frame.contains("two"),
            "{frame:?}"
        );
        assert!(frame.contains("\rthree\u{1b}[K\r\nfour"), "{frame:?}");
        // What has become another line is written.
        let frame = drawn_again(&["one", "2", "three"]);
        assert!(
            frame.contains("\r2\u{1b}[K\r\nthree\u{1b}[K\r\n"),
            "{frame:?}"
        );
    }

    #[test]
    fn nothing_is_erased_from_the_first_column_on() {
        let written = Written::default();
        let mut screen = Screen::new(Box::new(written.clone()), true, (40, 10));
        screen.draw(&[], &lines(&["one", "two"]), (1, 3)).unwrap();
        // A region that ends with an empty line, one without lines, and one that is taken away.
        screen.draw(&[], &lines(&[""]), (0, 0)).unwrap();
        screen.draw(&[], &[], (0, 0)).unwrap();
        screen.clear().unwrap();
        screen.resize(40, 5).unwrap();
        let all = written.take();
        let (whole, below) = ("\u{1b}[J", "\u{1b}[1C\u{1b}[J");
        assert!(all.contains(below), "{all:?}");
        assert_eq!(
            all.matches(whole).count(),
            all.matches(below).count(),
            "{all:?}"
        );
    }
}
