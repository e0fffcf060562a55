//! Skill folders out of packages.

use conjure_packages::FetchedPackage;
use conjure_plugins::{InstalledPlugins, InstalledState, LockedPlugin};
use conjure_runtime::version_step;
use serde_json::{Value, json};

use super::args::Global;
use super::output::{self, BOLD, DIM, RESET, YELLOW};
use super::person::ask_yes_no;
use super::plugin_fetch_report::FetchFailure;
use super::plugin_install::describe_change;
use super::plugin_package::signer_name;
use super::plugin_skill_contents::{SkillContents, SkillDifference};

/// Installs a skill folder among the user's, or says why not. Nothing of it runs. What it says to a
/// model is another text with each version, so one in the place of another has to be allowed.
pub(crate) async fn install(
    global: &Global,
    fetched: &FetchedPackage,
    archive: &[u8],
    state: &InstalledState,
    yes: bool,
) -> Result<(LockedPlugin, Value), FetchFailure> {
    let package = &fetched.package;
    let description = package.description();
    let name = &description.name;
    let skill = description.skill.as_ref().map(|skill| skill.sha256);
    let before = state.locked();
    let is_same = before.is_some_and(|before| before.skill == skill);
    let from = before.map(|before| before.version.as_str());
    let contents = SkillContents::read(archive).map_err(FetchFailure::Refused)?;
    let installed = InstalledPlugins::of(&global.data_dir());
    let difference = match from {
        Some(_) if !is_same => difference(&installed, name, &contents)?,
        _ => SkillDifference::default(),
    };
    if !global.json && !is_same {
        let words = from.map(|from| version_step(from, &description.version));
        output::print_note(format_args!(
            "{BOLD}{}{RESET} {}, a skill folder: {}",
            output::clean(name),
            words.unwrap_or_else(|| description.version.clone()),
            output::clean_line(&description.manifest.description)
        ));
        let lines = match from {
            Some(_) => difference.lines(),
            None => contents.lines(),
        };
        for line in lines {
            output::print_note(format_args!("  {}", output::clean_line(&line)));
        }
        for line in difference.details() {
            output::print_note(format_args!("    {DIM}{}{RESET}", output::clean_line(line)));
        }
    }
    let is_other = from.is_some() && !is_same;
    let is_allowed = !is_other || yes || {
        let question = format!("{YELLOW}?{RESET} Install it, with other instructions and files?");
        !global.json && matches!(ask_yes_no(&question).await, Ok(true))
    };
    if !is_allowed {
        return Err(FetchFailure::NotAllowed {
            reason: format!(
                "its instructions and files are others than those of the {name} that is there, and that \
                 was not allowed. `--yes` allows it"
            ),
            difference: difference.json(),
        });
    }
    let locked = fetched.lock_entry();
    let change = match installed.install_skill(archive, locked.clone(), state) {
        Ok(change) => change,
        Err(error) => return Err(FetchFailure::of_install(global, &error)),
    };
    let json = json!({
        "plugin": name,
        "source": fetched.source,
        "signer": description.signer,
        "change": change,
        "contents": contents.json(),
        "difference": difference.json(),
    });
    if !global.json {
        match &change {
            Some(change) => output::line(describe_change(change)),
            None => output::line(format_args!(
                "{} {}: this very build is installed already",
                output::clean(name),
                description.version
            )),
        }
        let signer = description.signer.as_ref();
        let signed =
            signer.map_or_else(|| "nobody".to_owned(), |signer| signer_name(global, signer));
        output::line(format_args!(
            "  {DIM}signed by {}{RESET}",
            output::clean_line(&signed)
        ));
    }
    Ok((locked, json))
}

/// What it changes of the skill that is there; where that is lost, all that it has.
fn difference(
    installed: &InstalledPlugins,
    name: &str,
    contents: &SkillContents,
) -> Result<SkillDifference, FetchFailure> {
    let there = installed.skill_archive(name);
    let there = there.map_err(|error| FetchFailure::Host(error.to_string()))?;
    let before = match there {
        Some(archive) => SkillContents::read(&archive).map_err(FetchFailure::Host)?,
        None => SkillContents::default(),
    };
    Ok(contents.difference(&before))
}
