//! Why something cannot be read or written. The words for it are in `error/text.rs`.

mod text;

use std::path::PathBuf;
use std::sync::Arc;

use crate::ThreadId;
use crate::sql::SqlError;

/// Errors of the store: a refusal or a failure.
#[derive(Debug, Clone)]
pub enum StoreError {
    /// The thing changed since it was read.
    Changed {
        /// Kind of the thing, such as `persona`.
        kind: &'static str,
        /// Name of the thing.
        name: String,
    },
    /// No space is left, or the file may not grow.
    Full {
        /// Operation that failed.
        what: &'static str,
        /// The database's words.
        reason: String,
    },
    /// The database may only be read.
    ReadOnly {
        /// Operation that failed.
        what: &'static str,
        /// The database's words.
        reason: String,
    },
    /// Another program holds the database.
    Locked {
        /// Operation that failed.
        what: &'static str,
        /// The database's words.
        reason: String,
    },
    /// The database is damaged.
    Corrupt {
        /// Operation that failed.
        what: &'static str,
        /// The database's words, or what is wrong with which row.
        reason: String,
    },
    /// Nothing of a damaged database can be saved.
    NothingReadable {
        /// The file.
        path: PathBuf,
        /// The database's words.
        reason: String,
    },
    /// The disk fails.
    Disk {
        /// Operation that failed.
        what: &'static str,
        /// The database's words.
        reason: String,
    },
    /// The database does not answer.
    Unreachable {
        /// Operation that failed.
        what: &'static str,
        /// Message of the database's client.
        reason: String,
    },
    /// The database says no for another reason.
    Database {
        /// Operation that failed.
        what: &'static str,
        /// Message of the database.
        reason: String,
    },
    /// The file system says no.
    Io {
        /// Operation that failed.
        what: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// Error of the operating system.
        source: Arc<std::io::Error>,
    },
    /// A line in a file of JSON lines is not what it should be.
    Damaged {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// Fault of the line.
        reason: String,
    },
    /// A file that should hold a thread holds no record.
    NoRecords {
        /// The file.
        path: PathBuf,
    },
    /// Somebody else writes this thread.
    Busy {
        /// The thread.
        thread: ThreadId,
        /// The writer that has it open.
        owner: String,
    },
    /// Another process has the turns of this session.
    SessionBusy {
        /// Id of the session.
        session: String,
        /// The process id, on its own machine.
        pid: i64,
    },
    /// The thread was taken by another writer, because this one was silent for too long.
    Lost {
        /// The thread.
        thread: ThreadId,
    },
    /// An append does not continue the thread.
    Gap {
        /// The thread.
        thread: ThreadId,
        /// `entry` or `event`.
        kind: &'static str,
        /// The number that comes next.
        expected: u64,
        /// The number that came.
        found: u64,
    },
    /// More waits to be written than may wait.
    Behind {
        /// Limit of the queue, in bytes.
        limit: usize,
    },
    /// An append is too large.
    TooLarge {
        /// Size of the append, in bytes.
        size: usize,
        /// The most.
        limit: usize,
    },
    /// No thread has this id.
    NoThread {
        /// The thread.
        thread: ThreadId,
    },
    /// A thread has this id already.
    ThreadExists {
        /// The thread.
        thread: ThreadId,
    },
    /// A thread has no such entry, or has it no more.
    NoEntry {
        /// The thread.
        thread: ThreadId,
        /// Sequence number that was asked for.
        seq: u64,
        /// The first entry that it shows.
        first: u64,
        /// The last; smaller than the first when it shows none.
        last: u64,
    },
    /// The text is not a legal id.
    BadId {
        /// Text that was given.
        id: String,
    },
    /// Nothing of this kind has this id.
    NotFound {
        /// Kind of the thing, such as `persona`.
        kind: &'static str,
        /// Id that was asked for.
        id: String,
    },
    /// The name is taken.
    NameTaken {
        /// Kind of the thing, such as `persona`.
        kind: &'static str,
        /// The name.
        name: String,
    },
    /// A name that may not be.
    BadName {
        /// Kind of the thing, such as `persona`.
        kind: &'static str,
        /// Name that was given.
        name: String,
        /// The rule.
        rule: &'static str,
    },
    /// What is to be removed is used.
    InUse {
        /// Name of the saved auth.
        name: String,
        /// The ids of the sessions.
        sessions: Vec<String>,
        /// What people call them, in the same order: their names, or their ids. Behind them the names
        /// of the saved MCP servers that use it.
        names: Vec<String>,
    },
    /// A quota does not allow it.
    Quota {
        /// `the store`, or the thread.
        owner: String,
        /// Bytes to be kept.
        size: u64,
        /// Bytes that are kept.
        used: u64,
        /// Bytes that may be kept.
        limit: u64,
    },
    /// A newer Conjure made the database.
    Newer {
        /// Step of the schema that this version does not know.
        migration: String,
    },
    /// A place that cannot be a database.
    BadLocation {
        /// Location that was given, without its secrets.
        location: String,
        /// Reason that rules it out.
        reason: String,
    },
    /// The store was closed.
    Closed,
}

impl StoreError {
    /// Maps an error of the database during `what` to one of the kinds above.
    pub(crate) fn of(what: &'static str) -> impl FnOnce(SqlError) -> Self {
        move |error| classify(what, &error)
    }

    /// Why, without what was tried and what to do, where these are told apart.
    pub(crate) fn reason(&self) -> String {
        match self {
            Self::Full { reason, .. }
            | Self::ReadOnly { reason, .. }
            | Self::Locked { reason, .. }
            | Self::Corrupt { reason, .. }
            | Self::Disk { reason, .. }
            | Self::Unreachable { reason, .. }
            | Self::Database { reason, .. } => reason.clone(),
            other => other.to_string(),
        }
    }

    pub(crate) fn io(
        what: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io {
            what,
            path,
            source: Arc::new(source),
        }
    }
}

fn classify(what: &'static str, error: &SqlError) -> StoreError {
    let reason = error.to_string();
    let Some(inner) = error.inner() else {
        return match error {
            SqlError::PoolTimedOut | SqlError::PoolClosed => {
                StoreError::Unreachable { what, reason }
            }
            _ => StoreError::Database { what, reason },
        };
    };
    match inner {
        sqlx::Error::Database(said) => {
            let reason = said.message().to_owned();
            let code = said.code().unwrap_or_default();
            let kind = if said
                .try_downcast_ref::<sqlx::sqlite::SqliteError>()
                .is_some()
            {
                of_sqlite(&code)
            } else {
                of_postgres(&code)
            };
            match kind {
                FaultKind::Full => StoreError::Full { what, reason },
                FaultKind::ReadOnly => StoreError::ReadOnly { what, reason },
                FaultKind::Locked => StoreError::Locked { what, reason },
                FaultKind::Corrupt => StoreError::Corrupt { what, reason },
                FaultKind::Disk => StoreError::Disk { what, reason },
                FaultKind::Unreachable => StoreError::Unreachable { what, reason },
                FaultKind::Other => StoreError::Database { what, reason },
            }
        }
        sqlx::Error::Io(_)
        | sqlx::Error::Tls(_)
        | sqlx::Error::PoolTimedOut
        | sqlx::Error::PoolClosed
        | sqlx::Error::WorkerCrashed => StoreError::Unreachable { what, reason },
        _ => StoreError::Database { what, reason },
    }
}

enum FaultKind {
    Full,
    ReadOnly,
    Locked,
    Corrupt,
    Disk,
    Unreachable,
    Other,
}

/// By SQLite's result codes; the low byte is the primary one (<https://www.sqlite.org/rescode.html>).
fn of_sqlite(code: &str) -> FaultKind {
    let code: u32 = code.parse().unwrap_or_default();
    match (code & 0xff, code) {
        // An I/O error at a write is what a quota or a limit of file sizes comes to.
        (13, _) | (_, 778) => FaultKind::Full,
        (8, _) => FaultKind::ReadOnly,
        (5 | 6, _) => FaultKind::Locked,
        (11 | 26, _) => FaultKind::Corrupt,
        (10, _) => FaultKind::Disk,
        (14, _) => FaultKind::Unreachable,
        _ => FaultKind::Other,
    }
}

/// By SQLSTATE (<https://www.postgresql.org/docs/current/errcodes-appendix.html>).
fn of_postgres(code: &str) -> FaultKind {
    match code {
        "53100" => FaultKind::Full,
        "25006" => FaultKind::ReadOnly,
        "55P03" | "40P01" | "57014" => FaultKind::Locked,
        "XX001" | "XX002" => FaultKind::Corrupt,
        "53300" | "57P01" | "57P02" | "57P03" => FaultKind::Unreachable,
        _ if code.starts_with("08") || code.starts_with("28") || code.starts_with("3D") => {
            FaultKind::Unreachable
        }
        _ => FaultKind::Other,
    }
}
