//! `cargo xtask crashes` and `cargo xtask swaps`: something that is done to plugins very often.
//!
//! What is done, what must hold, and how often where nothing is said, is in `tests/chaos`.

use std::os::unix::process::CommandExt as _;

use anyhow::{Result, anyhow};

use crate::repo;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// How often [default: 10000 crashes, 1000 swaps of each plugin]
    #[arg(long)]
    count: Option<u64>,
    /// What chooses how, or when [default: the time]
    #[arg(long)]
    seed: Option<u64>,
}

/// Runs the campaign of this name.
pub(crate) fn run(campaign: &str, args: &Args) -> Result<()> {
    let mut command = repo::cargo([
        "run",
        "--quiet",
        "--package",
        "conjure-chaos",
        "--",
        campaign,
    ]);
    for (option, value) in [("--count", args.count), ("--seed", args.seed)] {
        if let Some(value) = value {
            command.args([option, &value.to_string()]);
        }
    }
    repo::announce(&command);
    // In this process's place: a signal that ends it from outside ends what runs.
    Err(anyhow!(command.exec()).context("cargo could not be started"))
}
