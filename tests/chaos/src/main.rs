//! `conjure-chaos`: kills a host at random moments and says whether everything held. The same
//! program has the role of that host.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program for the terminal: what it prints is its result"
)]

use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::Result;
use clap::{Parser, Subcommand};
use conjure_chaos::{Database, Hosts, Options, crashes, soak, swaps, victim};
use conjure_host::plugin::Isolation;

/// Kills a host at random moments of turns with calls, and checks after each kill that nothing
/// acknowledged is missing, nothing ran twice unseen, every thread goes on, and nothing is left.
///
/// Exit codes: 0 everything held, 1 something did not, 2 wrong usage.
#[derive(Parser)]
#[command(name = "conjure-chaos")]
struct Cli {
    #[command(subcommand)]
    role: Option<Role>,
    /// How many kills
    #[arg(long, default_value_t = 50)]
    kills: u64,
    /// What chooses the moments [default: the time]
    #[arg(long)]
    seed: Option<u64>,
    /// On which database
    #[arg(long, value_enum, default_value = "both")]
    database: Database,
    /// What is killed
    #[arg(long, value_enum, default_value = "both")]
    hosts: Hosts,
    /// The number of the first kill
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// Leave containers out, also where an engine runs
    #[arg(long)]
    no_containers: bool,
}

#[derive(Subcommand)]
enum Role {
    /// The host that is killed
    #[command(hide = true)]
    Host(victim::Args),
    /// Many sessions of a server for a long time; nothing is killed
    Soak(Soak),
    /// A plugin whose worker processes end, over and over and in every way
    Crashes(Crashes),
    /// A skill and a backend that are replaced, over and over, under sessions that call them
    Swaps(Swaps),
}

#[derive(clap::Args)]
struct Swaps {
    /// How many swaps of each
    #[arg(long, default_value_t = 1_000)]
    count: u64,
    /// What chooses the pauses between them [default: the time]
    #[arg(long)]
    seed: Option<u64>,
    /// Where the plugins run: `in-process`, or each in a `process` of its own
    #[arg(long, value_name = "WHERE", default_value = "in-process", value_parser = isolation)]
    isolation: Isolation,
}

#[derive(clap::Args)]
struct Crashes {
    /// How many calls that break something
    #[arg(long, default_value_t = 10_000)]
    count: u64,
    /// What chooses how [default: the time]
    #[arg(long)]
    seed: Option<u64>,
}

#[derive(clap::Args)]
struct Soak {
    /// How many sessions
    #[arg(long, default_value_t = 200)]
    sessions: usize,
    /// For how many minutes
    #[arg(long, default_value_t = 120)]
    minutes: u64,
    /// Goes on until it can tell whether memory grows, for so many minutes at most; where it cannot
    /// then either, that is a failure
    #[arg(long, value_name = "MINUTES")]
    until_told: Option<u64>,
    /// Seconds from one turn of a session to its next
    #[arg(long, default_value_t = 20)]
    pace: u64,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let done = match &cli.role {
        Some(Role::Host(args)) => victim::run(args),
        Some(Role::Soak(args)) => soak(args),
        Some(Role::Crashes(args)) => crash(args),
        Some(Role::Swaps(args)) => swap(args),
        None => kill(&cli),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn soak(args: &Soak) -> Result<()> {
    let report = soak::run(&soak::Options {
        sessions: args.sessions,
        time: Duration::from_secs(60 * args.minutes),
        max_time: args.until_told.map(|most| Duration::from_secs(60 * most)),
        poll_interval: Duration::from_secs(2),
        pace: Duration::from_secs(args.pace),
        report: |line| eprintln!("{line}"),
    })?;
    println!("{report}");
    let failures = report.failures();
    anyhow::ensure!(failures.is_empty(), "{}", failures.join("; "));
    Ok(())
}

fn crash(args: &Crashes) -> Result<()> {
    let seed = args.seed.map_or_else(seed_of_now, Ok)?;
    eprintln!("seed {seed}");
    let begun = Instant::now();
    let summary = crashes::run(&crashes::Options {
        count: args.count,
        seed,
    })?;
    println!(
        "{:.0} s, and the host is still process {}: {summary}",
        begun.elapsed().as_secs_f64(),
        std::process::id()
    );
    Ok(())
}

fn swap(args: &Swaps) -> Result<()> {
    let seed = args.seed.map_or_else(seed_of_now, Ok)?;
    eprintln!("seed {seed}");
    let summary = swaps::run(&swaps::Options {
        count: args.count,
        seed,
        isolation: args.isolation,
    })?;
    println!("{summary}");
    Ok(())
}

fn isolation(text: &str) -> Result<Isolation, String> {
    let known = [Isolation::InProcess, Isolation::Process];
    let found = known.into_iter().find(|known| known.as_str() == text);
    found.ok_or_else(|| "write `in-process` or `process`".to_owned())
}

fn seed_of_now() -> Result<u64> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
    Ok(u64::from(now.subsec_nanos()))
}

fn kill(cli: &Cli) -> Result<()> {
    let seed = cli.seed.map_or_else(seed_of_now, Ok)?;
    eprintln!("seed {seed}");
    let begun = Instant::now();
    let summary = conjure_chaos::run(&Options {
        kills: cli.kills,
        seed,
        first: cli.first,
        database: cli.database,
        hosts: cli.hosts,
        containers: !cli.no_containers,
        program: std::env::current_exe()?,
        report: |line| eprintln!("{line}"),
    })?;
    println!(
        "{} kills in {:.0} s with seed {seed}: everything held.\nFollowers saw {} events; {} calls \
         ran.\nWhere the sessions were when their host was killed: {}.",
        summary.kills,
        begun.elapsed().as_secs_f64(),
        summary.events,
        summary.calls,
        summary.phases
    );
    Ok(())
}
