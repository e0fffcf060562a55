//! Files that go in and out over the stream.

use std::fs::File;
use std::io::{self, Read, Write};

use super::call::Call;
use crate::PIECE;
use crate::error::{Error, Result};
use crate::files::{Opened, Roots, Written, create_file, open};
use crate::frame::Frame;
use crate::message::Reply;

/// How many names are tried for a file whose own is taken.
const NAMES: u32 = 1_000;

/// Writes a file from the call's data.
pub(super) fn create(roots: &Roots, call: &Call, path: &str) -> Result<Reply> {
    let fill = |file: &mut File| fill(file, call);
    let made = create_file(roots, path, fill);
    call.check()?;
    made.map(|done| written(&done))
}

/// Writes a file from the call's data under a name that is not taken.
pub(super) fn put(roots: &Roots, call: &Call, name: &str) -> Result<Reply> {
    let single = !name.is_empty() && !name.contains(['/', '\0']) && name != "." && name != "..";
    if !single {
        return Err(Error::invalid(format!(
            "`{}` is no name of a file",
            name.escape_debug()
        )));
    }
    let (stem, extension) = match name.rsplit_once('.') {
        Some((stem, extension)) if !stem.is_empty() => (stem, format!(".{extension}")),
        _ => (name, String::new()),
    };
    let others = (2..NAMES).map(|number| format!("{stem}-{number}{extension}"));
    let free = std::iter::once(name.to_owned())
        .chain(others)
        .find(|name| roots.working_dir().join(name).symlink_metadata().is_err())
        .ok_or_else(|| Error::new(format!("every name like `{name}` is taken")))?;
    create(roots, call, &free)
}

/// Hands a file out as data.
pub(super) fn get(roots: &Roots, call: &Call, path: &str) -> Result<Reply> {
    let place = roots.resolve(path)?;
    let mut file = match open(&place)? {
        Opened::File(file, _) => file,
        Opened::Directory(_) => {
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
            call.send(&Frame::End);
            return Ok(Reply::Sent(sent));
        }
        sent += length as u64;
        let bytes = room.get(..length).unwrap_or_default().to_vec();
        call.spend(&Frame::Data(bytes), length);
    }
}

pub(super) fn written(written: &Written) -> Reply {
    Reply::Written {
        path: written.path.to_string_lossy().into_owned(),
        kind: written.kind,
        size: written.size,
        replaced: written.replaced,
    }
}

fn fill(file: &mut File, call: &Call) -> io::Result<u64> {
    let mut size = 0;
    while let Some(piece) = call.data()? {
        file.write_all(&piece)?;
        size += piece.len() as u64;
    }
    Ok(size)
}
