//! `cargo xtask perf`: the benchmarks, built as they are shipped.
//!
//! What is measured, and how, is in `tests/perf`; what building costs, in `builds.rs`.

use anyhow::Result;

use crate::{builds, linker, repo};

/// What makes a release build a quick one.
const QUICK: [&str; 4] = [
    "--config",
    "profile.release.lto=false",
    "--config",
    "profile.release.codegen-units=16",
];

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Run only the benchmarks whose name contains one of these; `build` alone is what building
    /// costs [default: all but those that take minutes, such as `template`]
    names: Vec<String>,
    /// Run those too that take minutes
    #[arg(long)]
    all: bool,
    /// Build without link-time optimisation, into target/quick: minutes less. Figures of quick runs
    /// compare with each other only
    #[arg(long)]
    quick: bool,
    /// Print one JSON object a figure: name, ratio, value, unit, target, pass, method, noise, machine
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    if args.names == ["build"] {
        return builds::measure();
    }
    let mut command = repo::cargo(["run", "--quiet", "--release", "--package", "conjure-perf"]);
    // The programs that it measures are built below it.
    linker::use_linker(&mut command)?;
    if args.quick {
        command.args(QUICK).args(["--target-dir", "target/quick"]);
    }
    // The package has another program beside it.
    command.args(["--bin", "conjure-perf", "--"]);
    command.args(&args.names);
    if args.quick {
        command.arg("--quick");
    }
    if args.all {
        command.arg("--all");
    }
    if args.json {
        command.arg("--json");
    }
    repo::run(&mut command)
}
