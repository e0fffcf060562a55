//! What building costs, and what comes out: `cargo xtask perf build` measures it, CI holds it
//! against a budget.
//!
//! A crate more or a binary that grew is seen when it happens, and whoever does it on purpose raises
//! the budget here.

use std::{
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use nix::sys::resource::{Usage, UsageWho, getrusage};

use crate::{artifacts::BuildOutput, dist, files, linker, repo};

/// The most crates in the program, with those that only run while it is built. Of them, five confine and
/// end the workers of plugins; 19 are for registries of container images and seven for signatures, both
/// for packages of plugins; 17 are for the protocol of editors; 28 are for the page, most of which read
/// and clean the HTML of what a model says; and eleven are for the chat on a terminal.
const MAX_CRATES: usize = 494;
/// Bytes of the stripped release `conjure`: what it has, and a hundredth for what another linker makes of it.
const MAX_PROGRAM_BYTES: u64 = 39_300_000;

/// The package of the program.
const PROGRAM: &str = "conjure-cli";
/// Files of faces, for the time from a change to a program that has it: one that the program is
/// linked with, and one of the program's own crate.
const TOUCHED_FILES: [&str; 2] = [
    "conjure-host/http/src/lib.rs",
    "conjure-host/cli/src/main.rs",
];
/// Where figures are built, below the target directory; it is empty at the beginning.
const BUILD_DIR: &str = "target/perf-build";

/// What the figures should be at most: the demo from a fresh clone, in seconds on the clock and of
/// processors; a touched file, in seconds on the clock; the stripped program, in bytes.
const TARGET_DEMO: f64 = 300.0;
const TARGET_DEMO_PROCESSORS: f64 = 480.0;
const TARGET_TOUCHED: f64 = 5.0;
const TARGET_BYTES: u64 = 22_000_000;

/// Builds from nothing and prints each figure with what it should be and how it was measured.
pub(crate) fn measure() -> Result<()> {
    let fresh = repo::root().join(BUILD_DIR);
    files::remove(&fresh)?;
    let demo = timed(|| run_demo(&fresh))?;
    println!(
        "demo, from nothing        {demo}  (`cargo xtask demo --third none`, sources fetched; at most \
         {TARGET_DEMO:.0} s and {TARGET_DEMO_PROCESSORS:.0} s)"
    );
    // What a program alone needs may have fewer features than beside the demo's plugins, and work on the
    // code keeps what shortens the next build.
    run_debug(&fresh)?;
    for file in TOUCHED_FILES {
        touch(&repo::root().join(file))?;
        let touched = timed(|| run_debug(&fresh))?;
        println!(
            "a touched file of a face  {touched}  ({file}, until `conjure --version` has run; at most \
             {TARGET_TOUCHED:.0} s on the clock)"
        );
    }
    let release = timed(|| build_release(&fresh))?;
    println!("release, from nothing     {release}  (`conjure` alone)");
    let megabytes = |bytes: u64| bytes as f64 / 1e6;
    println!(
        "conjure, stripped         {:.1} MB  (should be {:.0} MB; CI allows {:.0} MB)",
        megabytes(size(&fresh.join("release/conjure"))?),
        megabytes(TARGET_BYTES),
        megabytes(MAX_PROGRAM_BYTES)
    );
    println!(
        "crates                    {}  (CI allows {MAX_CRATES})",
        crates()?
    );
    files::remove(&fresh)
}

/// The demo as in a fresh clone: this program is built first, too.
fn run_demo(target: &Path) -> Result<()> {
    let mut command = repo::cargo(["run", "--quiet", "--package", "conjure-xtask", "--"]);
    // The same on every machine, whatever engine and key it has.
    command.args(["demo", "--third", "none"]);
    repo::run(command.env("CARGO_TARGET_DIR", target))
}

/// Builds the program as for work on it, and has it say its version.
fn run_debug(target: &Path) -> Result<()> {
    let mut command = repo::cargo(["build", "--quiet", "--package", PROGRAM]);
    command.env(repo::INCREMENTAL, "1");
    repo::run(command.env("CARGO_TARGET_DIR", target))?;
    let mut program = Command::new(target.join("debug/conjure"));
    repo::text_of(program.arg("--version")).map(drop)
}

fn build_release(target: &Path) -> Result<()> {
    let mut command = repo::cargo(["build", "--quiet", "--release", "--package", PROGRAM]);
    linker::use_linker(&mut command)?;
    repo::run(command.env("CARGO_TARGET_DIR", target))
}

/// The release build while something else runs, which it gets in nobody's way of. Ends when dropped.
pub(crate) struct BuildAside(Child);

impl Drop for BuildAside {
    fn drop(&mut self) {
        // It has ended, or nobody wants it any more.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Begins what [`check`] builds, with the processor time that others leave. What is wrong with it
/// [`check`] says.
///
/// # Errors
/// When it cannot be started.
pub(crate) fn begin() -> Result<BuildAside> {
    let mut command = repo::cargo(["build", "--quiet", "--release", "--locked"]);
    for package in dist::packages() {
        command.args(["--package", package]);
    }
    linker::use_linker(&mut command)?;
    let mut command = repo::low_priority(&command);
    command.stdin(Stdio::null());
    command.stdout(Stdio::null()).stderr(Stdio::null());
    repo::announce(&command);
    let child = command.spawn();
    Ok(BuildAside(child.context("`nice` could not be started")?))
}

/// Holds the release program and the crates that it is made of against the budget.
///
/// # Errors
/// When one of them is over it, with both figures.
pub(crate) fn check() -> Result<()> {
    let crates = crates()?;
    let built = BuildOutput::with("build", &dist::packages(), &["--release", "--locked"])?;
    let bytes = size(built.program("conjure")?)?;
    eprintln!("conjure is made of {crates} crates and has {bytes} bytes");
    check_limits(crates, bytes)
}

fn check_limits(crates: usize, bytes: u64) -> Result<()> {
    let mut over = Vec::new();
    if crates > MAX_CRATES {
        over.push(format!("{crates} crates, more than {MAX_CRATES}"));
    }
    if bytes > MAX_PROGRAM_BYTES {
        over.push(format!("{bytes} bytes, more than {MAX_PROGRAM_BYTES}"));
    }
    if !over.is_empty() {
        bail!(
            "`conjure` is over its budget: {}; take out what it does not need (`cargo tree`, \
             `cargo bloat`), or raise the budget in tests/xtask/src/builds.rs and say why",
            over.join(" and ")
        );
    }
    Ok(())
}

/// How many different crates `conjure` is built of.
fn crates() -> Result<usize> {
    let mut command = repo::cargo(["tree", "--package", PROGRAM, "--edges", "normal,build"]);
    command.args(["--prefix", "none", "--format", "{p}"]);
    Ok(distinct(&repo::text_of(&mut command)?))
}

fn distinct(tree: &str) -> usize {
    let name = |line: &str| {
        let mut words = line.split_whitespace();
        Some((words.next()?.to_owned(), words.next()?.to_owned()))
    };
    let crates: std::collections::BTreeSet<_> = tree.lines().filter_map(name).collect();
    crates.len()
}

/// Time on the clock and on processors.
struct Cost {
    wall: Duration,
    cpu: Duration,
}

impl std::fmt::Display for Cost {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let seconds = |time: Duration| time.as_secs_f64();
        write!(
            out,
            "{:6.1} s on the clock, {:6.1} s of processors",
            seconds(self.wall),
            seconds(self.cpu)
        )
    }
}

fn timed(work: impl FnOnce() -> Result<()>) -> Result<Cost> {
    let (begun, before) = (Instant::now(), processors()?);
    work()?;
    Ok(Cost {
        wall: begun.elapsed(),
        cpu: processors()?.saturating_sub(before),
    })
}

/// What all programs that were started here and have ended used, their own children included.
fn processors() -> Result<Duration> {
    let usage: Usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    let seconds = |time: nix::sys::time::TimeVal| {
        use nix::sys::time::TimeValLike as _;
        Duration::from_micros(u64::try_from(time.num_microseconds()).unwrap_or_default())
    };
    Ok(seconds(usage.user_time()) + seconds(usage.system_time()))
}

fn size(file: &Path) -> Result<u64> {
    let metadata = std::fs::metadata(file);
    Ok(metadata
        .with_context(|| format!("`{}` was not built", file.display()))?
        .len())
}

fn touch(file: &Path) -> Result<()> {
    let failed = || format!("`{}` cannot be touched", file.display());
    let open = std::fs::File::options().append(true).open(file);
    let open = open.with_context(failed)?;
    open.set_modified(std::time::SystemTime::now())
        .with_context(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crate_counts_once_for_each_version() {
        let tree = "conjure-cli v0.1.0 (/here)\nsyn v1.0.1\nsyn v2.0.1\nsyn v2.0.1 (*)\n\n";
        assert_eq!(distinct(tree), 3);
    }

    #[test]
    fn what_is_over_the_budget_is_told_with_both_figures() {
        check_limits(MAX_CRATES, MAX_PROGRAM_BYTES).unwrap();
        let error = check_limits(MAX_CRATES + 1, MAX_PROGRAM_BYTES + 1)
            .unwrap_err()
            .to_string();
        let crates = format!("{} crates, more than {MAX_CRATES}", MAX_CRATES + 1);
        assert!(error.contains(&crates), "{error}");
        assert!(
            error.contains(&format!("more than {MAX_PROGRAM_BYTES}")),
            "{error}"
        );
    }

    #[test]
    fn what_is_touched_is_there() {
        for file in TOUCHED_FILES {
            assert!(repo::root().join(file).is_file(), "{file}");
        }
    }

    #[test]
    fn time_of_processors_is_that_of_programs_that_ended() {
        let before = processors().unwrap();
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done"]);
        assert!(shell.status().unwrap().success());
        assert!(processors().unwrap() > before);
    }
}
