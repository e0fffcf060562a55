//! What an event costs on its way into the database, in CPU time of the whole process.
//!
//! `cargo run --release -p conjure-store --example append_cost [PLACE [STREAMS…]]`: one thread
//! appends batches of events as fast as they are written, and then so many threads append at the
//! pace of a model's stream. Without a place, a file in a temporary directory is used. Prints
//! figures and keeps nothing.

use std::time::{Duration, Instant};

use conjure_core::chat::{Event, EventId};
use conjure_core::log::{Entry, EntryBody};
use conjure_store::{Location, Log as _, Options, Record, Store, ThreadId, ThreadLog, Window};
use rustix::time::{ClockId, clock_gettime};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    let place = match std::env::args().nth(1) {
        Some(place) => Location::parse(&place)?,
        None => Location::File(dir.path().join("conjure.db")),
    };
    let store = Store::open(&place, &Options::default()).await?;
    let asked: Vec<usize> = std::env::args()
        .skip(2)
        .map(|number| number.parse())
        .collect::<Result<_, _>>()?;
    if asked.is_empty() {
        batches(&store).await?;
        long_thread(&store).await?;
    }
    for threads in if asked.is_empty() {
        vec![1, 100, 500]
    } else {
        asked
    } {
        streams(&store, threads).await?;
    }
    store.close().await;
    Ok(())
}

/// One thread, batches of 100 events, each awaited.
async fn batches(store: &Store) -> Result<(), Box<dyn std::error::Error>> {
    const BATCHES: u64 = 2_000;
    const BATCH: u64 = 100;
    let mut log = store.open(&ThreadId::fresh()).await?;
    let (began, cpu) = (Instant::now(), cpu_time());
    for batch in 0..BATCHES {
        let records: Vec<_> = (1..=BATCH)
            .map(|n| event(log.epoch(), batch * BATCH + n))
            .collect();
        log.append(&records, false).await?;
    }
    let events = u32::try_from(BATCHES * BATCH)?;
    say("batches of 100, one thread", events, began, cpu);
    Ok(())
}

/// The last page and a fork of a thread of 10,000 turns.
async fn long_thread(store: &Store) -> Result<(), Box<dyn std::error::Error>> {
    const TURNS: u64 = 10_000;
    const ENTRIES: u64 = 4;
    let thread = ThreadId::fresh();
    let mut log = store.open(&thread).await?;
    for turn in 1..=TURNS {
        let records: Vec<_> = (1..=ENTRIES)
            .map(|n| entry((turn - 1) * ENTRIES + n, turn))
            .collect();
        let written = log.append(&records, false);
        if turn % 100 == 0 {
            written.await?;
        }
    }
    let began = Instant::now();
    let page = store.entries(&thread, Window::Last, 50).await?;
    let paged = began.elapsed();
    let began = Instant::now();
    let newest = page.last_seq;
    store.fork(&thread, newest / 2, &ThreadId::fresh()).await?;
    say_line(&format!(
        "a thread of {newest} entries: last {} in {paged:.2?}, fork in {:.2?}",
        page.entries.len(),
        began.elapsed()
    ));
    Ok(())
}

fn entry(seq: u64, turn: u64) -> Record {
    Record::Entry(Entry {
        seq,
        turn,
        at_ms: 0,
        body: EntryBody::notice(
            "what somebody said in this turn, in a sentence or two. ".repeat(8),
        ),
    })
}

/// Streams of 30 events a second, as 500 sessions have them.
async fn streams(store: &Store, threads: usize) -> Result<(), Box<dyn std::error::Error>> {
    const EVENTS: u64 = 90;
    let mut logs = Vec::new();
    for _ in 0..threads {
        logs.push(store.open(&ThreadId::fresh()).await?);
    }
    let (began, cpu) = (Instant::now(), cpu_time());
    let tasks: Vec<_> = logs
        .into_iter()
        .enumerate()
        .map(|(number, log)| tokio::spawn(stream(log, number, EVENTS)))
        .collect();
    let mut slowest = Duration::ZERO;
    for task in tasks {
        slowest = slowest.max(task.await??);
    }
    let events = u32::try_from(threads)? * u32::try_from(EVENTS)?;
    say(
        &format!("{threads} streams of 30 events a second, slowest commit {slowest:.1?}"),
        events,
        began,
        cpu,
    );
    Ok(())
}

async fn stream(
    mut log: Box<dyn ThreadLog>,
    number: usize,
    events: u64,
) -> Result<Duration, conjure_store::StoreError> {
    let pace = Duration::from_millis(33);
    tokio::time::sleep(pace * u32::try_from(number % 33).unwrap_or_default() / 33).await;
    let mut tick = tokio::time::interval(pace);
    let mut slowest = Duration::ZERO;
    for seq in 1..=events {
        tick.tick().await;
        let began = Instant::now();
        log.append(&[event(log.epoch(), seq)], false).await?;
        slowest = slowest.max(began.elapsed());
    }
    Ok(slowest)
}

fn event(epoch: u64, seq: u64) -> Record {
    Record::Event {
        id: EventId { epoch, seq },
        event: Event::Content {
            delta: " and so the tale went on".to_owned(),
        },
    }
}

fn say(what: &str, events: u32, began: Instant, cpu: Duration) {
    let (wall, cpu) = (began.elapsed(), cpu_time() - cpu);
    say_line(&format!(
        "{what}: {events} events in {wall:.2?}, {:.2?} CPU an event",
        cpu / events
    ));
}

#[expect(clippy::print_stdout, reason = "printing is what this program is for")]
fn say_line(line: &str) {
    println!("{line}");
}

fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(
        u64::try_from(time.tv_sec).unwrap_or_default(),
        u32::try_from(time.tv_nsec).unwrap_or_default(),
    )
}
