//! `conjure skill trust | untrust`: the projects whose skills are used.

use std::path::{Path, PathBuf};

use conjure_config::project_trust::{ProjectSkills, TrustedProjects};
use conjure_core::numerals::count;
use serde_json::json;

use super::args::{Global, shown};
use super::error::CliError;
use super::exit::Exit;
use super::output;

/// Trusts a project as it is now.
pub(crate) fn trust(global: &Global, dir: &Path) -> Result<Exit, CliError> {
    let dir = real(dir)?;
    let mut all = TrustedProjects::read(&global.data_dir());
    let skills = ProjectSkills::of(&dir).map_err(CliError::usage_from)?;
    all.trust(&dir, &skills).map_err(CliError::host_from)?;
    if global.json {
        output::json(&json!({ "trusted": all.projects() }));
        return Ok(Exit::Fine);
    }
    let number = skills.dirs.len() as u64;
    output::line(format_args!(
        "{} is trusted as it is now, with {}.",
        dir.display(),
        count(number, "skill")
    ));
    for folder in &skills.dirs {
        output::line(format_args!("  {}", output::clean(&shown(folder))));
    }
    Ok(Exit::Fine)
}

/// Trusts a project no more.
pub(crate) fn untrust(global: &Global, dir: &Path) -> Result<Exit, CliError> {
    let dir = real(dir)?;
    let mut all = TrustedProjects::read(&global.data_dir());
    let was_trusted = all.projects().contains_key(&dir);
    all.forget(&dir).map_err(CliError::host_from)?;
    if global.json {
        output::json(&json!({ "trusted": all.projects() }));
    } else {
        let more = if was_trusted { " any more" } else { "" };
        output::line(format_args!("{} is not trusted{more}.", dir.display()));
    }
    Ok(Exit::Fine)
}

/// A project's directory, which is there.
fn real(dir: &Path) -> Result<PathBuf, CliError> {
    let real = dir.canonicalize();
    real.map_err(|error| CliError::usage_from(error).context(format_args!("`{}`", dir.display())))
}
