//! Shows a file: numbered lines, a range of them, or what it is when it is no text.
//!
//! A reply has room for some 50 KiB; of more it holds the beginning and says where it was cut.
//! Memory does not grow with the file.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use conjure_skill_sdk::protocol::{FileRef, View, Viewed};
use conjure_skill_sdk::{Cx, Error, Result};

use crate::directory;
use crate::files::{Opened, open};
use crate::inline::{TEXT_BUDGET, drop_end, json_len};
use crate::paths::{Place, Roots};

/// How many bytes of numbered lines are collected.
const MAX_CONTENT: usize = TEXT_BUDGET;
/// The lines of a file beyond this size are not counted to its end.
const MAX_COUNTED: u64 = 256 * 1024 * 1024;
/// The largest file of a skill that is copied for the host when it was cut.
const MAX_COPY: u64 = 64 * 1024 * 1024;

/// Shows a file or a directory.
pub(crate) fn view(cx: &Cx, roots: &Roots, request: &View) -> Result<Viewed> {
    let place = roots.resolve(&request.path)?;
    match open(&place)? {
        Opened::Directory(dir) => directory::list(&place, &dir),
        Opened::File(mut file, size) => {
            let range = Range::new(request.view_range)?;
            let read = read(cx, &mut file, size, range).map_err(|stop| match stop {
                Stop::Io(error) => place.error("read", error),
                Stop::Cancelled(error) => error,
            })?;
            viewed(cx, &place, file, size, range, read)
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
            Error::invalid(format!(
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

/// What was read of a file.
#[derive(Debug, Default)]
struct Content {
    bytes: Vec<u8>,
    /// Lines in the file; of a very large one, not all of them.
    lines: u64,
    counted_all: bool,
    /// Whether there were more bytes in the range than were collected.
    cut: bool,
    binary: bool,
    /// The file's first bytes, to tell what it is.
    head: Vec<u8>,
}

enum Stop {
    Io(io::Error),
    Cancelled(Error),
}

/// Reads on to the end of the file to count its lines, and collects those in the range.
fn read(cx: &Cx, file: &mut File, size: u64, range: Range) -> Result<Content, Stop> {
    let mut content = Content {
        counted_all: true,
        ..Content::default()
    };
    let mut buffer = vec![0; 64 * 1024];
    let mut in_line = false;
    let mut position = 0_u64;
    loop {
        cx.check().map_err(Stop::Cancelled)?;
        let length = match file.read(&mut buffer) {
            Ok(0) => return Ok(content),
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(Stop::Io(error)),
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
        let done = content.cut || content.lines > range.last;
        if done && size > MAX_COUNTED {
            content.counted_all = false;
            return Ok(content);
        }
    }
}

impl Content {
    fn collect(&mut self, part: &[u8], begins: bool) {
        if self.cut {
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
        self.cut = part.len() > room;
        self.bytes
            .extend_from_slice(part.get(..part.len().min(room)).unwrap_or_default());
    }
}

fn viewed(
    cx: &Cx,
    place: &Place,
    file: File,
    size: u64,
    range: Range,
    mut read: Content,
) -> Result<Viewed> {
    if read.binary {
        return Ok(Viewed {
            content: format!("(no text: {}, {size} bytes)", what_it_is(&read.head)),
            ..Viewed::default()
        });
    }
    if range.first > read.lines.max(1) {
        return Err(Error::new(format!(
            "`{}` has {} lines; there is no line {}",
            place.asked(),
            read.lines,
            range.first
        )));
    }
    let mut content = String::from_utf8_lossy(&read.bytes).into_owned();
    while json_len(&content) > TEXT_BUDGET {
        read.cut = true;
        drop_end(&mut content);
    }
    let mut full_content = None;
    if read.cut {
        let last = cut_at_line(&mut content, range.first);
        let end = match range.last {
            u64::MAX if read.counted_all => format!("{}", read.lines),
            u64::MAX => "the end".to_owned(),
            last => last.min(read.lines).to_string(),
        };
        content.push_str(&format!(
            "… cut here: lines {} to {last} of those up to {end} are shown; a smaller view_range \
             shows the others\n",
            range.first
        ));
        full_content = whole(cx, place, file, size);
    }
    Ok(Viewed {
        content,
        directory: false,
        total_lines: read.counted_all.then_some(read.lines),
        full_content,
    })
}

/// Drops an unfinished last line, unless it is the only one, and gives the number of the last
/// one that is there.
fn cut_at_line(content: &mut String, first: u64) -> u64 {
    if !content.ends_with('\n') {
        match content.rfind('\n') {
            Some(end) => content.truncate(end + 1),
            None => content.push('\n'),
        }
    }
    first + (content.matches('\n').count() as u64).saturating_sub(1)
}

/// The whole file, as the host can read it. It takes none from a skill's folder, so that is
/// copied.
fn whole(cx: &Cx, place: &Place, file: File, size: u64) -> Option<FileRef> {
    let path = if place.is_host_visible() {
        place.shown()
    } else {
        copy(file, size, cx.exchange_dir()?)?
    };
    Some(FileRef {
        name: place.shown().file_name()?.to_string_lossy().into_owned(),
        size: Some(size),
        ..FileRef::at(path.to_str()?)
    })
}

fn copy(mut file: File, size: u64, exchange: &Path) -> Option<std::path::PathBuf> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    if size > MAX_COPY {
        return None;
    }
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let path = exchange.join(format!("view-{}-{number}", std::process::id()));
    let mut options = OpenOptions::new();
    let mut target = options.write(true).create_new(true).open(&path).ok()?;
    file.rewind().ok()?;
    io::copy(&mut file.take(MAX_COPY), &mut target).ok()?;
    Some(path)
}

/// A few words about a file that is no text, from its first bytes.
fn what_it_is(head: &[u8]) -> &'static str {
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
