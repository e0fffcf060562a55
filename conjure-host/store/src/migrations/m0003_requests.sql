-- Processes that share a database ask each other: what is asked of a process, and where it serves the
-- API.
CREATE TABLE "requests" (
    "id" text NOT NULL PRIMARY KEY,
    "writer_id" text NOT NULL,
    "body" text NOT NULL,
    "taken" bool NOT NULL,
    "answer" text NULL,
    "at_ms" bigint NOT NULL
);
ALTER TABLE "writers" ADD COLUMN "address" text NULL;
