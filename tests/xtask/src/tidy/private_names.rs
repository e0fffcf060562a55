//! Names that say how somebody spoke of a thing and not what it is.
//!
//! A function, a module or a field called `told` or `place` makes a reader look up what was told, and where. The
//! glossary has the field's word for it. Looks at their definitions outside tests.

use super::Finding;
use super::names::serves_tests;
use super::tree::{File, Tree};

/// Names that no definition has, and what to think of instead.
const PRIVATE: [(&str, &str); 20] = [
    ("ahead", "what is there before what"),
    ("around", "what encloses what"),
    ("aside", "where it goes"),
    ("asked", "a request, or what it is about"),
    ("brought", "what it is: a file, a plugin, a state"),
    ("cues", "hints, or events"),
    ("door", "a face, an endpoint, a listener"),
    ("handed", "what it is: a value, an argument"),
    ("heard", "a message, an answer"),
    ("keeper", "an owner, an actor, a lock"),
    ("meant", "the target, the intent"),
    ("once", "an idempotency key, a latch"),
    ("outlook", "a view, a forecast"),
    ("place", "a path, a position, a location, a slot"),
    ("said", "a message, a line of output, a reason"),
    ("tell", "notify, print, report"),
    ("told", "a message, whether it is reported"),
    ("underway", "running, in progress"),
    ("whole", "complete, the full text"),
    ("whom", "a recipient, a client"),
];

/// Definitions that have such a name for a reason: a file, the name, and why.
const KEPT: [(&str, &str, &str); 5] = [
    ("conjure-core/src/log/entry.rs", "place", "stands in logs"),
    ("conjure-core/src/log/reason.rs", "said", "stands in logs"),
    (
        "conjure-host/cli/src/plugin_package.rs",
        "place",
        "the help shows it",
    ),
    (
        "plugins/backend-anthropic/src/session.rs",
        "brought",
        "stands in logs",
    ),
    (
        "conjure-host/cli/src/plugin_test_process.rs",
        "place",
        "is said to another process",
    ),
];

pub(crate) fn names_say_what_a_thing_is(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.rust().filter(|file| !serves_tests(file)) {
        for (number, name) in definitions(&file.shipped) {
            let private = PRIVATE.iter().find(|(private, _)| *private == name);
            let Some((name, instead)) = private.filter(|_| !is_kept(file, name)) else {
                continue;
            };
            let message = format!(
                "`{name}` says nothing of what it is; think of {instead} (`conjure-core/docs/glossary.md`)"
            );
            findings.push(Finding::new(format!("{}:{number}", file.path), message));
        }
    }
    findings
}

fn is_kept(file: &File, name: &str) -> bool {
    KEPT.iter()
        .any(|(path, kept, _)| *path == file.path && *kept == name)
}

/// The functions, modules and fields that a file defines, with their lines.
fn definitions(code: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    // The indentation of the struct or enum whose fields the lines are.
    let mut fields_of: Option<usize> = None;
    for (number, line) in code.lines().enumerate() {
        let words = unqualified(line);
        let indentation = line.len() - line.trim_start().len();
        let item = ["fn ", "mod "]
            .iter()
            .find_map(|keyword| words.strip_prefix(keyword));
        let is_type = ["struct ", "enum ", "union "]
            .iter()
            .any(|keyword| words.starts_with(keyword));
        let named: Vec<&str> = match (item, fields_of) {
            (Some(item), _) => vec![item],
            // A field of the type, and those of a variant that stands on one line.
            (None, Some(_)) => words.split(['{', ',']).map(str::trim_start).collect(),
            (None, None) => Vec::new(),
        };
        for words in named {
            let end = words.find(|c: char| !c.is_alphanumeric() && c != '_');
            let (name, behind) = words.split_at(end.unwrap_or_default());
            if !name.is_empty() && (item.is_some() || behind.starts_with(": ")) {
                found.push((number + 1, name));
            }
        }
        if is_type && line.trim_end().ends_with('{') {
            fields_of = fields_of.or(Some(indentation));
        } else if line.trim_end()
            == format!("{:fields$}}}", "", fields = fields_of.unwrap_or_default())
        {
            fields_of = None;
        }
    }
    found
}

/// A line from the keyword or the name of what it defines on.
fn unqualified(line: &str) -> &str {
    let words = line.trim_start();
    let behind_scope = words
        .strip_prefix("pub")
        .and_then(|rest| match rest.strip_prefix('(') {
            Some(scope) => scope.split_once(") ").map(|(_, rest)| rest),
            None => rest.strip_prefix(' '),
        });
    let mut words = behind_scope.unwrap_or(words);
    for qualifier in ["const ", "async ", "unsafe "] {
        words = words.strip_prefix(qualifier).unwrap_or(words);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_modules_and_fields_are_definitions_and_parameters_and_values_are_none() {
        let code = "mod once;\npub(crate) struct A {\n    /// A field.\n    pub said: String,\n    b: u8,\n}\n\
                    enum C {\n    D {\n        place: u8,\n    },\n    E { a: u8, whole: bool },\n}\n\
                    pub(super) async fn told(\n    whom: &str,\n) {\n    let a = A {\n        said: x,\n    };\n}\n";
        let names: Vec<_> = definitions(code)
            .into_iter()
            .map(|(_, name)| name)
            .collect();
        assert_eq!(names, ["once", "said", "b", "place", "a", "whole", "told"]);
        let tree = Tree::of(&[("a/src/lib.rs", code), ("a/src/tests.rs", code)]);
        let found: Vec<_> = names_say_what_a_thing_is(&tree)
            .into_iter()
            .map(|it| it.location)
            .collect();
        assert_eq!(
            found,
            [
                "a/src/lib.rs:1",
                "a/src/lib.rs:4",
                "a/src/lib.rs:9",
                "a/src/lib.rs:11",
                "a/src/lib.rs:13"
            ]
        );
    }
}
