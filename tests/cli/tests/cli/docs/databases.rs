//! The page of the database, over one that an earlier version made, and with the database of another
//! application beside it.

use conjure_kit::{Postgres, repo_root};

use super::blocks::Block;
use super::commands::{Place, commands, have};

const PAGE: &str = "conjure-host/docs/store.md";
const FIXTURES: &str = "conjure-host/store/src/tests/fixtures";

/// Makes an SQLite database, `$1`, of files of SQL.
const MADE_OF_SQL: &str = r#"
import sqlite3
import sys

database = sqlite3.connect(sys.argv[1])
for file in sys.argv[2:]:
    database.executescript(open(file, encoding="utf-8").read())
"#;

/// The database of the other application, with a role of the reader's; `$TABLES` has its tables.
const THERE: &str = r#"
psql -q -d postgres -c 'CREATE ROLE me LOGIN SUPERUSER' -c 'CREATE DATABASE the_maestro_dev'
psql -q -v ON_ERROR_STOP=1 -d the_maestro_dev -f "$TABLES" -f there.sql
"#;
/// A session there, with its auth and what was said.
const ROWS: &str = r#"
INSERT INTO saved_authentications (id, provider, auth_type, name, credentials) VALUES
    ('000000a1-0000-4000-8000-000000000000', 'openai', 'api_key', 'theirs',
     '{"api_key": "a-key-of-nobody"}');
INSERT INTO sessions (id, name, auth_id, model_id) VALUES
    ('00000001-0000-4000-8000-000000000000', 'Their lighthouse',
     '000000a1-0000-4000-8000-000000000000', 'gpt-5');
INSERT INTO chat_history (id, session_id, thread_id, turn_index, combined_chat) VALUES
    ('00009000-0000-4000-8000-000000000000', '00000001-0000-4000-8000-000000000000',
     '00000071-0000-4000-8000-000000000000', 1,
     '{"messages": [{"role": "user", "content": [{"type": "text", "text": "A river?"}]}]}');
"#;

#[test]
fn store() {
    if !have(&["jq", "python3"]) {
        return;
    }
    let place = Place::new();
    let fixtures = repo_root().join(FIXTURES);
    place
        .workspace
        .write("made_of_sql.py", MADE_OF_SQL)
        .unwrap();
    place.make(&format!(
        "/usr/bin/python3 made_of_sql.py ~/.local/share/conjure/conjure.db '{0}/v1-sqlite.sql' \
         '{0}/v1-rows.sql'",
        fixtures.display()
    ));
    // The first start of this version, behind a backup.
    place.make("conjure run --provider anthropic --model claude-sonnet-4-5 'What is here?'");
    let [threads, changes]: [Block; 2] = commands(PAGE).try_into().unwrap();
    place.run_blocks(&[threads], &[]);
    import_and_go_back(&place, &changes);
}

/// Whether a session that the other application had is here.
fn is_imported(place: &Place) -> bool {
    let sessions = place.output_of("conjure session list --json");
    sessions.stdout.contains("Their lighthouse")
}

/// Takes over what the other application has, and goes back to what an earlier version had.
fn import_and_go_back(place: &Place, changes: &Block) {
    let Some(server) = Postgres::begin().unwrap() else {
        println!("LEFT OUT: PostgreSQL: it is not installed (Debian: postgresql)");
        return;
    };
    if !have(&["psql"]) {
        return;
    }
    let (_, port) = server.url().rsplit_once(':').unwrap();
    let (port, _) = port.split_once('/').unwrap();
    place.workspace.write("there.sql", ROWS).unwrap();
    let made = place
        .shell(THERE)
        .env("PGHOST", "127.0.0.1")
        .env("PGPORT", port)
        .env("PGUSER", "conjure")
        .env("TABLES", repo_root().join(FIXTURES).join("the-maestro.sql"))
        .run()
        .unwrap();
    assert_eq!(made.code, Some(0), "{}", made.snapshot());
    let lines: Vec<&str> = changes.text.lines().collect();
    let [import, rollback] = lines.as_slice() else {
        panic!("{}: {lines:?}", changes.place());
    };
    let imported = place.shell(import).env("PGPORT", port).run().unwrap();
    assert_eq!(imported.code, Some(0), "{}", imported.snapshot());
    assert!(is_imported(place), "{}", imported.snapshot());
    let mut going_back = place.begin_at_terminal(rollback);
    going_back.wait_for_stdout("[y]es, [n]o").unwrap();
    going_back.send_line("y").unwrap();
    let output = going_back.wait().unwrap();
    assert_eq!(output.code, Some(0), "{}", output.snapshot());
    assert!(!is_imported(place), "{}", output.snapshot());
}
