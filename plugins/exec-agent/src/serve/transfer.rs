//! Files that go in and out over the stream.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Read, Write};
use std::sync::Mutex;

use super::call::AgentCall;
use super::lock;
use crate::PIECE;
use crate::error::{AgentError, Result};
use crate::files::{CallRoots, OpenFile, WrittenFile, create_file, file_state, open, open_file};
use crate::frame::AgentFrame;
use crate::message::AgentReply;

/// How many names are tried for a file whose own is taken.
const MAX_NAMES: u32 = 1_000;

/// Writes a file from the call's data.
pub(super) fn create(roots: &CallRoots, call: &AgentCall, path: &str) -> Result<AgentReply> {
    let fill = |file: &mut File| fill(file, call);
    let made = create_file(roots, path, fill);
    call.check()?;
    made.map(|done| written_reply(&done))
}

/// The names of files that are being received. No two at once have the same.
#[derive(Default)]
pub(super) struct IncomingFiles(Mutex<HashSet<String>>);

/// Reserves a file's name until the file is there.
struct NameGuard<'a> {
    incoming: &'a IncomingFiles,
    name: String,
}

impl IncomingFiles {
    /// Takes a name, unless it is taken or a file has it.
    fn take(&self, roots: &CallRoots, name: &str) -> Option<NameGuard<'_>> {
        let mut names = lock(&self.0);
        let there = roots.working_dir().join(name).symlink_metadata().is_ok();
        (!there && names.insert(name.to_owned())).then(|| NameGuard {
            incoming: self,
            name: name.to_owned(),
        })
    }
}

impl Drop for NameGuard<'_> {
    fn drop(&mut self) {
        lock(&self.incoming.0).remove(&self.name);
    }
}

/// Writes a file from the call's data under a name that is not taken. When a file with such a name
/// has the very content already, that one is it.
pub(super) fn put(
    roots: &CallRoots,
    arriving: &IncomingFiles,
    call: &AgentCall,
    name: &str,
) -> Result<AgentReply> {
    let single = !name.is_empty() && !name.contains(['/', '\0']) && name != "." && name != "..";
    if !single {
        return Err(AgentError::invalid(format!(
            "`{}` is no name of a file",
            name.escape_debug()
        )));
    }
    let (stem, extension) = match name.rsplit_once('.') {
        Some((stem, extension)) if !stem.is_empty() => (stem, format!(".{extension}")),
        _ => (name, String::new()),
    };
    let others = (2..MAX_NAMES).map(|number| format!("{stem}-{number}{extension}"));
    let mut names = std::iter::once(name.to_owned()).chain(others);
    let mut taken = Vec::new();
    let free = loop {
        let Some(name) = names.next() else {
            return Err(AgentError::new(format!(
                "every name like `{name}` is taken"
            )));
        };
        match arriving.take(roots, &name) {
            None => taken.push(name),
            Some(free) => break free,
        }
    };
    let made = create(roots, call, &free.name)?;
    for name in taken {
        if let Some(size) = same_content(roots, &name, &free.name) {
            let _ = std::fs::remove_file(roots.working_dir().join(&free.name));
            let place = roots.resolve(&name)?;
            return Ok(written_reply(&WrittenFile {
                path: place.display_path(),
                kind: place.kind(),
                size,
                replaced: false,
            }));
        }
    }
    Ok(made)
}

/// The size of two files in the working directory, if both have the same content.
fn same_content(roots: &CallRoots, one: &str, other: &str) -> Option<u64> {
    let opened = |name| open_file(&roots.resolve(name).ok()?).ok();
    let ((one, size), (other, others)) = (opened(one)?, opened(other)?);
    if size != others {
        return None;
    }
    let (mut some, mut more) = (Vec::new(), Vec::new());
    loop {
        some.clear();
        more.clear();
        (&one).take(PIECE as u64).read_to_end(&mut some).ok()?;
        (&other).take(PIECE as u64).read_to_end(&mut more).ok()?;
        if some != more {
            return None;
        }
        if some.is_empty() {
            return Some(size);
        }
    }
}

/// Hands a file out as data.
pub(super) fn get(roots: &CallRoots, call: &AgentCall, path: &str) -> Result<AgentReply> {
    let place = roots.resolve(path)?;
    let mut file = match open(&place)? {
        OpenFile::File(file, _) => file,
        OpenFile::Directory(_) => {
            return Err(place.error("read", io::ErrorKind::IsADirectory));
        }
    };
    let mut buffer = vec![0; PIECE];
    let mut sent = 0;
    loop {
        let credit = call.wait_for_credit()?;
        let room = buffer.get_mut(..credit.min(PIECE)).unwrap_or_default();
        let length = file
            .read(room)
            .map_err(|error| place.error("read", error))?;
        if length == 0 {
            call.send(&AgentFrame::End);
            return Ok(AgentReply::Sent(sent));
        }
        sent += length as u64;
        let bytes = room.get(..length).unwrap_or_default().to_vec();
        call.spend(&AgentFrame::Data(bytes), length);
    }
}

pub(super) fn written_reply(written: &WrittenFile) -> AgentReply {
    AgentReply::Written {
        path: written.path.to_string_lossy().into_owned(),
        kind: written.kind,
        size: written.size,
        replaced: written.replaced,
        state: file_state(&written.path).unwrap_or_default(),
    }
}

fn fill(file: &mut File, call: &AgentCall) -> io::Result<u64> {
    let mut size = 0;
    while let Some(piece) = call.data()? {
        file.write_all(&piece)?;
        size += piece.len() as u64;
    }
    Ok(size)
}
