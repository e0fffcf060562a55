//! `cargo xtask fuzz`: the fuzz targets, one after the other.
//!
//! What is tried, and what must hold, is in `tests/fuzz`. CI runs each for a minute, and a workflow for ten
//! every night. All that they are made of is built for them alone.

use std::path::Path;
use std::process::Command;
use std::sync::Mutex;

use anyhow::{Context, Result, bail};

use crate::repo;

/// The crate, from the root of the repository.
const CRATE: &str = "tests/fuzz";
/// The longest input, in bytes: what is wrong with a reader shows in short ones.
const MAX_INPUT_BYTES: usize = 4_096;
/// The target whose inputs are libraries, and their longest: the tables of the smallest library are
/// behind the beginning of what is short.
const LIBRARIES: (&str, usize) = ("plugin_file", 64 * 1024);
/// A header without its magic, for a library to begin with.
const HEADER: &str = "corpus/plugin_header/bare";
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

/// Runs targets, all of them also where one finds something, and then fails.
pub(crate) fn run(args: &Args) -> Result<()> {
    if let Some(why) = missing_requirement() {
        bail!("{why}");
    }
    let all = targets()?;
    let names = || all.iter().map(String::as_str);
    for target in &args.targets {
        if !names().any(|name| name == target) {
            let there_are = names().collect::<Vec<_>>().join(", ");
            bail!("there is no target `{target}`; there are {there_are}");
        }
    }
    let is_wanted = |target: &&String| args.targets.is_empty() || args.targets.contains(target);
    let wanted: Vec<&String> = all.iter().filter(is_wanted).collect();
    // Built first, so that a target that does not build is not one that found something.
    if wanted.len() == all.len() {
        repo::run(&mut fuzz("build", None))?;
    } else {
        for target in &wanted {
            repo::run(&mut fuzz("build", Some(target)))?;
        }
    }
    if wanted.iter().any(|target| *target == LIBRARIES.0) {
        library(&repo::root().join(CRATE))?;
    }
    let broken = run_all(&wanted, args.seconds);
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

/// Runs targets, three at once for each processor: a target's time is that of the clock. Gives those that
/// found something.
fn run_all<'a>(wanted: &[&'a String], seconds: u64) -> Vec<&'a str> {
    let lanes = 3 * std::thread::available_parallelism().map_or(1, usize::from);
    let next = Mutex::new(wanted.iter());
    let broken = Mutex::new(Vec::new());
    let lane = || {
        while let Some(target) = next.lock().ok().and_then(|mut next| next.next()) {
            let longest = match *target == LIBRARIES.0 {
                true => LIBRARIES.1,
                false => MAX_INPUT_BYTES,
            };
            let mut command = fuzz("run", Some(target));
            command
                .arg("--")
                .arg(format!("-max_total_time={seconds}"))
                .arg(format!("-max_len={longest}"));
            command.args([SLOWEST, LARGEST]);
            if let Err(error) = repo::run(&mut command) {
                eprintln!("{target}: {error:#}");
                if let Ok(mut broken) = broken.lock() {
                    broken.push(target.as_str());
                }
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..lanes {
            scope.spawn(lane);
        }
    });
    broken.into_inner().unwrap_or_default()
}

/// Why it cannot run on this machine, and what to do.
fn missing_requirement() -> Option<String> {
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

/// Makes a small library that is a plugin as far as its file says, for inputs to begin with: no input
/// becomes one by chance.
fn library(root: &Path) -> Result<()> {
    let header = root.join(HEADER);
    let header =
        std::fs::read(&header).with_context(|| format!("`{}` cannot be read", header.display()))?;
    let magic = *b"CONJURE\0";
    let bytes: Vec<String> = magic.iter().chain(&header).map(u8::to_string).collect();
    let source = format!(
        "__attribute__((section(\".conjure\"), used))\n\
         const unsigned char header[] = {{{}}};\n\
         int conjure_root_v1(void) {{ return 0; }}\n",
        bytes.join(", ")
    );
    let folder = root.join("target/seeds");
    std::fs::create_dir_all(&folder)?;
    let written = folder.join("library.c");
    std::fs::write(&written, source)?;
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-nostdlib", "-Os", "-s"]);
    // Without pages between the segments, which are empty bytes.
    cc.args(["-Wl,-z,noseparate-code", "-Wl,-z,norelro"]);
    cc.args(["-Wl,--build-id=none", "-Wl,--hash-style=gnu", "-o"]);
    cc.arg(root.join("corpus").join(LIBRARIES.0).join("library"));
    repo::run(cc.arg(&written))
}

/// The targets that the crate's manifest has.
fn targets() -> Result<Vec<String>> {
    let path = repo::root().join(CRATE).join("Cargo.toml");
    let text = std::fs::read_to_string(&path)
        .with_context(|| format!("`{}` cannot be read", path.display()))?;
    let manifest: toml::Table = text.parse().context("the fuzz crate's manifest is none")?;
    let bins = manifest.get("bin").and_then(toml::Value::as_array);
    let target = |bin: &toml::Value| bin.get("name")?.as_str().map(str::to_owned);
    Ok(bins.into_iter().flatten().filter_map(target).collect())
}

/// `cargo fuzz build` or `run` of a target, or of all.
fn fuzz(verb: &str, target: Option<&str>) -> Command {
    let mut command = nightly_cargo(&["fuzz", verb, "--fuzz-dir", "."]);
    command.current_dir(repo::root().join(CRATE));
    command.args(target);
    command
}

/// Cargo of the nightly toolchain. The cargo that runs this program is of another one, and what it
/// says of itself to its children is not for that.
pub(crate) fn nightly_cargo(args: &[&str]) -> Command {
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
    if std::env::var_os(repo::INCREMENTAL).is_none() {
        command.env(repo::INCREMENTAL, "0");
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
        let targets: BTreeSet<String> = targets().unwrap().into_iter().collect();
        // What reads bytes of strangers, by the list of the security page.
        for name in [
            "abi_buffers",
            "plugin_header",
            "plugin_file",
            "skill_md",
            "package",
            "plugin_package",
            "plugin_index",
            "program_bundle",
            "session_file",
            "mcp_messages",
            "frames",
            "mcp_import",
            "mcp_bundle",
            "thread_file",
            "pdf",
            "sse",
        ] {
            assert!(targets.contains(name), "{name}");
        }
        assert_eq!(targets, names("fuzz_targets"));
        assert_eq!(targets, names("corpus"));
    }
}
