//! `cargo xtask perf`: the benchmarks, built as they are shipped.
//!
//! What is measured, and how, is in `tests/perf`.

use anyhow::Result;

use crate::repo;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Run only the benchmarks whose name contains this [default: all]
    name: Option<String>,
    /// Print one JSON object a benchmark: name, value, unit, method
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let mut command = repo::cargo([
        "run",
        "--quiet",
        "--release",
        "--package",
        "conjure-perf",
        "--",
    ]);
    command.args(&args.name);
    if args.json {
        command.arg("--json");
    }
    repo::run(&mut command)
}
