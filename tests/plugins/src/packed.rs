//! Packages that were tampered with.

use std::io::{Cursor, Read as _, Write as _};
use std::path::Path;

use zip::write::SimpleFileOptions;

/// A file of an archive: its name and its bytes.
pub type FileEntry = (String, Vec<u8>);

fn entries(bytes: &[u8]) -> Vec<FileEntry> {
    let mut archive = zip::ZipArchive::new(Cursor::new(bytes)).unwrap();
    let count = archive.len();
    let read = |number| {
        let mut file = archive.by_index(number).unwrap();
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).unwrap();
        (file.name().unwrap().into_owned(), bytes)
    };
    (0..count).map(read).collect()
}

/// Changes the entries of an archive.
pub fn repacked(package: &Path, change: impl FnOnce(&mut Vec<FileEntry>)) -> Vec<u8> {
    let mut entries = entries(&std::fs::read(package).unwrap());
    change(&mut entries);
    let mut archive = zip::ZipWriter::new(Cursor::new(Vec::new()));
    for (name, bytes) in entries {
        archive
            .start_file(name, SimpleFileOptions::default())
            .unwrap();
        archive.write_all(&bytes).unwrap();
    }
    archive.finish().unwrap().into_inner()
}

/// Puts one entry out of another package into an archive.
pub fn with_entry_from(package: &Path, from: &Path, name: &str) -> Vec<u8> {
    let other = entries(&std::fs::read(from).unwrap());
    let (_, bytes) = other.into_iter().find(|(known, _)| known == name).unwrap();
    repacked(package, |entries| {
        let entry = entries.iter_mut().find(|(known, _)| known == name);
        entry.unwrap().1 = bytes;
    })
}

/// Adds to an archive bytes that no file has: between its last file and the list of them, or, where
/// they are to be `in_last`, at the end of that file's own place.
pub fn with_padding(package: &Path, in_last: bool) -> Vec<u8> {
    const PADDING: [u8; 4] = *b"PAD!";
    let mut bytes = std::fs::read(package).unwrap();
    let long = |bytes: &[u8], at: usize| {
        let four: [u8; 4] = bytes[at..at + 4].try_into().unwrap();
        u32::from_le_bytes(four)
    };
    let grow = |bytes: &mut Vec<u8>, at: usize| {
        let grown = long(bytes, at) + 4;
        bytes[at..at + 4].copy_from_slice(&grown.to_le_bytes());
    };
    let end = bytes.len() - 22;
    let list = usize::try_from(long(&bytes, end + 16)).unwrap();
    let last = bytes
        .windows(4)
        .rposition(|four| four == b"PK\x01\x02")
        .unwrap();
    if in_last {
        let file = usize::try_from(long(&bytes, last + 42)).unwrap();
        grow(&mut bytes, last + 20);
        grow(&mut bytes, file + 18);
    }
    grow(&mut bytes, end + 16);
    bytes.splice(list..list, PADDING);
    bytes
}
