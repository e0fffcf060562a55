//! Libraries that this host has judged and opened before.
//!
//! What a library offers is known then, so it is listed without being read, and opened when an
//! instance of it is made. Nothing of the judgement is left out for that: who could have written
//! the file is looked at each time, and the record counts only while the kernel says that neither
//! the file nor the store's copy was written to, and for this build of the host, since layouts are
//! compared with the host's own.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::Duration;

use conjure_abi::HeaderFields;
use serde::{Deserialize, Serialize};

use super::file::{FileIdentity, LibraryCandidate, judge_header};
use super::program::{self, ProgramDescription};
use super::{CopyStore, PluginFile, Sha256};

/// What is kept of a library.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct LibraryRecord {
    /// The file that was judged.
    path: PathBuf,
    file: FileIdentity,
    /// The store's copy of it.
    copy: FileIdentity,
    sha256: Sha256,
    /// The bytes of its header, or of its description where it is a program.
    header: Vec<u8>,
    #[serde(default)]
    is_program: bool,
}

/// A library whose record holds.
#[derive(Debug, Clone)]
pub(super) struct RecordedLibrary {
    pub(super) path: PathBuf,
    pub(super) sha256: Sha256,
    pub(super) header: HeaderFields,
    /// The description, where it is a program.
    pub(super) program: Option<ProgramDescription>,
    /// The bytes of its manifest.
    pub(super) manifest: Vec<u8>,
}

/// The library at a path, where a record of it holds.
pub(super) fn look_up(store: &CopyStore, candidate: &LibraryCandidate) -> Option<RecordedLibrary> {
    let path = candidate.path();
    let record: LibraryRecord = serde_json::from_slice(&store.record(&key(path))?).ok()?;
    let copy = store.copy_path(&record.sha256);
    if record.path != path
        || record.file != candidate.identity()
        || FileIdentity::of(&copy) != Some(record.copy)
    {
        return None;
    }
    let manifest = store.manifest(&record.sha256)?;
    let (header, program) = match record.is_program {
        true => {
            let description = program::parse(path, &record.header).ok()?;
            (description.header(), Some(description))
        }
        false => (judge_header(path, &record.header).ok()?, None),
    };
    let known = RecordedLibrary {
        path: record.path.clone(),
        sha256: record.sha256,
        header,
        program,
        manifest,
    };
    if store.touch(&record.sha256) {
        // That the copy is in use changes its times.
        let copy = FileIdentity::of(&copy)?;
        write(store, path, &LibraryRecord { copy, ..record });
    }
    Some(known)
}

/// Keeps what was found of a library that was opened, once its file was left alone for so long that
/// its times tell it from what may still be written to it.
pub(super) fn remember(store: &CopyStore, file: &PluginFile, settled: Duration) {
    if program::is_description(&file.path) {
        // Its times say nothing of the other files.
        return;
    }
    let copy = FileIdentity::of(&store.copy_path(&file.sha256));
    let Some(copy) = copy.filter(|_| file.identity.is_settled(settled)) else {
        return;
    };
    let record = LibraryRecord {
        path: file.path.clone(),
        file: file.identity,
        copy,
        sha256: file.sha256,
        header: file.header_section.to_vec(),
        is_program: file.program.is_some(),
    };
    write(store, &file.path, &record);
}

/// Forgets what was kept of the library at a path.
pub(super) fn forget(store: &CopyStore, path: &Path) {
    store.remove_record(&key(path));
}

/// Whether the store's copy of a library is the one that was opened before.
pub(super) fn is_current(store: &CopyStore, path: &Path, sha256: &Sha256) -> bool {
    let record = store.record(&key(path));
    let record = record.and_then(|json| serde_json::from_slice::<LibraryRecord>(&json).ok());
    record.is_some_and(|record| {
        record.sha256 == *sha256 && FileIdentity::of(&store.copy_path(sha256)) == Some(record.copy)
    })
}

/// Says that the store's copy of a library is in use; a record that held holds on.
pub(super) fn touch(store: &CopyStore, path: &Path, sha256: &Sha256) {
    let held = is_current(store, path, sha256);
    if !store.touch(sha256) || !held {
        return;
    }
    let record = store.record(&key(path));
    let record = record.and_then(|json| serde_json::from_slice::<LibraryRecord>(&json).ok());
    if let (Some(record), Some(copy)) = (record, FileIdentity::of(&store.copy_path(sha256))) {
        write(store, path, &LibraryRecord { copy, ..record });
    }
}

fn write(store: &CopyStore, path: &Path, record: &LibraryRecord) {
    let written = serde_json::to_vec(record)
        .map_err(std::io::Error::from)
        .and_then(|json| store.put_record(&key(path), &json));
    if let Err(error) = written {
        tracing::debug!("what is known of {} is not kept: {error}", path.display());
    }
}

/// The name of the record of a path, for this build of the host.
fn key(path: &Path) -> Sha256 {
    let mut bytes = HOST_BUILD.as_bytes().to_vec();
    bytes.extend_from_slice(path.as_os_str().as_encoded_bytes());
    Sha256::of(&bytes)
}

/// The build of this host, in words: another program may lay out the types of the boundary in
/// another way, and judge files by other rules.
pub(super) static HOST_BUILD: LazyLock<String> = LazyLock::new(|| {
    let program = std::env::current_exe().ok();
    let program = program.and_then(|path| FileIdentity::of(&path));
    format!("{} {program:?} ", env!("CARGO_PKG_VERSION"))
});
