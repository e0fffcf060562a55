//! Links from a skill's body to its files, and the paths of those files.
//!
//! Finds inline Markdown links outside of code blocks; it is no Markdown parser. Sees only the
//! list of paths that it is given, never a disk.

use super::front_matter::Document;
use super::{Diagnostic, Severity, SkillRule};

/// Reports links to files that are not there or not inside the skill; one message a rule.
pub(super) fn check_links(document: &Document, resources: &[&str]) -> Vec<Diagnostic> {
    let mut missing = Vec::new();
    let mut outside = Vec::new();
    for target in targets(&document.body) {
        match normalised_path(&target) {
            None => outside.push(target),
            Some(path) if !exists(&path, resources) => missing.push(target),
            Some(_) => {}
        }
    }
    let mut found = Vec::new();
    if !missing.is_empty() {
        found.push(Diagnostic {
            rule: SkillRule::LinkMissing,
            severity: Severity::Warning,
            line: None,
            message: format!(
                "The body links to files that are not there: `{}`.",
                missing.join("`, `")
            ),
            help:
                "Add the files or correct the links; paths are relative to the skill's directory."
                    .into(),
        });
    }
    if !outside.is_empty() {
        found.push(Diagnostic {
            rule: SkillRule::LinkOutside,
            severity: Severity::Warning,
            line: None,
            message: format!(
                "The body links out of the skill's directory: `{}`.",
                outside.join("`, `")
            ),
            help: "A host refuses to read there; move the files into the skill's directory.".into(),
        });
    }
    found
}

/// Reports resource paths that are not relative or lead out of the skill's directory.
pub(super) fn check_resources(resources: &[&str]) -> Vec<Diagnostic> {
    let bad: Vec<&str> = resources
        .iter()
        .copied()
        .filter(|path| {
            path.contains('\\') || normalised_path(path).is_none_or(|path| path.is_empty())
        })
        .collect();
    if bad.is_empty() {
        return Vec::new();
    }
    vec![Diagnostic {
        rule: SkillRule::ResourcePath,
        severity: Severity::Error,
        line: None,
        message: format!(
            "Resource paths lead out of the skill's directory: `{}`.",
            bad.join("`, `")
        ),
        help: "Use relative paths without `..`.".into(),
    }]
}

/// The relative targets of inline links, without fragments and titles.
fn targets(body: &str) -> Vec<String> {
    let mut targets = Vec::new();
    let mut in_code = false;
    for line in body.lines() {
        let start = line.trim_start();
        if start.starts_with("```") || start.starts_with("~~~") {
            in_code = !in_code;
            continue;
        }
        if in_code {
            continue;
        }
        for (at, _) in line.match_indices("](") {
            let rest = line.get(at + 2..).unwrap_or_default();
            let Some((inner, _)) = rest.split_once(')') else {
                continue;
            };
            let target = inner.split_whitespace().next().unwrap_or_default();
            let target = target.trim_start_matches('<').trim_end_matches('>');
            let path = target.split(['#', '?']).next().unwrap_or_default();
            // A scheme, a fragment alone, or an escaped path: nothing that a list can answer.
            if !path.is_empty()
                && !path.contains([':', '%'])
                && !targets.iter().any(|known| known == path)
            {
                targets.push(path.to_owned());
            }
        }
    }
    targets
}

/// The path without `.` and `..`, or `None` when it leaves the directory.
fn normalised_path(path: &str) -> Option<String> {
    if path.starts_with('/') {
        return None;
    }
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

fn exists(path: &str, resources: &[&str]) -> bool {
    path.is_empty()
        || path == "SKILL.md"
        || resources.iter().any(|resource| {
            let resource = resource.trim_start_matches("./");
            resource
                .strip_prefix(path)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
}
