//! `cargo xtask check`: everything that CI checks besides the tests.
//!
//! `cargo xtask test` runs the same list after the tests, so that it stands here once.

use anyhow::{Result, bail};

use crate::{api, packages, repo, tidy};

/// One check.
pub(crate) struct Check {
    /// How messages name it.
    pub(crate) name: &'static str,
    /// The command of cargo that it needs, and how to install that.
    needs: Option<(&'static str, &'static str)>,
    run: fn() -> Result<()>,
}

/// All checks, the quick ones first.
pub(crate) const CHECKS: [Check; 7] = [
    Check {
        name: "formatting",
        needs: Some(("fmt", "rustup component add rustfmt")),
        run: || repo::run(&mut repo::cargo(["fmt", "--all", "--check"])),
    },
    Check {
        name: "house rules",
        needs: None,
        run: tidy::check,
    },
    Check {
        name: "public items of the SDK",
        needs: None,
        run: api::check,
    },
    Check {
        name: "dependencies",
        needs: Some(("deny", "cargo install cargo-deny --locked")),
        run: dependencies,
    },
    Check {
        name: "lints",
        needs: Some(("clippy", "rustup component add clippy")),
        run: lints,
    },
    Check {
        name: "packages of the SDK",
        needs: None,
        run: packages::check,
    },
    Check {
        name: "documentation",
        needs: None,
        run: || {
            repo::run(
                repo::cargo(["doc", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings"),
            )
        },
    },
];

impl Check {
    /// Why it cannot run on this machine, and what to do.
    pub(crate) fn missing_tool(&self) -> Option<String> {
        let (tool, install) = self.needs?;
        (!repo::succeeds(&mut repo::cargo([tool, "--version"])))
            .then(|| format!("cargo-{tool} is not installed; `{install}` installs it"))
    }

    /// Runs it.
    ///
    /// # Errors
    /// When something is wrong; what and where has been printed.
    pub(crate) fn run(&self) -> Result<()> {
        (self.run)()
    }
}

/// Runs all checks, also after one failed, and then says which did.
pub(crate) fn run() -> Result<()> {
    let mut failed = Vec::new();
    for check in &CHECKS {
        let result = match check.missing_tool() {
            Some(why) => Err(anyhow::anyhow!(why)),
            None => check.run(),
        };
        if let Err(error) = result {
            eprintln!("{}: {error:#}", check.name);
            failed.push(check.name);
        }
    }
    if !failed.is_empty() {
        bail!("failed: {}; each message is above", failed.join(", "));
    }
    eprintln!("All checks passed: {}.", names());
    Ok(())
}

/// The names of all checks.
pub(crate) fn names() -> String {
    CHECKS.map(|check| check.name).join(", ")
}

fn lints() -> Result<()> {
    repo::run(&mut repo::cargo([
        "clippy",
        "--workspace",
        "--all-targets",
        "--",
        "-D",
        "warnings",
    ]))
}

/// Licences, bans and sources, by `.deny.toml`. Advisories would need a database from elsewhere.
fn dependencies() -> Result<()> {
    repo::run(&mut repo::cargo([
        "deny",
        "--workspace",
        "check",
        "bans",
        "licenses",
        "sources",
    ]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_whose_tool_is_missing_says_how_to_install_it() {
        let check = Check {
            name: "nothing",
            needs: Some(("no-such-command", "cargo install no-such-command")),
            run: || Ok(()),
        };
        assert_eq!(
            check.missing_tool().unwrap(),
            "cargo-no-such-command is not installed; `cargo install no-such-command` installs it"
        );
        let needs_nothing = Check {
            needs: None,
            ..check
        };
        assert_eq!(needs_nothing.missing_tool(), None);
    }
}
