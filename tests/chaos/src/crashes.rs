//! A plugin whose worker processes end, over and over and in every way, beside sessions that must not
//! notice.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use conjure_core::chat::{FunctionCall, OutputPart};
use conjure_host::Host;
use conjure_host::plugin::{Isolation, WorkerLimits, WorkerOptions};
use conjure_host::session::{BackendSpec, SessionSpec, ToolSession};
use conjure_kit::{build_plugin, conjure_bin};
use serde_json::json;
use tokio::task::JoinSet;

use crate::random::Random;

/// What a call may be told to do, how often in a hundred, and what its error must say; nothing where
/// it has none.
const MODES: [(&str, u64, Option<&str>); 22] = [
    ("segfault", 16, Some("SIGSEGV")),
    ("abort", 16, Some("SIGABRT")),
    ("exit 7", 12, Some("code 7")),
    ("stack-overflow", 12, Some("stack overflow")),
    (
        "allocate 1024",
        5,
        Some("more memory than a worker may use"),
    ),
    ("hang", 1, Some("misbehaving")),
    ("burn", 1, Some("misbehaving")),
    ("threads 200", 3, Some("more threads than a worker may")),
    ("panic at the disco", 5, Some("at the disco")),
    ("panic-nonstring", 3, Some("panicked")),
    ("lie-json", 2, Some("misbehaving")),
    ("lie-schema", 2, Some("misbehaving")),
    ("lie-fault", 2, Some("misbehaving")),
    ("lie-files", 2, None),
    ("invalid-utf8", 2, None),
    ("invalid-utf8-reply", 2, Some("misbehaving")),
    ("flood 2", 2, None),
    ("flood-reply 2", 2, None),
    ("leak-thread", 3, None),
    ("spawn-orphan", 2, None),
    ("drop-panic", 3, None),
    ("echo fine", 2, None),
];

/// What the plugin may do wrong while it is loaded: it is listed as failed then.
const LOAD_MODES: [&str; 6] = [
    "panic-manifest",
    "wrong-version",
    "wrong-name",
    "wrong-kind",
    "bad-manifest",
    "requires-unknown",
];

/// The plugin that breaks, and the one that is used beside it.
const PLUGINS: [&str; 2] = ["conjure-misbehaving", "conjure-skill-cache-manager"];

/// Sessions that break, and sessions beside them.
const BREAKING: u64 = 2;
const NEIGHBOURS: u64 = 4;

/// When a call that never ends is ended; far beyond what any other takes on a busy machine.
const LIMIT: Duration = Duration::from_secs(10);

/// What is to be done.
pub struct Options {
    /// How many calls that break something.
    pub count: u64,
    /// What chooses them.
    pub seed: u64,
}

/// What was done.
#[derive(Debug, Default)]
pub struct Summary {
    /// Calls, by mode.
    pub modes: BTreeMap<&'static str, u64>,
    /// Workers that ended by themselves.
    pub ends: u64,
    /// Calls of the neighbours, all of which were answered.
    pub answered: u64,
    /// The longest of them.
    pub longest: Duration,
    /// Loads that went wrong, beside one that did not.
    pub loads: u64,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let modes = self.modes.iter();
        let modes: Vec<String> = modes.map(|(mode, n)| format!("{mode}: {n}")).collect();
        write!(
            f,
            "{} calls broke something ({}); {} workers ended; the {} calls beside them were answered, \
             the slowest within {} ms; {} loads went wrong",
            self.modes.values().sum::<u64>(),
            modes.join(", "),
            self.ends,
            self.answered,
            self.longest.as_millis(),
            self.loads
        )
    }
}

/// Breaks workers, and says what came of it.
///
/// # Errors
/// The first thing that did not hold: an answer that is missing or does not name its cause, a
/// neighbour that noticed, a process that was left.
pub fn run(options: &Options) -> Result<Summary> {
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(Box::pin(break_workers(options)))
}

async fn break_workers(options: &Options) -> Result<Summary> {
    let data = tempfile::tempdir()?;
    let host = host(data.path(), None).await?;
    let is_over = Arc::new(AtomicBool::new(false));
    let mut neighbours = JoinSet::new();
    for number in 0..NEIGHBOURS {
        let session = session(&host, data.path()).await?;
        neighbours.spawn(run_neighbour(session, number, Arc::clone(&is_over)));
    }
    let mut breaking = JoinSet::new();
    for number in 0..BREAKING {
        let session = session(&host, data.path()).await?;
        let count = (options.count + number) / BREAKING;
        let random = Random::new(options.seed.wrapping_add(number));
        breaking.spawn(crash_plugin(session, count, random));
    }
    let mut summary = Summary::default();
    while let Some(broke) = breaking.join_next().await {
        for (mode, count) in broke?? {
            *summary.modes.entry(mode).or_default() += count;
        }
    }
    is_over.store(true, Ordering::Release);
    while let Some(beside) = neighbours.join_next().await {
        let (answered, longest) = beside??;
        summary.answered += answered;
        summary.longest = summary.longest.max(longest);
    }
    let snapshot = host.registry().snapshot();
    for plugin in snapshot.plugins() {
        let health = plugin.health();
        summary.ends += health.worker_ends;
        ensure!(health.lost_threads == 0, "{} lost a thread", plugin.id());
    }
    drop((snapshot, host));
    wait_for_no_workers(data.path()).await?;
    for mode in LOAD_MODES {
        Box::pin(load_wrongly(mode)).await?;
        summary.loads += 1;
    }
    Ok(summary)
}

/// A host with both plugins in workers, in which the one does something wrong while it is loaded.
async fn host(data: &Path, load_mode: Option<&str>) -> Result<Host> {
    let mut workers = WorkerOptions::new(conjure_bin()?, &["plugin-host"]);
    workers.isolation = Isolation::Process;
    workers.limits = WorkerLimits {
        memory: 256 * 1024 * 1024,
        threads: 64,
        ..WorkerLimits::default()
    };
    if let Some(mode) = load_mode {
        workers.env.push(("CONJURE_MISBEHAVE".into(), mode.into()));
    }
    let mut builder = Host::builder().data_dir(data).workers(workers);
    for plugin in PLUGINS {
        builder = builder.plugin_file(build_plugin(plugin)?);
    }
    Ok(builder.build().await?)
}

/// Loads the plugin where that goes wrong, and looks that it alone is not there.
async fn load_wrongly(mode: &str) -> Result<()> {
    let data = tempfile::tempdir()?;
    let host = host(data.path(), Some(mode)).await?;
    let snapshot = host.registry().snapshot();
    let there: Vec<&str> = snapshot
        .plugins()
        .iter()
        .map(|plugin| &*plugin.id().name)
        .collect();
    let failed = snapshot.failed();
    ensure!(
        there == ["cache-manager"] && failed.len() == 1,
        "`{mode}`: {there:?} are loaded, and these are not: {failed:?}"
    );
    drop((snapshot, host));
    wait_for_no_workers(data.path()).await
}

async fn session(host: &Host, data: &Path) -> Result<ToolSession> {
    let work = data.join("work");
    std::fs::create_dir_all(&work)?;
    let spec = SessionSpec {
        working_dir: Some(work),
        call_timeout_ms: u64::try_from(LIMIT.as_millis()).ok(),
        ..SessionSpec::hybrid([BackendSpec::all_native()])
    };
    Ok(host.calls(spec).await?)
}

async fn call(session: &ToolSession, tool: &str, command: &str) -> Result<(bool, String)> {
    let call = FunctionCall {
        call_id: "a-call".to_owned(),
        name: tool.to_owned(),
        arguments: json!({ "command": command }),
        arguments_text: None,
    };
    let report = session.call(&call, &Default::default()).await?;
    let texts = report.output.output.iter().map(|part| match part {
        OutputPart::Text { text } => text.as_str(),
        _ => "",
    });
    // The name of the tool says nothing of whom an error blames.
    let text: String = texts.collect();
    Ok((report.output.is_error, text.replace(tool, "the tool")))
}

/// Breaks the plugin, and looks that it is there again after each time.
async fn crash_plugin(
    session: ToolSession,
    count: u64,
    mut random: Random,
) -> Result<BTreeMap<&'static str, u64>> {
    const TOOL: &str = "misbehaving_execute";
    let mut modes = BTreeMap::new();
    for round in 0..count {
        let mut chosen = random.below(100);
        let (mode, _, cause) = MODES
            .iter()
            .find(|(_, share, _)| {
                let is_it = chosen < *share;
                chosen = chosen.saturating_sub(*share);
                is_it
            })
            .context("the shares make a hundred")?;
        let (is_error, text) = call(&session, TOOL, mode).await?;
        ensure!(
            is_error == cause.is_some() && text.contains(cause.unwrap_or_default()),
            "round {round}: `{mode}` was answered with {text:?}"
        );
        let (is_error, text) = call(&session, TOOL, "echo again").await?;
        ensure!(
            !is_error && text == "again",
            "round {round}: after `{mode}` the plugin said {text:?}"
        );
        *modes.entry(*mode).or_default() += 1;
    }
    session.close().await;
    Ok(modes)
}

/// Works with another plugin meanwhile; what it stores must be there.
async fn run_neighbour(
    session: ToolSession,
    number: u64,
    is_over: Arc<AtomicBool>,
) -> Result<(u64, Duration)> {
    const TOOL: &str = "cache-manager_execute";
    let (mut answered, mut longest) = (0, Duration::ZERO);
    while !is_over.load(Ordering::Acquire) {
        let key = format!("k{number}-{}", answered % 50);
        for command in [format!("set {key} {answered}"), format!("get {key}")] {
            let begun = Instant::now();
            let (is_error, text) = call(&session, TOOL, &command).await?;
            longest = longest.max(begun.elapsed());
            let is_right = command.starts_with("set") || text.contains(&answered.to_string());
            ensure!(
                !is_error && is_right,
                "`{command}` beside was answered with {text:?}"
            );
        }
        answered += 1;
    }
    session.close().await;
    Ok((2 * answered, longest))
}

/// Waits until no worker of this host is there.
async fn wait_for_no_workers(data: &Path) -> Result<()> {
    let data = data.as_os_str().as_encoded_bytes();
    let begun = Instant::now();
    loop {
        let processes = std::fs::read_dir("/proc")?.flatten();
        let left = processes
            .filter_map(|process| std::fs::read(process.path().join("cmdline")).ok())
            .filter(|line| line.windows(data.len()).any(|part| part == data))
            .count();
        if left == 0 {
            return Ok(());
        }
        ensure!(
            begun.elapsed() < Duration::from_secs(20),
            "{left} workers are left"
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
