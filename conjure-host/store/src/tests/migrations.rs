//! Changes of the schema: from every released version to this one, with a backup before, and back.
//!
//! `fixtures/` has the first schema as SQL for either database, and rows for it, written once; and
//! the newest schema as a database tells it, so that a database that went through its steps long ago
//! and a new one are the same. `CONJURE_WRITE_FIXTURES=1` writes them.

use std::path::PathBuf;

use conjure_core::log::CallEnd;

use crate::migrations::rollback::restore_newest;
use crate::migrations::{STEPS, Step, statements};
use crate::sql::DatabaseKind;
use crate::{Location, Options, Record, Store, StoreError};

use super::postgres::Server;
use super::threads::{began, ended};
use super::transfer::{fill, same_threads};
use super::{Bed, entry, event, id, open, other_program, read, runtime};

const WRITE: &str = "CONJURE_WRITE_FIXTURES";

fn fixture(name: &str) -> PathBuf {
    let here = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    here.join("src/tests/fixtures").join(name)
}

/// The schema of version 1 as SQL, a statement a line.
fn schema(backend: DatabaseKind) -> String {
    let first = statements(STEPS[0].sql, backend).into_iter();
    let text = match backend {
        DatabaseKind::Postgres => "varchar",
        DatabaseKind::Sqlite => "varchar NOT NULL",
    };
    let steps = [
        format!(
            "CREATE TABLE seaql_migrations (version {text} PRIMARY KEY, applied_at bigint NOT NULL)"
        ),
        "INSERT INTO seaql_migrations VALUES ('m0001_first', 1)".to_owned(),
    ];
    first
        .chain(steps)
        .map(|statement| statement + ";\n")
        .collect()
}

/// Rows for version 1. Bytes are written as SQLite does.
fn rows() -> String {
    let body = |record: &Record| match record {
        Record::Entry(entry) => serde_json::to_vec(&entry.body).unwrap(),
        Record::Event { event, .. } => serde_json::to_vec(&[event]).unwrap(),
        Record::Opened { .. } => Vec::new(),
    };
    let bytes = |bytes: &[u8]| format!("X'{}'", crate::blobs::hex(bytes));
    let mut statements = vec![
        "INSERT INTO threads (id, thread_label, cleared_upto, epoch, last_seq, last_turn, \
         created_at_ms, updated_at_ms) VALUES ('t', 'A label', 0, 1, 4, 1, 1000, 2000)"
            .to_owned(),
        "INSERT INTO threads (id, parent_thread_id, fork_from_seq, epoch, last_seq, last_turn, \
         created_at_ms, updated_at_ms) VALUES ('f', 't', 3, 0, 3, 1, 1001, 2000)"
            .to_owned(),
        "INSERT INTO thread_labels VALUES ('t', 1, 'A label', 1500)".to_owned(),
    ];
    for record in fixture_records() {
        let body = crate::body::pack(body(&record));
        statements.push(match record {
            Record::Entry(entry) => format!(
                "INSERT INTO entries VALUES ('t', {}, {}, 'any', {}, {})",
                entry.seq,
                entry.turn,
                entry.at_ms,
                bytes(&body)
            ),
            Record::Event { id, .. } => format!(
                "INSERT INTO events VALUES ('t', {}, {}, {}, 4, {})",
                id.epoch,
                id.seq,
                id.seq,
                bytes(&body)
            ),
            Record::Opened { .. } => continue,
        });
    }
    let hash = crate::blobs::hex(&<sha2::Sha256 as sha2::Digest>::digest([1, 2, 3]));
    statements.extend([
        "INSERT INTO tool_calls VALUES ('t', 'c', 'done', 'local', NULL, 2, 3, 1002, 1003, 7)"
            .to_owned(),
        format!("INSERT INTO blobs VALUES ('{hash}', 3, 'u', 0)"),
        format!("INSERT INTO blob_pieces VALUES ('u', 0, {})", bytes(&[1, 2, 3])),
        format!(
            "INSERT INTO artifacts VALUES ('t', 2, 'file-1', 'a.csv', 'text/csv', 3, 'local', 'c', \
             'blob:{hash}', NULL, '{hash}')"
        ),
        format!(
            "INSERT INTO saved_authentications VALUES ('a1', 'openai', 'api_key', 'work', NULL, {}, 1, 1)",
            bytes(b"sealed")
        ),
        "INSERT INTO sessions VALUES ('s1', 'login', 'a1', 'gpt', '/home/me', '{}', '{\"k\":1}', '{}', '{}', \
         't', 't/4', 1, 1)"
            .to_owned(),
        "INSERT INTO personas VALUES ('p1', 'Terse', '1', 'You are terse.', 1, 1)".to_owned(),
        "INSERT INTO mcp_servers VALUES ('m1', 'files', '{}', TRUE, 1, 1)".to_owned(),
        "INSERT INTO plugins VALUES ('00ff', 'conjure-local', '1.0', 'backend', 'local.so', TRUE, 1, 1)"
            .to_owned(),
        "INSERT INTO runs VALUES ('r1', 's1', 't', 'w', 'completed', 5, 3, 4, 9, 1, 2, 3, 4, 5, 6, \
         0.5, NULL)"
            .to_owned(),
    ]);
    statements
        .iter()
        .map(|statement| format!("{statement};\n"))
        .collect()
}

/// What the rows say; the last entry is long enough to be compressed.
fn fixture_records() -> Vec<Record> {
    let long = super::threads::notice(4, "a long text, ".repeat(1_000));
    vec![
        entry(1),
        began(2, "c"),
        ended(3, "c", CallEnd::Done),
        long,
        event(1, 1),
    ]
}

#[test]
fn the_first_schema_is_what_was_released() {
    for (backend, name) in [
        (DatabaseKind::Sqlite, "v1-sqlite.sql"),
        (DatabaseKind::Postgres, "v1-postgres.sql"),
    ] {
        if std::env::var_os(WRITE).is_some() {
            std::fs::write(fixture(name), schema(backend)).unwrap();
        }
        let released = std::fs::read_to_string(fixture(name)).unwrap();
        assert!(
            schema(backend) == released,
            "{name}: a released schema does not change; add a step to it"
        );
    }
    if std::env::var_os(WRITE).is_some() {
        std::fs::write(fixture("v1-rows.sql"), rows()).unwrap();
    }
}

/// A database of version 1 becomes one of this version, and all of it is there.
async fn from_version_1(bed: Bed, url: &str, schema: &str) {
    let raw = other_program(url).await;
    let mut rows = std::fs::read_to_string(fixture("v1-rows.sql")).unwrap();
    if matches!(bed.place, Location::Postgres(_)) {
        rows = rows.replace("X'", "'\\x");
    }
    let schema = std::fs::read_to_string(fixture(schema)).unwrap();
    for statement in schema.lines().chain(rows.lines()) {
        raw.execute_raw(statement).await.unwrap();
    }
    raw.close().await;

    let backups = tempfile::tempdir().unwrap();
    let options = Options {
        backups: Some(backups.path().to_owned()),
        ..Options::default()
    };
    let store = Store::open(&bed.place, &options).await.unwrap();
    let kept = std::fs::read_dir(backups.path()).unwrap().count();
    assert_eq!(kept, 1, "a backup is made before the schema changes");
    assert!(read(&store, "t").await == fixture_records());
    assert_eq!(read(&store, "f").await.len(), 3);
    assert_eq!(store.thread(&id("t")).await.unwrap().label, "A label");
    assert_eq!(
        store.tool_calls(&id("f")).await.unwrap()[0].state.as_str(),
        "done"
    );
    let files = store.artifacts(&id("t")).await.unwrap();
    let blob = files[0].blob.as_ref().unwrap();
    assert_eq!(store.read_blob(blob, 0, 9).await.unwrap(), [1, 2, 3]);
    assert_eq!(store.auth("a1").await.unwrap().sealed, b"sealed");
    assert_eq!(store.session("s1").await.unwrap().memory.0["k"], 1);
    let session = store.session_named("login").await.unwrap();
    assert_eq!(session.id, "s1");
    let run = store.run("r1").await.unwrap();
    assert_eq!((run.ended_at_ms, run.spent.usd), (Some(9), Some(0.5)));
    assert_eq!(store.persona("p1").await.unwrap().name, "Terse");
    assert!(store.mcp_server("m1").await.unwrap().enabled);
    let check = store.check().await.unwrap();
    assert!(check.is_sound(), "{check:?}");
    let mut log = open(&store, "t").await;
    assert_eq!((log.epoch(), log.last_seq()), (2, 4));
    let next = [entry(5), event(2, 1)];
    log.append(&next, true).await.unwrap();
    let all = [fixture_records(), next.to_vec()].concat();
    assert!(read(&store, "t").await == all);
    store.close().await;
    // What was written last was moved to where the rest is.
    assert!(read(&bed.open().await, "t").await == all);
}

#[test]
fn a_database_of_version_1_comes_to_this_version_over_sqlite() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("conjure.db");
    let url = format!("sqlite://{}?mode=rwc", path.display());
    let place = Location::File(path);
    runtime().block_on(from_version_1(Bed { place }, &url, "v1-sqlite.sql"));
}

#[test]
fn a_database_of_version_1_comes_to_this_version_over_postgres() {
    let Some(server) = Server::get() else { return };
    runtime().block_on(async {
        let bed = server.bed().await;
        let url = super::faults::url(&bed);
        Box::pin(from_version_1(bed, &url, "v1-postgres.sql")).await;
    });
}

/// What a database says of its schema, a line each.
async fn told(bed: &Bed) -> String {
    let queries: &[&str] = match bed.place {
        Location::Postgres(_) => &[
            "SELECT 'column ' || table_name || '.' || column_name || ' ' || data_type || ' ' \
             || is_nullable || ' ' || COALESCE(column_default, '-') AS t \
             FROM information_schema.columns WHERE table_schema = 'public' \
             ORDER BY table_name, ordinal_position",
            "SELECT 'constraint ' || conrelid::regclass || ' ' || conname || ' ' \
             || pg_get_constraintdef(oid) AS t FROM pg_constraint \
             WHERE connamespace = 'public'::regnamespace ORDER BY 1",
            "SELECT 'index ' || indexdef AS t FROM pg_indexes WHERE schemaname = 'public' ORDER BY 1",
        ],
        _ => &["SELECT sql || ';' AS t FROM sqlite_master WHERE sql IS NOT NULL ORDER BY rowid"],
    };
    let other = other_program(&super::faults::url(bed)).await;
    let mut told = String::new();
    for query in queries {
        for row in other.all(query, Vec::new()).await.unwrap() {
            told += &row.get::<String>("t").unwrap();
            told.push('\n');
        }
    }
    other.close().await;
    told
}

async fn is_the_known_schema(bed: &Bed, name: &str) {
    bed.open().await.close().await;
    let told = told(bed).await;
    if std::env::var_os(WRITE).is_some() {
        std::fs::write(fixture(name), &told).unwrap();
    }
    assert_eq!(told, std::fs::read_to_string(fixture(name)).unwrap());
}

#[test]
fn the_newest_schema_is_the_one_that_databases_have_over_sqlite() {
    let dir = tempfile::tempdir().unwrap();
    let place = Location::File(dir.path().join("conjure.db"));
    runtime().block_on(is_the_known_schema(&Bed { place }, "schema-sqlite.sql"));
}

#[test]
fn the_newest_schema_is_the_one_that_databases_have_over_postgres() {
    let Some(server) = Server::get() else { return };
    runtime().block_on(async {
        let bed = server.bed().await;
        is_the_known_schema(&bed, "schema-postgres.txt").await;
    });
}

/// All steps, and one that a later version might have; half of it is done when it fails.
fn with_later(fails: bool) -> Vec<Step> {
    let sql = if fails {
        "ALTER TABLE personas ADD COLUMN mood text;\nDELETE FROM sessions;\nDELETE FROM nowhere;"
    } else {
        "ALTER TABLE personas ADD COLUMN mood text;\nDELETE FROM sessions;"
    };
    let name = "m0003_later";
    [&STEPS[..], &[Step { name, sql }]].concat()
}

async fn there_and_back(bed: Bed) {
    let backups = tempfile::tempdir().unwrap();
    let options = Options {
        backups: Some(backups.path().to_owned()),
        ..Options::default()
    };
    let store = bed.open().await;
    fill(&store).await;
    store.close().await;
    let none = Store::roll_back(&bed.place, &options).await.unwrap_err();
    assert!(matches!(none, StoreError::NotFound { .. }), "{none}");

    // A step that fails leaves the database as it was; the backup was made.
    let failed = migrate(true, &bed.place, &options).await;
    assert!(
        matches!(failed, Err(StoreError::Database { .. })),
        "{failed:?}"
    );
    let sessions = |store: Store| async move { store.sessions(None, 9).await.unwrap().len() };
    assert_eq!(sessions(bed.open().await).await, 1);

    migrate(false, &bed.place, &options).await.unwrap();
    let made = std::fs::read_dir(backups.path()).unwrap().count();
    assert_eq!(made, 2);
    let error = Store::open(&bed.place, &options).await.err().unwrap();
    let StoreError::Newer { migration } = &error else {
        panic!("{error}");
    };
    assert_eq!(migration, "m0003_later");
    // Once more changes nothing and makes no backup.
    migrate(false, &bed.place, &options).await.unwrap();
    assert_eq!(std::fs::read_dir(backups.path()).unwrap().count(), made);

    let from = restore_newest(&with_later(false), &bed.place, options.backups.as_deref()).await;
    assert!(from.unwrap().starts_with(backups.path()));
    let store = bed.open().await;
    assert_eq!(sessions(store.clone()).await, 1);
    assert_eq!(
        store.auths(None, 9).await.unwrap()[0].sealed,
        b"sealed-secret-bytes"
    );
    let whole = Store::open(&Location::Memory, &Options::default())
        .await
        .unwrap();
    let copy = backups.path().join("copy.jsonl");
    store.export(&copy).await.unwrap();
    whole.import(&copy).await.unwrap();
    same_threads(&store, &whole).await;
    let check = store.check().await.unwrap();
    assert!(check.is_sound(), "{check:?}");
    if matches!(bed.place, Location::File(_)) {
        // Not under the feet of somebody who has it open.
        let error = Store::roll_back(&bed.place, &options).await.unwrap_err();
        assert!(matches!(error, StoreError::Locked { .. }), "{error}");
    }
    store.close().await;
}

async fn migrate(fails: bool, place: &Location, options: &Options) -> Result<(), StoreError> {
    let steps = with_later(fails);
    let db = crate::database::Database::connect(place).await?;
    let done = crate::migrations::migrate(&steps, &db, place, options.backups.as_deref());
    let done = done.await;
    db.close().await;
    done
}

#[test]
fn a_change_is_backed_up_before_and_rolled_back_over_sqlite() {
    let dir = tempfile::tempdir().unwrap();
    let place = Location::File(dir.path().join("conjure.db"));
    runtime().block_on(there_and_back(Bed { place }));
}

#[test]
fn a_change_is_backed_up_before_and_rolled_back_over_postgres() {
    let Some(server) = Server::get() else { return };
    runtime().block_on(async { there_and_back(server.bed().await).await });
}
