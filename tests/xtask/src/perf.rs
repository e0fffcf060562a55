//! `cargo xtask perf`: the benchmarks, built as they are shipped.
//!
//! What is measured, and how, is in `tests/perf`.

use anyhow::Result;

use crate::repo;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Run only the benchmarks whose name contains one of these [default: all but those that take
    /// minutes, such as `template`]
    names: Vec<String>,
    /// Run those too that take minutes
    #[arg(long)]
    all: bool,
    /// Print one JSON object a figure: name, value, unit, target, pass, method, machine
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
    command.args(&args.names);
    if args.all {
        command.arg("--all");
    }
    if args.json {
        command.arg("--json");
    }
    repo::run(&mut command)
}
