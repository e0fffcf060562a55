//! The Conjure store: threads, sessions and files in one database.
//!
//! SQLite (a file) or PostgreSQL (by URL), with one code. A thread is an append-only log of entries
//! and events; one task writes all of them, many appends in one transaction, and forks read their
//! ancestors' rows. What entries mean is decided in `conjure-core`.

mod blobs;
mod body;
mod database;
mod error;
mod id;
mod ledger;
mod lineage;
mod migrations;
mod pages;
mod place;
mod platform;
mod record;
mod row;
mod store;
mod threads;
mod writer;

pub use error::StoreError;
pub use id::ThreadId;
pub use ledger::{CallState, ToolCall};
pub use pages::{EntryPage, Window};
pub use place::Place;
pub use record::{Committed, Log, Record, ThreadLog};
pub use store::Store;
pub use threads::{Cursor, Thread, Totals};

#[cfg(test)]
mod tests;
