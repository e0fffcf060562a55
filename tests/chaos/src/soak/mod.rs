//! Soak: many sessions of a real `conjure serve` for a long time, with clients that come and go, and
//! a look at the server's memory, descriptors, threads and children all the while.
//!
//! A leak shows only after hours; what it shows as is a slope. Whether what the server says is right is
//! not looked at here: other tests do.

mod load;
mod model;
mod process;
mod slope;

use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow};
use conjure_kit::{MockMcp, Signal, Workspace, cli};
use serde_json::Value;

use crate::http::{Api, TOKEN};
use load::{Load, Turns};
use model::Model;
use process::Snapshot;
use slope::Slope;

/// The most that memory may grow, in MiB an hour.
const MAX_GROWTH: f64 = 0.5;
/// The share of the time at the beginning in which caches fill, whose memory does not count: with 200
/// sessions that takes some minutes.
const WARM_UP: f64 = 0.5;
/// How long the server has to put down what the last turns needed.
const SETTLE: Duration = Duration::from_secs(120);
/// The plugins of the sessions: the executor of commands, MCP servers and a native skill.
const PLUGINS: [&str; 3] = [
    "conjure-backend-local",
    "conjure-backend-mcp",
    "conjure-skill-log-fetcher",
];

/// What this process has written to and the system keeps for it, in MiB.
///
/// # Errors
/// The system's.
pub(crate) fn own_memory_mib() -> Result<f64> {
    let pid = i32::try_from(std::process::id())?;
    Ok(Snapshot::of(pid)?.memory_mib)
}

/// What to do.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// How many sessions.
    pub sessions: usize,
    /// For how long they have turns, at least.
    pub time: Duration,
    /// For how long at most: until the growth that is allowed can be told from nothing. Where it
    /// cannot then either, that is a failure. None ends after `time`, whatever can be told.
    pub max_time: Option<Duration>,
    /// How often the server is looked at.
    pub poll_interval: Duration,
    /// How long it is from one turn of a session to its next.
    pub pace: Duration,
    /// Says how things stand.
    pub report: fn(&str),
}

/// What came of it.
#[derive(Debug)]
pub struct Report {
    memory: Slope,
    /// Whether it has to tell how memory grows.
    must_decide: bool,
    started: Snapshot,
    highest: Snapshot,
    finished: Snapshot,
    turns: Turns,
}

/// Runs the sessions, and reports how the server was.
///
/// # Errors
/// When the server does not start, ends by itself, or does not answer.
pub fn run(options: &Options) -> Result<Report> {
    let workspace = Workspace::new()?;
    for plugin in PLUGINS {
        workspace.add_plugin(plugin)?;
    }
    let (program, shared) = (MockMcp::program()?, MockMcp::over_http(&[])?);
    let model = Model::start()?;
    let server = cli(["serve", "--json", "--listen", "127.0.0.1:0"])
        .workspace(&workspace)
        .env("CONJURE_TOKEN", TOKEN)
        .deadline(options.most() + Duration::from_secs(3_600))
        .start()?;
    let said = server.wait_for_lines(1)?;
    let said: Value = serde_json::from_str(said.lines().next().unwrap_or_default())?;
    let address = said.get("url").and_then(Value::as_str);
    let address = address.context("the server has no address")?;
    let address: SocketAddr = address.trim_start_matches("http://").parse()?;
    let pid = server.pid().context("the server has no process")?;
    let look = || Snapshot::of(pid.as_raw_nonzero().get());

    let work = workspace.work();
    let mcp = (program.as_path(), shared.url());
    let load = Load::new(Api(address), &model.url(), &work, mcp, options)?;
    // Each session has had a turn: what it keeps for its life is there.
    load.run_one_turn_each()?;
    anyhow::ensure!(
        model.failed_calls() == 0,
        "{} calls failed before anything was measured",
        model.failed_calls()
    );
    let started = wait_until_quiet(&look, options.poll_interval, None)?;
    (options.report)(&format!("started: {started}"));

    let begun = Instant::now();
    let mut samples = Vec::new();
    let mut highest = started;
    let is_over = AtomicBool::new(false);
    let turns = thread::scope(|scope| {
        let driving = scope.spawn(|| load.drive(&is_over));
        let mut next = begun;
        let mut said = begun;
        while !driving.is_finished() {
            next += options.poll_interval;
            thread::sleep(next.saturating_duration_since(Instant::now()));
            let now = look().inspect_err(|_| is_over.store(true, Ordering::Relaxed))?;
            highest = highest.highest(&now);
            samples.push((begun.elapsed().as_secs_f64() / 3_600.0, now.memory_mib));
            if said.elapsed() > Duration::from_secs(60) {
                said = Instant::now();
                (options.report)(&format!("{:>5.0} s: {now}", begun.elapsed().as_secs_f64()));
            }
            let is_well = || slope(&samples).is_some_and(|slope| slope.is_within(MAX_GROWTH));
            let time = begun.elapsed();
            if time >= options.most() || (time >= options.time && is_well()) {
                is_over.store(true, Ordering::Relaxed);
            }
        }
        driving
            .join()
            .map_err(|_| anyhow!("the load ended early"))?
    })?;
    let memory = slope(&samples);
    let ended = wait_until_quiet(&look, options.poll_interval, Some(&started))?;
    server.signal(Signal::TERM);
    let output = server.wait()?;
    anyhow::ensure!(
        output.code == Some(143),
        "the server ended otherwise than it was told to: {}",
        output.snapshot()
    );
    Ok(Report {
        memory: memory.context("the time was too short to see a slope")?,
        must_decide: options.max_time.is_some(),
        started,
        highest,
        finished: ended,
        turns,
    })
}

/// How the server is when it has nothing to do: what it was before, or what it is after a while.
fn wait_until_quiet(
    look: &impl Fn() -> Result<Snapshot>,
    pause: Duration,
    before: Option<&Snapshot>,
) -> Result<Snapshot> {
    let until = Instant::now() + SETTLE;
    let mut last = look()?;
    loop {
        thread::sleep(pause);
        let now = look()?;
        let is_quiet = match before {
            Some(before) => now.is_at_most(before),
            None => now.is_at_most(&last),
        };
        if is_quiet || Instant::now() > until {
            return Ok(now);
        }
        last = now;
    }
}

/// How memory grows once caches are full.
fn slope(samples: &[(f64, f64)]) -> Option<Slope> {
    let skipped = (samples.len() as f64 * WARM_UP) as usize;
    Slope::of(samples.get(skipped..).unwrap_or_default())
}

impl Options {
    fn most(&self) -> Duration {
        self.max_time.map_or(self.time, |most| most.max(self.time))
    }
}

impl Report {
    /// What is beyond its bound, in words; nothing when all is well.
    #[must_use]
    pub fn failures(&self) -> Vec<String> {
        let mut failures = Vec::new();
        if self.must_decide && !self.memory.is_conclusive(MAX_GROWTH) {
            failures.push(format!(
                "the time was too short to tell: memory grows by {} MiB an hour",
                self.memory
            ));
        }
        if self.memory.per_hour - 2.0 * self.memory.error > MAX_GROWTH {
            failures.push(format!(
                "memory grows by {} MiB an hour, and {MAX_GROWTH} are allowed",
                self.memory
            ));
        }
        let (started, ended) = (&self.started, &self.finished);
        for (what, before, after) in [
            ("descriptors", started.descriptors, ended.descriptors),
            ("children", started.children, ended.children),
        ] {
            if after > before {
                failures.push(format!("{after} {what} are left, and there were {before}"));
            }
        }
        failures.extend(self.turns.failure());
        failures
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "memory   {} MiB an hour", self.memory)?;
        if !self.memory.is_conclusive(MAX_GROWTH) {
            writeln!(
                f,
                "         the time was too short to tell {MAX_GROWTH} MiB an hour from nothing"
            )?;
        }
        writeln!(f, "started  {}", self.started)?;
        writeln!(f, "highest  {}", self.highest)?;
        writeln!(f, "ended    {}", self.finished)?;
        write!(f, "turns    {}", self.turns)
    }
}
