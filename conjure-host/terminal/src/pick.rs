//! A list to pick from where there is no conversation yet.

use std::io;
use std::pin::Pin;

use crossterm::event::{Event as Input, KeyEventKind};

use crate::keys::{Keys, output};
use crate::picker::{PickResult, Picker, PickerItem};
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
/// `search` finds what a list that is searched does not show.
///
/// # Errors
/// When there is no terminal, or it is gone.
pub async fn pick<S, F>(
    mut picker: Picker,
    has_colors: bool,
    search: S,
) -> io::Result<Option<String>>
where
    S: Fn(String) -> F,
    F: Future<Output = Vec<PickerItem>> + Send,
{
    let mut screen = Screen::new(output(), has_colors, size()?);
    let mut keys = Keys::read()?;
    let mut searching: Option<RunningSearch<'_>> = None;
    loop {
        if let Some(words) = picker.next_search() {
            let found = search(words.clone());
            searching = Some(Box::pin(async move { (words, found.await) }));
        }
        let (lines, cursor) = picker.render(screen.columns(), screen.rows());
        screen.draw(&[], &lines, cursor)?;
        let input = tokio::select! {
            biased;
            input = keys.next() => input,
            (words, found) = search_result(&mut searching) => {
                picker.set_results(&words, found);
                continue;
            }
        };
        let picked = match input {
            Some(Input::Key(key)) if key.kind != KeyEventKind::Release => picker.key(key),
            Some(Input::Resize(columns, rows)) => {
                screen.resize(usize::from(columns), usize::from(rows))?;
                PickResult::Pending
            }
            Some(_) => PickResult::Pending,
            None => PickResult::None,
        };
        match picked {
            PickResult::Pending => {}
            PickResult::Item(id) => {
                screen.clear()?;
                return Ok(Some(id));
            }
            PickResult::None => {
                screen.clear()?;
                return Ok(None);
            }
        }
    }
}

/// A search, and for what.
type RunningSearch<'a> = Pin<Box<dyn Future<Output = (String, Vec<PickerItem>)> + Send + 'a>>;

/// What a search found, and that it is over; for ever where none runs.
async fn search_result(searching: &mut Option<RunningSearch<'_>>) -> (String, Vec<PickerItem>) {
    let Some(search) = searching else {
        return std::future::pending().await;
    };
    let found = search.await;
    *searching = None;
    found
}
