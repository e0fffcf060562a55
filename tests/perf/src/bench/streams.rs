//! Streams: what a delta costs from the socket to the log and one subscriber, and how late 500
//! streams at once reach clients that drop and return.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use conjure_core::chat::{Event, Message};
use conjure_host::manager::Manager;

use super::on_runtime;
use crate::figure::{Figure, short};
use crate::manager::{Managed, SavedThread, processor_us};
use crate::samples::{Samples, us};
use crate::shipped::BenchArtifacts;
use crate::stream_server::{StreamServer, ask, now_ns, sent_ns};

/// Microseconds of processor time a delta may take.
const DELTA: f64 = 6.0;
/// Microseconds of processor time a delta may take that comes alone.
const DELTA_PACED: f64 = 40.0;
/// Milliseconds that 99 of 100 events may be late at the most.
const LAG: f64 = 50.0;
/// Processors that the streams which are measured so may need.
const CORES: f64 = 1.0;

const STREAMS: usize = 500;
/// Thirty a second.
const DELTA_INTERVAL: Duration = Duration::from_micros(33_333);
/// Ten seconds' worth.
const DELTAS: usize = 300;
/// When measuring what comes alone begins and ends, while all streams do nothing else.
const STEADY: [Duration; 2] = [Duration::from_secs(2), Duration::from_secs(9)];
/// Rounds of one stream as fast as it comes, and its deltas.
const BURSTS: usize = 7;
const BURST: usize = 20_000;
/// After how many deltas a client drops and returns: one to five seconds.
const DELTAS_PER_VISIT: [usize; 5] = [30, 60, 90, 120, 150];
/// How long all of it may take.
const TOTAL_TIMEOUT: Duration = Duration::from_secs(300);

pub(super) fn run_cpu(_: &BenchArtifacts) -> Result<Vec<Figure>> {
    let server = StreamServer::start()?;
    on_runtime(async move {
        let managed = Managed::new(&server.url).await?;
        let mut burst = Samples::default();
        for round in 0..=BURSTS {
            let session = managed.session().await?;
            let counted = Arc::default();
            let at_once = Duration::ZERO;
            let (spent, _) =
                run_streams(&managed, &[session], BURST, at_once, false, &counted).await?;
            // The first one warms up.
            if round > 0 {
                burst.push(spent);
            }
        }
        let mut sessions = Vec::new();
        for _ in 0..100 {
            sessions.push(managed.session().await?);
        }
        let counted = Arc::<AtomicUsize>::default();
        let whole = run_streams(&managed, &sessions, DELTAS, DELTA_INTERVAL, false, &counted);
        let ((whole, _), paced) = tokio::try_join!(whole, steady(&counted))?;
        let method = "Processor time of the process (all threads, kernel included), divided by the \
                      deltas: HTTP and SSE from a server in another process, the wire, the log in \
                      an SQLite file, and one subscriber of the manager for each stream";
        Ok(vec![
            Figure::new(
                "delta_cpu",
                "µs",
                &burst,
                &format!(
                    "{method}. One stream of {BURST} deltas, each a chunk, as fast as they come, \
                     with its turn's beginning and end."
                ),
            )
            .at_most(DELTA),
            Figure::single(
                "delta_cpu_paced",
                "µs",
                paced,
                &format!(
                    "{method}. 100 streams of 30 deltas a second for 10 s, so that each comes alone; \
                     of that from the second to the ninth second, while no turn begins or ends."
                ),
            )
            .at_most(DELTA_PACED)
            .note(format!(
                "{} µs with the beginnings and ends of the 100 turns.",
                short(whole)
            )),
        ])
    })
}

pub(super) fn run_lag(_: &BenchArtifacts) -> Result<Vec<Figure>> {
    let server = StreamServer::start()?;
    on_runtime(async move {
        let managed = Managed::new(&server.url).await?;
        let mut sessions = Vec::new();
        for _ in 0..STREAMS {
            sessions.push(managed.session().await?);
        }
        let counted = Arc::default();
        let (cpu, seen) =
            run_streams(&managed, &sessions, DELTAS, DELTA_INTERVAL, true, &counted).await?;
        let (mut lag, mut whole) = (Samples::default(), Samples::default());
        let mut returns = 0;
        for client in &seen {
            lag.extend(&client.steady_lag);
            whole.extend(&client.lag);
            returns += client.returns;
        }
        let figure = Figure::single(
            "streams_lag",
            "ms",
            lag.percentile(99),
            &format!(
                "{STREAMS} sessions that each stream 30 deltas a second for 10 s, from a server in \
                 another process; each has a client that drops its stream every 1 to 5 s and \
                 returns at once with the last number it saw. From the server's writing of a delta \
                 to the client's having its event, which the log has by then; the 99th of 100 of what \
                 came from the second to the ninth second, while no turn begins or ends. Every client \
                 saw every delta once and in order, or this would have failed."
            ),
        );
        let note = format!(
            "The median: {} ms, the latest: {} ms. With the beginnings and ends of the {STREAMS} turns, \
             each at the same time: the 99th of 100 {} ms, the latest {} ms. {returns} returns; {} µs of \
             processor time a delta.",
            short(lag.median()),
            short(lag.percentile(100)),
            short(whole.percentile(99)),
            short(whole.percentile(100)),
            short(cpu)
        );
        // A delta of each stream comes in every interval.
        let cores = cpu * STREAMS as f64 / us(DELTA_INTERVAL);
        let cores = Figure::single(
            "streams_cores",
            "cores",
            cores,
            "Processor time of the process in the same run, the clients' part included, divided by \
             the 10 s that each of the streams lasts.",
        );
        Ok(vec![figure.at_most(LAG).note(note), cores.at_most(CORES)])
    })
}

/// What a client saw.
struct ClientLag {
    lag: Samples,
    /// Lag of the events that came while all streams were in their middle.
    steady_lag: Samples,
    returns: usize,
}

/// Processor time a delta in microseconds, of those that are counted while all streams are in their
/// middle.
async fn steady(counted: &AtomicUsize) -> Result<f64> {
    let now = || (processor_us(), counted.load(Ordering::Relaxed));
    let [begin, end] = STEADY;
    tokio::time::sleep(begin).await;
    let before = now();
    tokio::time::sleep(end.saturating_sub(begin)).await;
    let after = now();
    let deltas = after.1 - before.1;
    anyhow::ensure!(deltas > 0, "no delta came in the middle of the streams");
    Ok((after.0 - before.0) / deltas as f64)
}

/// Streams in every session at once, each followed by a client. Gives the processor time a delta in
/// microseconds, and what the clients saw.
async fn run_streams(
    managed: &Managed,
    sessions: &[SavedThread],
    deltas: usize,
    apart: Duration,
    returning: bool,
    counted: &Arc<AtomicUsize>,
) -> Result<(f64, Vec<ClientLag>)> {
    let (before, begun) = (processor_us(), Instant::now());
    let mut clients = Vec::new();
    for (number, session) in sessions.iter().enumerate() {
        let manager = managed.manager.clone();
        let stay = DELTAS_PER_VISIT
            .get(number % DELTAS_PER_VISIT.len())
            .copied()
            .filter(|_| returning);
        let counted = Arc::clone(counted);
        let client = client(manager, session.clone(), deltas, stay, counted, begun);
        clients.push(tokio::spawn(client));
    }
    for session in sessions {
        let message = Message::user(ask(deltas, apart));
        managed.manager.say(&session.session, message, None).await?;
    }
    let all = async {
        let mut seen = Vec::new();
        for client in clients {
            seen.push(client.await.context("a client broke")??);
        }
        anyhow::Ok(seen)
    };
    let seen = tokio::time::timeout(TOTAL_TIMEOUT, all)
        .await
        .context("not every client saw the end in time")??;
    let all = (deltas * sessions.len()) as f64;
    Ok(((processor_us() - before) / all, seen))
}

/// Follows a thread to the end of its turn, and fails where a delta is missing, comes twice or out
/// of its order.
async fn client(
    manager: Manager,
    session: SavedThread,
    deltas: usize,
    stay: Option<usize>,
    counted: Arc<AtomicUsize>,
    begun: Instant,
) -> Result<ClientLag> {
    let mut seen = ClientLag {
        lag: Samples::default(),
        steady_lag: Samples::default(),
        returns: 0,
    };
    let (mut last, mut came, mut newest, mut left) = (None, 0, 0, 0);
    let mut events = manager.events(&session.thread, None).await?;
    loop {
        let event = events.next().await?.context("the manager went down")?;
        anyhow::ensure!(last < Some(event.id), "{} came again", event.id);
        last = Some(event.id);
        match &event.event {
            Event::Content { delta } => {
                let now = now_ns();
                let [begin, end] = STEADY;
                let is_steady = (begin..end).contains(&begun.elapsed());
                // One event may hold what came while another commit was made.
                for sent in sent_ns(delta) {
                    anyhow::ensure!(newest < sent, "a delta came out of its order");
                    newest = sent;
                    came += 1;
                    counted.fetch_add(1, Ordering::Relaxed);
                    let lag = now.saturating_sub(sent) as f64 / 1e6;
                    seen.lag.push(lag);
                    if is_steady {
                        seen.steady_lag.push(lag);
                    }
                }
                if stay.is_some_and(|stay| came >= left + stay) {
                    left = came;
                    seen.returns += 1;
                    drop(events);
                    events = manager.events(&session.thread, last).await?;
                }
            }
            Event::Done { outcome, .. } => {
                anyhow::ensure!(outcome == "completed", "a turn was {outcome}");
                anyhow::ensure!(came == deltas, "{came} of {deltas} deltas came");
                return Ok(seen);
            }
            _ => {}
        }
    }
}
