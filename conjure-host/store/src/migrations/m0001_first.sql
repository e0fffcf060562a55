-- The first schema: every table of the design.
--
-- Times are milliseconds since 1970 (`…_at_ms`), ids are text, bodies are JSON or a zstd frame of
-- it, settings are JSON text.

-- Who writes: a process that has threads open. `groups` counts its transactions.
CREATE TABLE "writers" (
    "id" text NOT NULL PRIMARY KEY,
    "machine" text NOT NULL,
    "pid" bigint NOT NULL,
    "started" bigint NOT NULL,
    "beat_ms" bigint NOT NULL,
    "groups" bigint NOT NULL,
    "lost" bool NOT NULL
);

-- `fork_floor`: entries up to it were cleared when the fork was made, and it has none of them.
-- `cleared_upto`: the same for the thread itself. The numbers from `replies` on are sums over the
-- thread's own entries; `cost` is the newest cost event's. A removed thread stays while a fork needs
-- its entries.
CREATE TABLE "threads" (
    "id" text NOT NULL PRIMARY KEY,
    "parent_thread_id" text NULL,
    "fork_from_seq" bigint NOT NULL DEFAULT 0,
    "fork_floor" bigint NOT NULL DEFAULT 0,
    "thread_label" text NOT NULL DEFAULT '',
    "cleared_upto" bigint NOT NULL DEFAULT 0,
    "epoch" bigint NOT NULL DEFAULT 0,
    "last_seq" bigint NOT NULL DEFAULT 0,
    "last_turn" bigint NOT NULL DEFAULT 0,
    "owner" text NULL,
    "created_at_ms" bigint NOT NULL,
    "updated_at_ms" bigint NOT NULL,
    "replies" bigint NOT NULL DEFAULT 0,
    "input" bigint NOT NULL DEFAULT 0,
    "cache_read" bigint NOT NULL DEFAULT 0,
    "cache_write" bigint NOT NULL DEFAULT 0,
    "output" bigint NOT NULL DEFAULT 0,
    "reasoning" bigint NOT NULL DEFAULT 0,
    "latency_ms" bigint NOT NULL DEFAULT 0,
    "cost" text NULL,
    "removed" bool NOT NULL DEFAULT FALSE,
    FOREIGN KEY ("parent_thread_id") REFERENCES "threads" ("id"),
    FOREIGN KEY ("owner") REFERENCES "writers" ("id")
);

CREATE TABLE "thread_labels" (
    "thread_id" text NOT NULL,
    "number" bigint NOT NULL,
    "label" text NOT NULL,
    "at_ms" bigint NOT NULL,
    PRIMARY KEY ("thread_id", "number"),
    FOREIGN KEY ("thread_id") REFERENCES "threads" ("id") ON DELETE CASCADE
);

CREATE TABLE "entries" (
    "thread_id" text NOT NULL,
    "seq" bigint NOT NULL,
    "turn_index" bigint NOT NULL,
    "kind" text NOT NULL,
    "at_ms" bigint NOT NULL,
    "body" bytea NOT NULL,
    PRIMARY KEY ("thread_id", "seq"),
    FOREIGN KEY ("thread_id") REFERENCES "threads" ("id") ON DELETE CASCADE
);

-- A row is a run of events without a gap, as one JSON array. `after_entry`: the newest entry when
-- they were written.
CREATE TABLE "events" (
    "thread_id" text NOT NULL,
    "epoch" bigint NOT NULL,
    "last_seq" bigint NOT NULL,
    "first_seq" bigint NOT NULL,
    "after_entry" bigint NOT NULL,
    "body" bytea NOT NULL,
    PRIMARY KEY ("thread_id", "epoch", "last_seq"),
    FOREIGN KEY ("thread_id") REFERENCES "threads" ("id") ON DELETE CASCADE
);

-- `entry_seq`: the entry that began the call, or ended one that was never begun.
CREATE TABLE "tool_calls" (
    "thread_id" text NOT NULL,
    "call_id" text NOT NULL,
    "state" text NOT NULL,
    "backend" text NULL,
    "plugin" text NULL,
    "entry_seq" bigint NOT NULL,
    "ended_seq" bigint NULL,
    "started_at_ms" bigint NULL,
    "ended_at_ms" bigint NULL,
    "duration_ms" bigint NOT NULL DEFAULT 0,
    PRIMARY KEY ("thread_id", "call_id"),
    FOREIGN KEY ("thread_id") REFERENCES "threads" ("id") ON DELETE CASCADE
);

CREATE TABLE "artifacts" (
    "thread_id" text NOT NULL,
    "entry_seq" bigint NOT NULL,
    "artifact_id" text NOT NULL,
    "name" text NOT NULL,
    "media_type" text NOT NULL,
    "size" bigint NULL,
    "source" text NOT NULL,
    "call_id" text NULL,
    "place" text NULL,
    "remote" text NULL,
    "blob_sha256" text NULL,
    PRIMARY KEY ("thread_id", "entry_seq"),
    FOREIGN KEY ("thread_id") REFERENCES "threads" ("id") ON DELETE CASCADE
);

-- `upload`: under which name its bytes are in `blob_pieces`.
CREATE TABLE "blobs" (
    "sha256" text NOT NULL PRIMARY KEY,
    "size" bigint NOT NULL,
    "upload" text NOT NULL,
    "touched_at_ms" bigint NOT NULL
);

-- Bytes in pieces of one size, counted from 0.
CREATE TABLE "blob_pieces" (
    "upload" text NOT NULL,
    "number" bigint NOT NULL,
    "bytes" bytea NOT NULL,
    PRIMARY KEY ("upload", "number")
);

-- Bytes that are still being written, or that nobody finished.
CREATE TABLE "blob_uploads" (
    "id" text NOT NULL PRIMARY KEY,
    "touched_at_ms" bigint NOT NULL
);

CREATE TABLE "saved_authentications" (
    "id" text NOT NULL PRIMARY KEY,
    "provider" text NOT NULL,
    "kind" text NOT NULL,
    "name" text NOT NULL,
    "base_url" text NULL,
    "sealed" bytea NOT NULL,
    "created_at_ms" bigint NOT NULL,
    "updated_at_ms" bigint NOT NULL,
    UNIQUE ("provider", "kind", "name")
);

CREATE TABLE "sessions" (
    "id" text NOT NULL PRIMARY KEY,
    "name" text NULL UNIQUE,
    "auth_id" text NOT NULL,
    "model_id" text NOT NULL,
    "working_dir" text NOT NULL,
    "persona" text NOT NULL,
    "memory" text NOT NULL,
    "tools" text NOT NULL,
    "mcps" text NOT NULL,
    "chat_thread_id" text NULL,
    "latest_chat_entry_id" text NULL,
    "created_at_ms" bigint NOT NULL,
    "updated_at_ms" bigint NOT NULL,
    FOREIGN KEY ("auth_id") REFERENCES "saved_authentications" ("id"),
    FOREIGN KEY ("chat_thread_id") REFERENCES "threads" ("id") ON DELETE SET NULL
);

CREATE TABLE "personas" (
    "id" text NOT NULL PRIMARY KEY,
    "name" text NOT NULL,
    "version" text NOT NULL,
    "persona_text" text NOT NULL,
    "created_at_ms" bigint NOT NULL,
    "updated_at_ms" bigint NOT NULL,
    UNIQUE ("name", "version")
);

CREATE TABLE "mcp_servers" (
    "id" text NOT NULL PRIMARY KEY,
    "name" text NOT NULL UNIQUE,
    "settings" text NOT NULL,
    "enabled" bool NOT NULL,
    "created_at_ms" bigint NOT NULL,
    "updated_at_ms" bigint NOT NULL
);

-- What was loaded, by the hash of its bytes.
CREATE TABLE "plugins" (
    "sha256" text NOT NULL PRIMARY KEY,
    "name" text NOT NULL,
    "version" text NOT NULL,
    "kind" text NOT NULL,
    "origin" text NOT NULL,
    "pinned" bool NOT NULL,
    "created_at_ms" bigint NOT NULL,
    "updated_at_ms" bigint NOT NULL
);

-- A turn, from being queued to its end. `owner`: the writer of the process that runs it.
CREATE TABLE "runs" (
    "id" text NOT NULL PRIMARY KEY,
    "session_id" text NULL,
    "thread_id" text NOT NULL,
    "owner" text NOT NULL,
    "state" text NOT NULL,
    "beat_ms" bigint NOT NULL,
    "queued_at_ms" bigint NOT NULL,
    "started_at_ms" bigint NULL,
    "ended_at_ms" bigint NULL,
    "input" bigint NOT NULL DEFAULT 0,
    "cache_read" bigint NOT NULL DEFAULT 0,
    "cache_write" bigint NOT NULL DEFAULT 0,
    "output" bigint NOT NULL DEFAULT 0,
    "reasoning" bigint NOT NULL DEFAULT 0,
    "calls" bigint NOT NULL DEFAULT 0,
    "usd" double precision NULL,
    "error" text NULL,
    FOREIGN KEY ("session_id") REFERENCES "sessions" ("id") ON DELETE SET NULL,
    FOREIGN KEY ("thread_id") REFERENCES "threads" ("id") ON DELETE CASCADE
);

-- A request that may come twice. `owner`: as of a run.
CREATE TABLE "idempotency_keys" (
    "scope" text NOT NULL,
    "key" text NOT NULL,
    "request_sha256" text NOT NULL,
    "owner" text NOT NULL,
    "state" text NOT NULL,
    "status" bigint NULL,
    "headers" text NULL,
    "body" bytea NULL,
    "created_at_ms" bigint NOT NULL,
    PRIMARY KEY ("scope", "key")
);

-- Look-ups that no primary key or unique constraint serves.
CREATE INDEX "threads_by_parent" ON "threads" ("parent_thread_id");
CREATE INDEX "threads_by_owner" ON "threads" ("owner");
CREATE INDEX "threads_by_label" ON "threads" ("thread_label");
CREATE INDEX "entries_by_turn" ON "entries" ("thread_id", "turn_index");
CREATE INDEX "tool_calls_by_state" ON "tool_calls" ("state");
CREATE INDEX "artifacts_by_blob" ON "artifacts" ("blob_sha256");
CREATE INDEX "sessions_by_auth" ON "sessions" ("auth_id");
CREATE INDEX "sessions_by_entry" ON "sessions" ("latest_chat_entry_id");
CREATE INDEX "sessions_by_thread" ON "sessions" ("chat_thread_id");
CREATE INDEX "runs_by_thread" ON "runs" ("thread_id", "queued_at_ms", "id");
CREATE INDEX "runs_by_session" ON "runs" ("session_id", "queued_at_ms", "id");
CREATE INDEX "runs_by_time" ON "runs" ("queued_at_ms", "id");
CREATE INDEX "runs_by_end" ON "runs" ("ended_at_ms");
CREATE INDEX "idempotency_keys_by_time" ON "idempotency_keys" ("created_at_ms");
