//! Where threads are kept: the `Log` trait, and a store of JSON lines.
//!
//! An append-only log of records: entries, which make the conversation, and events, which make
//! what a person saw. What is shown has been written first.

mod forcing;
mod jsonl;
mod memory;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use conjure_core::chat::{Event, EventId};
use conjure_core::log::Entry;
use futures_util::future::{BoxFuture, Shared};
use serde::{Deserialize, Serialize};

pub use jsonl::JsonLines;
pub use memory::InMemory;

/// A thread's id; not a session's.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ThreadId(String);

impl ThreadId {
    /// A fresh id, in the order of time.
    pub fn fresh() -> Self {
        Self(uuid::Uuid::now_v7().to_string())
    }

    /// An id that somebody wrote.
    ///
    /// # Errors
    /// [`StoreError::BadId`]: an id has 1 to 64 letters, digits, `-` and `_`.
    pub fn parse(text: &str) -> Result<Self, StoreError> {
        let legal = !text.is_empty()
            && text.len() <= 64
            && text
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
        if legal {
            Ok(Self(text.to_owned()))
        } else {
            Err(StoreError::BadId {
                id: text.to_owned(),
            })
        }
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ThreadId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One record of a thread.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Record {
    /// A piece of the conversation.
    Entry(Entry),
    /// A piece of what a person saw.
    Event {
        /// Its number.
        id: EventId,
        /// What.
        event: Event,
    },
    /// The thread was opened; events from here on have this epoch.
    Opened {
        /// The epoch.
        epoch: u64,
    },
}

/// Keeps threads.
pub trait Log: Send + Sync + 'static {
    /// Opens a thread for writing, and makes it when it is not there. One writer at a time.
    ///
    /// # Errors
    /// [`StoreError`].
    fn open(&self, thread: &ThreadId) -> Result<Box<dyn ThreadLog>, StoreError>;

    /// Reads a thread's records.
    ///
    /// # Errors
    /// [`StoreError`], [`StoreError::NoThread`] among them.
    fn read(&self, thread: &ThreadId) -> Result<Vec<Record>, StoreError>;

    /// All threads, the oldest first.
    ///
    /// # Errors
    /// [`StoreError`].
    fn threads(&self) -> Result<Vec<ThreadId>, StoreError>;
}

/// A thread that is open for writing.
pub trait ThreadLog: Send {
    /// What it held when it was opened.
    fn take_records(&mut self) -> Vec<Record>;

    /// Counts how often the thread was opened, this time included.
    fn epoch(&self) -> u64;

    /// Appends records, all or none: from then on the end of the process loses none of them.
    /// With `durable` they are forced to the disk too, and [`ThreadLog::settled`] says when that
    /// is done.
    ///
    /// # Errors
    /// [`StoreError`]; nothing was appended then.
    fn append(&mut self, records: &[Record], durable: bool) -> Result<(), StoreError>;

    /// Resolves when every durable append so far is on the disk, so that the end of the machine
    /// loses none of them either; nothing when there is nothing to wait for. A store may take its
    /// time until somebody waits.
    fn settled(&self) -> Option<Settled> {
        None
    }
}

/// The wait for the disk. An error is why it cannot be relied on.
pub type Settled = Shared<BoxFuture<'static, Result<(), Arc<StoreError>>>>;

/// Why a thread cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The file system says no.
    #[error("the thread store cannot {what} `{}`: {source}", path.display())]
    Io {
        /// What was tried.
        what: &'static str,
        /// Where.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A line in the middle is not a record.
    #[error(
        "`{}` is damaged in line {line}: {source}; move it away, or cut it before that line",
        path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// Why.
        source: serde_json::Error,
    },
    /// Somebody else writes this thread.
    #[error("thread {thread} is open elsewhere; close it there, or start another thread")]
    Busy {
        /// The thread.
        thread: ThreadId,
    },
    /// There is no such thread.
    #[error("there is no thread {thread}; `conjure chat` begins one")]
    NoThread {
        /// The thread.
        thread: ThreadId,
    },
    /// That is no id.
    #[error("`{id}` is not a thread's id: 1 to 64 letters, digits, `-` and `_`")]
    BadId {
        /// What was written.
        id: String,
    },
}
