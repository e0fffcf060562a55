//! Rules about the pages: what they name is there, and every decision and every page of the book is
//! listed.

use std::collections::{BTreeMap, BTreeSet};

use super::Finding;
use super::tree::{File, Tree};
use super::words::occurrences;

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
                (false, true) => is_path_suffix(tree, name),
                (false, false) => continue,
            };
            if !is_there {
                let message = format!("names `{name}`, which is not there; mend the page");
                findings.push(Finding::new(file.location(at), message));
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

/// Where the pages for authors are, and which of them lists the others.
const BOOK: (&str, &str) = ("skill-sdk/docs/", "README.md");

pub(crate) fn pages_of_the_book_follow_each_other(tree: &Tree) -> Vec<Finding> {
    let (directory, list) = BOOK;
    let pages: BTreeMap<&str, &str> = tree
        .files
        .iter()
        .filter_map(|file| Some((file.path.strip_prefix(directory)?, file.text.as_str())))
        .filter(|(name, _)| name.ends_with(".md") && !name.contains('/'))
        .collect();
    let Some(listed) = pages.get(list) else {
        let has_pages = !pages.is_empty();
        let missing = || Finding::new(format!("{directory}{list}"), "is missing; list all pages");
        return has_pages.then(missing).into_iter().collect();
    };
    let order: Vec<&str> = listed.lines().filter_map(numbered_page).collect();
    let mut findings = Vec::new();
    for name in pages.keys().filter(|name| **name != list) {
        if !order.contains(name) {
            let message = format!("does not list `{name}` with a number; say where it is read");
            findings.push(Finding::new(format!("{directory}{list}"), message));
        }
    }
    for (at, name) in order.iter().enumerate() {
        // The last one leads back to the list.
        let next = order.get(at + 1).copied().unwrap_or(list);
        let text = pages.get(name).copied().unwrap_or_default();
        let end = text.trim_end().lines().next_back().unwrap_or_default();
        if !end.contains(&format!("]({next})")) {
            let message = format!("does not end with a link to `{next}`, the page that follows it");
            findings.push(Finding::new(format!("{directory}{name}"), message));
        }
    }
    findings
}

/// The page that a line of a numbered list begins with: `a.md` of `1. [A](a.md): …`.
fn numbered_page(line: &str) -> Option<&str> {
    let (number, entry) = line.split_once(". [")?;
    number.parse::<u32>().ok()?;
    let (_, link) = entry.split_once("](")?;
    link.split_once(')').map(|(page, _)| page)
}

/// The page that shows pictures, and the most bytes of one.
const PICTURE_PAGE: (&str, usize) = ("README.md", 150 * 1024);

pub(crate) fn pictures_are_shown(tree: &Tree) -> Vec<Finding> {
    let (page, most) = PICTURE_PAGE;
    let page = tree.files.iter().find(|file| file.path == page);
    let mut findings = Vec::new();
    for (path, bytes) in &tree.pictures {
        // What tests compare with is shown nowhere.
        if !path.starts_with("tests/")
            && !page.is_some_and(|page| page.text.contains(path.as_str()))
        {
            let message = "no picture that `README.md` shows; show it there, or remove it";
            findings.push(Finding::new(path, message));
        }
        if *bytes > most {
            let message = format!("has {bytes} bytes, and a picture has {most} at most");
            findings.push(Finding::new(path, message));
        }
    }
    findings
}

/// The page that lists the numbered cases, and what their numbers begin with.
const CASES: (&str, [&str; 5]) = ("tests/parity/CASES.md", ["p", "b", "h", "w", "trap"]);

pub(crate) fn cases_have_tests(tree: &Tree) -> Vec<Finding> {
    let (page, kinds) = CASES;
    let list = tree.files.iter().find(|file| file.path == page);
    let lines = list.into_iter().flat_map(|list| list.text.lines());
    let listed: BTreeSet<String> = lines
        .filter_map(|line| line.strip_prefix("- **")?.split("**").next())
        .map(str::to_ascii_lowercase)
        .collect();
    let mut tested = BTreeMap::new();
    for file in tree.rust() {
        for at in occurrences(&file.code, "fn ") {
            let rest = file.code.get(at + 3..).unwrap_or_default();
            let name = rest.split(['(', '<']).next().unwrap_or_default();
            // A test may be of several cases.
            for part in name.split('_') {
                let Some(case) = case(part, &kinds) else {
                    break;
                };
                tested.entry(case).or_insert_with(|| file.location(at));
            }
        }
    }
    let without_test = listed.iter().filter(|case| !tested.contains_key(*case));
    let findings = without_test.map(|case| {
        let message = format!("lists the case {case}, which no test is named after");
        Finding::new(page, message)
    });
    let unknown = tested.iter().filter(|(case, _)| !listed.contains(*case));
    let unknown = unknown.map(|(case, place)| {
        let message = format!("is named after the case {case}, which {page} does not list");
        Finding::new(place, message)
    });
    findings.chain(unknown).collect()
}

/// The case that a part of a name stands for, with its number as it is listed: `w5` of `w05`.
fn case(part: &str, kinds: &[&str]) -> Option<String> {
    let digits = part.find(|sign: char| sign.is_ascii_digit())?;
    let (kind, number) = part.split_at(digits);
    let number: u32 = number.parse().ok()?;
    kinds.contains(&kind).then(|| format!("{kind}{number}"))
}

/// Whether a file's path ends with this, at a boundary between names.
fn is_path_suffix(tree: &Tree, name: &str) -> bool {
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
            .map(|finding| finding.location)
            .collect();
        assert_eq!(places, ["page.md:6", "page.md:6", "page.md:7"]);
    }

    #[test]
    fn a_case_without_a_test_and_a_test_without_a_case_are_found() {
        let tree = Tree::of(&[
            (
                CASES.0,
                "# Cases\n- **P1** One.\n- **W5** Five.\n- **H2** Two.\n",
            ),
            (
                "a.rs",
                "//! A.\nfn p1_w05_x() {}\nasync fn b3_y() {}\nfn w_5() {}\nfn u8_z() {}\n",
            ),
        ]);
        let findings = cases_have_tests(&tree);
        let places: Vec<&str> = findings.iter().map(|one| one.location.as_str()).collect();
        assert_eq!(places, [CASES.0, "a.rs:3"], "{findings:?}");
        assert!(findings[0].message.contains("h2") && findings[1].message.contains("b3"));
    }

    #[test]
    fn a_picture_that_is_not_shown_or_too_large_is_found() {
        let mut tree = Tree::of(&[("README.md", "![The page](docs/one.png)\n")]);
        tree.pictures = vec![
            ("docs/one.png".to_owned(), PICTURE_PAGE.1),
            ("docs/two.png".to_owned(), PICTURE_PAGE.1 + 1),
            ("tests/three.png".to_owned(), 1),
        ];
        let findings = pictures_are_shown(&tree);
        let places: Vec<&str> = findings.iter().map(|one| one.location.as_str()).collect();
        assert_eq!(places, ["docs/two.png", "docs/two.png"]);
    }

    #[test]
    fn a_page_of_the_book_that_is_not_listed_or_has_no_way_on_is_found() {
        let list = "# Book\n\n1. [A](a.md): a.\n2. [B](b.md): b.\n3. [C](c.md)\n\n[D](d.md)\n";
        let tree = Tree::of(&[
            ("skill-sdk/docs/README.md", list),
            ("skill-sdk/docs/a.md", "# A\n\nNext: [B](b.md).\n"),
            ("skill-sdk/docs/b.md", "# B\n\nNext: [C](c.md).\n\nMore.\n"),
            (
                "skill-sdk/docs/c.md",
                "# C\n\nBack: [the first](README.md).\n",
            ),
            ("skill-sdk/docs/d.md", "# D\n"),
            ("skill-sdk/docs/public-api/e.txt", "e\n"),
        ]);
        let findings = pages_of_the_book_follow_each_other(&tree);
        let places: Vec<&str> = findings.iter().map(|one| one.location.as_str()).collect();
        let expected = ["skill-sdk/docs/README.md", "skill-sdk/docs/b.md"];
        assert_eq!(places, expected, "{findings:?}");
        let without_list = Tree::of(&[("skill-sdk/docs/a.md", "# A\n")]);
        assert_eq!(pages_of_the_book_follow_each_other(&without_list).len(), 1);
        assert!(pages_of_the_book_follow_each_other(&Tree::of(&[])).is_empty());
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
