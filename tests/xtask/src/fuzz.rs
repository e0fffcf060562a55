//! `cargo xtask fuzz`: the fuzz targets, one after the other.
//!
//! What is tried, and what must hold, is in `tests/fuzz`. CI runs each for a minute that is built
//! without the host, whose instrumented build takes longer than the rest of CI.

use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::repo;

/// The crate, from the root of the repository.
const CRATE: &str = "tests/fuzz";
/// The longest input, in bytes: what is wrong with a reader shows in short ones.
const LONGEST: &str = "-max_len=4096";
/// Seconds that one input may take, far more than any needs.
const SLOWEST: &str = "-timeout=10";
/// MiB that one input may take.
const LARGEST: &str = "-rss_limit_mb=2048";

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Run only these targets [default: all]
    targets: Vec<String>,
    /// For how long each, in seconds
    #[arg(long, default_value_t = 600)]
    seconds: u64,
}

impl Args {
    /// Every target that needs no feature for a minute, or for as many seconds as
    /// `CONJURE_FUZZ_SECONDS` says.
    pub(crate) fn for_ci() -> Result<Self> {
        let given = std::env::var("CONJURE_FUZZ_SECONDS").ok();
        let light = targets()?.into_iter().filter(|it| it.features.is_empty());
        Ok(Self {
            targets: light.map(|target| target.name).collect(),
            seconds: given.and_then(|text| text.parse().ok()).unwrap_or(60),
        })
    }
}

/// Runs targets; goes on after one that found something, and then fails.
pub(crate) fn run(args: &Args) -> Result<()> {
    if let Some(why) = missing() {
        bail!("{why}");
    }
    let all = targets()?;
    let names = || all.iter().map(|target| target.name.as_str());
    for target in &args.targets {
        if !names().any(|name| name == target) {
            let there_are = names().collect::<Vec<_>>().join(", ");
            bail!("there is no target `{target}`; there are {there_are}");
        }
    }
    let is_wanted =
        |target: &&Target| args.targets.is_empty() || args.targets.contains(&target.name);
    let wanted: Vec<&Target> = all.iter().filter(is_wanted).collect();
    let mut broken = Vec::new();
    for target in &wanted {
        // Built first, so that a target that does not build is not one that found something.
        repo::run(&mut fuzz("build", target))?;
        let mut command = fuzz("run", target);
        command
            .arg("--")
            .arg(format!("-max_total_time={}", args.seconds));
        command.args([LONGEST, SLOWEST, LARGEST]);
        if let Err(error) = repo::run(&mut command) {
            eprintln!("{}: {error:#}", target.name);
            broken.push(target.name.as_str());
        }
    }
    if !broken.is_empty() {
        bail!(
            "something was found by {}; the input is in {CRATE}/artifacts, and each message above",
            broken.join(", ")
        );
    }
    eprintln!(
        "{} targets, {} s each: nothing was found",
        wanted.len(),
        args.seconds
    );
    Ok(())
}

/// Why it cannot run on this machine, and what to do.
pub(crate) fn missing() -> Option<String> {
    let has = |args: &[&str]| repo::succeeds(&mut nightly_cargo(args));
    if !has(&["--version"]) {
        return Some(
            "there is no nightly Rust; `rustup toolchain install nightly --profile minimal` \
             installs it"
                .to_owned(),
        );
    }
    (!has(&["fuzz", "--version"])).then(|| {
        "cargo-fuzz is not installed; `cargo install cargo-fuzz --locked` installs it".to_owned()
    })
}

/// A target of the crate.
struct Target {
    name: String,
    /// The features that it needs, with commas between.
    features: String,
}

/// The targets that the crate's manifest has.
fn targets() -> Result<Vec<Target>> {
    let path = repo::root().join(CRATE).join("Cargo.toml");
    let text = std::fs::read_to_string(&path)
        .with_context(|| format!("`{}` cannot be read", path.display()))?;
    let manifest: toml::Table = text.parse().context("the fuzz crate's manifest is none")?;
    let bins = manifest.get("bin").and_then(toml::Value::as_array);
    let target = |bin: &toml::Value| {
        let features = bin.get("required-features").and_then(toml::Value::as_array);
        let features = features
            .into_iter()
            .flatten()
            .filter_map(toml::Value::as_str);
        Some(Target {
            name: bin.get("name")?.as_str()?.to_owned(),
            features: features.collect::<Vec<_>>().join(","),
        })
    };
    Ok(bins.into_iter().flatten().filter_map(target).collect())
}

/// `cargo fuzz build` or `run` of a target.
fn fuzz(verb: &str, target: &Target) -> Command {
    let mut command = nightly_cargo(&["fuzz", verb, "--fuzz-dir", "."]);
    command.current_dir(repo::root().join(CRATE));
    if !target.features.is_empty() {
        command.args(["--features", &target.features]);
    }
    command.arg(&target.name);
    command
}

/// Cargo of the nightly toolchain. The cargo that runs this program is of another one, and what it
/// says of itself to its children is not for that.
fn nightly_cargo(args: &[&str]) -> Command {
    let mut command = Command::new("rustup");
    command.args(["run", "nightly", "cargo"]).args(args);
    for name in [
        "CARGO",
        "RUSTC",
        "RUSTUP_TOOLCHAIN",
        "CARGO_MANIFEST_DIR",
        "RUSTFLAGS",
    ] {
        command.env_remove(name);
    }
    command
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_target_of_the_manifest_has_a_file_and_inputs_to_begin_with() {
        let root = repo::root().join(CRATE);
        let names = |folder: &str| -> BTreeSet<String> {
            let entries = std::fs::read_dir(root.join(folder)).unwrap();
            let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
            names
                .map(|name| name.trim_end_matches(".rs").to_owned())
                .collect()
        };
        let targets = targets().unwrap().into_iter().map(|target| target.name);
        let targets: BTreeSet<String> = targets.collect();
        assert!(targets.contains("sse"));
        assert_eq!(targets, names("fuzz_targets"));
        assert_eq!(targets, names("corpus"));
    }
}
