//! `cargo xtask check`: everything that CI checks besides the tests.

use anyhow::{Result, bail};

use crate::{repo, tidy};

/// Runs all checks, also after one failed, and then says which did.
pub(crate) fn run() -> Result<()> {
    let mut failed = Vec::new();
    let mut note = |name: &'static str, result: Result<()>| {
        if let Err(error) = result {
            eprintln!("{name}: {error:#}");
            failed.push(name);
        }
    };
    note(
        "formatting",
        repo::run(&mut repo::cargo(["fmt", "--all", "--check"])),
    );
    note("house rules", tidy::check());
    note(
        "lints",
        repo::run(&mut repo::cargo([
            "clippy",
            "--workspace",
            "--all-targets",
            "--",
            "-D",
            "warnings",
        ])),
    );
    note(
        "documentation",
        repo::run(
            repo::cargo(["doc", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings"),
        ),
    );
    note("dependencies", dependencies());
    if failed.is_empty() {
        eprintln!(
            "All checks passed: formatting, house rules, lints, documentation, dependencies."
        );
        Ok(())
    } else {
        bail!("failed: {}; each message is above", failed.join(", "))
    }
}

/// Licences, bans and sources, by `.deny.toml`. Advisories would need a database from elsewhere.
fn dependencies() -> Result<()> {
    if !repo::succeeds(&mut repo::cargo(["deny", "--version"])) {
        bail!("cargo-deny is missing; install it with `cargo install cargo-deny --locked`");
    }
    repo::run(&mut repo::cargo([
        "deny",
        "--workspace",
        "check",
        "bans",
        "licenses",
        "sources",
    ]))
}
