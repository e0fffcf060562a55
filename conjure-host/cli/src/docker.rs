//! `conjure docker`: the image that the container backend works in.
//!
//! Asks the engine's own program to build it, so that proxies, credentials and builders are those
//! that the person has set up. Runs no container.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clap::Subcommand;
use serde_json::json;

use super::args::Global;
use super::error::CliError;
use super::exit::Exit;
use super::output;

/// The image that the container backend uses when none is configured.
const IMAGE: &str = "conjure-workspace";
/// What the Dockerfile holds until somebody changes it.
const DOCKERFILE: &str = include_str!("workspace.Dockerfile");
/// Programs that build images, the first one that is there wins.
const PROGRAMS: [&str; 2] = ["docker", "podman"];

#[derive(clap::Args)]
pub(crate) struct DockerArgs {
    #[command(subcommand)]
    verb: DockerVerb,
}

#[derive(Subcommand)]
enum DockerVerb {
    /// Build the image that containers start from
    ///
    /// Builds it from a Dockerfile in the data directory, which is written there the first time and
    /// is yours from then on: change it and build again.
    Build(DockerBuildArgs),
}

#[derive(clap::Args)]
struct DockerBuildArgs {
    /// What to call the image
    #[arg(long, value_name = "NAME", default_value = IMAGE)]
    image: String,
    /// Another Dockerfile; its directory is what it may copy from
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// The program that builds [default: `docker`, else `podman`]
    #[arg(long, value_name = "PROGRAM")]
    engine: Option<OsString>,
    /// Write the Dockerfile, say where it is, and build nothing
    #[arg(long)]
    no_build: bool,
}

pub(crate) fn run(global: &Global, args: &DockerArgs) -> Result<Exit, CliError> {
    let DockerVerb::Build(build) = &args.verb;
    let file = match &build.file {
        Some(file) if conjure_config::fs::is_dir(file).map_err(CliError::usage_from)? => {
            let what = format!("`--file {}` is a directory", file.display());
            return Err(CliError::usage(what).hint("name the Dockerfile in it"));
        }
        Some(file) => file.clone(),
        None => default_dockerfile(&global.data_dir())?,
    };
    if build.no_build {
        print_result(global, &file, &build.image, None);
        return Ok(Exit::Success);
    }
    let program = build_image(build, &file)?;
    print_result(global, &file, &build.image, Some(&program));
    Ok(Exit::Success)
}

/// The person's Dockerfile, which is written when there is none yet.
fn default_dockerfile(data_dir: &Path) -> Result<PathBuf, CliError> {
    let dir = data_dir.join("docker");
    let file = dir.join("Dockerfile");
    if !file.exists() {
        conjure_config::fs::create_dir_all(&dir).map_err(CliError::host_from)?;
        conjure_config::fs::write_atomic(&file, DOCKERFILE.as_bytes())
            .map_err(CliError::host_from)?;
    }
    Ok(file)
}

/// Builds the image, and says by which program.
fn build_image(build: &DockerBuildArgs, file: &Path) -> Result<String, CliError> {
    let dir = match file.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => dir,
        _ => Path::new("."),
    };
    let programs = match &build.engine {
        Some(program) => vec![program.clone()],
        None => PROGRAMS.map(OsString::from).to_vec(),
    };
    for program in programs {
        let shown = program.to_string_lossy().into_owned();
        // What it says on the way is progress: stdout is for the answer.
        let mut builder = Command::new(&program);
        // Not more: it needs the keys of the registries that the person takes images from.
        conjure_config::env::remove_secrets(&mut builder);
        let done = builder
            .args(["build", "--tag", &build.image, "--file"])
            .arg(file)
            .arg(dir)
            .stdin(Stdio::null())
            .stdout(std::io::stderr())
            .status();
        match done {
            Ok(status) if status.success() => return Ok(shown),
            Ok(status) => {
                return Err(CliError::new(
                    Exit::No,
                    format!("`{shown} build` failed ({status}); what it said is above"),
                )
                .hint(format!("the Dockerfile is {}", file.display())));
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => {
                return Err(CliError::host_from(error).context(format!("`{shown}` did not start")));
            }
        }
    }
    let missing = match &build.engine {
        Some(program) => format!("there is no program `{}`", program.to_string_lossy()),
        None => "no program that builds images was found".to_owned(),
    };
    Err(CliError::new(Exit::No, missing)
        .hint("install Docker or Podman, or name one with `--engine`"))
}

fn print_result(global: &Global, file: &Path, image: &str, program: Option<&str>) {
    if global.json {
        output::json(&json!({ "image": image, "dockerfile": file, "built_by": program }));
    } else if program.is_some() {
        output::line(format!(
            "Built `{image}` from {}. Sessions with a `docker` backend use it.",
            file.display()
        ));
    } else {
        output::line(format!("The Dockerfile is {}.", file.display()));
    }
}
