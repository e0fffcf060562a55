//! `conjure man`: man pages, made of the same definitions as the help.

use std::path::PathBuf;

use super::error::CliError;
use super::exit::Exit;

/// Writes man pages into a directory, one for each verb.
#[derive(clap::Args)]
pub(crate) struct ManArgs {
    /// The directory; it is made where it is missing
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

pub(crate) fn run(args: &ManArgs, command: clap::Command) -> Result<Exit, CliError> {
    conjure_config::fs::create_dir_all(&args.dir).map_err(CliError::of_named_path)?;
    clap_mangen::generate_to(command, &args.dir).map_err(|error| {
        CliError::host_from(error).context(format!(
            "man pages could not be written into {}",
            args.dir.display()
        ))
    })?;
    Ok(Exit::Success)
}
