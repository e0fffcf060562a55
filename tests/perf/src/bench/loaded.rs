//! What a session needs that is loaded and idle.

use anyhow::Result;
use std::time::Duration;

use conjure_core::chat::Message;
use conjure_host::store::RunState;

use super::on_runtime;
use crate::figure::{Figure, short};
use crate::manager::Managed;
use crate::measured::own_memory;
use crate::shipped::BenchArtifacts;
use crate::stream_server::{StreamServer, ask};

/// KiB that it may need.
const TARGET: f64 = 20.0;

const SESSIONS: usize = 1_000;
/// Sessions that are loaded before, so that what all share is there: the database's cache too.
const BEFORE: usize = 500;
/// Deltas of the one turn that each had.
const DELTAS: usize = 50;

pub(super) fn run(_: &BenchArtifacts) -> Result<Vec<Figure>> {
    let server = StreamServer::start()?;
    on_runtime(async move {
        let managed = Managed::new(&server.url).await?;
        load(&managed, BEFORE).await?;
        let before = own_memory()?;
        load(&managed, SESSIONS).await?;
        let each = (own_memory()? - before) / SESSIONS as f64;
        managed.manager.shutdown(Duration::from_secs(30)).await;
        let after = (own_memory()? - before) / SESSIONS as f64;
        let figure = Figure::single(
            "session_idle",
            "KiB",
            each,
            &format!(
                "Resident memory that is no file's (RssAnon), after {SESSIONS} sessions had a turn \
                 of {DELTAS} deltas each, one after the other, and stay loaded without a client, \
                 less that before ({BEFORE} had been loaded), a session."
            ),
        );
        Ok(vec![figure.at_most(TARGET).note(format!(
            "{} KiB a session are still there when all are closed.",
            short(after)
        ))])
    })
}

async fn load(managed: &Managed, sessions: usize) -> Result<()> {
    for _ in 0..sessions {
        let session = managed.session().await?;
        let message = Message::user(ask(DELTAS, Duration::ZERO));
        let turn = managed.manager.say(&session.session, message, None).await?;
        let run = managed.manager.wait(&turn.id).await?;
        anyhow::ensure!(run.state == RunState::Completed, "the turn is {run:?}");
    }
    Ok(())
}
