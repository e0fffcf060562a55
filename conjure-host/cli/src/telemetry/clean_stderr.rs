//! Standard error as logs are written to it: what a skill, a server or a model said is in many of
//! them, and a terminal shows them.

use std::io::{self, Write};

use conjure_core::foreign_text::{for_terminal, in_json};

/// Takes one whole event at a time, which is how `tracing-subscriber` writes them.
pub(super) struct CleanStderr {
    /// Whether events are lines of JSON, which keep their meaning.
    pub(super) is_json: bool,
}

impl Write for CleanStderr {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(bytes);
        let clean = match self.is_json {
            true => in_json(&text),
            false => for_terminal(&text),
        };
        crate::output::log(&clean)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}
