//! The first schema: every table of the design.
//!
//! Times are milliseconds since 1970 (`…_at_ms`), ids are text, bodies are JSON or a zstd frame of
//! it, settings are JSON text.

use sea_orm_migration::prelude::*;
use sea_orm_migration::schema::{
    big_integer, big_integer_null, binary, binary_null, boolean, double_null, text, text_null,
};
use sea_orm_migration::sea_orm::DbErr;

/// The first schema.
pub(crate) struct Migration;

impl MigrationName for Migration {
    fn name(&self) -> &'static str {
        "m0001_first"
    }
}

#[expect(
    elided_lifetimes_in_paths,
    reason = "the trait's macro takes the lifetime only where the trait has it"
)]
#[sea_orm_migration::async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        for table in tables() {
            manager.create_table(table).await?;
        }
        for index in indexes() {
            manager.create_index(index).await?;
        }
        Ok(())
    }
}

/// All tables, those that others refer to first.
pub(crate) fn tables() -> Vec<TableCreateStatement> {
    [writing(), threads(), saved(), running()].concat()
}

pub(crate) fn indexes() -> Vec<IndexCreateStatement> {
    INDEXES
        .iter()
        .map(|(table, name, columns)| {
            let mut index = Index::create();
            index.name(*name).table(*table);
            for column in *columns {
                index.col(*column);
            }
            index
        })
        .collect()
}

/// Look-ups that no primary key or unique constraint serves.
const INDEXES: [(&str, &str, &[&str]); 14] = [
    ("threads", "threads_by_parent", &["parent_thread_id"]),
    ("threads", "threads_by_owner", &["owner"]),
    ("threads", "threads_by_label", &["thread_label"]),
    ("entries", "entries_by_turn", &["thread_id", "turn_index"]),
    ("tool_calls", "tool_calls_by_state", &["state"]),
    ("artifacts", "artifacts_by_blob", &["blob_sha256"]),
    ("sessions", "sessions_by_auth", &["auth_id"]),
    ("sessions", "sessions_by_entry", &["latest_chat_entry_id"]),
    ("sessions", "sessions_by_thread", &["chat_thread_id"]),
    (
        "runs",
        "runs_by_thread",
        &["thread_id", "queued_at_ms", "id"],
    ),
    (
        "runs",
        "runs_by_session",
        &["session_id", "queued_at_ms", "id"],
    ),
    ("runs", "runs_by_time", &["queued_at_ms", "id"]),
    ("runs", "runs_by_end", &["ended_at_ms"]),
    (
        "idempotency_keys",
        "idempotency_keys_by_time",
        &["created_at_ms"],
    ),
];

/// Who writes.
fn writing() -> Vec<TableCreateStatement> {
    vec![
        // A process that has threads open. `groups` counts its transactions.
        Table::create()
            .table("writers")
            .col(text("id").primary_key())
            .col(text("machine"))
            .col(big_integer("pid"))
            .col(big_integer("started"))
            .col(big_integer("beat_ms"))
            .col(big_integer("groups"))
            .col(boolean("lost"))
            .take(),
    ]
}

/// Threads and what belongs to them.
fn threads() -> Vec<TableCreateStatement> {
    vec![
        // `fork_floor`: entries up to it were cleared when the fork was made, and it has none of
        // them. `cleared_upto`: the same for the thread itself. The numbers from `replies` on are
        // sums over the thread's own entries; `cost` is the newest cost event's. A removed thread
        // stays while a fork needs its entries.
        Table::create()
            .table("threads")
            .col(text("id").primary_key())
            .col(text_null("parent_thread_id"))
            .col(big_integer("fork_from_seq").default(0))
            .col(big_integer("fork_floor").default(0))
            .col(text("thread_label").default(""))
            .col(big_integer("cleared_upto").default(0))
            .col(big_integer("epoch").default(0))
            .col(big_integer("last_seq").default(0))
            .col(big_integer("last_turn").default(0))
            .col(text_null("owner"))
            .col(big_integer("created_at_ms"))
            .col(big_integer("updated_at_ms"))
            .col(big_integer("replies").default(0))
            .col(big_integer("input").default(0))
            .col(big_integer("cache_read").default(0))
            .col(big_integer("cache_write").default(0))
            .col(big_integer("output").default(0))
            .col(big_integer("reasoning").default(0))
            .col(big_integer("latency_ms").default(0))
            .col(text_null("cost"))
            .col(boolean("removed").default(false))
            .foreign_key(&mut references("threads", "parent_thread_id", "threads"))
            .foreign_key(&mut references("threads", "owner", "writers"))
            .take(),
        Table::create()
            .table("thread_labels")
            .col(text("thread_id"))
            .col(big_integer("number"))
            .col(text("label"))
            .col(big_integer("at_ms"))
            .primary_key(Index::create().col("thread_id").col("number"))
            .foreign_key(&mut belongs_to_thread("thread_labels"))
            .take(),
        Table::create()
            .table("entries")
            .col(text("thread_id"))
            .col(big_integer("seq"))
            .col(big_integer("turn_index"))
            .col(text("kind"))
            .col(big_integer("at_ms"))
            .col(binary("body"))
            .primary_key(Index::create().col("thread_id").col("seq"))
            .foreign_key(&mut belongs_to_thread("entries"))
            .take(),
        // A row is a run of events without a gap, as one JSON array. `after_entry`: the newest
        // entry when they were written.
        Table::create()
            .table("events")
            .col(text("thread_id"))
            .col(big_integer("epoch"))
            .col(big_integer("last_seq"))
            .col(big_integer("first_seq"))
            .col(big_integer("after_entry"))
            .col(binary("body"))
            .primary_key(
                Index::create()
                    .col("thread_id")
                    .col("epoch")
                    .col("last_seq"),
            )
            .foreign_key(&mut belongs_to_thread("events"))
            .take(),
        // `entry_seq`: the entry that began the call, or ended one that was never begun.
        Table::create()
            .table("tool_calls")
            .col(text("thread_id"))
            .col(text("call_id"))
            .col(text("state"))
            .col(text_null("backend"))
            .col(text_null("plugin"))
            .col(big_integer("entry_seq"))
            .col(big_integer_null("ended_seq"))
            .col(big_integer_null("started_at_ms"))
            .col(big_integer_null("ended_at_ms"))
            .col(big_integer("duration_ms").default(0))
            .primary_key(Index::create().col("thread_id").col("call_id"))
            .foreign_key(&mut belongs_to_thread("tool_calls"))
            .take(),
        Table::create()
            .table("artifacts")
            .col(text("thread_id"))
            .col(big_integer("entry_seq"))
            .col(text("artifact_id"))
            .col(text("name"))
            .col(text("media_type"))
            .col(big_integer_null("size"))
            .col(text("source"))
            .col(text_null("call_id"))
            .col(text_null("place"))
            .col(text_null("remote"))
            .col(text_null("blob_sha256"))
            .primary_key(Index::create().col("thread_id").col("entry_seq"))
            .foreign_key(&mut belongs_to_thread("artifacts"))
            .take(),
        // `upload`: under which name its bytes are in `blob_pieces`.
        Table::create()
            .table("blobs")
            .col(text("sha256").primary_key())
            .col(big_integer("size"))
            .col(text("upload"))
            .col(big_integer("touched_at_ms"))
            .take(),
        // Bytes in pieces of one size, counted from 0.
        Table::create()
            .table("blob_pieces")
            .col(text("upload"))
            .col(big_integer("number"))
            .col(binary("bytes"))
            .primary_key(Index::create().col("upload").col("number"))
            .take(),
        // Bytes that are still being written, or that nobody finished.
        Table::create()
            .table("blob_uploads")
            .col(text("id").primary_key())
            .col(big_integer("touched_at_ms"))
            .take(),
    ]
}

/// What people save.
fn saved() -> Vec<TableCreateStatement> {
    vec![
        Table::create()
            .table("saved_authentications")
            .col(text("id").primary_key())
            .col(text("provider"))
            .col(text("kind"))
            .col(text("name"))
            .col(text_null("base_url"))
            .col(binary("sealed"))
            .col(big_integer("created_at_ms"))
            .col(big_integer("updated_at_ms"))
            .index(
                Index::create()
                    .unique()
                    .col("provider")
                    .col("kind")
                    .col("name"),
            )
            .take(),
        Table::create()
            .table("sessions")
            .col(text("id").primary_key())
            .col(text_null("name").unique_key())
            .col(text("auth_id"))
            .col(text("model_id"))
            .col(text("working_dir"))
            .col(text("persona"))
            .col(text("memory"))
            .col(text("tools"))
            .col(text("mcps"))
            .col(text_null("chat_thread_id"))
            .col(text_null("latest_chat_entry_id"))
            .col(big_integer("created_at_ms"))
            .col(big_integer("updated_at_ms"))
            .foreign_key(&mut references(
                "sessions",
                "auth_id",
                "saved_authentications",
            ))
            .foreign_key(
                references("sessions", "chat_thread_id", "threads")
                    .on_delete(ForeignKeyAction::SetNull),
            )
            .take(),
        Table::create()
            .table("personas")
            .col(text("id").primary_key())
            .col(text("name"))
            .col(text("version"))
            .col(text("persona_text"))
            .col(big_integer("created_at_ms"))
            .col(big_integer("updated_at_ms"))
            .index(Index::create().unique().col("name").col("version"))
            .take(),
        Table::create()
            .table("mcp_servers")
            .col(text("id").primary_key())
            .col(text("name").unique_key())
            .col(text("settings"))
            .col(boolean("enabled"))
            .col(big_integer("created_at_ms"))
            .col(big_integer("updated_at_ms"))
            .take(),
        // What was loaded, by the hash of its bytes.
        Table::create()
            .table("plugins")
            .col(text("sha256").primary_key())
            .col(text("name"))
            .col(text("version"))
            .col(text("kind"))
            .col(text("origin"))
            .col(boolean("pinned"))
            .col(big_integer("created_at_ms"))
            .col(big_integer("updated_at_ms"))
            .take(),
    ]
}

/// What runs, and what was answered.
fn running() -> Vec<TableCreateStatement> {
    vec![
        // A turn, from being queued to its end. `owner`: the writer of the process that runs it.
        Table::create()
            .table("runs")
            .col(text("id").primary_key())
            .col(text_null("session_id"))
            .col(text("thread_id"))
            .col(text("owner"))
            .col(text("state"))
            .col(big_integer("beat_ms"))
            .col(big_integer("queued_at_ms"))
            .col(big_integer_null("started_at_ms"))
            .col(big_integer_null("ended_at_ms"))
            .col(big_integer("input").default(0))
            .col(big_integer("cache_read").default(0))
            .col(big_integer("cache_write").default(0))
            .col(big_integer("output").default(0))
            .col(big_integer("reasoning").default(0))
            .col(big_integer("calls").default(0))
            .col(double_null("usd"))
            .col(text_null("error"))
            .foreign_key(
                references("runs", "session_id", "sessions").on_delete(ForeignKeyAction::SetNull),
            )
            .foreign_key(&mut belongs_to_thread("runs"))
            .take(),
        // A request that may come twice. `owner`: as of a run.
        Table::create()
            .table("idempotency_keys")
            .col(text("scope"))
            .col(text("key"))
            .col(text("request_sha256"))
            .col(text("owner"))
            .col(text("state"))
            .col(big_integer_null("status"))
            .col(text_null("headers"))
            .col(binary_null("body"))
            .col(big_integer("created_at_ms"))
            .primary_key(Index::create().col("scope").col("key"))
            .take(),
    ]
}

fn references(
    table: &'static str,
    column: &'static str,
    to: &'static str,
) -> ForeignKeyCreateStatement {
    ForeignKey::create().from(table, column).to(to, "id").take()
}

fn belongs_to_thread(table: &'static str) -> ForeignKeyCreateStatement {
    references(table, "thread_id", "threads")
        .on_delete(ForeignKeyAction::Cascade)
        .take()
}
