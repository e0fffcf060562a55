//! Every case over PostgreSQL: the server of tests, and a database for each.

use std::sync::atomic::{AtomicU64, Ordering};

use conjure_kit::Postgres;

use crate::Location;

use super::{
    Bed, followers, idempotency, keeping, kept_entries, labels, orphans, other_program,
    recent_events, requests, run_usage, run_waits, runs, runtime, search, session_marks,
    settings_entries, threads, transfer, writing,
};

/// A server, which ends with this value where this test began it.
pub(crate) struct Server(Postgres);

impl Server {
    /// The server; where there is none the test is left out, and says so.
    pub(crate) fn get() -> Option<Self> {
        match Postgres::find() {
            Ok(Some(server)) => return Some(Self(server)),
            Ok(None) => {
                println!("LEFT OUT: PostgreSQL: it is not installed (Debian: postgresql)");
            }
            Err(why) => println!("LEFT OUT: PostgreSQL: {why}"),
        }
        None
    }

    /// The URL of a database beside those of tests.
    pub(crate) fn url(&self) -> &str {
        self.0.url()
    }

    /// A new, empty database.
    pub(crate) async fn bed(&self) -> Bed {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("conjure_{}_{number}", std::process::id());
        let server = other_program(self.0.url()).await;
        for sql in [
            format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)"),
            format!("CREATE DATABASE {name}"),
        ] {
            server.execute_raw(&sql).await.unwrap();
        }
        server.close().await;
        let url = self.0.url_of(&name);
        Bed {
            place: Location::parse(&url).unwrap(),
        }
    }
}

#[test]
fn every_case_holds_over_postgres_too() {
    let Some(server) = Server::get() else { return };
    let all = [
        threads::ALL,
        labels::ALL,
        kept_entries::ALL,
        run_usage::ALL,
        run_waits::ALL,
        writing::ALL,
        keeping::ALL,
        orphans::ALL,
        requests::ALL,
        runs::ALL,
        idempotency::ALL,
        transfer::ALL,
        recent_events::ALL,
        followers::ALL,
        search::ALL,
        session_marks::ALL,
        settings_entries::ALL,
    ]
    .concat();
    for (name, case) in all {
        println!("{name}");
        runtime().block_on(async { case(server.bed().await).await });
    }
}
