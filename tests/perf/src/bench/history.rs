//! A thread of 10,000 turns: opening its last page, and forking it.

use std::path::Path;
use std::time::Instant;

use anyhow::{Context as _, Result};
use conjure_core::chat::{Event, EventId, Message, Usage};
use conjure_core::log::{Entry, EntryBody, TurnOutcome};
use conjure_host::store::{
    Location, Log as _, Options as StoreOptions, Record, Store, ThreadId, Window,
};

use super::on_runtime;
use crate::figure::Figure;
use crate::samples::{Samples, ms};
use crate::shipped::BenchArtifacts;

/// Milliseconds that the last page may take.
const PAGE: f64 = 20.0;
/// Milliseconds, and KiB, that a fork may take.
const FORK: f64 = 3.0;
const FORK_SIZE: f64 = 4.0;

const TURNS: u64 = 10_000;
const ENTRIES: u64 = 50;
const ROUNDS: usize = 200;
/// Turns that are written at once.
const TURNS_PER_WRITE: u64 = 200;

pub(super) fn run(_: &BenchArtifacts) -> Result<Vec<Figure>> {
    on_runtime(async {
        let dir = tempfile::tempdir()?;
        let file = dir.path().join("conjure.db");
        let thread = ThreadId::fresh();
        let store = open(&file).await?;
        write(&store, &thread, TURNS).await?;
        store.close().await;

        let mut cold = Samples::default();
        for _ in 0..10 {
            let store = open(&file).await?;
            cold.push(page(&store, &thread).await?);
            store.close().await;
        }
        let store = open(&file).await?;
        let mut warm = Samples::default();
        for _ in 0..ROUNDS {
            warm.push(page(&store, &thread).await?);
        }
        store.close().await;

        let before = size(&file)?;
        let store = open(&file).await?;
        let mut forks = Samples::default();
        for round in 0..ROUNDS as u64 {
            // Anywhere in it, also at its beginning.
            let from = 1 + round * (4 * TURNS / ROUNDS as u64);
            let begun = Instant::now();
            store.fork(&thread, from, &ThreadId::fresh()).await?;
            forks.push(ms(begun.elapsed()));
        }
        store.close().await;
        let grown = (size(&file)? - before) / 1024.0 / ROUNDS as f64;
        Ok(vec![
            Figure::new(
                "last_page",
                "ms",
                &cold,
                "The last 50 entries of a thread of 10,000 turns (40,000 entries) in an SQLite \
                 file: Store::entries, the first of a store that was opened just now.",
            )
            .at_most(PAGE),
            Figure::new(
                "last_page_again",
                "ms",
                &warm,
                "The same once more and again, of an open store.",
            )
            .at_most(PAGE),
            Figure::new(
                "fork",
                "ms",
                &forks,
                "Store::fork of that thread, behind 200 entries from its beginning to its end, to \
                 its commit.",
            )
            .at_most(FORK),
            Figure::single(
                "fork_size",
                "KiB",
                grown,
                "How much the file grew by 200 forks, with everything written into it, a fork.",
            )
            .at_most(FORK_SIZE),
        ])
    })
}

pub(super) async fn open(file: &Path) -> Result<Store> {
    let place = Location::File(file.to_owned());
    Ok(Store::open(&place, &StoreOptions::default()).await?)
}

/// Milliseconds that the last page takes.
async fn page(store: &Store, thread: &ThreadId) -> Result<f64> {
    let begun = Instant::now();
    let page = store.entries(thread, Window::Last, ENTRIES).await?;
    let took = ms(begun.elapsed());
    anyhow::ensure!(
        page.entries.len() as u64 == ENTRIES && page.last_seq == 4 * TURNS,
        "the page has {} entries up to {}",
        page.entries.len(),
        page.last_seq
    );
    Ok(took)
}

/// Bytes of the database, when nobody has it open.
fn size(file: &Path) -> Result<f64> {
    let log = file.with_extension("db-wal");
    let log = std::fs::metadata(log).map_or(0, |log| log.len());
    let file = std::fs::metadata(file).context("the database is not there")?;
    Ok((file.len() + log) as f64)
}

/// Turns of a question and an answer, four entries each, as a session writes them.
pub(super) async fn write(store: &Store, thread: &ThreadId, turns: u64) -> Result<()> {
    let mut log = store.open(thread).await?;
    let epoch = log.epoch();
    let answer = "An answer of a few sentences. ".repeat(10);
    let mut records = Vec::new();
    for turn in 1..=turns {
        let turn_id = format!("turn-{turn}");
        let bodies = [
            EntryBody::TurnStarted {
                turn_id: turn_id.clone(),
            },
            EntryBody::Message {
                message: Message::user(format!("Question {turn}, and what belongs to it.")),
            },
            EntryBody::Message {
                message: Message::assistant(format!("{turn}: {answer}")),
            },
            EntryBody::TurnEnded {
                turn_id: turn_id.clone(),
                outcome: TurnOutcome::Completed,
                usage: Usage::default(),
                stop_reason: None,
            },
        ];
        for (seq, body) in ((turn - 1) * 4 + 1..).zip(bodies) {
            records.push(Record::Entry(Entry {
                seq,
                turn,
                at_ms: 1_767_225_600_000,
                body,
            }));
        }
        let events = [
            Event::TurnStarted { turn_id },
            Event::Content {
                delta: answer.clone(),
            },
        ];
        for (seq, event) in ((turn - 1) * 2 + 1..).zip(events) {
            let id = EventId { epoch, seq };
            records.push(Record::Event { id, event });
        }
        if turn.is_multiple_of(TURNS_PER_WRITE) || turn == turns {
            log.append(&records, false).await?;
            records.clear();
        }
    }
    Ok(())
}
