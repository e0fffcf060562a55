//! Keeps the end of each output stream, and all of it in a file once it is too much.
//!
//! Memory is bounded by what is kept, the file by [`FILE_LIMIT`]; what is beyond is counted and
//! dropped, and the file's last line says so.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use conjure_skill_sdk::abi::EmitKind;
use conjure_skill_sdk::protocol::FileRef;

use crate::files::{TEXT_BUDGET, drop_start, json_len};

/// The most bytes of output that go to a file.
const FILE_LIMIT: u64 = 64 * 1024 * 1024;
/// How many bytes of each stream are kept when the call does not say.
const DEFAULT_KEEP: usize = 32 * 1024;
/// The most that a call can ask to keep; a reply holds less than that anyway.
const MAX_KEEP: u64 = 64 * 1024;

/// The output of one command.
#[derive(Debug)]
pub struct Capture {
    stdout: Tail,
    stderr: Tail,
    combined: CombinedOutput,
    path: Option<PathBuf>,
}

/// The captured output of a command.
#[derive(Debug, PartialEq, Eq)]
pub struct CommandOutput {
    /// Standard output, or its end.
    pub stdout: String,
    /// Standard error, or its end.
    pub stderr: String,
    /// Bytes of standard output in all.
    pub stdout_bytes: u64,
    /// Bytes of standard error in all.
    pub stderr_bytes: u64,
    /// All of it, when it is not all above.
    pub full_output: Option<FileRef>,
    /// Bytes that are nowhere any more.
    pub discarded: u64,
}

impl Capture {
    /// Keeps `keep` bytes of each stream; `path` is where the file will be, if there is a place.
    #[must_use]
    pub fn new(keep: Option<u64>, path: Option<PathBuf>) -> Self {
        let keep = keep.map_or(DEFAULT_KEEP, |bytes| bytes.min(MAX_KEEP) as usize);
        Self {
            stdout: Tail::new(keep),
            stderr: Tail::new(keep),
            combined: CombinedOutput::Memory(Vec::new()),
            path,
        }
    }

    /// Takes a piece of output.
    pub fn push(&mut self, kind: EmitKind, bytes: &[u8]) {
        match kind {
            EmitKind::Stderr => self.stderr.push(bytes),
            _ => self.stdout.push(bytes),
        }
        match &mut self.combined {
            CombinedOutput::Memory(buffer) => {
                buffer.extend_from_slice(bytes);
                if self.stdout.is_truncated() || self.stderr.is_truncated() {
                    self.combined.spill_to(self.path.as_deref());
                }
            }
            CombinedOutput::File(spill) => spill.write(bytes),
            CombinedOutput::Discarded { discarded } => *discarded += bytes.len() as u64,
        }
    }

    /// The captured output, small enough for a reply.
    #[must_use]
    pub fn finish(mut self) -> CommandOutput {
        let (mut stdout, mut stderr) = (self.stdout.text(), self.stderr.text());
        loop {
            let (out, err) = (json_len(&stdout), json_len(&stderr));
            if out + err <= TEXT_BUDGET {
                break;
            }
            // Escapes and replaced bytes can make a text larger than the bytes that were kept.
            self.combined.spill_to(self.path.as_deref());
            drop_start(if out >= err { &mut stdout } else { &mut stderr });
        }
        let (full_output, discarded) = self.combined.finish();
        CommandOutput {
            stdout,
            stderr,
            stdout_bytes: self.stdout.total,
            stderr_bytes: self.stderr.total,
            full_output,
            discarded,
        }
    }
}

/// The last bytes of a stream.
#[derive(Debug)]
struct Tail {
    bytes: Vec<u8>,
    limit: usize,
    total: u64,
}

impl Tail {
    fn new(keep: usize) -> Self {
        Self {
            bytes: Vec::new(),
            limit: keep,
            total: 0,
        }
    }

    fn push(&mut self, bytes: &[u8]) {
        self.total += bytes.len() as u64;
        self.bytes.extend_from_slice(bytes);
        // Moving only when it has doubled keeps the cost a byte constant.
        if self.bytes.len() > 2 * self.limit {
            self.bytes.drain(..self.bytes.len() - self.limit);
        }
    }

    fn is_truncated(&self) -> bool {
        self.total > self.limit as u64
    }

    fn text(&self) -> String {
        let mut kept = self.bytes.as_slice();
        if self.is_truncated() {
            kept = kept
                .split_at_checked(kept.len().saturating_sub(self.limit))
                .map_or(kept, |(_, end)| end);
            // A character that was cut in two is not shown as rubbish.
            let continued = kept.iter().take(3).take_while(|b| **b & 0xc0 == 0x80);
            let skip = continued.count();
            kept = kept.get(skip..).unwrap_or_default();
        }
        String::from_utf8_lossy(kept).into_owned()
    }
}

/// Both streams, in the order in which they came.
#[derive(Debug)]
enum CombinedOutput {
    Memory(Vec<u8>),
    File(Spill),
    Discarded { discarded: u64 },
}

impl CombinedOutput {
    /// Moves what is in memory to the file.
    fn spill_to(&mut self, path: Option<&Path>) {
        let Self::Memory(buffer) = self else { return };
        let buffer = std::mem::take(buffer);
        *self = match path.and_then(Spill::create) {
            Some(mut spill) => {
                spill.write(&buffer);
                Self::File(spill)
            }
            None => Self::Discarded {
                discarded: buffer.len() as u64,
            },
        };
    }

    fn finish(self) -> (Option<FileRef>, u64) {
        match self {
            Self::Memory(_) => (None, 0),
            Self::Discarded { discarded } => (None, discarded),
            Self::File(spill) => spill.finish(),
        }
    }
}

#[derive(Debug)]
struct Spill {
    file: File,
    path: PathBuf,
    written: u64,
    discarded: u64,
    /// Error of a write that failed.
    write_error: Option<io::Error>,
}

impl Spill {
    fn create(path: &Path) -> Option<Self> {
        let mut options = OpenOptions::new();
        let file = options.write(true).create_new(true).open(path).ok()?;
        Some(Self {
            file,
            path: path.to_owned(),
            written: 0,
            discarded: 0,
            write_error: None,
        })
    }

    fn write(&mut self, bytes: &[u8]) {
        let room = FILE_LIMIT.saturating_sub(self.written);
        let take = bytes.len().min(usize::try_from(room).unwrap_or(usize::MAX));
        let fits = bytes.get(..take).unwrap_or_default();
        // Writing can wait for the disk; other tasks of this thread need not.
        let done = tokio::task::block_in_place(|| self.file.write_all(fits));
        match done {
            Ok(()) => {
                self.written += fits.len() as u64;
                self.discarded += (bytes.len() - fits.len()) as u64;
            }
            Err(error) => {
                self.discarded += bytes.len() as u64;
                self.write_error.get_or_insert(error);
            }
        }
    }

    fn finish(mut self) -> (Option<FileRef>, u64) {
        let mut name = "output.txt";
        if self.discarded > 0 {
            name = "output-cut.txt";
            let why = match &self.write_error {
                Some(error) => format!("they could not be written: {error}"),
                None => format!(
                    "at most {} MiB of output are kept",
                    FILE_LIMIT / 1024 / 1024
                ),
            };
            let note = format!("\n[{} more bytes were discarded: {why}]\n", self.discarded);
            if self.file.write_all(note.as_bytes()).is_ok() {
                self.written += note.len() as u64;
            }
        }
        let file = self.path.to_str().map(|path| FileRef {
            name: name.to_owned(),
            path: Some(path.to_owned()),
            media_type: Some("text/plain".to_owned()),
            size: Some(self.written),
            ..FileRef::default()
        });
        (file, self.discarded)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn path(dir: &tempfile::TempDir) -> Option<PathBuf> {
        Some(dir.path().join("out"))
    }

    #[test]
    fn a_little_output_is_kept_whole_and_needs_no_file() {
        let dir = tempfile::tempdir().unwrap();
        let mut capture = Capture::new(None, path(&dir));
        capture.push(EmitKind::Stdout, b"out\n");
        capture.push(EmitKind::Stderr, b"err\xff\n");
        let expected = CommandOutput {
            stdout: "out\n".into(),
            stderr: "err\u{fffd}\n".into(),
            stdout_bytes: 4,
            stderr_bytes: 5,
            full_output: None,
            discarded: 0,
        };
        assert_eq!(capture.finish(), expected);
        assert!(!dir.path().join("out").exists());
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn the_end_is_kept_and_all_of_it_is_in_the_file_in_order() {
        let dir = tempfile::tempdir().unwrap();
        let mut capture = Capture::new(Some(4), path(&dir));
        for (kind, text) in [
            (EmitKind::Stdout, "ab"),
            (EmitKind::Stderr, "!"),
            (EmitKind::Stdout, "cdé"),
            (EmitKind::Stdout, "fg"),
        ] {
            capture.push(kind, text.as_bytes());
        }
        let kept = capture.finish();
        assert_eq!(kept.stdout, "éfg");
        assert_eq!(kept.stderr, "!");
        assert_eq!((kept.stdout_bytes, kept.stderr_bytes), (8, 1));
        assert_eq!(kept.full_output.unwrap().size, Some(9));
        let all = fs::read_to_string(dir.path().join("out")).unwrap();
        assert_eq!(all, "ab!cdéfg");
    }

    #[test]
    fn without_a_place_for_it_the_rest_is_counted() {
        let mut capture = Capture::new(Some(2), None);
        capture.push(EmitKind::Stdout, b"abcd");
        capture.push(EmitKind::Stdout, b"ef");
        let kept = capture.finish();
        assert_eq!(kept.stdout, "ef");
        assert_eq!((kept.full_output, kept.discarded), (None, 6));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn what_the_file_cannot_hold_is_discarded_and_said_so() {
        let dir = tempfile::tempdir().unwrap();
        let mut capture = Capture::new(Some(4), path(&dir));
        let piece = vec![b'x'; 1024 * 1024];
        for _ in 0..65 {
            capture.push(EmitKind::Stdout, &piece);
        }
        let kept = capture.finish();
        assert_eq!(kept.stdout_bytes, 65 * 1024 * 1024);
        assert_eq!(kept.discarded, 1024 * 1024);
        assert_eq!(kept.full_output.unwrap().name, "output-cut.txt");
        let all = fs::read(dir.path().join("out")).unwrap();
        assert!(all.ends_with(
            b"x\n[1048576 more bytes were discarded: at most 64 MiB of output are kept]\n"
        ));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn output_that_grows_as_json_still_fits_a_reply() {
        let dir = tempfile::tempdir().unwrap();
        let mut capture = Capture::new(None, path(&dir));
        capture.push(EmitKind::Stdout, &[0x01; 32 * 1024]);
        capture.push(EmitKind::Stderr, &[0xff; 32 * 1024]);
        let kept = capture.finish();
        assert!(json_len(&kept.stdout) + json_len(&kept.stderr) <= TEXT_BUDGET);
        assert!(!kept.stdout.is_empty() && !kept.stderr.is_empty());
        assert_eq!(kept.full_output.unwrap().size, Some(64 * 1024));
    }
}
