//! The commands that run, in a file without a name that the guardian reads when the host is gone.
//!
//! A file and not messages, because the guardian then need not wake up for every command: noting
//! one costs a write of 32 bytes to memory.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use rustix::process::Pid;

/// The length of a line, with its end: two numbers of at most 10 and 20 digits fit.
const LINE: usize = 32;

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
    pub(super) fn take(&mut self, leader: Pid, now: u64) -> io::Result<usize> {
        let free = (0..).find(|slot| !self.used.contains(slot));
        let slot = free.unwrap_or(self.used.len());
        self.write(slot, &format!("{} {now}", leader.as_raw_nonzero()))?;
        self.used.insert(slot);
        Ok(slot)
    }

    /// Forgets a command. A line that cannot be cleared is not used again; the time in it
    /// keeps it from doing harm.
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

#[cfg(target_os = "linux")]
fn nameless_file() -> io::Result<File> {
    use rustix::fs::{MemfdFlags, memfd_create};
    Ok(memfd_create("conjure-commands", MemfdFlags::CLOEXEC)?.into())
}

#[cfg(not(target_os = "linux"))]
fn nameless_file() -> io::Result<File> {
    tempfile::tempfile()
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn a_line_is_free_again_when_its_command_has_ended() {
        let mut table = Table::new().unwrap();
        let pid = |number| Pid::from_raw(number).unwrap();
        let slots = [
            table.take(pid(5), 50).unwrap(),
            table.take(pid(i32::MAX), u64::MAX).unwrap(),
            table.take(pid(7), 70).unwrap(),
        ];
        assert_eq!(slots, [0, 1, 2]);
        table.free(0);
        table.free(2);
        assert_eq!(table.take(pid(9), 90).unwrap(), 0);
        let mut text = String::new();
        table.file().read_to_string(&mut text).unwrap();
        let lines: Vec<_> = text.lines().map(str::trim_end).collect();
        assert_eq!(lines, ["9 90", "2147483647 18446744073709551615", ""]);
    }
}
