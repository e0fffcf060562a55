//! Rules about the pages: what they name is there, and every decision is listed.

use super::Finding;
use super::tree::{File, Tree};

/// The directories of the top level that a page may name files of.
const TOP: [&str; 5] = [
    "conjure-core/",
    "conjure-host/",
    "plugins/",
    "skill-sdk/",
    "tests/",
];

/// The page that lists the decisions, and where they are.
const DECISIONS: (&str, &str) = (
    "conjure-core/docs/architecture.md",
    "conjure-core/docs/adr/",
);

pub(crate) fn named_files_are_there(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.files.iter().filter(|file| file.path.ends_with(".md")) {
        for (at, name) in code_spans(file) {
            if name.contains([' ', '<', '*', '…', '{', '$', '=']) {
                continue;
            }
            let from_root = TOP.iter().any(|top| name.starts_with(top));
            let is_there = match (from_root, name.ends_with(".rs")) {
                (true, _) => tree.has(name.trim_end_matches('/')),
                (false, true) => ends_a_path(tree, name),
                (false, false) => continue,
            };
            if !is_there {
                let message = format!("names `{name}`, which is not there; mend the page");
                findings.push(Finding::new(file.place(at), message));
            }
        }
    }
    findings
}

pub(crate) fn decisions_are_listed(tree: &Tree) -> Vec<Finding> {
    let (page, directory) = DECISIONS;
    let list = tree.files.iter().find(|file| file.path == page);
    let decisions = tree
        .files
        .iter()
        .filter_map(|file| file.path.strip_prefix(directory));
    decisions
        .filter(|name| !list.is_some_and(|list| list.text.contains(&format!("(adr/{name})"))))
        .map(|name| Finding::new(page, format!("does not list the decision `adr/{name}`")))
        .collect()
}

/// Whether a file's path ends with this, at a boundary between names.
fn ends_a_path(tree: &Tree, name: &str) -> bool {
    let below = format!("/{name}");
    tree.files
        .iter()
        .any(|file| file.path == name || file.path.ends_with(&below))
}

/// What stands between two backticks on one line, outside of fenced blocks.
fn code_spans(file: &File) -> Vec<(usize, &str)> {
    let mut spans = Vec::new();
    let (mut at, mut is_fenced) = (0, false);
    for line in file.text.split_inclusive('\n') {
        if line.trim_start().starts_with("```") {
            is_fenced = !is_fenced;
        } else if !is_fenced {
            let mut start = at;
            for (index, part) in line.split('`').enumerate() {
                if index % 2 == 1 {
                    spans.push((start, part));
                }
                start += part.len() + 1;
            }
        }
        at += line.len();
    }
    spans
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_that_names_a_file_which_is_gone_is_found() {
        let page = "`a.rs` `b/c.rs` `c.rs`\n`conjure-core/src/d.rs` `conjure-core/src/`\n\
                    ```\n`gone.rs`\n```\n`gone.rs` `x/c.rs`\n`conjure-core/gone`\n";
        let tree = Tree::of(&[
            ("page.md", page),
            ("a.rs", "//! A.\n"),
            ("x/b/c.rs", "//! C.\n"),
            ("conjure-core/src/d.rs", "//! D.\n"),
        ]);
        let places: Vec<String> = named_files_are_there(&tree)
            .into_iter()
            .map(|finding| finding.place)
            .collect();
        assert_eq!(places, ["page.md:6", "page.md:6", "page.md:7"]);
    }

    #[test]
    fn a_decision_that_no_page_lists_is_found() {
        let tree = Tree::of(&[
            (DECISIONS.0, "- [1. A](adr/0001-a.md)\n"),
            ("conjure-core/docs/adr/0001-a.md", "# 1. A\n"),
            ("conjure-core/docs/adr/0002-b.md", "# 2. B\n"),
        ]);
        let messages: Vec<String> = decisions_are_listed(&tree)
            .into_iter()
            .map(|finding| finding.message)
            .collect();
        assert_eq!(messages, ["does not list the decision `adr/0002-b.md`"]);
    }
}
