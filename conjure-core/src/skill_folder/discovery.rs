//! Where skill folders are looked for, how far a walk goes, and whose skill wins.
//!
//! Rules as data and pure functions; the host does the walking, and asks for trust before it
//! uses what a project brings.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use super::{Diagnostic, Severity, SkillFolder, SkillRule};

/// Directories under a project, and under the home directory, in the order searched.
pub const ROOTS: [&str; 3] = [".conjure/skills", ".agents/skills", ".claude/skills"];
/// Directories that a walk never enters.
pub const SKIPPED_DIRECTORIES: [&str; 2] = [".git", "node_modules"];
/// Levels below a root that a walk enters; the root itself is level 0.
pub const MAX_DEPTH: usize = 6;
/// Directories that one walk enters, the root included.
pub const MAX_DIRECTORIES: usize = 2_000;

/// Origin of a skill; a skill of an earlier scope hides one of a later scope.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SkillScope {
    /// Named by the person, on the command line or in a session's settings.
    Named,
    /// Found in the project; used only after the project was trusted.
    Project,
    /// Found in the home directory.
    User,
}

impl fmt::Display for SkillScope {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Named => "named",
            Self::Project => "project",
            Self::User => "user",
        })
    }
}

/// A directory to look in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkillRoot {
    /// Scope of the skills in the directory.
    pub scope: SkillScope,
    /// The directory; it may not exist.
    pub path: PathBuf,
}

/// The directories to look in, in order: the project's three, then the user's.
#[must_use]
pub fn roots(project: Option<&Path>, home: Option<&Path>) -> Vec<SkillRoot> {
    [(SkillScope::Project, project), (SkillScope::User, home)]
        .into_iter()
        .filter_map(|(scope, base)| base.map(|base| (scope, base)))
        .flat_map(|(scope, base)| {
            ROOTS.iter().map(move |root| SkillRoot {
                scope,
                path: base.join(root),
            })
        })
        .collect()
}

/// The limits of one walk through one root. Ask it before each directory.
#[derive(Debug, Clone, Default)]
pub struct RootWalk {
    entered: usize,
}

/// What to do with a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WalkStep {
    /// Look into it.
    Enter,
    /// Never looked into ([`SKIPPED_DIRECTORIES`]).
    Skip,
    /// Deeper than [`MAX_DEPTH`].
    TooDeep,
    /// [`MAX_DIRECTORIES`] were entered; the walk ends, and says so.
    Full,
}

impl RootWalk {
    /// Decides on a directory called `name` that lies `depth` levels below the root (0: the
    /// root) and counts it when it is entered.
    pub fn step(&mut self, name: &str, depth: usize) -> WalkStep {
        if depth > 0 && SKIPPED_DIRECTORIES.contains(&name) {
            WalkStep::Skip
        } else if depth > MAX_DEPTH {
            WalkStep::TooDeep
        } else if self.entered >= MAX_DIRECTORIES {
            WalkStep::Full
        } else {
            self.entered += 1;
            WalkStep::Enter
        }
    }
}

/// A skill folder and where it was found.
#[derive(Debug, Clone, PartialEq)]
pub struct FoundSkill {
    /// The skill.
    pub folder: SkillFolder,
    /// Scope of the skill.
    pub scope: SkillScope,
    /// Directory of the skill.
    pub path: PathBuf,
}

/// A skill folder that another of the same name hides.
#[derive(Debug, Clone, PartialEq)]
pub struct ShadowedSkill {
    /// The one that is not used.
    pub skill: FoundSkill,
    /// The warning to show.
    pub warning: Diagnostic,
}

/// Keeps one skill a name: the earlier scope's, and within a scope the one found first.
///
/// `found` is in the order of the search; what is kept stays in it.
#[must_use]
pub fn shadow(found: Vec<FoundSkill>) -> (Vec<FoundSkill>, Vec<ShadowedSkill>) {
    let mut winners: BTreeMap<String, (usize, SkillScope)> = BTreeMap::new();
    for (index, one) in found.iter().enumerate() {
        let winner = winners
            .entry(one.folder.name.as_str().to_owned())
            .or_insert((index, one.scope));
        if one.scope < winner.1 {
            *winner = (index, one.scope);
        }
    }
    let places: Vec<PathBuf> = found.iter().map(|one| one.path.clone()).collect();
    let mut kept = Vec::new();
    let mut hidden = Vec::new();
    for (index, one) in found.into_iter().enumerate() {
        match winners.get(one.folder.name.as_str()) {
            Some((winner, scope)) if *winner != index => {
                let by = places.get(*winner).map(|path| path.display().to_string());
                let warning = Diagnostic {
                    rule: SkillRule::Hidden,
                    severity: Severity::Warning,
                    line: None,
                    message: format!(
                        "The {} skill `{}` in {} is hidden by the {scope} skill in {}.",
                        one.scope,
                        one.folder.name,
                        one.path.display(),
                        by.unwrap_or_default(),
                    ),
                    help: "Rename one of the two, or remove it.".into(),
                };
                hidden.push(ShadowedSkill {
                    skill: one,
                    warning,
                });
            }
            _ => kept.push(one),
        }
    }
    (kept, hidden)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(name: &str, scope: SkillScope, path: &str) -> FoundSkill {
        let text = format!("---\nname: {name}\ndescription: d\n---\n");
        FoundSkill {
            folder: SkillFolder::parse(name, text.as_bytes()).folder.unwrap(),
            scope,
            path: path.into(),
        }
    }

    #[test]
    fn the_projects_roots_come_before_the_users() {
        let paths: Vec<String> = roots(Some(Path::new("/p")), Some(Path::new("/h")))
            .iter()
            .map(|root| format!("{} {}", root.scope, root.path.display()))
            .collect();
        assert_eq!(
            paths,
            [
                "project /p/.conjure/skills",
                "project /p/.agents/skills",
                "project /p/.claude/skills",
                "user /h/.conjure/skills",
                "user /h/.agents/skills",
                "user /h/.claude/skills",
            ]
        );
        assert_eq!(roots(None, None), []);
    }

    #[test]
    fn the_projects_skill_hides_the_users_with_a_warning() {
        let (kept, hidden) = shadow(vec![
            found("logs", SkillScope::User, "/h/logs"),
            found("notes", SkillScope::User, "/h/notes"),
            found("logs", SkillScope::Project, "/p/logs"),
            found("logs", SkillScope::Project, "/p/other/logs"),
        ]);
        let kept: Vec<PathBuf> = kept.into_iter().map(|one| one.path).collect();
        assert_eq!(kept, [PathBuf::from("/h/notes"), PathBuf::from("/p/logs")]);
        let warnings: Vec<String> = hidden.into_iter().map(|one| one.warning.message).collect();
        assert_eq!(
            warnings,
            [
                "The user skill `logs` in /h/logs is hidden by the project skill in /p/logs.",
                "The project skill `logs` in /p/other/logs is hidden by the project skill in /p/logs.",
            ]
        );
    }

    #[test]
    fn a_walk_has_an_end() {
        let mut walk = RootWalk::default();
        assert_eq!(walk.step(".git", 0), WalkStep::Enter);
        assert_eq!(walk.step(".git", 1), WalkStep::Skip);
        assert_eq!(walk.step("node_modules", 3), WalkStep::Skip);
        assert_eq!(walk.step("deep", 6), WalkStep::Enter);
        assert_eq!(walk.step("deep", 7), WalkStep::TooDeep);
        for _ in 2..MAX_DIRECTORIES {
            assert_eq!(walk.step("d", 1), WalkStep::Enter);
        }
        assert_eq!(walk.step("d", 1), WalkStep::Full);
    }
}
