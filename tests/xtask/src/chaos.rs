//! `cargo xtask chaos`: a host that is killed at random moments.
//!
//! What is killed, and what must hold afterwards, is in `tests/chaos`.

use std::os::unix::process::CommandExt as _;

use anyhow::{Result, anyhow};

use crate::repo;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// How many kills
    #[arg(long, default_value_t = 50)]
    kills: u64,
    /// What chooses the moments [default: the time]
    #[arg(long)]
    seed: Option<u64>,
    /// On which database: sqlite, postgres, or half of the kills on each
    #[arg(long, default_value = "both", value_parser = ["sqlite", "postgres", "both"])]
    database: String,
    /// What is killed: a program that embeds a manager, `conjure serve`, or half of the kills on each
    #[arg(long, default_value = "both", value_parser = ["embedded", "serve", "both"])]
    hosts: String,
    /// The number of the first kill, to run one again
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// Leave containers out, also where an engine runs
    #[arg(long)]
    no_containers: bool,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let mut command = repo::cargo(["run", "--quiet", "--package", "conjure-chaos", "--"]);
    command.args(["--kills", &args.kills.to_string()]);
    command.args(["--database", &args.database, "--hosts", &args.hosts]);
    if let Some(seed) = args.seed {
        command.args(["--seed", &seed.to_string()]);
    }
    if args.first > 0 {
        command.args(["--first", &args.first.to_string()]);
    }
    if args.no_containers {
        command.arg("--no-containers");
    }
    repo::announce(&command);
    // In this process's place: a signal that ends it from outside ends what runs, and that what it
    // began.
    Err(anyhow!(command.exec()).context("cargo could not be started"))
}
