//! `conjure skill`: skill folders.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use clap::Subcommand;
use conjure_core::skill_folder::discovery::{Found, Scope};
use conjure_core::skill_folder::{
    Diagnostic, Severity, SkillFolder, validate_strict, validate_upload,
};
use conjure_host::skill_folders::{self, Discovered, FolderError, LoadedFolder};
use conjure_host::{env, fs};
use serde_json::{Value, json};

use super::args::{Global, shown};
use super::exit::{Exit, Failure};
use super::output::{self, BOLD, DIM, GREEN, RED, RESET, Table, YELLOW};
use super::skill_remote;

/// Looks at skill folders, validates and uploads them.
///
/// A skill folder is a directory with a `SKILL.md` (the Agent Skills standard). Those of the
/// current project (`.conjure/skills`, `.agents/skills`, `.claude/skills`) are used after the
/// project was trusted; those below the home directory always.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// List the skills of the project and of the user, those that do not load among them
    List {
        /// Look below this directory instead
        dir: Option<PathBuf>,
    },
    /// Check a skill folder or package against every rule of the standard
    ///
    /// Exit code 0: no errors; 1: at least one.
    Validate {
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
    Upload(skill_remote::Upload),
    /// Look at the skills that Anthropic keeps, download or delete some
    #[command(subcommand)]
    Remote(skill_remote::Remote),
    /// Trust a project: its skills are used from now on
    Trust {
        /// The project's directory
        #[arg(default_value = ".")]
        dir: PathBuf,
        /// Trust it no more
        #[arg(long)]
        remove: bool,
    },
}

pub(crate) fn run(global: &Global, args: &Args) -> Result<Exit, Failure> {
    match &args.verb {
        Verb::List { dir } => Ok(list(global, dir.as_deref())),
        Verb::Validate { path, upload } => validate(global, path, *upload),
        Verb::Show { path } => show(global, path),
        Verb::Upload(args) => skill_remote::upload(global, args),
        Verb::Remote(verb) => skill_remote::remote(global, verb),
        Verb::Trust { dir, remove } => trust(global, dir, *remove),
    }
}

/// The skills that a session without a session file uses: the user's, and those of a project that
/// is trusted, without those that a named one of the same name hides.
pub(crate) fn usable(global: &Global, named: &[PathBuf]) -> Vec<PathBuf> {
    let found = discover(global);
    for error in &found.broken {
        tracing::warn!("{error}");
    }
    for hidden in &found.hidden {
        tracing::warn!("{}", hidden.warning.message);
    }
    let project = current_project();
    let trusted = project
        .as_ref()
        .is_some_and(|dir| trusted(global).contains(dir));
    let untrusted = found
        .skills
        .iter()
        .filter(|f| f.scope == Scope::Project)
        .count();
    if untrusted > 0 && !trusted {
        tracing::warn!(
            "{untrusted} skill(s) of this project are not used: `conjure skill trust` allows them"
        );
    }
    not_named(found.skills, named)
        .filter(|found| trusted || found.scope != Scope::Project)
        .map(|found| found.path)
        .collect()
}

/// The skills that no named one hides. One that does not load hides nothing; the session says what
/// is wrong with it.
fn not_named(skills: Vec<Found>, named: &[PathBuf]) -> impl Iterator<Item = Found> {
    let names: BTreeSet<String> = named
        .iter()
        .filter_map(|path| load(path).ok())
        .map(|(loaded, _)| loaded.folder.name.as_str().to_owned())
        .collect();
    skills
        .into_iter()
        .filter(move |found| !names.contains(found.folder.name.as_str()))
}

fn discover(_global: &Global) -> Discovered {
    skill_folders::discover(current_project().as_deref(), env::home().as_deref())
}

fn current_project() -> Option<PathBuf> {
    std::env::current_dir().ok()?.canonicalize().ok()
}

fn trusted_file(global: &Global) -> PathBuf {
    global.data_dir().join("trusted.json")
}

fn trusted(global: &Global) -> BTreeSet<PathBuf> {
    fs::read(trusted_file(global))
        .ok()
        .and_then(|bytes| serde_json::from_slice(&bytes).ok())
        .unwrap_or_default()
}

fn trust(global: &Global, dir: &Path, remove: bool) -> Result<Exit, Failure> {
    let dir = dir
        .canonicalize()
        .map_err(|error| Failure::usage(format!("`{}`: {error}", dir.display())))?;
    let mut all = trusted(global);
    if remove {
        all.remove(&dir);
    } else {
        all.insert(dir.clone());
    }
    let file = trusted_file(global);
    let bytes = serde_json::to_vec_pretty(&all).unwrap_or_default();
    fs::create_private_dir(global.data_dir())
        .and_then(|()| fs::write_atomic(&file, &bytes))
        .map_err(|error| Failure::host(error.to_string()))?;
    if global.json {
        output::json(&json!({ "trusted": all }));
    } else {
        let word = if remove {
            "not trusted any more"
        } else {
            "trusted"
        };
        output::line(format_args!("{} is {word}.", dir.display()));
    }
    Ok(Exit::Fine)
}

fn list(global: &Global, dir: Option<&Path>) -> Exit {
    let found = match dir {
        Some(dir) => skill_folders::discover_in(dir),
        None => discover(global),
    };
    let project_trusted =
        current_project().is_some_and(|project| trusted(global).contains(&project));
    let used = |found: &Found| match found.scope {
        Scope::Project => project_trusted,
        _ => true,
    };
    if global.json {
        let skills: Vec<Value> = found
            .skills
            .iter()
            .map(|skill| {
                json!({
                    "name": skill.folder.name.as_str(),
                    "description": skill.folder.description,
                    "path": skill.path,
                    "scope": scope(skill.scope),
                    "used": used(skill),
                })
            })
            .collect();
        let hidden: Vec<Value> = found
            .hidden
            .iter()
            .map(|h| json!({ "path": h.found.path, "reason": h.warning.message }))
            .collect();
        let broken: Vec<Value> = found.broken.iter().map(|e| json!(e.to_string())).collect();
        output::json(&json!({ "skills": skills, "hidden": hidden, "broken": broken }));
        return Exit::Fine;
    }
    if found.skills.is_empty() {
        output::line("No skills.");
    } else {
        let mut rows = Table::new(["SKILL", "SCOPE", "USED", "PATH"]);
        for skill in &found.skills {
            rows.row([
                skill.folder.name.as_str().to_owned(),
                scope(skill.scope).to_owned(),
                if used(skill) { "yes" } else { "not trusted" }.to_owned(),
                shown(&skill.path),
            ]);
        }
        rows.print();
    }
    for (path, note) in &found.notes {
        output::aside(format_args!(
            "{YELLOW}note:{RESET} {}: {}",
            output::clean(&shown(path)),
            output::clean(&note.message)
        ));
    }
    for hidden in &found.hidden {
        output::aside(format_args!(
            "{YELLOW}hidden:{RESET} {}",
            hidden.warning.message
        ));
    }
    for error in &found.broken {
        output::aside(format_args!("{RED}broken:{RESET} {error}"));
    }
    Exit::Fine
}

fn scope(scope: Scope) -> &'static str {
    match scope {
        Scope::Named => "named",
        Scope::Project => "project",
        Scope::User => "user",
    }
}

fn validate(global: &Global, path: &Path, upload: bool) -> Result<Exit, Failure> {
    let (diagnostics, name) = match load(path) {
        Ok((loaded, _kept)) => {
            let text = fs::read(loaded.dir.join("SKILL.md"))
                .map_err(|error| Failure::host(error.to_string()))?;
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
        Err(FolderError::Invalid { diagnostics, .. }) => (diagnostics, shown(path)),
        Err(error) => return Err(Failure::new(Exit::No, error.to_string())),
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
    Ok(if valid { Exit::Fine } else { Exit::No })
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

fn show(global: &Global, path: &Path) -> Result<Exit, Failure> {
    let (loaded, _kept) = load(path).map_err(|error| Failure::new(Exit::No, error.to_string()))?;
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
        return Ok(Exit::Fine);
    }
    output::line(format_args!(
        "{BOLD}{}{RESET}\n{}",
        folder.name.as_str(),
        output::clean(&folder.description)
    ));
    for (name, value) in [
        ("license", &folder.license),
        ("compatibility", &folder.compatibility),
        ("allowed-tools", &folder.allowed_tools),
    ] {
        if let Some(value) = value {
            output::line(format_args!("{DIM}{name}:{RESET} {value}"));
        }
    }
    for (name, value) in &folder.metadata {
        output::line(format_args!("{DIM}{name}:{RESET} {value}"));
    }
    output::line(format_args!("{DIM}path:{RESET} {}", shown(&loaded.dir)));
    for resource in &loaded.resources {
        output::line(format_args!("  {resource}"));
    }
    output::line(format_args!("\n{}", output::clean(folder.body.trim())));
    for diagnostic in &loaded.diagnostics {
        print_diagnostic(diagnostic);
    }
    Ok(Exit::Fine)
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
        let left: Vec<Found> = not_named(found, &[named, broken]).collect();
        let names: Vec<_> = left
            .iter()
            .map(|found| found.folder.name.as_str())
            .collect();
        assert_eq!(names, ["other"]);
    }
}
