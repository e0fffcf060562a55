//! `cargo xtask crashes` and `cargo xtask swaps`: something that is done to plugins very often.
//!
//! What is done, what must hold, and how often where nothing is said, is in `tests/chaos`. What crashes has
//! a process of its own; what is swapped can be in either place.

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

#[derive(clap::Args)]
pub(crate) struct SwapArgs {
    #[command(flatten)]
    args: Args,
    /// Where the plugins run: `in-process`, or each in a `process` of its own [default: in-process]
    #[arg(long, value_name = "WHERE")]
    isolation: Option<String>,
}

/// Runs the campaign of crashes.
///
/// # Errors
/// When it cannot be started.
pub(crate) fn crashes(args: &Args) -> Result<()> {
    run("crashes", args, None)
}

/// Runs the campaign of swaps.
///
/// # Errors
/// When it cannot be started.
pub(crate) fn swaps(args: &SwapArgs) -> Result<()> {
    run("swaps", &args.args, args.isolation.as_deref())
}

fn run(campaign: &str, args: &Args, isolation: Option<&str>) -> Result<()> {
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
    if let Some(isolation) = isolation {
        command.args(["--isolation", isolation]);
    }
    repo::announce(&command);
    // In this process's place: a signal that ends it from outside ends what runs.
    Err(anyhow!(command.exec()).context("cargo could not be started"))
}
