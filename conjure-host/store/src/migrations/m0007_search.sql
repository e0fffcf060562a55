-- What can be searched: the texts of entries, told to the index when somebody searches. `upto`: the
-- newest entry of the thread that was looked at for it.
CREATE TABLE "searched_threads" (
    "thread_id" text NOT NULL PRIMARY KEY,
    "upto" bigint NOT NULL,
    FOREIGN KEY ("thread_id") REFERENCES "threads" ("id") ON DELETE CASCADE
);

-- only in SQLite
CREATE TABLE "entry_texts" (
    "id" integer NOT NULL PRIMARY KEY,
    "thread_id" text NOT NULL,
    "seq" bigint NOT NULL,
    "at_ms" bigint NOT NULL,
    UNIQUE ("thread_id", "seq"),
    FOREIGN KEY ("thread_id", "seq") REFERENCES "entries" ("thread_id", "seq") ON DELETE CASCADE
);

-- only in SQLite
CREATE VIRTUAL TABLE "entry_words" USING fts5 (
    "words", content = '', contentless_delete = 1, tokenize = 'unicode61 remove_diacritics 2'
);

-- What is cleared is not found, and its words are gone.
-- only in SQLite
CREATE TRIGGER "entry_texts_gone" AFTER DELETE ON "entry_texts"
BEGIN DELETE FROM "entry_words" WHERE rowid = old."id"; END;

-- only in PostgreSQL
CREATE TABLE "entry_texts" (
    "thread_id" text NOT NULL,
    "seq" bigint NOT NULL,
    "at_ms" bigint NOT NULL,
    "words" tsvector NOT NULL,
    PRIMARY KEY ("thread_id", "seq"),
    FOREIGN KEY ("thread_id", "seq") REFERENCES "entries" ("thread_id", "seq") ON DELETE CASCADE
);

-- only in PostgreSQL
CREATE INDEX "entry_texts_by_word" ON "entry_texts" USING gin ("words");
