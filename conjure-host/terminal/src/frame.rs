//! A frame of the face: the turn, and below it what waits, what is typed, what is offered, and the
//! status.

use std::io;

use crate::face::Face;
use crate::prompt_queue::InputMode;
use crate::status;
use crate::text::{Color, Line, Style};

/// What stands before the text that is typed.
const MARK: &str = "› ";

impl Face {
    pub(crate) fn draw(&mut self) -> io::Result<()> {
        let (columns, rows) = (self.screen.columns(), self.screen.rows());
        let mark = Line::of(MARK, Style::PLAIN).width();
        self.editor.fit(columns.saturating_sub(mark));
        let (mut below, mut cursor) = self.below(columns, rows);
        let room = rows.saturating_sub(below.len() + 1).max(1);
        let (above, mut region) = self.transcript.frame(room);
        region.push(Line::new());
        cursor.0 += region.len();
        region.append(&mut below);
        // The lowest lines count where not all fit.
        let over = region.len().saturating_sub(rows);
        region.drain(..over);
        cursor.0 = cursor.0.saturating_sub(over);
        self.screen.draw(&above, &region, cursor)
    }

    /// What stands below the turn: what waits, what is typed, what is offered, and the status.
    fn below(&self, columns: usize, rows: usize) -> (Vec<Line>, (usize, usize)) {
        let mut lines = self.queue.render(columns, self.is_busy);
        let most = (rows / 2).max(3);
        let mut at_text = true;
        let mut cursor = (0, 0);
        match self.prompts.front() {
            Some(InputMode::Approval { prompt, .. }) => {
                // The last line is the status's.
                let (prompt, at) = prompt.render(columns, rows.saturating_sub(1).max(1));
                cursor = (lines.len() + at.0, at.1);
                lines.extend(prompt);
                at_text = !self.editor.is_empty();
                if at_text {
                    let hint = "You are typing: Tab sets that aside and decides.";
                    lines.push(Line::of(hint, Style::of(Color::Yellow)).truncate(columns));
                }
            }
            Some(InputMode::Picker(picker)) => {
                let (picker, at) = picker.render(columns, most.max(6));
                cursor = (lines.len() + at.0, at.1);
                lines.extend(picker);
                at_text = false;
            }
            Some(InputMode::Form { form, has_line, .. }) => {
                lines.extend(form.render(columns));
                if !has_line && !self.editor.is_empty() {
                    let hint = "You are typing: Tab sets that aside and answers.";
                    lines.push(Line::of(hint, Style::of(Color::Yellow)).truncate(columns));
                }
            }
            None => {}
        }
        if at_text {
            let hint = if self.is_busy {
                "type what comes next"
            } else {
                "Ask something, or / for commands"
            };
            let (text, at) = self.editor.render(MARK, hint, columns, most);
            cursor = (lines.len() + at.0, at.1);
            lines.extend(text);
            lines.extend(self.offers.render(columns, most));
        }
        lines.push(if self.is_exit_armed {
            Line::of("Ctrl-C once more leaves", Style::of(Color::Yellow))
        } else {
            status::line(&self.status, columns)
        });
        (lines, cursor)
    }

    /// Takes the region away; what was said stays.
    pub(crate) fn leave(&mut self) -> io::Result<()> {
        self.transcript.end();
        let (above, _) = self.transcript.frame(0);
        self.screen.draw(&above, &[], (0, 0))
    }
}
