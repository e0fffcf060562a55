//! `cargo xtask dist`: what people install, without building.
//!
//! An archive that runs where it is unpacked and a Debian package, both with the program, the
//! plugins that come with it, man pages, completions, licences and a list of what is inside, and
//! checksums of both. Publishes nothing.

mod contents;
mod licences;
mod sbom;

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use sha2::{Digest as _, Sha256};

use crate::{artifacts::BuildOutput, files, repo};

/// The package of the program.
const PROGRAM: &str = "conjure-cli";
/// The plugins that come with it.
const PLUGINS: [&str; 7] = [
    "conjure-backend-anthropic",
    "conjure-backend-docker",
    "conjure-backend-kubernetes",
    "conjure-backend-local",
    "conjure-backend-mcp",
    "conjure-backend-ssh",
    "conjure-skill-log-fetcher",
];
/// Where everything is made, below the root of the repository. The Debian package takes its files
/// from `package` there, as `conjure-host/cli/Cargo.toml` says.
const FOLDER: &str = "target/dist";
/// The glibc of `--old-glibc`. The Debian package says it too, in `variants.old-glibc`.
const OLD_GLIBC: &str = "2.28";

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The target to build for, such as aarch64-unknown-linux-gnu [default: this machine]
    #[arg(long, value_name = "TARGET")]
    target: Option<String>,
    /// Make the programs run with glibc 2.28 and newer, not only with the one here and newer. Builds
    /// with cargo-zigbuild, which needs zig (`pip install ziglang` brings it)
    #[arg(long)]
    old_glibc: bool,
    /// Make the archive only
    #[arg(long)]
    no_deb: bool,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let target = match &args.target {
        Some(target) => target.clone(),
        None => this_machine()?,
    };
    let with_deb = !args.no_deb && target.contains("-linux-");
    needs(args, with_deb)?;
    let folder = repo::root().join(FOLDER);
    let package = folder.join("package");
    let runs_here = target == this_machine()?;
    contents::fill(&package, &build(args, &target)?, runs_here)?;
    let mut files = vec![archive(&folder, &package, &target)?];
    if with_deb {
        files.push(debian_package(args, &folder, &target)?);
    }
    checksums(&folder, &files)?;
    println!("\nMade in {}:", folder.display());
    for file in &files {
        println!(
            "  {}  {:.1} MB",
            file.file_name().unwrap_or_default().display(),
            fs::metadata(file)?.len() as f64 / 1e6
        );
    }
    Ok(())
}

/// Says what is not installed before anything is built.
fn needs(args: &Args, with_deb: bool) -> Result<()> {
    let tools = [(args.old_glibc, "zigbuild"), (with_deb, "deb")];
    for (wanted, tool) in tools {
        // Asked as a program: `cargo zigbuild --version` is an error.
        let program = format!("cargo-{tool}");
        if wanted && !repo::succeeds(std::process::Command::new(program).arg("--version")) {
            bail!(
                "cargo-{tool} is not installed; `cargo install cargo-{tool} --locked` installs it"
            );
        }
    }
    Ok(())
}

/// What is built, in one command: features are resolved for all of it together.
pub(crate) fn packages() -> Vec<&'static str> {
    let mut packages = vec![PROGRAM];
    packages.extend(PLUGINS);
    packages
}

fn build(args: &Args, target: &str) -> Result<BuildOutput> {
    let mut options = vec!["--release", "--locked"];
    let (verb, named) = if args.old_glibc {
        ("zigbuild", format!("{target}.{OLD_GLIBC}"))
    } else {
        ("build", target.to_owned())
    };
    // For this machine as it is, what was built before is taken.
    if args.target.is_some() || args.old_glibc {
        options.extend(["--target", &named]);
    }
    BuildOutput::with(verb, &packages(), &options)
}

/// One file that is unpacked anywhere: everything in a folder of its own name.
fn archive(folder: &Path, package: &Path, target: &str) -> Result<PathBuf> {
    let name = format!("conjure-{}-{target}", env!("CARGO_PKG_VERSION"));
    let unpacked = folder.join(&name);
    files::remove(&unpacked)?;
    files::copy(package, &unpacked)?;
    let file = folder.join(format!("{name}.tar.gz"));
    let mut tar = std::process::Command::new("tar");
    tar.arg("-czf").arg(&file).arg("-C").arg(folder).arg(&name);
    repo::run(&mut tar)?;
    files::remove(&unpacked)?;
    Ok(file)
}

fn debian_package(args: &Args, folder: &Path, target: &str) -> Result<PathBuf> {
    let arch = match target.split('-').next() {
        Some("x86_64") => "amd64",
        Some("aarch64") => "arm64",
        _ => {
            bail!("Debian's name for `{target}` is not known; leave the package out with --no-deb")
        }
    };
    let file = folder.join(format!("conjure_{}_{arch}.deb", env!("CARGO_PKG_VERSION")));
    let mut deb = repo::cargo(["deb", "--no-build", "--no-strip", "--package", PROGRAM]);
    deb.args(["--target", target, "--output"]).arg(&file);
    if args.old_glibc {
        deb.args(["--variant", "old-glibc"]);
    }
    repo::run(&mut deb)?;
    Ok(file)
}

/// `SHA256SUMS`, as `sha256sum --check` reads it.
fn checksums(folder: &Path, files: &[PathBuf]) -> Result<()> {
    let mut lines = String::new();
    for file in files {
        let bytes = fs::read(file).with_context(|| format!("cannot read `{}`", file.display()))?;
        for byte in Sha256::digest(&bytes) {
            lines.push_str(&format!("{byte:02x}"));
        }
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        lines.push_str(&format!("  {name}\n"));
    }
    let sums = folder.join("SHA256SUMS");
    fs::write(&sums, lines).with_context(|| format!("cannot write `{}`", sums.display()))
}

/// The target that the compiler builds for by itself.
fn this_machine() -> Result<String> {
    let text = repo::text_of(std::process::Command::new("rustc").arg("-vV"))?;
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host
        .context("rustc does not say what it builds for")?
        .to_owned())
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_tests_trust_the_plugins_that_are_shipped_and_no_others() {
        assert_eq!(super::PLUGINS, conjure_kit::SHIPPED_PLUGINS);
    }
}
