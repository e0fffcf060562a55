-- What holds for a turn beside its session's settings is kept with its run, for whoever takes over one
-- that waited.
ALTER TABLE "runs" ADD COLUMN "terms" text NULL;
