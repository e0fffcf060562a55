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
use super::output::{DIM, RESET, aside, clean};
use super::sessions::SavedSessions;

/// What the file has: rules by the directory in which calls work.
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

/// Where they are.
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
    let rules = read(&file(global))?;
    let dir = spec.working_dir.as_deref().and_then(Path::to_str);
    if let Some(rules) = dir.and_then(|dir| rules.directories.get(dir)) {
        spec.policy.allow.extend_from_slice(&rules.allow);
    }
    Ok(())
}

/// Writes a rule for a directory; gives back the file.
///
/// # Errors
/// When the file is not right, or cannot be written.
fn add(global: &Global, dir: &Path, pattern: &Pattern) -> Result<PathBuf, CliError> {
    let file = file(global);
    add_to(&file, dir, pattern)?;
    Ok(file)
}

fn add_to(file: &Path, dir: &Path, pattern: &Pattern) -> Result<(), CliError> {
    // Another chat may be adding one.
    let _lock = fs::lock(file.with_extension("lock")).map_err(CliError::host_from)?;
    let mut rules = read(file)?;
    let rule = rules
        .directories
        .entry(dir.display().to_string())
        .or_default();
    if !rule.allow.contains(pattern) {
        rule.allow.push(pattern.clone());
    }
    let text = toml::to_string(&rules).map_err(CliError::host_from)?;
    fs::write_atomic(file, text.as_bytes()).map_err(CliError::host_from)
}

/// What a decision comes to: the pattern of a rule for the session, whether it is written to stay,
/// and what is decided about the call. What is no pattern is a rule for nothing; nothing wider takes
/// its place.
fn parts(decision: Decision) -> (Option<Pattern>, bool, ApprovalDecision) {
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
    let (pattern, is_written, decision) = parts(decision);
    if let Some(pattern) = pattern.clone() {
        let rule = Rule {
            pattern,
            decision: PolicyDecision::Allow,
        };
        session.add_rule(rule).await;
    }
    session.decide(call_id, decision).await;
    if let Some(pattern) = pattern.filter(|_| is_written) {
        let file = add(global, dir, &pattern)?;
        written(
            &format!("{}, for {}", file.display(), dir.display()),
            &pattern,
        );
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
    let (pattern, is_written, decision) = parts(decision);
    let scope = match pattern.clone() {
        Some(pattern) => DecisionScope::Pattern { pattern },
        None => DecisionScope::Once,
    };
    let is_first = sessions.decide(id, call_id, decision, scope).await?;
    if let Some(pattern) = pattern.filter(|_| is_written && is_first) {
        written(&format!("the session {name}"), &pattern);
    }
    Ok(is_first)
}

/// Shows a rule that was written.
fn written(place: &str, pattern: &Pattern) {
    aside(format_args!(
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
    fn rules_that_are_added_at_once_are_all_there() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("always.toml");
        std::thread::scope(|scope| {
            for n in 0..8 {
                let file = &file;
                scope.spawn(move || {
                    for m in 0..5 {
                        let pattern = format!("tool_{n}_{m}").parse().unwrap();
                        add_to(file, Path::new("/work"), &pattern).unwrap();
                    }
                });
            }
        });
        let rules = read(&file).unwrap();
        assert_eq!(rules.directories["/work"].allow.len(), 40);
    }
}
