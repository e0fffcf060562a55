//! `conjure skill trust | untrust`: the projects whose skills are used.

use std::fmt::Write as _;
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};

use clap::Args;
use conjure_config::project_trust::{ProjectSkills, SkillsDigest, TrustedProjects};
use conjure_core::numerals::count;
use serde_json::json;

use super::args::{Global, display_path};
use super::error::CliError;
use super::exit::Exit;
use super::output;
use super::person::confirm;
use super::skill_remote;

/// A project that is to be trusted, and with which content.
#[derive(Args)]
pub(crate) struct SkillTrustArgs {
    /// The project's directory
    #[arg(default_value = ".")]
    dir: PathBuf,
    /// Trust the project only if its skills have this digest, as `conjure skill list` shows it
    #[arg(long, value_name = "SHA256", conflicts_with = "remove")]
    digest: Option<SkillsDigest>,
    /// Do not ask
    #[arg(long)]
    yes: bool,
    #[arg(long, hide = true)]
    remove: bool,
}

/// Trusts a project with the skills that are shown, which are read once.
pub(crate) fn trust(global: &Global, args: &SkillTrustArgs) -> Result<Exit, CliError> {
    if args.remove {
        return untrust(global, &args.dir);
    }
    let dir = canonical_dir(&args.dir)?;
    let skills = ProjectSkills::of(&dir).map_err(CliError::usage_from)?;
    if let Some(wanted) = &args.digest
        && !skills.matches(wanted)
    {
        return Err(other_content(&dir, &skills, wanted));
    }
    let project = dir.display().to_string();
    let project = output::clean_line(&project);
    let number = count(skills.dirs.len() as u64, "skill");
    let is_decided = args.digest.is_some() || args.yes || global.json;
    let asks = !is_decided && std::io::stdin().is_terminal();
    if asks {
        let what = format!("{project} has {number}:\n{}", folder_list(&skills));
        let agreeing = confirm(false, what, "Trust it as it is shown here?");
        if !skill_remote::runtime()?.block_on(agreeing)? {
            return Ok(Exit::Interrupted);
        }
    }
    let mut all = TrustedProjects::read(&global.data_dir());
    all.trust(&dir, &skills).map_err(CliError::host_from)?;
    if global.json {
        output::json(&json!({
            "project": dir,
            "digest": skills.digest_text(),
            "skills": skills.dirs,
            "trusted": all.projects(),
        }));
        return Ok(Exit::Success);
    }
    let which = if asks { "was shown" } else { "is now" };
    output::line(format_args!(
        "{project} is trusted as it {which}, with {number}.\n{}",
        folder_list(&skills)
    ));
    Ok(Exit::Success)
}

/// The folders of a project's skills and their digest, a line each.
fn folder_list(skills: &ProjectSkills) -> String {
    let mut text = String::new();
    for folder in &skills.dirs {
        let _ = writeln!(text, "  {}", output::clean_line(&display_path(folder)));
    }
    let _ = write!(text, "  {}", skills.digest_text());
    text
}

/// The refusal of skills that are others than those that are wanted.
fn other_content(dir: &Path, skills: &ProjectSkills, wanted: &SkillsDigest) -> CliError {
    let what = format!(
        "nothing was trusted: the skills of `{}` are not those of `{wanted}`, their digest is `{}`",
        dir.display(),
        skills.digest_text()
    );
    CliError::new(Exit::No, what)
        .hint("look at what changed; `conjure skill trust` with the new digest trusts it")
}

/// Trusts a project no more.
pub(crate) fn untrust(global: &Global, dir: &Path) -> Result<Exit, CliError> {
    let dir = canonical_dir(dir)?;
    let mut all = TrustedProjects::read(&global.data_dir());
    let was_trusted = all.projects().contains_key(&dir);
    all.forget(&dir).map_err(CliError::host_from)?;
    if global.json {
        output::json(&json!({ "trusted": all.projects() }));
    } else {
        let more = if was_trusted { " any more" } else { "" };
        output::line(format_args!("{} is not trusted{more}.", dir.display()));
    }
    Ok(Exit::Success)
}

/// A project's directory, which is there.
fn canonical_dir(dir: &Path) -> Result<PathBuf, CliError> {
    let real = dir.canonicalize();
    real.map_err(|error| CliError::usage_from(error).context(format_args!("`{}`", dir.display())))
}
