//! Chaos: a host is killed at random moments of turns with calls, over and over, and after each
//! kill everything that was acknowledged must still be there, nothing may have run twice unseen,
//! every thread must go on, and nothing may be left behind.
//!
//! | file | concept |
//! |---|---|
//! | `victim` | the host under test, a process of its own |
//! | `running`, `said` | that process from outside, and the lines between both |
//! | `model`, `calls` | what the model says, and the calls, each with a witness outside |
//! | `shard` | one database and the kills on it |
//! | `watched`, `chain` | what was seen before a kill |
//! | `verify`, `leftovers` | what must hold after it |
//! | `postgres` | a server to test on |

mod calls;
mod chain;
mod leftovers;
mod model;
mod postgres;
mod random;
mod running;
mod said;
mod shard;
mod verify;
pub mod victim;
mod watched;

use std::path::PathBuf;

use anyhow::{Result, anyhow};
use conjure_kit::Engine;

pub use chain::Chain;
pub use postgres::Postgres;
pub use random::Random;
pub use watched::{Phase, Phases};

use shard::{Done, Job, Shard};

/// Which database.
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

/// What is to be done.
#[derive(Debug, Clone)]
pub struct Options {
    /// How many kills, over all databases.
    pub kills: u64,
    /// What chooses the moments.
    pub seed: u64,
    /// The number of the first kill.
    pub first: u64,
    /// Where.
    pub database: Database,
    /// Whether containers take part, where an engine runs.
    pub containers: bool,
    /// The program `conjure-chaos`, which has the role of the host.
    pub program: PathBuf,
    /// Who is told how it goes.
    pub say: fn(&str),
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
    let on = |database| options.database == database || options.database == Database::Both;
    let mut postgres = if on(Database::Postgres) {
        let found = Postgres::find()?;
        Some(found.ok_or_else(|| {
            anyhow!(
                "PostgreSQL is not installed (Debian: postgresql); `--database sqlite` does without"
            )
        })?)
    } else {
        None
    };
    let mut jobs = Vec::new();
    let share = if options.database == Database::Both {
        [options.kills.div_ceil(2), options.kills / 2]
    } else {
        [options.kills; 2]
    };
    for (database, kills) in [Database::Sqlite, Database::Postgres]
        .into_iter()
        .zip(share)
    {
        let url = match (&postgres, database) {
            (Some(postgres), Database::Postgres) => Some(new_database(postgres)?),
            _ => None,
        };
        if on(database) {
            jobs.push(Job {
                name: database.name(),
                seed: options.seed,
                first: options.first,
                kills,
                program: options.program.clone(),
                conjure: conjure.clone(),
                database: url,
                engine,
                say: options.say,
            });
        }
    }
    let done: Vec<Result<Done>> = std::thread::scope(|scope| {
        let shards: Vec<_> = jobs
            .into_iter()
            .map(|job| scope.spawn(|| one(job)))
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
    let kept = postgres.as_mut().and_then(Postgres::keep);
    wrong.extend(kept.map(|dir| format!("The cluster is in {}.", dir.display())));
    Err(anyhow!(wrong.join("\n\n")))
}

fn new_database(postgres: &Postgres) -> Result<String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(postgres.database(&format!("conjure_chaos_{}", std::process::id())))
}

/// One database. Where something does not hold its files stay.
fn one(job: Job) -> Result<Done> {
    let (name, seed) = (job.name, job.seed);
    let mut shard = Shard::new(job)?;
    let ran = shard.run();
    let store = shard.store.clone();
    shard.runtime.block_on(store.close());
    match ran {
        Ok(()) => Ok(shard.done),
        Err(error) => {
            let kill = shard.kill;
            let kept = shard.workspace.root().to_owned();
            // A clone that never ends keeps the directory.
            std::mem::forget(shard.workspace.clone());
            Err(anyhow!(
                "{name}, around kill {kill} of seed {seed}: {error:#}\nThe data is in {}. Again: \
                 cargo xtask chaos --seed {seed} --database {name} --first {kill} --kills 3",
                kept.display()
            ))
        }
    }
}
