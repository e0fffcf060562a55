-- Events that came lately, as rows of `events`, in the order of their commits and without an index.
-- They are moved to `events` together. PostgreSQL's stays empty.
CREATE TABLE "recent_events" (
    "thread_id" text NOT NULL,
    "epoch" bigint NOT NULL,
    "last_seq" bigint NOT NULL,
    "first_seq" bigint NOT NULL,
    "after_entry" bigint NOT NULL,
    "body" bytea NOT NULL
);
