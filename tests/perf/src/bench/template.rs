//! The crate that `conjure plugin create skill` makes: how long its author waits for a build.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::figure::Figure;
use crate::processor;
use crate::samples::{Samples, timed};
use crate::shipped::{BenchArtifacts, cargo, new_skill};

/// Seconds that a clean build may take, on the clock and of processors.
const CLEAN: f64 = 15.0;
const CLEAN_PROCESSORS: f64 = 40.0;
/// Seconds that a build after a change may take.
const INCREMENTAL: f64 = 1.5;
/// MiB that the release library may have.
const SIZE: f64 = 1.0;

/// What is changed between builds.
const LINE: &str = "Hello, {}!";

pub(super) fn run(shipped: &BenchArtifacts) -> Result<Vec<Figure>> {
    let dir = tempfile::tempdir()?;
    let krate = dir.path().join("my-skill");
    new_skill(shipped.program()?, "my-skill", &krate)?;
    // Fetching is the network's time, not the build's.
    build(cargo_here(&krate).arg("fetch"))?;
    let (mut clean, mut processors) = (Samples::default(), Samples::default());
    for _ in 0..2 {
        build(cargo_here(&krate).args(["clean", "--quiet"]))?;
        let before = processor::seconds_of_ended_children()?;
        clean.push(build(cargo_here(&krate).args(["build", "--quiet"]))?.as_secs_f64());
        processors.push(processor::seconds_of_ended_children()? - before);
    }
    let mut incremental = Samples::default();
    let source = krate.join("src/lib.rs");
    let text = std::fs::read_to_string(&source)?;
    for round in 0..12 {
        std::fs::write(&source, greeting(&text, round)?)?;
        let took = build(cargo_here(&krate).args(["build", "--quiet"]))?;
        if round >= 2 {
            incremental.push(took.as_secs_f64());
        }
    }
    let release = build(cargo_here(&krate).args(["build", "--quiet", "--release"]))?;
    let library = format!(
        "target/release/libmy_skill.{}",
        std::env::consts::DLL_EXTENSION
    );
    let size = std::fs::metadata(krate.join(library))?.len() as f64 / (1024.0 * 1024.0);
    let of =
        "The crate of `conjure plugin create skill`, outside any workspace, dependencies fetched";
    Ok(vec![
        Figure::new(
            "template_clean",
            "s",
            &clean,
            &format!("{of}: `cargo build` after `cargo clean`."),
        )
        .at_most(CLEAN),
        Figure::new(
            "template_clean_cpu",
            "s",
            &processors,
            &format!(
                "{of}: processor time of that build, nearly all of it for the SDK and what it \
                 depends on."
            ),
        )
        .at_most(CLEAN_PROCESSORS),
        Figure::new(
            "template_incremental",
            "s",
            &incremental,
            &format!(
                "{of}: `cargo build` in its dev profile after a text in its greeting changed."
            ),
        )
        .at_most(INCREMENTAL),
        Figure::single(
            "template_size",
            "MiB",
            size,
            &format!("{of}: its library after `cargo build --release`."),
        )
        .at_most(SIZE)
        .note(format!("That build took {:.0} s.", release.as_secs_f64())),
    ])
}

/// The template's source with the greeting of a round.
///
/// # Errors
/// When the template greets otherwise.
pub(super) fn greeting(source: &str, round: usize) -> Result<String> {
    anyhow::ensure!(
        source.contains(LINE),
        "the template has no `{LINE}` any more"
    );
    Ok(source.replace(LINE, &format!("Hello {round}, {{}}!")))
}

/// Cargo in the crate, with a target directory of the crate's own.
fn cargo_here(krate: &Path) -> Command {
    let mut command = cargo(krate);
    command.env("CARGO_TARGET_DIR", krate.join("target"));
    command
}

fn build(command: &mut Command) -> Result<Duration> {
    let (status, took) = timed(|| command.status());
    let status = status.context("cargo could not be started")?;
    anyhow::ensure!(status.success(), "cargo ended with {status}");
    Ok(took)
}
