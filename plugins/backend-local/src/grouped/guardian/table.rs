//! The commands that run, in a file without a name that the guardian reads when the host is gone.
//!
//! A file and not messages, because the guardian then need not wake up for every command: noting
//! one costs a write of 16 bytes to memory.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use rustix::process::Pid;

/// The length of a line, with its end: a number of at most 10 digits fits.
const LINE: usize = 16;

/// One line a command. Lines of commands that have ended are blank and used again.
#[derive(Debug)]
pub(super) struct Table {
    file: File,
    used: BTreeSet<usize>,
}

impl Table {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            file: nameless_file()?,
            used: BTreeSet::new(),
        })
    }

    /// What the guardian gets. Nobody moves its position, at the beginning, but the guardian.
    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// Notes a command and tells in which line.
    pub(super) fn take(&mut self, leader: Pid) -> io::Result<usize> {
        let free = (0..).find(|slot| !self.used.contains(slot));
        let slot = free.unwrap_or(self.used.len());
        self.write(slot, &leader.as_raw_nonzero().to_string())?;
        self.used.insert(slot);
        Ok(slot)
    }

    /// Forgets a command. A line that cannot be cleared is not used again.
    pub(super) fn free(&mut self, slot: usize) {
        if self.write(slot, "").is_ok() {
            self.used.remove(&slot);
        }
    }

    fn write(&self, slot: usize, text: &str) -> io::Result<()> {
        let line = format!("{text:<width$}\n", width = LINE - 1);
        let place = (slot * LINE) as u64;
        self.file.write_all_at(line.as_bytes(), place)
    }
}

fn nameless_file() -> io::Result<File> {
    tempfile::tempfile()
}
