//! `conjure skill`: skill folders.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use clap::Subcommand;
use conjure_config::env;
use conjure_config::fs;
use conjure_config::project_trust::{ProjectSkills, TrustError, TrustState, TrustedProjects};
use conjure_config::skill_folders::{self, DiscoveredSkills, FolderError, LoadedFolder};
use conjure_core::skill_folder::discovery::{FoundSkill, SkillScope};
use conjure_core::skill_folder::{
    Diagnostic, Severity, SkillFolder, validate_strict, validate_upload,
};
use conjure_plugins::PackagedPlugins;
use serde_json::{Value, json};

use super::args::{Global, display_path};
use super::error::CliError;
use super::exit::Exit;
use super::output::{self, BOLD, DIM, GREEN, RED, RESET, Table, YELLOW};
use super::plugin_args::check_exists;
use super::{skill_remote, skill_trust};

/// Lists skill folders, shows, checks and uploads them.
///
/// A skill folder is a directory with a `SKILL.md` (the Agent Skills standard). Those of the
/// current project (`.conjure/skills`, `.agents/skills`, `.claude/skills`) are used after the
/// project was trusted; those below the home directory always.
#[derive(clap::Args)]
pub(crate) struct SkillArgs {
    #[command(subcommand)]
    verb: SkillVerb,
}

#[derive(Subcommand)]
enum SkillVerb {
    /// List the skills of the project and of the user, those that do not load among them
    List {
        /// Look below this directory instead
        dir: Option<PathBuf>,
    },
    /// Check a skill folder or package against every rule of the standard
    ///
    /// Exit code 0: no errors; 1: at least one.
    #[command(alias = "validate")]
    Check {
        /// The folder or package
        path: PathBuf,
        /// Check what uploading to Anthropic adds, too
        #[arg(long)]
        upload: bool,
    },
    /// Show a skill: its front matter, its files and its instructions
    Show {
        /// The folder or package
        path: PathBuf,
    },
    /// Upload a skill to Anthropic, after checking it
    Upload(skill_remote::SkillUploadArgs),
    /// Look at the skills that Anthropic keeps, download or delete some
    #[command(subcommand)]
    Remote(skill_remote::SkillRemoteVerb),
    /// Trust a project: its skills are used from now on, as they are now
    ///
    /// When something of them changes they are not used until it is trusted again. At a terminal it
    /// shows them and asks, without `--yes`, `--digest` or `--json`, and trusts what was shown, also where
    /// it changes before the answer. A script says with `--digest` which content it means; without it,
    /// what is there is trusted.
    Trust(skill_trust::SkillTrustArgs),
    /// Trust a project no more: its skills are not used from now on
    Untrust {
        /// The project's directory
        #[arg(default_value = ".")]
        dir: PathBuf,
    },
}

pub(crate) fn run(global: &Global, args: &SkillArgs) -> Result<Exit, CliError> {
    match &args.verb {
        SkillVerb::List { dir: Some(dir) } if !dir.is_dir() => {
            let what = format!("there is no directory `{}`", dir.display());
            Err(CliError::usage(what)
                .hint("without one, your own skills and the project's are listed"))
        }
        SkillVerb::List { dir } => Ok(list(global, dir.as_deref())),
        SkillVerb::Check { path, upload } => check(global, path, *upload),
        SkillVerb::Show { path } => show(global, path),
        SkillVerb::Upload(args) => skill_remote::upload(global, args),
        SkillVerb::Remote(verb) => skill_remote::remote(global, verb),
        SkillVerb::Trust(args) => skill_trust::trust(global, args),
        SkillVerb::Untrust { dir } => skill_trust::untrust(global, dir),
    }
}

/// The skills that a session without a session file uses: the user's, and those of a project that
/// is trusted as it is, without those that a named one of the same name hides.
pub(crate) fn usable_skills(global: &Global, named: &[PathBuf]) -> Vec<PathBuf> {
    let project = Project::current(global);
    if let Some(reason) = project.as_ref().and_then(Project::unused_reason) {
        tracing::warn!("{reason}");
    }
    let found = discover(global, project.as_ref());
    for error in &found.broken {
        tracing::warn!("{error}");
    }
    for hidden in &found.hidden {
        tracing::warn!("{}", hidden.warning.message);
    }
    not_overridden(found.skills, named)
        .map(|found| found.path)
        .collect()
}

/// The project in whose directory the program was started.
struct Project {
    dir: PathBuf,
    skills: Result<ProjectSkills, TrustError>,
    trusted: TrustedProjects,
}

impl Project {
    fn current(global: &Global) -> Option<Self> {
        let dir = std::env::current_dir().ok()?.canonicalize().ok()?;
        Some(Self {
            skills: ProjectSkills::of(&dir),
            trusted: TrustedProjects::read(&global.data_dir()),
            dir,
        })
    }

    fn trust_state(&self) -> TrustState {
        match &self.skills {
            Ok(skills) => self.trusted.state(&self.dir, skills),
            Err(_) => TrustState::Unknown,
        }
    }

    /// The project's skills, where it has some.
    fn own_skills(&self) -> Option<&ProjectSkills> {
        let skills = self.skills.as_ref().ok();
        skills.filter(|skills| !skills.dirs.is_empty())
    }

    /// The project for programs.
    fn view(&self) -> Option<Value> {
        let trust = match self.trust_state() {
            TrustState::Trusted => "trusted",
            TrustState::Changed => "changed",
            TrustState::Unknown => "unknown",
        };
        let digest = self.own_skills()?.digest_text();
        Some(json!({ "path": self.dir, "digest": digest, "trust": trust }))
    }

    /// Why its skills are not used, where it has some.
    fn unused_reason(&self) -> Option<String> {
        let skills = match &self.skills {
            Ok(skills) => skills,
            Err(error) => return Some(error.to_string()),
        };
        if skills.dirs.is_empty() {
            return None;
        }
        let number = skills.dirs.len();
        match self.trust_state() {
            TrustState::Trusted => None,
            TrustState::Changed => Some(format!(
                "{number} skill(s) of this project are not used: they changed since it was \
                 trusted; look at them and say `conjure skill trust` again"
            )),
            TrustState::Unknown => Some(format!(
                "{number} skill(s) of this project are not used: `conjure skill trust` allows them"
            )),
        }
    }
}

/// The skills that no named one hides. One that does not load hides nothing; the session says what
/// is wrong with it.
fn not_overridden(skills: Vec<FoundSkill>, named: &[PathBuf]) -> impl Iterator<Item = FoundSkill> {
    let names: BTreeSet<String> = named
        .iter()
        .filter_map(|path| load(path).ok())
        .map(|(loaded, _)| loaded.folder.name.as_str().to_owned())
        .collect();
    skills
        .into_iter()
        .filter(move |found| !names.contains(found.folder.name.as_str()))
}

/// The user's skills, and those of a project that is trusted. Nothing of another one is read.
fn discover(global: &Global, project: Option<&Project>) -> DiscoveredSkills {
    let trusted = project.filter(|project| project.trust_state() == TrustState::Trusted);
    let dir = trusted.map(|project| project.dir.as_path());
    let mut found = skill_folders::discover(dir, env::home().as_deref());
    PackagedPlugins::of(&global.data_dir()).judge_skills(&mut found);
    found
}

fn list(global: &Global, dir: Option<&Path>) -> Exit {
    let project = dir.is_none().then(|| Project::current(global)).flatten();
    let found = match dir {
        Some(dir) => skill_folders::discover_in(dir),
        None => discover(global, project.as_ref()),
    };
    let unread = UntrustedSkills::of(project.as_ref());
    // Why nothing is known of a project's skills.
    if let Some(Err(error)) = project.as_ref().map(|project| &project.skills) {
        output::print_note(format_args!(
            "{YELLOW}note:{RESET} the skills of this project are not used: {}",
            output::clean(&error.to_string())
        ));
    }
    if global.json {
        output::json(&list_json(&found, project.as_ref(), unread.as_ref()));
        return Exit::Success;
    }
    let unread_dirs = unread.iter().flat_map(|unread| unread.dirs);
    if found.skills.is_empty() && unread.is_none() {
        output::line("No skills.");
    } else {
        let mut rows = Table::new(["SKILL", "SCOPE", "USED", "PATH"]);
        for dir in unread_dirs {
            rows.row([
                name_of(dir),
                scope(SkillScope::Project).to_owned(),
                unread
                    .as_ref()
                    .map_or("", |unread| unread.reason)
                    .to_owned(),
                display_path(dir),
            ]);
        }
        for skill in &found.skills {
            rows.row([
                skill.folder.name.as_str().to_owned(),
                scope(skill.scope).to_owned(),
                "yes".to_owned(),
                display_path(&skill.path),
            ]);
        }
        rows.print();
    }
    if let Some(skills) = project.as_ref().and_then(Project::own_skills) {
        output::line(format_args!(
            "The project's skills have the digest {}.",
            skills.digest_text()
        ));
    }
    for (path, note) in &found.notes {
        output::print_note(format_args!(
            "{YELLOW}note:{RESET} {}: {}",
            output::clean(&display_path(path)),
            output::clean_line(&note.message)
        ));
    }
    for hidden in &found.hidden {
        output::print_note(format_args!(
            "{YELLOW}hidden:{RESET} {}",
            output::clean_line(&hidden.warning.message)
        ));
    }
    for error in &found.broken {
        output::print_note(format_args!(
            "{RED}broken:{RESET} {}",
            output::clean(&error.to_string())
        ));
    }
    Exit::Success
}

/// The skills of a project that nobody trusts as it is, known by their directories only.
struct UntrustedSkills<'a> {
    dirs: &'a [PathBuf],
    reason: &'static str,
}

impl<'a> UntrustedSkills<'a> {
    fn of(project: Option<&'a Project>) -> Option<Self> {
        let project = project?;
        let dirs = &project.skills.as_ref().ok()?.dirs;
        let why = match project.trust_state() {
            TrustState::Trusted => return None,
            TrustState::Changed => "changed since it was trusted",
            TrustState::Unknown => "not trusted",
        };
        (!dirs.is_empty()).then_some(Self { dirs, reason: why })
    }
}

fn name_of(dir: &Path) -> String {
    dir.file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

/// The list for programs. Of a project that is not trusted nothing is read, so that there is no
/// description.
fn list_json(
    found: &DiscoveredSkills,
    project: Option<&Project>,
    unread: Option<&UntrustedSkills<'_>>,
) -> Value {
    let skill = |skill: &FoundSkill| {
        json!({
            "name": skill.folder.name.as_str(),
            "description": skill.folder.description,
            "path": skill.path,
            "scope": scope(skill.scope),
            "used": true,
        })
    };
    let not_read = unread.into_iter().flat_map(|unread| {
        unread.dirs.iter().map(|dir| {
            json!({
                "name": name_of(dir),
                "description": null,
                "path": dir,
                "scope": scope(SkillScope::Project),
                "used": false,
                "reason": unread.reason,
            })
        })
    });
    let skills: Vec<Value> = not_read.chain(found.skills.iter().map(skill)).collect();
    let hidden: Vec<Value> = found
        .hidden
        .iter()
        .map(|h| json!({ "path": h.skill.path, "reason": h.warning.message }))
        .collect();
    let broken: Vec<Value> = found.broken.iter().map(|e| json!(e.to_string())).collect();
    let project = project.and_then(Project::view);
    json!({ "project": project, "skills": skills, "hidden": hidden, "broken": broken })
}

fn scope(scope: SkillScope) -> &'static str {
    match scope {
        SkillScope::Named => "named",
        SkillScope::Project => "project",
        SkillScope::User => "user",
    }
}

fn check(global: &Global, path: &Path, upload: bool) -> Result<Exit, CliError> {
    check_exists(path)?;
    let (diagnostics, name) = match load(path) {
        Ok((loaded, _kept)) => {
            let text = fs::read(loaded.dir.join("SKILL.md")).map_err(CliError::host_from)?;
            let dir = loaded
                .dir
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            let resources: Vec<&str> = loaded.resources.iter().map(String::as_str).collect();
            let mut found = validate_strict(&dir, &text, &resources);
            if upload {
                found.extend(validate_upload(&loaded.folder));
            }
            (found, loaded.folder.name.as_str().to_owned())
        }
        Err(FolderError::Invalid { diagnostics, .. }) => (diagnostics, display_path(path)),
        Err(error) => return Err(CliError::from_source(Exit::No, error)),
    };
    let valid = diagnostics.iter().all(|d| d.severity != Severity::Error);
    if global.json {
        let found: Vec<Value> = diagnostics.iter().map(diagnostic_json).collect();
        output::json(&json!({ "name": name, "valid": valid, "diagnostics": found }));
    } else {
        for diagnostic in &diagnostics {
            print_diagnostic(diagnostic);
        }
        if valid {
            output::line(format_args!("{GREEN}valid{RESET} {name}"));
        }
    }
    Ok(if valid { Exit::Success } else { Exit::No })
}

fn print_diagnostic(diagnostic: &Diagnostic) {
    let (color, word) = match diagnostic.severity {
        Severity::Error => (RED, "error"),
        Severity::Warning => (YELLOW, "warning"),
        Severity::Hint => (DIM, "hint"),
    };
    let line = diagnostic
        .line
        .map(|line| format!(" line {line}"))
        .unwrap_or_default();
    output::line(format_args!(
        "{color}{word}{RESET} [{}]{line}: {}\n  {}",
        diagnostic.rule.id(),
        diagnostic.message,
        diagnostic.help
    ));
}

fn diagnostic_json(diagnostic: &Diagnostic) -> Value {
    json!({
        "rule": diagnostic.rule.id(),
        "severity": match diagnostic.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
            Severity::Hint => "hint",
        },
        "line": diagnostic.line,
        "message": diagnostic.message,
        "help": diagnostic.help,
    })
}

fn show(global: &Global, path: &Path) -> Result<Exit, CliError> {
    check_exists(path)?;
    let (loaded, _kept) = load(path).map_err(|error| CliError::from_source(Exit::No, error))?;
    let folder: &SkillFolder = &loaded.folder;
    if global.json {
        let diagnostics: Vec<Value> = loaded.diagnostics.iter().map(diagnostic_json).collect();
        output::json(&json!({
            "name": folder.name.as_str(),
            "description": folder.description,
            "license": folder.license,
            "compatibility": folder.compatibility,
            "metadata": folder.metadata.iter().cloned().collect::<std::collections::BTreeMap<_, _>>(),
            "allowed_tools": folder.allowed_tools,
            "path": loaded.dir,
            "resources": loaded.resources,
            "body": folder.body,
            "diagnostics": diagnostics,
        }));
        return Ok(Exit::Success);
    }
    output::line(format_args!(
        "{BOLD}{}{RESET}\n{}",
        folder.name.as_str(),
        output::clean_line(&folder.description)
    ));
    for (name, value) in [
        ("license", &folder.license),
        ("compatibility", &folder.compatibility),
        ("allowed-tools", &folder.allowed_tools),
    ] {
        if let Some(value) = value {
            output::line(format_args!(
                "{DIM}{name}:{RESET} {}",
                output::clean_line(value)
            ));
        }
    }
    for (name, value) in &folder.metadata {
        output::line(format_args!(
            "{DIM}{}:{RESET} {}",
            output::clean_line(name),
            output::clean_line(value)
        ));
    }
    output::line(format_args!(
        "{DIM}path:{RESET} {}",
        display_path(&loaded.dir)
    ));
    for resource in &loaded.resources {
        output::line(format_args!("  {}", output::clean_line(resource)));
    }
    output::line(format_args!("\n{}", output::clean(folder.body.trim())));
    for diagnostic in &loaded.diagnostics {
        print_diagnostic(diagnostic);
    }
    Ok(Exit::Success)
}

/// Loads a folder or a package; the directory that a package was unpacked to ends with the second
/// value.
pub(crate) fn load(path: &Path) -> Result<(LoadedFolder, tempfile::TempDir), FolderError> {
    let unpacked = tempfile::tempdir().map_err(|source| FolderError::Io {
        path: path.to_owned(),
        source,
    })?;
    Ok((skill_folders::load(path, unpacked.path())?, unpacked))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_named_skill_hides_a_discovered_one_of_its_name() {
        let dir = tempfile::tempdir().unwrap();
        let skill = |place: &str, name: &str| {
            let folder = dir.path().join(place).join(name);
            std::fs::create_dir_all(&folder).unwrap();
            let text = format!("---\nname: {name}\ndescription: Does things\n---\n");
            std::fs::write(folder.join("SKILL.md"), text).unwrap();
            folder
        };
        skill("found", "same");
        skill("found", "other");
        let named = skill("named", "same");
        let found = skill_folders::discover_in(&dir.path().join("found")).skills;
        let broken = dir.path().join("broken");
        let left: Vec<FoundSkill> = not_overridden(found, &[named, broken]).collect();
        let names: Vec<_> = left
            .iter()
            .map(|found| found.folder.name.as_str())
            .collect();
        assert_eq!(names, ["other"]);
    }
}
