//! Benchmarks of the shipped path: release builds, real libraries, the real binary.
//!
//! Each benchmark runs in a process of its own, so that none sees another's threads, memory or
//! libraries, and prints its figures beside what they should be. A figure that is missed is no
//! error: machines differ, and a benchmark only fails when it could not run.

mod bench;
mod figure;
mod live_host;
mod manager;
mod mcp_client;
mod measured;
mod noise;
mod processor;
mod relay;
mod samples;
mod shipped;
mod stream_server;

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context as _, Result, anyhow};
use clap::Parser;

use crate::bench::{BENCHMARKS, Benchmark};
use crate::figure::{Figure, Machine};

/// The one that is shipped: what is measured inside this process allocates as `conjure` does.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// What the columns are.
const LEGEND: &str = "First what compares between days: ratios, and times in runs or steps of a \
    fixed loop, which is timed before and after each figure. Then the value. Of a NOISY one only the \
    former means something, and its verdict, which has a `?`, nothing.";

/// Runs the benchmarks and prints for each name, ratio, value, unit, target, method and what the
/// machine did meanwhile.
///
/// Exit codes: 0 all ran, 1 one could not run, 2 wrong usage.
#[derive(Parser)]
#[command(name = "conjure-perf")]
struct Args {
    /// Run only the benchmarks whose name, or one of whose figures' names, contains one of these
    names: Vec<String>,
    /// Run those too that take minutes: they build crates
    #[arg(long)]
    all: bool,
    /// Print one JSON object a figure
    #[arg(long)]
    json: bool,
    /// Build what is measured without link-time optimisation, in minutes less. Figures of two quick
    /// runs compare, a quick one's do not with others
    #[arg(long)]
    quick: bool,
    /// Run this benchmark in this process and print its figures as JSON
    #[arg(long, hide = true)]
    child: Option<String>,
    /// Be the provider that streams
    #[arg(long, hide = true)]
    stream_server: bool,
    /// Stand between a client and this server
    #[arg(long, hide = true)]
    relay: Option<std::path::PathBuf>,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let done = match (&args.child, &args.relay) {
        _ if args.stream_server => stream_server::serve(),
        (_, Some(server)) => relay::run(server),
        (Some(name), None) => child(name, args.quick),
        (None, None) => parent(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            report_progress(&format!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

/// Runs what was asked for, one process after the other.
fn parent(args: &Args) -> Result<()> {
    let wanted: Vec<&Benchmark> = BENCHMARKS.iter().filter(|b| is_selected(b, args)).collect();
    if wanted.is_empty() {
        let known: Vec<&str> = BENCHMARKS.iter().map(|b| b.name).collect();
        return Err(anyhow!("no benchmark has that name: {}", known.join(", ")));
    }
    report_progress("building what is measured …");
    let needs = wanted.iter().flat_map(|b| b.needs).copied().collect();
    shipped::BenchArtifacts::build(&needs, args.quick)?;
    let machine = Machine::detect();
    if !args.json {
        print(&format!("{machine}\n{LEGEND}\n"))?;
        if args.quick {
            print("built without link-time optimisation: compare with quick runs only\n")?;
        }
    }
    let mut broken = Vec::new();
    for benchmark in wanted {
        report_progress(&format!("{} …", benchmark.name));
        match run(benchmark, args.quick) {
            Ok(figures) => {
                for figure in figures {
                    print(&if args.json {
                        serde_json::to_string(&figure.on(&machine))?
                    } else {
                        figure.to_string()
                    })?;
                }
            }
            Err(error) => {
                report_progress(&format!("{} could not run: {error:#}", benchmark.name));
                broken.push(benchmark.name);
            }
        }
    }
    if broken.is_empty() {
        return Ok(());
    }
    Err(anyhow!("could not run: {}", broken.join(", ")))
}

/// A name that is a benchmark's or a figure's own means that one; else all that contain it.
fn is_selected(benchmark: &Benchmark, args: &Args) -> bool {
    if args.names.is_empty() {
        return args.all || !benchmark.slow;
    }
    args.names.iter().any(|name| is_named(benchmark, name))
}

fn is_named(benchmark: &Benchmark, name: &str) -> bool {
    let exact = |benchmark: &Benchmark| benchmark.name == name || benchmark.figures.contains(&name);
    if BENCHMARKS.iter().any(exact) {
        return exact(benchmark);
    }
    benchmark.name.contains(name) || benchmark.figures.iter().any(|f| f.contains(name))
}

/// Runs a benchmark in a process of its own.
fn run(benchmark: &Benchmark, quick: bool) -> Result<Vec<Figure>> {
    let own = std::env::current_exe().context("this program has no path")?;
    let mut child = Command::new(own)
        .args(["--child", benchmark.name])
        .args(quick.then_some("--quick"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("a process for it could not be started")?;
    let mut figures: Vec<Figure> = Vec::new();
    if let Some(stdout) = child.stdout.take() {
        for line in BufReader::new(stdout).lines() {
            let line = line.context("its figures cannot be read")?;
            figures.push(serde_json::from_str(&line).context("its figures cannot be read")?);
        }
    }
    let status = child.wait()?;
    if !status.success() {
        return Err(anyhow!("its process ended with {status}"));
    }
    figures.sort_by_key(|figure| !figure.is_ratio());
    Ok(figures)
}

/// Runs a benchmark here.
fn child(name: &str, quick: bool) -> Result<()> {
    let benchmark = BENCHMARKS
        .iter()
        .find(|benchmark| benchmark.name == name)
        .ok_or_else(|| anyhow!("there is no benchmark `{name}`"))?;
    let needs = benchmark.needs.iter().copied().collect();
    let shipped = shipped::BenchArtifacts::build(&needs, quick)?;
    noise::begin();
    for figure in (benchmark.run)(&shipped)? {
        print(&serde_json::to_string(&figure)?)?;
    }
    Ok(())
}

fn print(line: &str) -> Result<()> {
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "{line}")?;
    Ok(stdout.flush()?)
}

/// Says how things stand. Nothing depends on its being read.
pub(crate) fn report_progress(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}
