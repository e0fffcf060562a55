//! The terminal while something else has it: the person's own editor, or the shell.

use std::io;

use signal_hook::consts::SIGTSTP;
use signal_hook::low_level::raise;

use crate::external;
use crate::face::Face;
use crate::keys::as_keys;
use crate::pick::size;

impl Face {
    /// Lets another editor have the text.
    pub(crate) fn external(&mut self) {
        let text = self.editor.full_text();
        // Ctrl-C is meant for the editor, also where that has a window of its own.
        match self.lend(|| as_keys(|| external::edit(&text))) {
            Ok(text) => self.replace_text(text.trim_end()),
            Err(error) => self.transcript.note(&error.to_string()),
        }
    }

    /// Stops the program until the shell lets it go on.
    pub(crate) fn suspend(&mut self) {
        if let Err(error) = self.lend(suspend) {
            self.transcript.note(&error.to_string());
        }
    }

    /// Lets something else have the terminal.
    fn lend<T>(&mut self, work: impl FnOnce() -> T) -> T {
        // A terminal that is gone is found out by the next frame.
        let _ = self.screen.clear();
        let done = self.keys.lend(work);
        if let Ok((columns, rows)) = size() {
            let _ = self.screen.resize(columns, rows);
            self.transcript.resize(self.screen.columns());
        }
        done
    }
}

/// Stops the program until the shell lets it go on. The signal is raised for this thread: one that is sent
/// to the process may stop it only when the terminal is taken back already, and then the shell sets the
/// terminal otherwise.
pub(crate) fn suspend() -> io::Result<()> {
    raise(SIGTSTP)
}
