//! Databases that fail under a server: said with a status that is described, nothing is half-done,
//! and the server goes on as soon as the database does.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use conjure_kit::{Signal, SmallDisk, Workspace};
use conjure_mock_llm::{Message, Position, Reply as Says};
use serde_json::json;
use sqlx::{
    AssertSqlSafe, Connection as _, PgConnection, Sqlite, SqlitePool, Transaction, raw_sql,
};
use tokio::runtime::{Builder, Runtime};

use crate::events::Client;
use crate::postgres::Database;
use crate::server::{PATIENCE, Reply, Server, command};
use crate::stage::{Stage, text};

/// Saves a persona of so many bytes.
fn save(server: &Server, name: &str, bytes: usize) -> Reply {
    let persona = json!({ "name": name, "persona_text": "x".repeat(bytes) });
    server.post("/api/v1/personas", &persona)
}

fn names(server: &Server) -> Vec<String> {
    let page = server.get("/api/v1/personas?limit=200").is(200).json();
    let items = page["items"].as_array().unwrap().iter();
    items.map(|item| text(&item["name"])).collect()
}

/// Nothing is written: the problem says so, and so does the check of a supervisor.
fn is_unavailable(server: &Server) {
    let refused = save(server, "lost", 10).is(503);
    assert_eq!(refused.kind(), "database");
    assert_eq!(refused.header("retry-after"), Some("5"));
    let ready = server.get("/readyz").is(503);
    assert_eq!(ready.kind(), "database");
    server.get("/healthz").is(200);
}

#[test]
fn a_full_disk_is_said_with_507_and_it_goes_on_when_there_is_space() {
    let Some(disk) = SmallDisk::mount(12 << 20) else {
        return;
    };
    let workspace = Workspace::new().unwrap();
    let filler = disk.path().join("filler");
    fs::write(&filler, vec![1; 6 << 20]).unwrap();
    let database = disk.path().join("conjure.db").display().to_string();
    let server = Server::with(&workspace, "", &[("CONJURE_DATABASE", &database)]);
    let mut saved = Vec::new();
    let refused = loop {
        assert!(saved.len() < 100, "the disk is never full");
        let name = format!("p{}", saved.len());
        let reply = save(&server, &name, 500_000);
        if reply.status != 201 {
            break reply.is(507);
        }
        saved.push(name);
    };
    assert_eq!(refused.kind(), "no-space");
    assert!(!saved.is_empty());
    assert_eq!(names(&server), saved);
    assert_eq!(save(&server, "again", 500_000).is(507).kind(), "no-space");
    fs::remove_file(&filler).unwrap();
    save(&server, "last", 500_000).is(201);
    saved.push("last".to_owned());
    assert_eq!(names(&server), saved);
    server.get("/readyz").is(200);
}

#[test]
fn a_turn_in_which_the_disk_fills_is_over_at_once_and_in_the_database_when_there_is_space() {
    let Some(disk) = SmallDisk::mount(12 << 20) else {
        return;
    };
    let workspace = Workspace::new().unwrap();
    workspace.add_plugin("conjure-backend-local").unwrap();
    let database = disk.path().join("conjure.db").display().to_string();
    let env = [("CONJURE_DATABASE", database.as_str())];
    let stage = Stage::on(Server::with(&workspace, "", &env));
    let session = stage.session(&json!({}));
    let (id, thread) = (text(&session["id"]), text(&session["thread"]["id"]));
    let answer = Says::from(Message::new().text("A long story of the sea").deltas(3));
    stage.model.says(answer.hold(Position::Event(4), "middle"));
    let events = format!("/api/v1/threads/{thread}/events");
    let mut follower = Client::follow(&stage.server, &events, None);
    let turn = stage.say(&id, "Tell");
    stage.model.mock().wait_for_gate_blocking("middle").unwrap();
    disk.fill().unwrap();
    stage.model.mock().release("middle");

    let over = stage.over(&turn);
    assert_eq!(over["state"], "interrupted", "{over}");
    assert!(text(&over["error"]).contains("no space"), "{over}");
    let shown = follower.until("done");
    assert!(shown.iter().any(|came| came.kind == "error"), "{shown:?}");
    let cancel = format!("/api/v1/sessions/{id}/cancel");
    stage.server.post(&cancel, &json!({})).is(204);
    assert_eq!(stage.now(&id)["state"], "idle");

    disk.make_room().unwrap();
    let other = Server::with(&workspace, "", &env);
    let path = format!("/api/v1/turns/{}?wait=1", text(&turn["turn"]));
    let until = Instant::now() + PATIENCE;
    while other.get(&path).is(200).json()["state"] != "interrupted" {
        assert!(Instant::now() < until, "its end is not written");
    }
    stage.model.says(Message::new().text("Later."));
    stage.talk(&id, "More");
}

#[test]
fn a_file_that_is_handed_over_to_a_full_disk_is_refused_with_507() {
    let Some(disk) = SmallDisk::mount(12 << 20) else {
        return;
    };
    let workspace = Workspace::new().unwrap();
    let data = workspace.home().join(".local/share/conjure");
    fs::create_dir_all(&data).unwrap();
    symlink(disk.path(), data.join("uploads")).unwrap();
    let server = Server::with(&workspace, "", &[]);
    let hand_over = |bytes: usize| {
        let kind = [("content-type", "application/octet-stream")];
        let path = "/api/v1/uploads?name=large.bin";
        server.ask("POST", path, &kind, vec![1_u8; bytes])
    };
    assert_eq!(hand_over(20 << 20).is(507).kind(), "no-space");
    hand_over(1 << 20).is(201);
}

#[test]
fn a_database_that_may_only_be_read_is_said_before_the_server_begins() {
    let Some(disk) = SmallDisk::mount(12 << 20) else {
        return;
    };
    let workspace = Workspace::new().unwrap();
    let database = disk.path().join("conjure.db").display().to_string();
    let env = [("CONJURE_DATABASE", database.as_str())];
    let server = Server::with(&workspace, "", &env);
    save(&server, "kept", 10).is(201);
    server.end(Signal::TERM);
    disk.remount("ro").unwrap();
    let refused = command(&workspace, "")
        .env("CONJURE_DATABASE", &database)
        .run()
        .unwrap();
    assert_ne!(refused.code, Some(0), "{refused:?}");
    assert!(refused.stderr.contains("read-only"), "{}", refused.stderr);
    disk.remount("rw").unwrap();
    assert_eq!(names(&Server::with(&workspace, "", &env)), ["kept"]);
}

/// The SQLite file of a workspace.
fn file(workspace: &Workspace) -> PathBuf {
    workspace.home().join(".local/share/conjure/conjure.db")
}

#[test]
fn a_database_that_another_program_holds_is_said_and_it_goes_on_when_that_is_gone() {
    let server = Server::start();
    save(&server, "kept", 10).is(201);
    let held = Held::take(&file(&server.workspace));
    is_unavailable(&server);
    // What is only read is there.
    assert_eq!(names(&server), ["kept"]);
    drop(held);
    save(&server, "after", 10).is(201);
    assert_eq!(names(&server), ["kept", "after"]);
    server.get("/readyz").is(200);
}

/// Another program that writes to a database and does not end.
struct Held {
    runtime: Runtime,
    writing: Option<Transaction<'static, Sqlite>>,
}

impl Held {
    fn take(path: &Path) -> Self {
        let runtime = runtime();
        let writing = runtime.block_on(async {
            let other = SqlitePool::connect(&format!("sqlite://{}", path.display())).await;
            let mut writing = other.unwrap().begin().await.unwrap();
            let written = raw_sql("DELETE FROM runs").execute(&mut *writing).await;
            written.unwrap();
            writing
        });
        Self {
            runtime,
            writing: Some(writing),
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(writing) = self.writing.take() {
            self.runtime.block_on(writing.rollback()).unwrap();
        }
    }
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// Waits until the server can work again.
fn wait_until_ready(server: &Server) {
    let until = Instant::now() + PATIENCE;
    while server.get("/readyz").status != 200 {
        assert!(Instant::now() < until, "it does not go on");
        std::thread::sleep(Duration::from_millis(200));
    }
}

#[test]
fn a_server_of_postgres_that_stops_is_said_and_it_goes_on_when_that_is_back() {
    let Some(database) = Database::begin() else {
        return;
    };
    let stage = database.stage();
    let session = text(&stage.session(&json!({}))["id"]);
    stage.model.says(Message::new().text("First."));
    stage.talk(&session, "One");
    database.0.stop().unwrap();
    is_unavailable(&stage.server);
    let path = format!("/api/v1/sessions/{session}");
    assert_eq!(stage.server.get(&path).is(503).kind(), "database");
    database.0.start().unwrap();
    wait_until_ready(&stage.server);
    stage.model.says(Message::new().text("Second."));
    stage.talk(&session, "Two");
    assert_eq!(stage.now(&session)["thread"]["turns"], 2);
    assert_eq!(names(&stage.server), Vec::<String>::new());
}

#[test]
fn a_server_of_postgres_that_only_reads_is_said_and_read() {
    let Some(database) = Database::begin() else {
        return;
    };
    let stage = database.stage();
    save(&stage.server, "kept", 10).is(201);
    // What a fail-over does to connections: they end, and the next find another setting.
    let set = |setting: &str| {
        runtime().block_on(async {
            // Of another database, which may always be written.
            let (server, _) = database.0.url().rsplit_once('/').unwrap();
            let admin = PgConnection::connect(&format!("{server}/template1")).await;
            let mut admin = admin.unwrap();
            for sql in [
                format!("ALTER DATABASE postgres SET default_transaction_read_only = {setting}"),
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                 WHERE application_name = 'conjure'"
                    .to_owned(),
            ] {
                let set = raw_sql(AssertSqlSafe(sql)).execute(&mut admin).await;
                set.unwrap();
            }
            admin.close().await.unwrap();
        });
    };
    set("on");
    is_unavailable(&stage.server);
    assert_eq!(names(&stage.server), ["kept"]);
    set("off");
    wait_until_ready(&stage.server);
    save(&stage.server, "after", 10).is(201);
    assert_eq!(names(&stage.server), ["kept", "after"]);
}
