-- Since when a turn that runs waits for a person, for those who show it in other processes.
ALTER TABLE "runs" ADD COLUMN "waiting_since_ms" bigint NULL;
