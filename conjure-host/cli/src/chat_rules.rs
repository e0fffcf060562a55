//! Rules that a person made for a directory by saying *always*: they hold for chats and runs there
//! that are no saved sessions.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use conjure_config::{SessionSpec, fs};
use conjure_core::routing::{Pattern, PolicyDecision, Rule};
use conjure_core::turn::ApprovalDecision;
use conjure_runtime::manager::DecisionScope;
use conjure_runtime::session::Session;
use conjure_terminal::Decision;
use serde::{Deserialize, Serialize};

use super::args::Global;
use super::error::CliError;
use super::output::{DIM, RESET, YELLOW, clean, print_note};
use super::sessions::SavedSessions;

/// What the file has: rules by the directory in which calls work, absolute and without links.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
struct AlwaysRules {
    directories: BTreeMap<String, DirectoryRules>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct DirectoryRules {
    #[serde(default)]
    allow: Vec<Pattern>,
}

/// Path of the file with the rules.
fn file(global: &Global) -> PathBuf {
    global.data_dir().join("always.toml")
}

fn read(file: &Path) -> Result<AlwaysRules, CliError> {
    let text = match fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Ok(AlwaysRules::default());
        }
        Err(error) => return Err(CliError::usage_from(error)),
    };
    toml::from_str(&text).map_err(|error| {
        CliError::usage_from(error).context(format_args!("{} is not right", file.display()))
    })
}

/// Adds the rules of the directory in which its calls work.
///
/// # Errors
/// When the file is not right.
pub(crate) fn apply(global: &Global, spec: &mut SessionSpec) -> Result<(), CliError> {
    let file = file(global);
    let rules = read(&file)?;
    if let Some(ignored) = rules.ignored_notice() {
        print_note(format_args!(
            "{YELLOW}note:{RESET} in {} the rules of {} are ignored: they name no directory from `/` \
             on and without links, so they could hold elsewhere. Remove them there",
            clean(&file.display().to_string()),
            clean(&ignored)
        ));
    }
    if let Some(dir) = &spec.working_dir {
        spec.policy.allow.extend_from_slice(rules.of(dir));
    }
    Ok(())
}

impl AlwaysRules {
    /// The patterns of a directory, however it is written.
    fn of(&self, dir: &Path) -> &[Pattern] {
        let rules = key(dir).ok().and_then(|key| self.directories.get(&key));
        rules
            .map(|rules| rules.allow.as_slice())
            .unwrap_or_default()
    }

    /// The directories that are not named from `/` on and without links, as a person reads them. Their
    /// rules are never applied: `.` is another directory each time, and a link may lead elsewhere by now.
    fn ignored_notice(&self) -> Option<String> {
        let is_ignored = |name: &&String| {
            let dir = Path::new(name.as_str());
            !dir.is_absolute() || dir.canonicalize().is_ok_and(|real| real != dir)
        };
        let names = self.directories.keys().filter(is_ignored);
        let quoted: Vec<String> = names.map(|name| format!("`{name}`")).collect();
        (!quoted.is_empty()).then(|| quoted.join(", "))
    }
}

/// What a directory is called in the file: absolute and without links, so that it is the same however
/// the program was told of it.
///
/// # Errors
/// When it is not there, or its name is no text.
fn key(dir: &Path) -> Result<String, CliError> {
    let real = dir
        .canonicalize()
        .map_err(|error| CliError::host_from(error).context(format_args!("`{}`", dir.display())))?;
    let name = real.to_str().map(str::to_owned);
    name.ok_or_else(|| {
        CliError::host(format!(
            "no rule can be written for `{}`: its name is not UTF-8",
            real.display()
        ))
    })
}

/// Writes a rule for a directory; gives back the file and what the directory is called in it.
///
/// # Errors
/// When the file is not right, or cannot be written.
fn add(global: &Global, dir: &Path, pattern: &Pattern) -> Result<(PathBuf, String), CliError> {
    let file = file(global);
    let key = append_rule(&file, dir, pattern)?;
    Ok((file, key))
}

fn append_rule(file: &Path, dir: &Path, pattern: &Pattern) -> Result<String, CliError> {
    let key = key(dir)?;
    // Another chat may be adding one.
    let _lock = fs::lock(file.with_extension("lock")).map_err(CliError::host_from)?;
    let mut rules = read(file)?;
    let rule = rules.directories.entry(key.clone()).or_default();
    if !rule.allow.contains(pattern) {
        rule.allow.push(pattern.clone());
    }
    let text = toml::to_string(&rules).map_err(CliError::host_from)?;
    fs::write_atomic(file, text.as_bytes()).map_err(CliError::host_from)?;
    Ok(key)
}

/// What a decision comes to: the pattern of a rule for the session, whether it is written to stay,
/// and what is decided about the call. What is no pattern is a rule for nothing; nothing wider takes
/// its place.
fn split_decision(decision: Decision) -> (Option<Pattern>, bool, ApprovalDecision) {
    let pattern = |text: String| text.parse().ok();
    match decision {
        Decision::Once => (None, false, ApprovalDecision::Allow),
        Decision::Session(text) => (pattern(text), false, ApprovalDecision::Allow),
        Decision::Always(text) => (pattern(text), true, ApprovalDecision::Allow),
        Decision::No(reason) => (None, false, ApprovalDecision::Deny { reason }),
    }
}

/// Decides about a call of a session that is not saved, whose calls work in this directory.
///
/// # Errors
/// When the rule cannot be written; the call is decided about.
pub(crate) async fn decide(
    global: &Global,
    dir: &Path,
    session: &Session,
    call_id: &str,
    decision: Decision,
) -> Result<(), CliError> {
    let (pattern, is_written, decision) = split_decision(decision);
    if let Some(pattern) = pattern.clone() {
        let rule = Rule {
            pattern,
            decision: PolicyDecision::Allow,
        };
        session.add_rule(rule).await;
    }
    session.decide(call_id, decision).await;
    if let Some(pattern) = pattern.filter(|_| is_written) {
        let (file, directory) = add(global, dir, &pattern)?;
        print_rule(&format!("{}, for {directory}", file.display()), &pattern);
    }
    Ok(())
}

/// Decides about a call of a saved session; what holds there is kept with it. Whether nobody else
/// has decided before.
///
/// # Errors
/// When the session cannot be reached.
pub(crate) async fn decide_saved(
    sessions: &SavedSessions,
    session: (&str, &str),
    call_id: &str,
    decision: Decision,
) -> Result<bool, CliError> {
    let (id, name) = session;
    let (pattern, is_written, decision) = split_decision(decision);
    let scope = match pattern.clone() {
        Some(pattern) => DecisionScope::Pattern { pattern },
        None => DecisionScope::Once,
    };
    let is_first = sessions.decide(id, call_id, decision, scope).await?;
    if let Some(pattern) = pattern.filter(|_| is_written && is_first) {
        print_rule(&format!("the session {name}"), &pattern);
    }
    Ok(is_first)
}

/// Shows a rule that was written.
fn print_rule(place: &str, pattern: &Pattern) {
    print_note(format_args!(
        "{DIM}Written to {}: allow = [\"{}\"]{RESET}",
        clean(place),
        clean(&pattern.to_string())
    ));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_holds_in_its_directory() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("always.toml");
        let pattern: Pattern = "local_bash_tool(cargo *)".parse().unwrap();
        let mut rules = read(&file).unwrap();
        let rule = rules.directories.entry("/work".to_owned()).or_default();
        rule.allow.push(pattern.clone());
        std::fs::write(&file, toml::to_string(&rules).unwrap()).unwrap();
        let rules = read(&file).unwrap();
        assert_eq!(rules.directories["/work"].allow, [pattern]);
        std::fs::write(&file, "[\"/work\"]\nallow = [\"a b\"]\n").unwrap();
        assert!(read(&file).is_err());
    }

    #[test]
    fn a_rule_is_its_directorys_however_that_is_written_and_no_others() {
        let dir = tempfile::tempdir().unwrap();
        let (here, other) = (dir.path().join("here"), dir.path().join("other"));
        std::fs::create_dir_all(here.join("below")).unwrap();
        std::fs::create_dir(&other).unwrap();
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&here, &link).unwrap();
        let pattern: Pattern = "local_bash_tool(touch *)".parse().unwrap();
        let written = here.join("below").join("..");
        for (n, told) in [&here, &link, &written].into_iter().enumerate() {
            let file = dir.path().join(format!("{n}.toml"));
            append_rule(&file, told, &pattern).unwrap();
            let rules = read(&file).unwrap();
            let real = here.canonicalize().unwrap();
            let names: Vec<&String> = rules.directories.keys().collect();
            assert_eq!(names, [real.to_str().unwrap()]);
            for same in [&here, &link, &written] {
                assert_eq!(rules.of(same), std::slice::from_ref(&pattern), "{same:?}");
            }
            for another in [other.as_path(), &here.join("below"), dir.path()] {
                assert!(rules.of(another).is_empty(), "{another:?}");
            }
        }
    }

    #[test]
    fn a_rule_of_a_relative_directory_holds_nowhere() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("always.toml");
        append_rule(&file, Path::new("."), &"touch".parse().unwrap()).unwrap();
        assert_eq!(read(&file).unwrap().ignored_notice(), None);
        // As earlier versions wrote it.
        std::fs::write(&file, "[\".\"]\nallow = [\"touch\"]\n[\"a/..\"]\n").unwrap();
        let rules = read(&file).unwrap();
        assert!(rules.of(Path::new(".")).is_empty());
        assert_eq!(rules.ignored_notice().unwrap(), "`.`, `a/..`");
    }

    #[test]
    fn rules_that_are_added_at_once_are_all_there() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("always.toml");
        std::thread::scope(|scope| {
            for n in 0..8 {
                let (file, work) = (&file, dir.path());
                scope.spawn(move || {
                    for m in 0..5 {
                        let pattern = format!("tool_{n}_{m}").parse().unwrap();
                        append_rule(file, work, &pattern).unwrap();
                    }
                });
            }
        });
        let rules = read(&file).unwrap();
        assert_eq!(rules.of(dir.path()).len(), 40);
    }
}
