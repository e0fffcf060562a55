//! The layout of a package's archive: every byte of it belongs to a file or to the list of files.
//!
//! A signature covers the files. What a zip archive may have beside them (something in front of it,
//! between two files or behind its end, comments, further fields) nobody signed, and another program
//! may take it for an archive of its own. So a package has none of it, as [`crate::PackageBuilder`]
//! makes it. Looks at the layout only; what is in the files is read elsewhere.

/// Signature and size without names (PKWARE's APPNOTE.TXT) of the local file header (4.3.7), …
const FILE: (&[u8], usize) = (b"PK\x03\x04", 30);
/// … of a header in the central directory, which is the list of files (4.3.12), …
const ENTRY: (&[u8], usize) = (b"PK\x01\x02", 46);
/// … and of the end of central directory record (4.3.16).
const END: (&[u8], usize) = (b"PK\x05\x06", 22);

/// What stands in the list beside what the file itself says: the system of the first version that could
/// make it (4.4.2: Unix), no number of another disk, no internal attributes, and as external ones (4.4.15)
/// a regular file that its owner may write and everybody read.
const HOST_SYSTEM: u8 = 3;
const ATTRIBUTES: u32 = 0o100_644 << 16;

/// The longest comment at the end of an archive.
const MAX_COMMENT_BYTES: usize = 65_535;

const STRAY_BYTES: &str = "it has bytes that belong to no file in it, so nobody signed them; ask its author for \
                     one as `conjure plugin pack` makes it";

/// Judges the layout of an archive with at most so many files.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn judge(bytes: &[u8], most: usize) -> Result<(), String> {
    if !bytes.starts_with(FILE.0) {
        return Err("it is no zip archive".to_owned());
    }
    let end = ArchiveEnd::read(bytes)?;
    // Before the list of them is read, which can be long.
    if end.files > most {
        return Err(format!("it has {} files, and {most} are enough", end.files));
    }
    let (mut entry_at, mut file_at) = (end.list_offset, 0);
    for _ in 0..end.files {
        let entry = ListedFile::read(bytes, entry_at);
        let entry = entry.ok_or("its list of files is damaged")?;
        if entry.has_extra_fields || entry.file_offset != file_at {
            return Err(STRAY_BYTES.to_owned());
        }
        file_at = entry.file_end(bytes).ok_or(STRAY_BYTES)?;
        entry_at += ENTRY.1 + entry.name.len();
    }
    match (file_at, entry_at) == (end.list_offset, end.offset) {
        true => Ok(()),
        false => Err(STRAY_BYTES.to_owned()),
    }
}

/// The end of an archive, which says where the list of its files is.
struct ArchiveEnd {
    offset: usize,
    files: usize,
    list_offset: usize,
}

impl ArchiveEnd {
    fn read(bytes: &[u8]) -> Result<Self, String> {
        const MISSING: &str = "its end is missing";
        let (mark, size) = END;
        let from = bytes.len().saturating_sub(size + MAX_COMMENT_BYTES);
        let tail = bytes.get(from..).unwrap_or_default();
        let found = tail.windows(mark.len()).rposition(|four| four == mark);
        let at = from + found.ok_or(MISSING)?;
        if bytes.len() < at + size {
            return Err(MISSING.to_owned());
        }
        let behind = bytes.len() - at - size;
        if behind > 0 {
            return Err(format!(
                "it has {behind} bytes behind its end, which nobody signed; fetch it again, or ask its \
                 author for one as `conjure plugin pack` makes it"
            ));
        }
        let read = || {
            let end = Self {
                offset: at,
                files: read_u16(bytes, at + 10)?,
                list_offset: read_u32(bytes, at + 16)?,
            };
            // How many files this part of the archive has, and the size of their list.
            let (here, size) = (read_u16(bytes, at + 8)?, read_u32(bytes, at + 12)?);
            // The numbers of further parts, and the length of a comment.
            let (parts, comment) = (read_u32(bytes, at + 4)?, read_u16(bytes, at + 20)?);
            let agrees = here == end.files
                && end.list_offset.checked_add(size) == Some(at)
                && (parts, comment) == (0, 0);
            Some((end, agrees))
        };
        match read() {
            Some((end, true)) => Ok(end),
            Some((_, false)) => Err(STRAY_BYTES.to_owned()),
            None => Err(MISSING.to_owned()),
        }
    }
}

/// What the list says of a file.
struct ListedFile<'a> {
    name: &'a [u8],
    /// Bytes of its data, as they are in the archive.
    size: usize,
    file_offset: usize,
    /// What the file itself says as well: how it is packed, when it changed, its digest and its sizes.
    header: &'a [u8],
    /// Whether it has a comment, further fields, or other attributes than a plain file that
    /// [`crate::PackageBuilder`] wrote.
    has_extra_fields: bool,
}

impl<'a> ListedFile<'a> {
    fn read(bytes: &'a [u8], at: usize) -> Option<Self> {
        let (mark, size) = ENTRY;
        let name_at = at.checked_add(size)?;
        let name_end = name_at + read_u16(bytes, at + 28)?;
        has_signature(bytes, at, mark).then_some(Self {
            name: bytes.get(name_at..name_end)?,
            size: read_u32(bytes, at + 20)?,
            file_offset: read_u32(bytes, at + 42)?,
            header: bytes.get(at + 6..at + 28)?,
            has_extra_fields: read_u16(bytes, at + 30)? > 0
                || read_u16(bytes, at + 32)? > 0
                || !is_plain_file(bytes, at)?,
        })
    }

    /// Where the data of the file ends; nothing where the file itself says otherwise.
    fn file_end(&self, bytes: &[u8]) -> Option<usize> {
        let (mark, size) = FILE;
        let name_at = self.file_offset.checked_add(size)?;
        let data_at = name_at + self.name.len();
        let is_it = has_signature(bytes, self.file_offset, mark)
            && bytes.get(self.file_offset + 4..self.file_offset + 26) == Some(self.header)
            && bytes.get(name_at..data_at) == Some(self.name)
            && read_u16(bytes, self.file_offset + 26)? == self.name.len()
            && read_u16(bytes, self.file_offset + 28)? == 0;
        let end = data_at.checked_add(self.size)?;
        (is_it && end <= bytes.len()).then_some(end)
    }
}

/// Whether the list says of a file that it is a plain one, made by the version that it needs.
fn is_plain_file(bytes: &[u8], at: usize) -> Option<bool> {
    let made_by = bytes.get(at + 4..at + 6)?;
    let needed = bytes.get(at + 6)?;
    let (disk, internal) = (read_u16(bytes, at + 34)?, read_u16(bytes, at + 36)?);
    let external = bytes.get(at + 38..at + 42)?;
    Some(
        made_by == [*needed, HOST_SYSTEM]
            && (disk, internal) == (0, 0)
            && external == ATTRIBUTES.to_le_bytes(),
    )
}

fn has_signature(bytes: &[u8], at: usize, mark: &[u8]) -> bool {
    bytes.get(at..).is_some_and(|rest| rest.starts_with(mark))
}

/// The little-endian `u16` at a place.
fn read_u16(bytes: &[u8], at: usize) -> Option<usize> {
    let two = bytes.get(at..)?.first_chunk::<2>()?;
    Some(u16::from_le_bytes(*two).into())
}

/// The little-endian `u32` at a place.
fn read_u32(bytes: &[u8], at: usize) -> Option<usize> {
    let four = bytes.get(at..)?.first_chunk::<4>()?;
    usize::try_from(u32::from_le_bytes(*four)).ok()
}

#[cfg(test)]
mod tests {
    use std::io::{Cursor, Write as _};

    use zip::ZipWriter;
    use zip::write::SimpleFileOptions;

    use super::*;

    fn archive(comment: &str) -> Vec<u8> {
        let mut archive = ZipWriter::new(Cursor::new(Vec::new()));
        for name in ["a", "dir/b"] {
            let options = SimpleFileOptions::default();
            archive.start_file(name, options).unwrap();
            archive.write_all(name.as_bytes()).unwrap();
        }
        archive.set_comment(comment).unwrap();
        archive.finish().unwrap().into_inner()
    }

    #[test]
    fn an_archive_is_nothing_but_its_files() {
        let plain = archive("");
        assert_eq!(judge(&plain, 2), Ok(()));
        assert_eq!(
            judge(&plain, 1),
            Err("it has 2 files, and 1 are enough".to_owned())
        );
        let more = |bytes: &[u8]| judge(&[&plain[..], bytes].concat(), 2).unwrap_err();
        assert!(more(&[0]).contains("1 bytes behind its end"));
        assert!(more(&[0; 70_000]).contains("its end is missing"));
        assert!(more(&plain).contains("belong to no file"));
        assert!(
            judge(&archive("hello"), 2)
                .unwrap_err()
                .contains("5 bytes behind its end")
        );
        for length in 0..plain.len() {
            judge(&plain[..length], 2).unwrap_err();
        }
    }

    #[test]
    fn a_file_and_the_list_say_the_same_of_it() {
        let plain = archive("");
        // Version, flags, method, time, digest and whole size of the first file, and what the end says of
        // the list.
        let end = plain.len() - END.1;
        for at in [4, 6, 8, 10, 14, 22, end + 8, end + 12] {
            let mut other = plain.clone();
            other[at] ^= 1;
            let error = judge(&other, 3).unwrap_err();
            assert!(error.contains("belong to no file"), "{at}: {error}");
        }
    }

    #[test]
    fn no_bit_of_the_list_is_free() {
        let plain = archive("");
        let list = plain.len() - END.1 - 2 * ENTRY.1 - "a".len() - "dir/b".len();
        assert!(plain[list..].starts_with(ENTRY.0));
        for at in list..plain.len() {
            for bit in 0..8 {
                let mut other = plain.clone();
                other[at] ^= 1 << bit;
                assert!(judge(&other, 2).is_err(), "bit {bit} of byte {at}");
            }
        }
    }

    #[test]
    fn what_is_no_plain_file_is_none_of_a_package() {
        let plain = archive("");
        let list = plain.len() - END.1 - 2 * ENTRY.1 - "a".len() - "dir/b".len();
        // A device, a pipe, a link, and a file of a system without modes.
        for mode in [0o020_644_u32, 0o010_644, 0o120_777, 0] {
            let mut other = plain.clone();
            other[list + 38..list + 42].copy_from_slice(&(mode << 16).to_le_bytes());
            judge(&other, 2).unwrap_err();
        }
    }

    #[test]
    fn whatever_its_tables_say_they_are_only_read() {
        let plain = archive("");
        for at in 0..plain.len() {
            for value in [0, 1, 0x7f, 0xff] {
                let mut other = plain.clone();
                other[at] = value;
                let _ = judge(&other, 2);
            }
        }
    }
}
