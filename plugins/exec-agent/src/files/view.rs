//! Shows a file: numbered lines, a range of them, or what it is when it is no text.
//!
//! A reply has room for some 50 KiB; of more it holds the beginning and says where it was cut.
//! Memory does not grow with the file.

use std::fs::File;
use std::io::{self, Read};

use super::beneath::{OpenFile, open};
use super::directory;
use super::inline::{TEXT_BUDGET, drop_end, json_len};
use super::paths::{CallRoots, RootedPath};
use crate::error::{AgentError, Result};

/// How many bytes of numbered lines are collected.
const MAX_CONTENT: usize = TEXT_BUDGET;
/// The lines of a file beyond this size are not counted to its end.
const MAX_COUNTED: u64 = 256 * 1024 * 1024;
/// The content of a file or a directory.
#[derive(Debug, Default)]
pub struct PathView {
    /// The lines asked for, or a listing of two levels. Bytes that are not UTF-8 are replaced.
    pub content: String,
    /// Whether it is a directory.
    pub directory: bool,
    /// Lines of the whole file; nothing when they were not counted.
    pub total_lines: Option<u64>,
    /// The file and its size in bytes, when only a beginning of it is shown.
    pub full_file: Option<(RootedPath, u64)>,
}

/// Shows a file or a directory, of a file those lines that are in the range: first and last,
/// counted from 1, with -1 as the end. `check` is asked now and then whether to go on.
///
/// # Errors
/// When the path may not be read, there is nothing, or the range is none.
pub fn view(
    roots: &CallRoots,
    path: &str,
    range: Option<(i64, i64)>,
    check: impl Fn() -> Result<()>,
) -> Result<PathView> {
    let place = roots.resolve(path)?;
    match open(&place)? {
        OpenFile::Directory(dir) => directory::list(&place, &dir),
        OpenFile::File(mut file, size) => {
            let range = Range::new(range)?;
            let read = read(&check, &mut file, size, range).map_err(|stop| match stop {
                ViewError::Io(error) => place.error("read", error),
                ViewError::Agent(error) => error,
            })?;
            to_view(place, size, range, read)
        }
    }
}

/// First and last line, counted from 1.
#[derive(Debug, Clone, Copy)]
struct Range {
    first: u64,
    last: u64,
}

impl Range {
    fn new(asked: Option<(i64, i64)>) -> Result<Self> {
        let Some((first, last)) = asked else {
            return Ok(Self {
                first: 1,
                last: u64::MAX,
            });
        };
        let bad = || {
            AgentError::invalid(format!(
                "view_range [{first}, {last}] is no range: the first line is at least 1, the \
                 last one not before it, or -1 for the end"
            ))
        };
        let range = Self {
            first: u64::try_from(first).map_err(|_| bad())?,
            last: match last {
                -1 => u64::MAX,
                last => u64::try_from(last).map_err(|_| bad())?,
            },
        };
        if range.first == 0 || range.last < range.first {
            return Err(bad());
        }
        Ok(range)
    }
}

/// The part of a file that was read.
#[derive(Debug, Default)]
struct FileContent {
    bytes: Vec<u8>,
    /// Lines in the file; of a very large one, not all of them.
    lines: u64,
    counted_all_lines: bool,
    /// Whether there were more bytes in the range than were collected.
    is_truncated: bool,
    binary: bool,
    /// The file's first bytes, to tell what it is.
    head: Vec<u8>,
}

enum ViewError {
    Io(io::Error),
    Agent(AgentError),
}

/// Reads on to the end of the file to count its lines, and collects those in the range.
fn read(
    check: &impl Fn() -> Result<()>,
    file: &mut File,
    size: u64,
    range: Range,
) -> Result<FileContent, ViewError> {
    let mut content = FileContent {
        counted_all_lines: true,
        ..FileContent::default()
    };
    let mut buffer = vec![0; 64 * 1024];
    let mut in_line = false;
    let mut position = 0_u64;
    loop {
        check().map_err(ViewError::Agent)?;
        let length = match file.read(&mut buffer) {
            Ok(0) => return Ok(content),
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(ViewError::Io(error)),
        };
        let piece = buffer.get(..length).unwrap_or_default();
        if position == 0 {
            content.head = piece
                .get(..piece.len().min(512))
                .unwrap_or_default()
                .to_vec();
            if piece.contains(&0) {
                content.binary = true;
                return Ok(content);
            }
        }
        position += length as u64;
        for part in piece.split_inclusive(|byte| *byte == b'\n') {
            if !in_line {
                content.lines += 1;
            }
            if (range.first..=range.last).contains(&content.lines) {
                content.collect(part, !in_line);
            }
            in_line = !part.ends_with(b"\n");
        }
        let done = content.is_truncated || content.lines > range.last;
        if done && size > MAX_COUNTED {
            content.counted_all_lines = false;
            return Ok(content);
        }
    }
}

impl FileContent {
    fn collect(&mut self, part: &[u8], begins: bool) {
        if self.is_truncated {
            return;
        }
        if part.contains(&0) {
            self.binary = true;
        }
        if begins {
            self.bytes
                .extend_from_slice(format!("{:>6}\t", self.lines).as_bytes());
        }
        let room = MAX_CONTENT.saturating_sub(self.bytes.len());
        self.is_truncated = part.len() > room;
        self.bytes
            .extend_from_slice(part.get(..part.len().min(room)).unwrap_or_default());
    }
}

fn to_view(place: RootedPath, size: u64, range: Range, mut read: FileContent) -> Result<PathView> {
    if read.binary {
        return Ok(PathView {
            content: format!("(no text: {}, {size} bytes)", describe_content(&read.head)),
            ..PathView::default()
        });
    }
    if range.first > read.lines.max(1) {
        return Err(AgentError::new(format!(
            "`{}` has {} lines; there is no line {}",
            place.requested(),
            read.lines,
            range.first
        )));
    }
    let mut content = String::from_utf8_lossy(&read.bytes).into_owned();
    while json_len(&content) > TEXT_BUDGET {
        read.is_truncated = true;
        drop_end(&mut content);
    }
    if read.is_truncated {
        let last = truncate_at_line(&mut content, range.first);
        let end = match range.last {
            u64::MAX if read.counted_all_lines => format!("{}", read.lines),
            u64::MAX => "the end".to_owned(),
            last => last.min(read.lines).to_string(),
        };
        content.push_str(&format!(
            "… cut here: lines {} to {last} of those up to {end} are shown; a smaller view_range \
             shows the others\n",
            range.first
        ));
    }
    Ok(PathView {
        content,
        directory: false,
        total_lines: read.counted_all_lines.then_some(read.lines),
        full_file: read.is_truncated.then_some((place, size)),
    })
}

/// Drops an unfinished last line, unless it is the only one, and gives the number of the last
/// one that is there.
fn truncate_at_line(content: &mut String, first: u64) -> u64 {
    if !content.ends_with('\n') {
        match content.rfind('\n') {
            Some(end) => content.truncate(end + 1),
            None => content.push('\n'),
        }
    }
    first + (content.matches('\n').count() as u64).saturating_sub(1)
}

/// A few words about a file that is no text, from its first bytes.
fn describe_content(head: &[u8]) -> &'static str {
    const KINDS: &[(&[u8], &str)] = &[
        (b"\x89PNG\r\n\x1a\n", "a PNG image, image/png"),
        (b"\xff\xd8\xff", "a JPEG image, image/jpeg"),
        (b"GIF8", "a GIF image, image/gif"),
        (b"%PDF-", "a PDF document, application/pdf"),
        (
            b"PK\x03\x04",
            "a ZIP archive or office document, application/zip",
        ),
        (b"\x1f\x8b", "gzip data, application/gzip"),
        (b"\x7fELF", "an ELF program or library"),
        (b"SQLite format 3\0", "an SQLite database"),
        (
            b"\xff\xfe",
            "UTF-16 text; `iconv -f UTF-16` makes it readable",
        ),
        (
            b"\xfe\xff",
            "UTF-16 text; `iconv -f UTF-16` makes it readable",
        ),
        (b"OggS", "Ogg media"),
        (b"RIFF", "RIFF media such as WAV or WebP"),
    ];
    KINDS
        .iter()
        .find(|(magic, _)| head.starts_with(magic))
        .map_or("binary data", |(_, kind)| kind)
}
