//! `cargo xtask sanitize`: the tests of the ABI and the SDK with the address sanitizer.
//!
//! `unsafe` of the product that is not one line long is in those two crates. Their tests make
//! plugins in the test's own process, call them through the ABI and drop what came back, so that a
//! buffer that is used after it was freed, freed twice or leaked is seen. Undefined behaviour that
//! touches no wrong memory is not: that would be for Miri, which a nightly Rust has not by itself.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;

use crate::fuzz::nightly_cargo;
use crate::repo;

/// The packages whose tests run.
const PACKAGES: [&str; 2] = ["conjure-abi", "conjure-skill-sdk"];
/// Directory where the tests are built.
pub(crate) const TARGET_DIR: &str = "target/sanitized";
/// What is not freed on purpose, from the root of the repository.
const SUPPRESSIONS: &str = "tests/xtask/src/sanitize.supp";
/// With a target that is named, flags are for what runs there and not for build scripts and macros.
const TARGET: &str = "x86_64-unknown-linux-gnu";

pub(crate) fn run() -> Result<()> {
    if let Some(why) = missing_requirement() {
        anyhow::bail!("{why}");
    }
    repo::run(&mut command(repo::root()))
}

/// Why it cannot run on this machine, and what to do.
pub(crate) fn missing_requirement() -> Option<String> {
    let is_there = repo::succeeds(&mut nightly_cargo(&["--version"]));
    (!is_there).then(|| {
        "there is no nightly Rust; `rustup toolchain install nightly --profile minimal` installs it"
            .to_owned()
    })
}

fn command(root: PathBuf) -> Command {
    let left = root.join(SUPPRESSIONS);
    let mut command = nightly_cargo(&["test", "--lib", "--tests", "--target", TARGET]);
    for package in PACKAGES {
        command.args(["--package", package]);
    }
    command
        .args(["--target-dir", TARGET_DIR])
        .current_dir(root)
        .env("RUSTFLAGS", "-Zsanitizer=address")
        .env("LSAN_OPTIONS", format!("suppressions={}", left.display()))
        // Snapshots are compared and not written.
        .env("INSTA_UPDATE", "no");
    command
}
