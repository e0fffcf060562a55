//! Why something cannot be read or written: what failed, why, and what to do.

use std::path::PathBuf;
use std::sync::Arc;

use crate::ThreadId;
use crate::sql::SqlError;

/// Errors of the store: a refusal or a failure.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// The thing changed since it was read.
    #[error(
        "the {kind} `{name}` was changed by somebody else meanwhile; read it anew, and change that"
    )]
    Changed {
        /// Kind of the thing, such as `persona`.
        kind: &'static str,
        /// Its name.
        name: String,
    },
    /// No space is left, or the file may not grow.
    #[error(
        "cannot {what}: there is no space left for the database, or its file may not grow \
         ({reason}); nothing was written. Make space, then try again"
    )]
    Full {
        /// Operation that failed.
        what: &'static str,
        /// The database's words.
        reason: String,
    },
    /// The database may only be read.
    #[error(
        "cannot {what}: the database is read-only ({reason}); nothing was written. Allow this \
         user to write the file and its directory, then try again"
    )]
    ReadOnly {
        /// Operation that failed.
        what: &'static str,
        /// The database's words.
        reason: String,
    },
    /// Another program holds the database.
    #[error(
        "cannot {what}: another program holds the database ({reason}); nothing was written. End \
         what that program does with it, then try again"
    )]
    Locked {
        /// Operation that failed.
        what: &'static str,
        /// The database's words.
        reason: String,
    },
    /// The database is damaged.
    #[error(
        "cannot {what}: the database is damaged ({reason}). `conjure db check` says where, and \
         `conjure db backup` saves what can be read; then put a backup in its place"
    )]
    Corrupt {
        /// Operation that failed.
        what: &'static str,
        /// The database's words, or what is wrong with which row.
        reason: String,
    },
    /// Nothing of a damaged database can be saved.
    #[error(
        "nothing of `{}` can be read: {reason}. It is no database, or its beginning is damaged. Move \
         it away, and put a backup in its place", path.display()
    )]
    NothingReadable {
        /// The file.
        path: PathBuf,
        /// The database's words.
        reason: String,
    },
    /// The disk fails.
    #[error("cannot {what}: the database says: {reason}. See that its disk works and has room")]
    Disk {
        /// Operation that failed.
        what: &'static str,
        /// The database's words.
        reason: String,
    },
    /// The database does not answer.
    #[error(
        "cannot {what}: the database cannot be reached ({reason}). See that its server runs and \
         that its address is right, then try again"
    )]
    Unreachable {
        /// Operation that failed.
        what: &'static str,
        /// Message of the database's client.
        reason: String,
    },
    /// The database says no for another reason.
    #[error("cannot {what}: the database says: {reason}")]
    Database {
        /// Operation that failed.
        what: &'static str,
        /// Message of the database.
        reason: String,
    },
    /// The file system says no.
    #[error("the store cannot {what} `{}`: {source}", path.display())]
    Io {
        /// Operation that failed.
        what: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// Error of the operating system.
        source: Arc<std::io::Error>,
    },
    /// A line in a file of JSON lines is not what it should be.
    #[error(
        "`{}` is damaged in line {line}: {reason}; move it away, or cut it before that line",
        path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// Fault of the line.
        reason: String,
    },
    /// A file that should hold a thread holds no record.
    #[error(
        "`{}` holds no record of a thread; name a file that `conjure thread export` wrote",
        path.display()
    )]
    NoRecords {
        /// The file.
        path: PathBuf,
    },
    /// Somebody else writes this thread.
    #[error("thread {thread} is open in {owner}; close it there, or fork it")]
    Busy {
        /// The thread.
        thread: ThreadId,
        /// The writer that has it open.
        owner: String,
    },
    /// Another process has the turns of this session.
    #[error(
        "the turns of session `{session}` run in process {pid}; say it there, or when they are over"
    )]
    SessionBusy {
        /// Id of the session.
        session: String,
        /// The process id, on its own machine.
        pid: i64,
    },
    /// The thread was taken by another writer, because this one was silent for too long.
    #[error(
        "thread {thread} was taken over by another process, since this one was silent for too \
         long; open it again"
    )]
    Lost {
        /// The thread.
        thread: ThreadId,
    },
    /// An append does not continue the thread.
    #[error(
        "thread {thread} goes on with {kind} {expected}, and {found} was appended: what is before \
         it failed or was left out. Append it again from {expected} on"
    )]
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
    #[error(
        "more than {limit} bytes wait to be written to the database, which is too slow; nothing \
         was appended. Try again when earlier appends are written"
    )]
    Behind {
        /// Limit of the queue, in bytes.
        limit: usize,
    },
    /// An append is too large.
    #[error("an append of {size} bytes is too large: {limit} are the most; append less at once")]
    TooLarge {
        /// Size of the append, in bytes.
        size: usize,
        /// The most.
        limit: usize,
    },
    /// No thread has this id.
    #[error("there is no thread {thread}; `conjure thread list` lists them")]
    NoThread {
        /// The thread.
        thread: ThreadId,
    },
    /// A thread has this id already.
    #[error("there is a thread {thread} already; choose another id")]
    ThreadExists {
        /// The thread.
        thread: ThreadId,
    },
    /// A thread has no such entry, or has it no more.
    #[error("{}", no_entry(thread, *seq, *first, *last))]
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
    #[error("`{id}` is not a thread's id: 1 to 64 letters, digits, `-` and `_`")]
    BadId {
        /// Text that was given.
        id: String,
    },
    /// Nothing of this kind has this id.
    #[error("there is no {kind} `{id}`")]
    NotFound {
        /// Kind of the thing, such as `persona`.
        kind: &'static str,
        /// Its id.
        id: String,
    },
    /// The name is taken.
    #[error("there is a {kind} named `{name}` already; choose another name")]
    NameTaken {
        /// Kind of the thing, such as `persona`.
        kind: &'static str,
        /// The name.
        name: String,
    },
    /// A name that may not be.
    #[error("`{name}` cannot be the name of a {kind}: {rule}")]
    BadName {
        /// Kind of the thing, such as `persona`.
        kind: &'static str,
        /// Name that was given.
        name: String,
        /// The rule.
        rule: &'static str,
    },
    /// What is to be removed is used.
    #[error(
        "the saved auth `{name}` is used by {}; give these another one, or remove them first", users(.sessions, .names)
    )]
    InUse {
        /// Its name.
        name: String,
        /// The ids of the sessions.
        sessions: Vec<String>,
        /// What people call them, in the same order: their names, or their ids. Behind them the names
        /// of the saved MCP servers that use it.
        names: Vec<String>,
    },
    /// A quota does not allow it.
    #[error(
        "cannot keep {size} bytes more: {whose} has {used} of {limit} bytes. Remove what is no \
         longer needed, or raise the quota"
    )]
    Quota {
        /// `the store`, or the thread.
        whose: String,
        /// Bytes to be kept.
        size: u64,
        /// Bytes that are kept.
        used: u64,
        /// Bytes that may be kept.
        limit: u64,
    },
    /// A newer Conjure made the database.
    #[error(
        "the database was made by a newer Conjure (it has `{migration}`, which this one does not \
         know); use that one, or restore the backup from before it"
    )]
    Newer {
        /// Step of the schema that this version does not know.
        migration: String,
    },
    /// A place that cannot be a database.
    #[error("`{location}` is no place for a database: {reason}")]
    BadLocation {
        /// Location that was given, without its secrets.
        location: String,
        /// Reason that rules it out.
        reason: String,
    },
    /// The store was closed.
    #[error("the store is closed; nothing was written")]
    Closed,
}

/// Who uses what is to be removed: the first of these names are those of sessions.
fn users(sessions: &[String], names: &[String]) -> String {
    let (of_sessions, of_servers) = names.split_at(sessions.len().min(names.len()));
    let kinds = [
        ("the sessions", of_sessions),
        ("the MCP servers", of_servers),
    ];
    let named = kinds.into_iter().filter(|(_, names)| !names.is_empty());
    let users = named.map(|(kind, names)| format!("{kind} {}", names.join(", ")));
    users.collect::<Vec<_>>().join(" and ")
}

/// Text of the error for an entry that a thread does not show.
fn no_entry(thread: &ThreadId, seq: u64, first: u64, last: u64) -> String {
    if last < first {
        return format!(
            "thread {thread} has no entry {seq}: it is empty, so there is nothing to fork. Say \
             something in it first"
        );
    }
    format!("thread {thread} has no entry {seq}: it shows {first} to {last}; choose one of these")
}

impl StoreError {
    /// Maps an error of the database during `what` to one of the kinds above.
    pub(crate) fn of(what: &'static str) -> impl FnOnce(SqlError) -> Self {
        move |error| classify(what, &error)
    }

    /// What failed and why, and what can be done about it: the two parts of its text. An error that
    /// nobody can do anything about has one.
    #[must_use]
    pub fn failure_and_remedy(&self) -> (String, Option<String>) {
        let text = self.to_string();
        let between = match self {
            Self::Changed { .. }
            | Self::Damaged { .. }
            | Self::NoRecords { .. }
            | Self::Busy { .. }
            | Self::SessionBusy { .. }
            | Self::Lost { .. }
            | Self::TooLarge { .. }
            | Self::NoThread { .. }
            | Self::ThreadExists { .. }
            | Self::NameTaken { .. }
            | Self::InUse { .. }
            | Self::Newer { .. } => "; ",
            Self::NoEntry { first, last, .. } if first <= last => "; ",
            Self::NoEntry { .. }
            | Self::Full { .. }
            | Self::ReadOnly { .. }
            | Self::Locked { .. }
            | Self::Corrupt { .. }
            | Self::NothingReadable { .. }
            | Self::Disk { .. }
            | Self::Unreachable { .. }
            | Self::Gap { .. }
            | Self::Behind { .. }
            | Self::Quota { .. } => ". ",
            Self::Database { .. }
            | Self::Io { .. }
            | Self::BadId { .. }
            | Self::NotFound { .. }
            | Self::BadName { .. }
            | Self::BadLocation { .. }
            | Self::Closed => return (text, None),
        };
        match text.rsplit_once(between) {
            Some((failure, remedy)) => (failure.to_owned(), Some(uncapitalized(remedy))),
            None => (text, None),
        }
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

/// A sentence as a part of another one.
fn uncapitalized(sentence: &str) -> String {
    let mut letters = sentence.chars();
    let first = letters.next().map(|letter| letter.to_ascii_lowercase());
    first.into_iter().chain(letters).collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_be_done_is_told_apart_and_both_parts_are_its_text() {
        let thread = ThreadId::fresh();
        let no_entry = |last| StoreError::NoEntry {
            thread: thread.clone(),
            seq: 9,
            first: 1,
            last,
        };
        for (error, remedy) in [
            (
                StoreError::NoThread {
                    thread: thread.clone(),
                },
                Some("`conjure thread list` lists them"),
            ),
            (no_entry(3), Some("choose one of these")),
            (no_entry(0), Some("say something in it first")),
            (
                StoreError::Corrupt {
                    what: "read",
                    reason: "page 3. It is torn; all of it".to_owned(),
                },
                Some(
                    "`conjure db check` says where, and `conjure db backup` saves what can be read; \
                     then put a backup in its place",
                ),
            ),
            (
                StoreError::Quota {
                    whose: "the store".to_owned(),
                    size: 1,
                    used: 2,
                    limit: 2,
                },
                Some("remove what is no longer needed, or raise the quota"),
            ),
            (StoreError::Closed, None),
        ] {
            let text = error.to_string();
            let (failure, told) = error.failure_and_remedy();
            assert_eq!(told.as_deref(), remedy, "{text}");
            let length = failure.len() + remedy.map_or(0, |remedy| remedy.len() + 2);
            assert!(text.starts_with(&failure), "{text}");
            assert_eq!(text.len(), length, "{text}");
        }
    }
}
