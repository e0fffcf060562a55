//! The store against real databases. A case runs over SQLite as a test of its own, and over
//! PostgreSQL in one test with all others, which share a server and have a database each.

mod faults;
mod followers;
mod idempotency;
mod keeping;
mod kept_entries;
mod kills;
mod labels;
mod maestro;
mod migrations;
mod model;
mod orphans;
mod postgres;
mod recent_events;
mod requests;
mod run_usage;
mod run_waits;
mod runs;
mod runs_by_model;
mod search;
mod session_marks;
mod settings_entries;
mod threads;
mod transfer;
mod writing;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use conjure_core::chat::{Event, EventId};
use conjure_core::log::{Entry, EntryBody};

use crate::sql::Pool;
use crate::{Location, Log as _, Options, Record, Store, StoreError, ThreadId, ThreadLog};

/// Where a case's database is. Opening it again is what another process would do.
#[derive(Clone)]
pub(crate) struct Bed {
    pub(crate) place: Location,
}

impl Bed {
    pub(crate) async fn open(&self) -> Store {
        Store::open(&self.place, &Options::default()).await.unwrap()
    }
}

/// Ends a store between two statements, as the end of its process would: from then on none is
/// executed any more.
#[derive(Clone, Default)]
pub(crate) struct Crash(Arc<AtomicI64>);

impl Crash {
    /// Lets so many statements pass.
    pub(crate) fn after(&self, statements: i64) {
        self.0.store(statements + 1, Ordering::SeqCst);
    }

    /// How many still pass.
    pub(crate) fn left(&self) -> i64 {
        self.0.load(Ordering::SeqCst) - 1
    }

    pub(crate) fn step(&self) -> Result<(), StoreError> {
        let before = self
            .0
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| match left {
                0 => None,
                1 => Some(1),
                left => Some(left - 1),
            });
        match before {
            Ok(1) => Err(StoreError::Closed),
            _ => Ok(()),
        }
    }
}

type Case = (&'static str, fn(Bed) -> Pin<Box<dyn Future<Output = ()>>>);

/// Makes a test of each case, and the list of all of them.
macro_rules! cases {
    ($($name:ident)*) => {
        pub(super) const ALL: &[super::Case] = &[
            $((stringify!($name), |bed| Box::pin($name(bed)))),*
        ];
        mod sqlite {
            $(#[test]
            fn $name() {
                crate::tests::over_sqlite((stringify!($name), |bed| Box::pin(super::$name(bed))));
            })*
        }
    };
}
use cases;

/// Runs a case over a new SQLite file.
fn over_sqlite((_, case): Case) {
    let dir = tempfile::tempdir().unwrap();
    let bed = Bed {
        place: Location::File(dir.path().join("conjure").join("conjure.db")),
    };
    runtime().block_on(case(bed));
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
}

/// The connections of another program to a database.
pub(crate) async fn other_program(url: &str) -> Pool {
    if url.starts_with("sqlite:") {
        Pool::Sqlite(sqlx::SqlitePool::connect(url).await.unwrap())
    } else {
        Pool::Postgres(sqlx::PgPool::connect(url).await.unwrap())
    }
}

pub(crate) fn id(text: &str) -> ThreadId {
    ThreadId::parse(text).unwrap()
}

pub(crate) fn entry(seq: u64) -> Record {
    of_turn(seq, 1)
}

pub(crate) fn of_turn(seq: u64, turn: u64) -> Record {
    Record::Entry(Entry {
        seq,
        turn,
        at_ms: 1_000 + i64::try_from(seq).unwrap(),
        body: EntryBody::notice(format!("entry {seq}")),
    })
}

pub(crate) fn event(epoch: u64, seq: u64) -> Record {
    Record::Event {
        id: EventId { epoch, seq },
        event: Event::Content {
            delta: format!("Grüße {seq}\n"),
        },
    }
}

pub(crate) async fn open(store: &Store, thread: &str) -> Box<dyn ThreadLog> {
    store.open(&id(thread)).await.unwrap()
}

pub(crate) async fn read(store: &Store, thread: &str) -> Vec<Record> {
    store.read(&id(thread)).await.unwrap()
}
