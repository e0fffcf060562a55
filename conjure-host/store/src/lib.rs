//! The Conjure store: threads, sessions and files in one database.
//!
//! SQLite (a file) or PostgreSQL (by URL), with one code. A thread is an append-only log of entries
//! and events; one task writes all of them, many appends in one transaction, and forks read their
//! ancestors' rows. What entries mean is decided in `conjure-core`. Begin at `store.rs`, then
//! `threads.rs` for reading and `writer/` for writing.

mod artifacts;
mod backup;
mod blob_rows;
mod blobs;
mod body;
mod check;
mod checkpoints;
mod database;
mod database_copy;
mod error;
mod files;
mod followers;
mod host_database;
mod id;
mod idempotency;
mod labels;
mod ledger;
mod lineage;
mod location;
mod maestro;
mod memory;
mod migration_backups;
mod migrations;
mod opening;
mod orphans;
mod pages;
mod platform;
mod queued_runs;
mod read_only_file;
mod recent_events;
mod record;
mod requests;
mod retained_entries;
mod row;
mod run_changes;
mod run_waits;
mod runs;
mod salvage;
mod saved;
mod schema;
mod search;
mod session_marks;
mod session_owners;
mod settings_entries;
mod signals;
mod sql;
mod sqlite_file;
mod store;
mod thread_marks;
mod threads;
mod transfer;
mod writer;

pub use artifacts::ArtifactRow;
pub use blob_rows::{Blob, Quotas};
pub use blobs::hex;
pub use check::Check;
pub use error::StoreError;
pub use host_database::{location, open, options};
pub use id::ThreadId;
pub use idempotency::{KeyStatus, StoredResponse};
pub use ledger::{CallState, ToolCall};
pub use location::Location;
pub use maestro::{
    Left, LeftOut, Maestro, MaestroAuth, MaestroChoices, MaestroReport, MaestroSecret,
};
pub use memory::MemoryLog;
pub use pages::{EntryPage, Window};
pub use record::{Log, PendingAppend, Record, ThreadLog};
pub use requests::{Owner, ProcessRequest, RequestReply};
pub use retained_entries::RetainedEntries;
pub use runs::{Run, RunFilter, RunState, RunUsage, SessionTotals};
pub use salvage::UnreadRows;
pub use saved::{
    JsonText, MCP_SECRETS, McpServer, Persona, SavedAuth, SavedSession, SessionCursor,
};
pub use search::{Excerpt, SearchHit};
pub use session_marks::{ForeignTurn, SessionMark, SessionMarks};
pub use signals::{StoreSignal, StoreSignals};
pub use store::{Options, Store};
pub use thread_marks::{MarkedThread, MarkedThreads, ThreadMark};
pub use threads::{Cursor, Thread, Totals};
pub use transfer::{ImportedThreads, json_lines};

#[cfg(test)]
mod tests;
