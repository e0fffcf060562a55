//! A list to pick from where there is no conversation yet.

use std::io;

use crossterm::event::{Event as Input, KeyEventKind};

use crate::keys::{Keys, output};
use crate::picker::{Picked, Picker};
use crate::screen::Screen;

/// The terminal's columns and rows; of one that has none, the usual ones.
pub(crate) fn size() -> io::Result<(usize, usize)> {
    let (columns, rows) = crossterm::terminal::size()?;
    Ok(match (columns, rows) {
        (0, _) | (_, 0) => (80, 24),
        (columns, rows) => (usize::from(columns), usize::from(rows)),
    })
}

/// Lets the person pick from a list, outside of a conversation; nothing where the list is left.
///
/// # Errors
/// When there is no terminal, or it is gone.
pub async fn pick(mut picker: Picker, has_colors: bool) -> io::Result<Option<String>> {
    let mut screen = Screen::new(output(), has_colors, size()?);
    let mut keys = Keys::read()?;
    loop {
        let (lines, cursor) = picker.render(screen.columns(), screen.rows());
        screen.draw(&[], &lines, cursor)?;
        let picked = match keys.next().await {
            Some(Input::Key(key)) if key.kind != KeyEventKind::Release => picker.key(key),
            Some(Input::Resize(columns, rows)) => {
                screen.resize(usize::from(columns), usize::from(rows))?;
                Picked::Goes
            }
            Some(_) => Picked::Goes,
            None => Picked::None,
        };
        match picked {
            Picked::Goes => {}
            Picked::One(id) => {
                screen.clear()?;
                return Ok(Some(id));
            }
            Picked::None => {
                screen.clear()?;
                return Ok(None);
            }
        }
    }
}
