//! A source that is saved: how soon a session of a server that runs calls what came of it.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use conjure_kit::{Cli, ProgramHandle};
use serde_json::Value;

use super::template::greeting;
use crate::figure::Figure;
use crate::live_host::{LiveHost, SESSIONS};
use crate::samples::Samples;
use crate::shipped::{BenchArtifacts, new_skill};

/// Seconds that it may take.
const TARGET: f64 = 4.0;

const ROUNDS: usize = 10;
const WARM_UP: usize = 2;
/// The crate of the template.
const CRATE: &str = "my-skill";
/// How long all of it may take; the first build makes the SDK too.
const TOTAL_TIMEOUT: Duration = Duration::from_secs(900);

pub(super) fn run(shipped: &BenchArtifacts) -> Result<Vec<Figure>> {
    let [session, ..] = SESSIONS;
    let host = LiveHost::start(shipped.program()?)?;
    let krate = host.workspace.work().join(CRATE);
    new_skill(shipped.program()?, CRATE, &krate)?;
    let source = krate.join("src/lib.rs");
    let text = std::fs::read_to_string(&source)?;
    let dev = host.conjure(["plugin", "dev", CRATE, "--serve", "--json"]);
    let dev = with_rust(dev, &krate.join("target"));
    let dev = dev.deadline(TOTAL_TIMEOUT).start()?;
    wait_for_builds(&dev, 1)?;
    let mut live = Samples::default();
    for round in 1..=WARM_UP + ROUNDS {
        let text = greeting(&text, round)?;
        let said = format!("Hello {round}, ");
        let begun = Instant::now();
        conjure_host::fs::write_atomic(&source, text.as_bytes())?;
        wait_for_builds(&dev, 1 + round)?;
        while !host.calls_every_tool(session)?.contains(&said) {
            ensure!(
                begun.elapsed() < TOTAL_TIMEOUT,
                "`{said}` is said by no tool of session `{session}`"
            );
        }
        if round > WARM_UP {
            live.push(begun.elapsed().as_secs_f64());
        }
    }
    let method = "From saving the source of the crate of `conjure plugin create skill`, whose \
                  greeting changed, under `conjure plugin dev --serve` (release; it builds in the \
                  crate's dev profile) to having a turn of an open session of `conjure serve` whose \
                  call says the new greeting.";
    Ok(vec![
        Figure::new("source_live", "s", &live, method).at_most(TARGET),
    ])
}

/// Waits until so many builds are live.
fn wait_for_builds(dev: &ProgramHandle, count: usize) -> Result<()> {
    let said = dev.wait_until_stdout("a build", |said| builds(said).len() >= count)?;
    let newest = builds(&said).pop().context("it has built nothing")?;
    let is_live = newest.get("ok").and_then(Value::as_bool) == Some(true);
    ensure!(is_live, "`conjure plugin dev` says {newest}");
    Ok(())
}

/// What was said of each build that came to its end.
fn builds(said: &str) -> Vec<Value> {
    let lines = said
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok());
    let is_build = |line: &Value| line.get("type").and_then(Value::as_str) == Some("round");
    lines.filter(is_build).collect()
}

/// With this machine's Rust, in an environment that has nothing of this machine.
fn with_rust(mut program: Cli, target: &Path) -> Cli {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    program = program.env("CARGO", cargo).env("CARGO_TARGET_DIR", target);
    if let Some(toolchain) = std::env::var_os("RUSTUP_TOOLCHAIN") {
        program = program.env("RUSTUP_TOOLCHAIN", toolchain);
    }
    let home = std::env::home_dir();
    for (name, usual) in [("CARGO_HOME", ".cargo"), ("RUSTUP_HOME", ".rustup")] {
        let usual = home.as_ref().map(|home| home.join(usual).into_os_string());
        if let Some(dir) = std::env::var_os(name).or(usual) {
            program = program.env(name, dir);
        }
    }
    program
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_rounds_that_are_told_in_whole_count_as_builds() {
        let said = "{\"type\":\"round\",\"ok\":true}\n{\"type\":\"note\"}\n{\"type\":\"round\",\"o";
        assert_eq!(builds(said).len(), 1);
    }
}
