//! A skill and a backend that are replaced, over and over, under sessions that call them all the
//! while.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use conjure_core::chat::{FunctionCall, OutputPart};
use conjure_host::Host;
use conjure_host::plugin::{Isolation, WorkerOptions};
use conjure_host::session::{BackendSpec, SessionSpec, ToolCallOptions, ToolSession};
use conjure_kit::conjure_bin;
use conjure_plugin_tests::versioned;
use serde_json::json;
use tokio::task::JoinSet;

use crate::random::Random;
use crate::soak::own_memory_mib;

/// Sessions, and how far apart the calls of each come: 500 a second in all.
const SESSIONS: u64 = 20;
const PACE: Duration = Duration::from_millis(40);
/// The plugins, with the tool of each that counts its calls.
const PLUGINS: [(&str, &str); 2] = [("keeper", "keeper_count"), ("counter", "counter_execute")];
const VERSIONS: [&str; 2] = ["0.2.0", "0.3.0"];
/// Calls that are made at the least after the last swap, so that sessions have moved to it.
const MIN_CALLS_AFTER_SWAP: u64 = 4 * SESSIONS;
/// How long anything may take that must happen.
const LIMIT: Duration = Duration::from_secs(60);

/// What is to be done.
pub struct Options {
    /// How many swaps of each of the two plugins.
    pub count: u64,
    /// What chooses the pauses between them.
    pub seed: u64,
    /// Where the plugins run.
    pub isolation: Isolation,
}

/// What was done.
#[derive(Debug, Default)]
pub struct Summary {
    /// Swaps of each plugin.
    pub swaps: u64,
    /// Calls, all of which were answered by the version that their table named, with what the ones
    /// before had left.
    pub calls: u64,
    /// How often two calls of a session, one after the other, were answered by different versions.
    pub version_changes: u64,
    /// The longest call.
    pub longest: Duration,
    /// How long it took.
    pub time: Duration,
    /// What the process has written to, in MiB, before and after.
    pub memory_mib: (f64, f64),
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.time.as_secs_f64();
        let (before, after) = self.memory_mib;
        write!(
            f,
            "{} swaps of each of {} plugins in {seconds:.0} s under {:.0} calls a second of {SESSIONS} \
             sessions: {} calls, each answered by the version that its table named and with the state \
             that came over, the slowest within {} ms; sessions moved {} times; memory {before:.1} → \
             {after:.1} MiB, {:.1} KiB a swap",
            self.swaps,
            PLUGINS.len(),
            self.calls as f64 / seconds,
            self.calls,
            self.longest.as_millis(),
            self.version_changes,
            (after - before) * 1_024.0 / (self.swaps * 2) as f64,
        )
    }
}

/// Replaces the plugins, and says what came of it.
///
/// # Errors
/// The first thing that did not hold: a call that was refused, or answered by another version than
/// its table named, or without the state of those before.
pub fn run(options: &Options) -> Result<Summary> {
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(Box::pin(swap(options)))
}

/// What the sessions did so far.
#[derive(Default)]
struct SwapProgress {
    is_over: AtomicBool,
    calls: AtomicU64,
    version_changes: AtomicU64,
    longest_us: AtomicU64,
}

async fn swap(options: &Options) -> Result<Summary> {
    let data = tempfile::tempdir()?;
    let (plugins, work) = (data.path().join("plugins"), data.path().join("work"));
    for dir in [&plugins, &work] {
        std::fs::create_dir(dir)?;
    }
    let libraries = PLUGINS.map(|(name, _)| VERSIONS.map(|version| versioned(name, version)));
    for ((name, _), [first, _]) in PLUGINS.iter().zip(&libraries) {
        install_library(&plugins, name, first)?;
    }
    let mut builder = Host::builder()
        .data_dir(data.path().join("data"))
        .plugin_dir(&plugins)
        .watch(true);
    if options.isolation == Isolation::Process {
        let mut workers = WorkerOptions::new(conjure_bin()?, &["plugin-host"]);
        workers.isolation = Isolation::Process;
        builder = builder.workers(workers);
    }
    let host = builder.build().await?;
    let done = Arc::new(SwapProgress::default());
    let mut sessions = JoinSet::new();
    for _ in 0..SESSIONS {
        let none: [&str; 0] = [];
        let backends = [
            BackendSpec::all_native(),
            BackendSpec::executor("keeper", none),
        ];
        let spec = SessionSpec {
            working_dir: Some(work.clone()),
            ..SessionSpec::hybrid(backends)
        };
        let session = host.calls(spec).await?;
        sessions.spawn(calling(session, Arc::clone(&done)));
    }
    // All have made their first calls, so that what they keep for their lives is there.
    calls_reach(4 * SESSIONS, &done, &mut sessions).await?;
    let (begun, before) = (Instant::now(), own_memory_mib()?);
    let mut random = Random::new(options.seed);
    let mut generations = host.registry().subscribe();
    for round in 1..=options.count {
        let at = usize::try_from(round % 2)?;
        for ((name, _), library) in PLUGINS.iter().zip(&libraries) {
            let (library, version) = (library.get(at), VERSIONS.get(at));
            let (library, version) = library.zip(version).context("there are two versions")?;
            install_library(&plugins, name, library)?;
            let is_there = |_: &u64| {
                let snapshot = host.registry().snapshot();
                let plugin = snapshot.get(name);
                plugin.is_some_and(|plugin| plugin.manifest().version == *version)
            };
            let noticed = tokio::time::timeout(LIMIT, generations.wait_for(is_there)).await;
            noticed
                .with_context(|| format!("round {round}: {name} {version} is not noticed"))??;
        }
        check_sessions(&mut sessions)?;
        tokio::time::sleep(Duration::from_millis(random.below(30))).await;
    }
    let time = begun.elapsed();
    let wanted = done.calls.load(Ordering::Relaxed) + MIN_CALLS_AFTER_SWAP;
    calls_reach(wanted, &done, &mut sessions).await?;
    done.is_over.store(true, Ordering::Release);
    while let Some(ended) = sessions.join_next().await {
        ended??;
    }
    all_are_closed(&work).await?;
    let summary = Summary {
        swaps: options.count,
        calls: done.calls.load(Ordering::Relaxed),
        version_changes: done.version_changes.load(Ordering::Relaxed),
        longest: Duration::from_micros(done.longest_us.load(Ordering::Relaxed)),
        time,
        memory_mib: (before, own_memory_mib()?),
    };
    Ok(summary)
}

/// Waits until the sessions have made so many calls.
async fn calls_reach(
    wanted: u64,
    done: &SwapProgress,
    sessions: &mut JoinSet<Result<()>>,
) -> Result<()> {
    let begun = Instant::now();
    while done.calls.load(Ordering::Relaxed) < wanted {
        check_sessions(sessions)?;
        ensure!(begun.elapsed() < LIMIT, "the sessions make no calls");
        tokio::time::sleep(PACE).await;
    }
    Ok(())
}

/// Whether no session has ended, which none does by itself.
fn check_sessions(sessions: &mut JoinSet<Result<()>>) -> Result<()> {
    match sessions.try_join_next() {
        Some(ended) => ended?,
        None => Ok(()),
    }
}

/// Waits until each opening of a session at the backend is closed again, which it is told on tasks of
/// their own. One that was cut is closed as well, whether it had begun or not.
async fn all_are_closed(work: &Path) -> Result<()> {
    let begun = Instant::now();
    loop {
        let log = std::fs::read_to_string(work.join("log.txt"))?;
        let counted = VERSIONS.map(|version| {
            let count = |what: &str| {
                let line = format!("{what} {version}");
                log.lines().filter(|said| *said == line).count()
            };
            (version, count("open"), count("close"))
        });
        let left = counted.iter().find(|(_, opened, closed)| opened > closed);
        let Some((version, opened, closed)) = left else {
            return Ok(());
        };
        ensure!(
            begun.elapsed() < LIMIT,
            "keeper {version} was opened {opened} times and closed {closed} times"
        );
        tokio::time::sleep(PACE).await;
    }
}

fn install_library(dir: &Path, name: &str, library: &[u8]) -> Result<()> {
    let part = dir.join(format!(".{name}"));
    std::fs::write(&part, library)?;
    Ok(std::fs::rename(part, dir.join(format!("lib{name}.so")))?)
}

/// Calls both plugins by turns, and looks at each answer.
async fn calling(session: ToolSession, done: Arc<SwapProgress>) -> Result<()> {
    let mut counts = [0_u64; 2];
    let mut versions: [Option<String>; 2] = [None, None];
    let mut ticks = tokio::time::interval(PACE);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    while !done.is_over.load(Ordering::Acquire) {
        for ((_, tool), (count, last)) in PLUGINS.iter().zip(counts.iter_mut().zip(&mut versions)) {
            ticks.tick().await;
            let begun = Instant::now();
            let (named, answer) = call(&session, tool).await?;
            let took = u64::try_from(begun.elapsed().as_micros())?;
            done.longest_us.fetch_max(took, Ordering::Relaxed);
            *count += 1;
            ensure!(
                answer == format!("{named}: {count}"),
                "{tool}: its table named {named}, call {count} was answered with {answer:?}"
            );
            let is_another = last.as_ref().is_some_and(|last| *last != named);
            done.version_changes
                .fetch_add(u64::from(is_another), Ordering::Relaxed);
            *last = Some(named);
            done.calls.fetch_add(1, Ordering::Relaxed);
        }
    }
    session.close().await;
    Ok(())
}

/// The version that the table of the call names, and the answer.
async fn call(session: &ToolSession, tool: &str) -> Result<(String, String)> {
    let snapshot = session.snapshot();
    let route = snapshot.table().route(tool);
    let route = route.with_context(|| format!("there is no {tool}"))?;
    let named = route.definition.origin.version.clone().unwrap_or_default();
    let call = FunctionCall {
        call_id: "a-call".to_owned(),
        name: tool.to_owned(),
        arguments: json!({ "command": "count" }),
        arguments_text: None,
    };
    let with = ToolCallOptions {
        snapshot: &snapshot,
        cancel: &Default::default(),
        live: &(Arc::new(|_, _: &[u8]| {}) as _),
        request_context: None,
        verbatim: false,
    };
    let report = session.call_with(&call, with).await?;
    let texts = report.output.output.iter().map(|part| match part {
        OutputPart::Text { text } => text.as_str(),
        _ => "",
    });
    Ok((named, texts.collect()))
}
