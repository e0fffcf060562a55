//! Chaos: a host is killed at random moments of turns with calls, over and over, and after each
//! kill everything that was acknowledged must still be there, nothing may have run twice unseen,
//! every thread must go on, and nothing may be left behind.
//!
//! | file | concept |
//! |---|---|
//! | `victim` | a host under test that embeds a manager, a process of its own |
//! | `running`, `protocol` | a host from outside, and the lines between both |
//! | `served`, `http` | `conjure serve` as a host under test, and clients of its API |
//! | `model`, `calls` | what the model says, and the calls, each with a witness outside (the crate
//!   in `notes` is the native skill) |
//! | `shard` | one database and the kills on it |
//! | `observed_thread`, `chain` | what was seen before a kill |
//! | `verify`, `leftovers` | what must hold after it |
//! | `postgres` | databases of a server of tests |
//! | `crashes` | a plugin whose workers end in every way, and sessions beside it |
//! | `swaps` | plugins that are replaced under sessions that call them |
//! | `soak` | many sessions for hours, and what the server has meanwhile; nothing is killed |

mod calls;
mod chain;
pub mod crashes;
mod http;
mod leftovers;
mod model;
mod observed_thread;
mod postgres;
mod protocol;
mod random;
mod running;
mod served;
mod shard;
pub mod soak;
pub mod swaps;
mod verify;
pub mod victim;

use std::path::PathBuf;

use anyhow::{Result, anyhow};
use conjure_kit::Engine;

pub use chain::Chain;
pub use conjure_kit::Postgres;
pub use http::{Answer, Api, Events, TOKEN};
pub use observed_thread::{Phase, Phases};
pub use postgres::database;
pub use random::Random;

use shard::{Job, Shard, ShardOutcome};

/// Database of the hosts that are killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Database {
    /// An SQLite file.
    Sqlite,
    /// PostgreSQL.
    Postgres,
    /// Half the kills on each.
    Both,
}

impl Database {
    fn name(self) -> &'static str {
        match self {
            Self::Sqlite => "sqlite",
            Self::Postgres => "postgres",
            Self::Both => "both",
        }
    }
}

/// Kind of the hosts that are killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Hosts {
    /// A program that embeds a manager, told what to do over a pipe.
    Embedded,
    /// `conjure serve`, driven over its HTTP API.
    Serve,
    /// Half the kills on each.
    Both,
}

impl Hosts {
    fn name(self) -> &'static str {
        match self {
            Self::Embedded => "embedded",
            Self::Serve => "serve",
            Self::Both => "both",
        }
    }
}

/// What is to be done.
#[derive(Debug, Clone)]
pub struct Options {
    /// How many kills, over all databases.
    pub kills: u64,
    /// What chooses the moments.
    pub seed: u64,
    /// The number of the first kill.
    pub first: u64,
    /// The databases that it is tried on.
    pub database: Database,
    /// What is killed.
    pub hosts: Hosts,
    /// Whether containers take part, where an engine runs.
    pub containers: bool,
    /// The program `conjure-chaos`, which has the role of the host.
    pub program: PathBuf,
    /// Function that gets each line about how it goes.
    pub report: fn(&str),
}

/// What came of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Summary {
    /// Kills.
    pub kills: u64,
    /// Where the sessions were, each at each kill.
    pub phases: Phases,
    /// Events that followers saw.
    pub events: u64,
    /// Calls that ran.
    pub calls: u64,
}

/// Kills a host as often as is asked for.
///
/// # Errors
/// When something did not hold, with where the data is and how to run that kill again, or when
/// what is needed is not there.
pub fn run(options: &Options) -> Result<Summary> {
    let conjure = conjure_kit::conjure_bin()?;
    let engine = if options.containers {
        Engine::find()?
    } else {
        None
    };
    let databases = match options.database {
        Database::Both => vec![Database::Sqlite, Database::Postgres],
        one => vec![one],
    };
    let hosts = match options.hosts {
        Hosts::Both => vec![Hosts::Embedded, Hosts::Serve],
        one => vec![one],
    };
    let postgres = if databases.contains(&Database::Postgres) {
        let found = Postgres::find()?;
        Some(found.ok_or_else(|| {
            anyhow!(
                "PostgreSQL is not installed (Debian: postgresql); `--database sqlite` does without"
            )
        })?)
    } else {
        None
    };
    let kinds = databases
        .iter()
        .flat_map(|database| hosts.iter().map(move |host| (*database, *host)));
    let mut jobs = Vec::new();
    for (number, (database, host)) in (0..).zip(kinds) {
        let name = format!("{}-{}", database.name(), host.name());
        let url = match (&postgres, database) {
            (Some(server), Database::Postgres) => {
                let own = format!("{}_{}", std::process::id(), name.replace('-', "_"));
                Some(postgres::database(server, &format!("conjure_chaos_{own}"))?)
            }
            _ => None,
        };
        let count = (databases.len() * hosts.len()) as u64;
        jobs.push(Job {
            name,
            rerun_args: format!("--database {} --hosts {}", database.name(), host.name()),
            serves: host == Hosts::Serve,
            seed: options.seed,
            first: options.first,
            // What does not divide goes to the first ones.
            kills: (options.kills + count - 1 - number) / count,
            program: options.program.clone(),
            conjure: conjure.clone(),
            database: url,
            engine,
            report: options.report,
        });
    }
    jobs.retain(|job| job.kills > 0);
    let done: Vec<Result<ShardOutcome>> = std::thread::scope(|scope| {
        let shards: Vec<_> = jobs
            .into_iter()
            .map(|job| scope.spawn(|| run_shard(job)))
            .collect();
        let done = shards.into_iter().map(std::thread::ScopedJoinHandle::join);
        done.map(|done| done.unwrap_or_else(|_| Err(anyhow!("a shard broke"))))
            .collect()
    });
    let mut summary = Summary::default();
    let mut wrong = Vec::new();
    for done in done {
        match done {
            Ok(done) => {
                summary.kills += done.kills;
                summary.phases.add(&done.phases);
                summary.events += done.events;
                summary.calls += done.calls;
            }
            Err(error) => wrong.push(format!("{error:#}")),
        }
    }
    if wrong.is_empty() {
        return Ok(summary);
    }
    let kept = postgres.as_ref().and_then(Postgres::keep);
    wrong.extend(kept.map(|dir| format!("The cluster is in {}.", dir.display())));
    Err(anyhow!(wrong.join("\n\n")))
}

/// One host on one database. Where something does not hold its files stay.
fn run_shard(job: Job) -> Result<ShardOutcome> {
    let (name, again, seed) = (job.name.clone(), job.rerun_args.clone(), job.seed);
    let mut shard = Shard::new(job)?;
    let ran = shard.run();
    let store = shard.store.clone();
    shard.runtime.block_on(store.close());
    match ran {
        Ok(()) => Ok(shard.outcome),
        Err(error) => {
            let kill = shard.kill;
            let kept = shard.workspace.root().to_owned();
            // A clone that never ends keeps the directory.
            std::mem::forget(shard.workspace.clone());
            Err(anyhow!(
                "{name}, around kill {kill} of seed {seed}: {error:#}\nThe data is in {}. Again: \
                 cargo xtask chaos --seed {seed} {again} --first {kill} --kills 3",
                kept.display()
            ))
        }
    }
}
