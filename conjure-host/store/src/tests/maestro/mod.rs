//! The import from the-maestro, out of a real PostgreSQL database with its tables.

mod odd;
mod whole;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use conjure_core::chat::Message;
use conjure_core::log::{EntryBody, messages};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value as Json, json};

use crate::sql::Pool;
use crate::{
    Location, Maestro, MaestroChoices, MaestroReport, MaestroSecret, SavedAuth, Store, ThreadId,
    Window,
};

use super::postgres::Server;
use super::{Bed, other_program};

/// The tables as the application has them now, as far as they are read, a statement a line. The test of
/// the database's page makes them too.
const TABLES: &str = include_str!("../fixtures/the-maestro.sql");

/// What it had before: agents, which sessions refer to, and numbers as ids.
const OLD_TABLES: &str = "\
    CREATE TABLE saved_authentications (id bigint PRIMARY KEY, provider varchar, auth_type varchar, \
        credentials jsonb, expires_at timestamp);
    CREATE TABLE personas (id uuid PRIMARY KEY, name varchar, prompt_text text);
    CREATE TABLE base_system_prompts (id uuid PRIMARY KEY, name varchar, prompt_text text);
    CREATE TABLE agents (id uuid PRIMARY KEY, name varchar, auth_id bigint, persona_id uuid, \
        base_system_prompt_id uuid, working_directory varchar, memory jsonb, tools jsonb, \
        mcps jsonb);
    CREATE TABLE sessions (id uuid PRIMARY KEY, name varchar, agent_id uuid, \
        latest_chat_entry_id uuid, inserted_at timestamp);
    CREATE TABLE chat_history (id uuid PRIMARY KEY, turn_index integer NOT NULL, actor varchar, \
        combined_chat jsonb NOT NULL, session_id uuid NOT NULL, inserted_at timestamp);";

/// An id there.
fn uuid(number: u32) -> String {
    format!("{number:08x}-0000-4000-8000-000000000000")
}

fn thread(number: u32) -> ThreadId {
    ThreadId::parse(&uuid(number)).unwrap()
}

/// The other application's database.
struct There {
    url: SecretString,
    db: Pool,
    next: std::cell::Cell<u32>,
}

/// A row of the history.
#[derive(Default)]
struct Row<'a> {
    session: Option<u32>,
    thread: Option<u32>,
    parent: Option<u32>,
    fork_from: Option<u32>,
    label: Option<&'a str>,
    turn: Option<i64>,
    chat: Json,
}

impl There {
    async fn new(server: &Server, tables: &str) -> Self {
        let Location::Postgres(url) = server.bed().await.place else {
            panic!("a server's place is PostgreSQL");
        };
        let db = other_program(url.expose_secret()).await;
        for statement in tables.lines() {
            db.execute_raw(statement).await.unwrap();
        }
        let next = 0x9000.into();
        Self { url, db, next }
    }

    async fn put(&self, table: &str, row: &[(&str, Option<String>)]) {
        let names: Vec<&str> = row.iter().map(|(name, _)| *name).collect();
        let values = row.iter().map(|(_, value)| match value {
            Some(value) => format!("'{}'", value.replace('\'', "''")),
            None => "NULL".to_owned(),
        });
        let values: Vec<String> = values.collect();
        let sql = format!(
            "INSERT INTO {table} ({}) VALUES ({})",
            names.join(", "),
            values.join(", ")
        );
        self.db.execute_raw(&sql).await.unwrap();
    }

    async fn auth(&self, number: u32, provider: &str, kind: &str, credentials: Json) {
        let row = [
            ("id", Some(uuid(number))),
            ("provider", Some(provider.to_owned())),
            ("auth_type", Some(kind.to_owned())),
            ("name", Some(format!("auth-{number}"))),
            ("credentials", Some(credentials.to_string())),
            ("expires_at", Some("2025-10-01 12:00:00".to_owned())),
        ];
        self.put("saved_authentications", &row).await;
    }

    async fn session(&self, number: u32, name: Option<&str>, auth: Option<u32>, more: Json) {
        let mut row = vec![
            ("id", Some(uuid(number))),
            ("name", name.map(str::to_owned)),
            ("auth_id", auth.map(uuid)),
            ("inserted_at", Some("2025-09-10 10:00:00".to_owned())),
            ("updated_at", Some("2025-09-11 10:00:00".to_owned())),
        ];
        for name in ["model_id", "working_dir"] {
            row.push((name, more[name].as_str().map(str::to_owned)));
        }
        for name in ["persona", "memory", "tools", "mcps"] {
            row.push((name, more.get(name).map(Json::to_string)));
        }
        self.put("sessions", &row).await;
    }

    /// A row of the history, a minute behind the one before; its number.
    async fn row(&self, row: Row<'_>) -> u32 {
        let number = self.next.get();
        self.next.set(number + 1);
        let minute = number - 0x9000;
        let columns = [
            ("id", Some(uuid(number))),
            ("session_id", row.session.map(uuid)),
            ("thread_id", row.thread.map(uuid)),
            ("parent_thread_id", row.parent.map(uuid)),
            ("fork_from_entry_id", row.fork_from.map(uuid)),
            ("thread_label", row.label.map(str::to_owned)),
            ("turn_index", row.turn.map(|turn| turn.to_string())),
            ("combined_chat", Some(row.chat.to_string())),
            ("inserted_at", Some(format!("2025-09-10 10:{minute:02}:00"))),
        ];
        self.put("chat_history", &columns).await;
        number
    }

    /// Snapshots of a growing thread.
    async fn grow(&self, session: u32, thread: u32, chat: &[Json]) -> Vec<u32> {
        let mut rows = Vec::new();
        for messages in 1..=chat.len() {
            let row = Row {
                session: Some(session),
                thread: Some(thread),
                turn: Some(i64::try_from(messages).unwrap()),
                chat: json!({ "version": "v1", "messages": &chat[..messages] }),
                ..Row::default()
            };
            rows.push(self.row(row).await);
        }
        rows
    }

    async fn read(&self) -> Maestro {
        Maestro::read(&self.url).await.unwrap()
    }

    /// Everything that is there.
    async fn everything(&self) -> String {
        let rows = async |sql: &str| {
            let rows = self.db.all(sql, Vec::new()).await.unwrap();
            let texts = rows.iter().map(|row| row.get("t").unwrap());
            texts.collect::<Vec<String>>()
        };
        let tables = "SELECT CAST(table_name AS TEXT) AS t FROM information_schema.tables \
                      WHERE table_schema = 'public' ORDER BY 1";
        let mut all = String::new();
        for table in rows(tables).await {
            let sql = format!(
                "SELECT CAST(x AS TEXT) || CAST(xmin AS TEXT) AS t FROM {table} x ORDER BY 1"
            );
            let _ = writeln!(all, "{table}\n{}", rows(&sql).await.join("\n"));
        }
        all
    }
}

fn user(text: &str) -> Json {
    json!({"role": "user", "content": [{"type": "text", "text": text}]})
}

fn assistant(text: &str) -> Json {
    json!({"role": "assistant", "content": [{"type": "text", "text": text}],
           "_meta": {"model": "gpt-5", "usage": {"prompt_tokens": 10, "completion_tokens": 2}}})
}

/// Saves an authentication here for each that can be read there.
async fn choices(store: &Store, maestro: &Maestro) -> MaestroChoices {
    let mut auths = BTreeMap::new();
    for auth in maestro.auths() {
        if matches!(auth.secret, MaestroSecret::Unreadable(_)) {
            continue;
        }
        let here = SavedAuth::new(&auth.provider, "api_key", &auth.name, vec![1]);
        let id = match store.create_auth(here).await {
            Ok(saved) => saved.id,
            Err(_) => store.auths(None, 1).await.unwrap().swap_remove(0).id,
        };
        auths.insert(auth.id.clone(), id);
    }
    MaestroChoices {
        auths,
        working_dir: "/here".to_owned(),
        ..MaestroChoices::default()
    }
}

async fn import(there: &There, store: &Store) -> MaestroReport {
    let maestro = there.read().await;
    let choices = choices(store, &maestro).await;
    store.import_maestro(&maestro, &choices).await.unwrap()
}

/// What a thread says, and the turns of its entries.
async fn said(store: &Store, thread: &ThreadId) -> (Vec<String>, Vec<u64>) {
    let page = store
        .entries(thread, Window::After(0), 1_000)
        .await
        .unwrap();
    let seqs: Vec<u64> = page.entries.iter().map(|entry| entry.seq).collect();
    assert_eq!(seqs, (1..=page.entries.len() as u64).collect::<Vec<_>>());
    let texts = messages(&page.entries).iter().map(Message::text).collect();
    let began = page.entries.iter().filter_map(|entry| match entry.body {
        EntryBody::TurnStarted { .. } => Some(entry.turn),
        _ => None,
    });
    (texts, began.collect())
}

async fn sqlite() -> (tempfile::TempDir, Store) {
    let dir = tempfile::tempdir().unwrap();
    let place = Location::File(dir.path().join("conjure.db"));
    (dir, Bed { place }.open().await)
}
