-- What is said in a turn that waits is kept with its run, so that it outlives its process: a message
-- as JSON, until it is in the thread.
ALTER TABLE "runs" ADD COLUMN "message" text NULL;

-- Few runs have one, and those are looked for often.
CREATE INDEX runs_unwritten ON runs (queued_at_ms, id) WHERE message IS NOT NULL;
