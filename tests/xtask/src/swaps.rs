//! `cargo xtask swaps`: two plugins that are replaced under sessions that call them.
//!
//! What is done, and what must hold, is in `tests/chaos`.

use std::os::unix::process::CommandExt as _;

use anyhow::{Result, anyhow};

use crate::repo;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// How many swaps of each plugin
    #[arg(long, default_value_t = 1_000)]
    count: u64,
    /// What chooses the pauses between them [default: the time]
    #[arg(long)]
    seed: Option<u64>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let mut command = repo::cargo(["run", "--quiet", "--package", "conjure-chaos", "--"]);
    command.args(["swaps", "--count", &args.count.to_string()]);
    if let Some(seed) = args.seed {
        command.args(["--seed", &seed.to_string()]);
    }
    repo::announce(&command);
    // In this process's place: a signal that ends it from outside ends what runs.
    Err(anyhow!(command.exec()).context("cargo could not be started"))
}
