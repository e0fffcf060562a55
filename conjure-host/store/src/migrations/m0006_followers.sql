-- Who follows a thread as somebody who can decide about its calls, in which process; of all threads where
-- none is named.
CREATE TABLE "followers" (
    "writer_id" text NOT NULL,
    "thread_id" text NOT NULL,
    PRIMARY KEY ("writer_id", "thread_id")
);
