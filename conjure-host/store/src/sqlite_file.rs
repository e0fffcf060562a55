//! How SQLite is opened, and what may be done with the file of a database.
//!
//! A file, a directory or a disk that cannot be written is opened for reading: its threads can be
//! shown, and what writes is refused by SQLite.

use std::path::{Path, PathBuf};
use std::time::Duration;

use sqlx::ConnectOptions as _;
use sqlx::sqlite::{SqliteAutoVacuum, SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};

use crate::{StoreError, files};

/// How long a statement waits for another program's transaction.
pub(crate) const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// Pages that a connection that reads keeps, in KiB, as SQLite counts them. Whoever opens a thread reads
/// all of it once, and would fill the usual 2 MiB of each of the readers with it. What is read again
/// comes out of the system's own cache.
const READER_CACHE: &str = "-512";
/// What is left of the write-ahead log when it has been taken into the file, in bytes at most.
const WAL_SIZE_LIMIT: &str = "16777216";

/// Access of this user to the file of a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DatabaseAccess {
    /// Read and write.
    ReadWrite,
    /// The file can only be read.
    ReadOnly,
}

impl DatabaseAccess {
    /// Makes the directory and the file where they are not there, both for their owner only. SQLite
    /// gives the files beside it the same mode.
    pub(crate) fn prepare(path: &Path) -> Result<Self, StoreError> {
        if let Some(dir) = path.parent().filter(|dir| !dir.as_os_str().is_empty()) {
            files::create_private_dir(dir)?;
        }
        match files::ensure_private(path) {
            // The write-ahead log needs files in the directory.
            Ok(()) if files::is_dir_writable(path) || sibling_path(path, "-shm").exists() => {
                Ok(Self::ReadWrite)
            }
            Ok(()) => Ok(Self::ReadOnly),
            Err(StoreError::ReadOnly { .. }) if files::is_readable(path) => Ok(Self::ReadOnly),
            Err(error) => Err(error),
        }
    }

    /// The file's name for a statement that attaches it.
    pub(crate) fn statement_name(self, path: &Path, name: &str) -> String {
        if self == Self::ReadWrite || !is_immutable(path) {
            return name.to_owned();
        }
        let name = name
            .replace('%', "%25")
            .replace('?', "%3f")
            .replace('#', "%23");
        format!("file:{name}?immutable=1")
    }

    /// Options of a connection to the file.
    pub(crate) fn options(self, path: &Path) -> SqliteConnectOptions {
        match self {
            Self::ReadWrite => sqlite().filename(path),
            Self::ReadOnly => common()
                .read_only(true)
                .immutable(is_immutable(path))
                .filename(path),
        }
    }
}

/// Options of a connection that reads a file which others write. Without `auto_vacuum` and `journal_mode`:
/// to set them, each reader would begin a transaction that writes. `synchronous` is for a write-ahead log that
/// is moved by this connection.
pub(crate) fn reader_of(path: &Path) -> SqliteConnectOptions {
    let options = common().synchronous(SqliteSynchronous::Full).filename(path);
    for_reading(options.pragma("temp_store", "MEMORY"))
}

/// A database that is written.
pub(crate) fn sqlite() -> SqliteConnectOptions {
    common()
        .create_if_missing(true)
        .auto_vacuum(SqliteAutoVacuum::Incremental)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        // What is deleted for good is overwritten.
        .pragma("secure_delete", "ON")
        // What a statement of many rows changed, until it is done, is no file beside it.
        .pragma("temp_store", "MEMORY")
        .pragma("journal_size_limit", WAL_SIZE_LIMIT)
}

/// Options of a connection that only reads.
pub(crate) fn for_reading(options: SqliteConnectOptions) -> SqliteConnectOptions {
    options
        .pragma("query_only", "ON")
        .pragma("cache_size", READER_CACHE)
}

fn common() -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .foreign_keys(true)
        .busy_timeout(BUSY_TIMEOUT)
        .statement_cache_capacity(200)
        .thread_name(|number| format!("store-{number}"))
        .disable_statement_logging()
}

/// Whether nobody writes the file and nothing of it is in a write-ahead log: then SQLite reads it
/// without the files beside it, which cannot be made in a directory that cannot be written.
pub(crate) fn is_immutable(path: &Path) -> bool {
    let log = std::fs::metadata(sibling_path(path, "-wal"));
    let is_logged = log.is_ok_and(|log| log.len() > 0);
    !files::is_dir_writable(path) && !is_logged && !sibling_path(path, "-shm").exists()
}

/// The file beside a database that SQLite names so.
pub(crate) fn sibling_path(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    PathBuf::from(name)
}
