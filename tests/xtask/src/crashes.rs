//! `cargo xtask crashes`: a plugin whose worker processes end, over and over and in every way.
//!
//! What is done, and what must hold, is in `tests/chaos`.

use std::os::unix::process::CommandExt as _;

use anyhow::{Result, anyhow};

use crate::repo;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// How many calls that break something
    #[arg(long, default_value_t = 10_000)]
    count: u64,
    /// What chooses how [default: the time]
    #[arg(long)]
    seed: Option<u64>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let mut command = repo::cargo(["run", "--quiet", "--package", "conjure-chaos", "--"]);
    command.args(["crashes", "--count", &args.count.to_string()]);
    if let Some(seed) = args.seed {
        command.args(["--seed", &seed.to_string()]);
    }
    repo::announce(&command);
    // In this process's place: a signal that ends it from outside ends what runs.
    Err(anyhow!(command.exec()).context("cargo could not be started"))
}
