//! `cargo xtask browser`: the page in a real browser.
//!
//! Builds the program, the mocks and the plugins that the tests load, and runs `tests/browser` with what
//! `tests/browser/install.sh` installed. Nothing is fetched.

use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};

use crate::{artifacts::BuildOutput, repo};

/// What the tests start, by the variable that says where it is.
const PROGRAMS: [(&str, &str, &str); 3] = [
    ("CONJURE_BIN", "conjure-cli", "conjure"),
    ("CONJURE_MOCK_LLM", "conjure-mock-llm", "mock-llm"),
    ("CONJURE_MOCK_MCP", "conjure-mock-mcp", "mock-mcp"),
];
/// The plugins that they load, by the same.
const PLUGINS: [(&str, &str); 3] = [
    ("CONJURE_PLUGIN_LOCAL", "conjure-backend-local"),
    ("CONJURE_PLUGIN_MCP", "conjure-backend-mcp"),
    ("CONJURE_PLUGIN_SKILL", "conjure-skill-log-fetcher"),
];
/// Where the pictures of the README are.
const README: &str = "conjure-host/docs/pictures";
/// Where the packages of npm are.
const PEERS: &str = "CONJURE_BROWSER_PEERS";

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Print the figures of the page instead: first paint, bytes, frames while typing, nodes, and what
    /// pages that follow cost the server. Fails where one is beyond its limit; with `--release` they
    /// are of what people run
    #[arg(long)]
    figures: bool,
    /// Use programs that are built as they are shipped, which takes long; figures are of those
    #[arg(long)]
    release: bool,
    /// Keep pictures of every view in this folder: three widths, dark and light
    #[arg(long, value_name = "DIR")]
    pictures: Option<PathBuf>,
    /// Make the pictures of the README anew
    #[arg(long)]
    readme: bool,
    /// Passed on to Playwright, such as the name of a file or `--grep WORDS`
    #[arg(last = true, value_name = "ARGS")]
    runner: Vec<String>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let peers = std::env::var_os(PEERS).map(PathBuf::from);
    let Some(peers) = peers.filter(|peers| peers.join("node_modules").is_dir()) else {
        bail!(
            "Playwright is not there; `tests/browser/install.sh DIR` installs it, then set {PEERS} to DIR"
        );
    };
    let packages: Vec<&str> = PROGRAMS
        .iter()
        .map(|(_, package, _)| *package)
        .chain(PLUGINS.iter().map(|(_, package)| *package))
        .collect();
    let built = match args.release {
        true => BuildOutput::with("build", &packages, &["--release"])?,
        false => BuildOutput::dev_or_before(&packages)?,
    };
    let tests = repo::root().join("tests/browser");
    let mut command = std::process::Command::new("node");
    command
        .arg(peers.join("node_modules/@playwright/test/cli.js"))
        .args(["test", "--config", "playwright.config.js"])
        .args(&args.runner)
        .current_dir(&tests)
        // The tests are no package of their own: what they import is with the peers.
        .env("NODE_PATH", peers.join("node_modules"))
        .env(
            "CONJURE_BROWSER_OUTPUT",
            repo::root().join("target/browser"),
        );
    for (variable, _, program) in PROGRAMS {
        command.env(variable, built.program(program)?);
    }
    for (variable, package) in PLUGINS {
        command.env(variable, built.library(package)?);
    }
    if args.figures {
        command.env("CONJURE_BROWSER_FIGURES", "1");
    }
    if args.readme {
        command.env("CONJURE_BROWSER_README", repo::root().join(README));
    }
    if let Some(pictures) = &args.pictures {
        let pictures =
            std::path::absolute(pictures).context("the folder of pictures has no path")?;
        command.env("CONJURE_BROWSER_PICTURES", pictures);
    }
    repo::run(&mut command)
}
