//! Rules about files as text: their beginning, length, place, and what they mention.

use super::{Finding, tree::Tree, words::occurrences};

/// The longest file that is still one concept.
const MAX_LINES: usize = 600;

/// What the top level may hold.
const TOP_LEVEL: [&str; 17] = [
    ".cargo",
    ".ci",
    ".clippy.toml",
    ".config",
    ".deny.toml",
    ".github",
    ".gitignore",
    ".rustfmt.toml",
    "Cargo.lock",
    "Cargo.toml",
    "LICENSE",
    "README.md",
    "conjure-core",
    "conjure-host",
    "plugins",
    "skill-sdk",
    "tests",
];

pub(crate) fn file_header(tree: &Tree) -> Vec<Finding> {
    let without = tree.rust().filter(|file| !file.text.starts_with("//!"));
    without
        .map(|file| {
            let message =
                "begins without `//!`; say what this file is, why it exists, what it does not do";
            Finding::new(file.location(0), message)
        })
        .collect()
}

pub(crate) fn file_length(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.rust() {
        let lines = file.text.lines().count();
        if lines > MAX_LINES {
            let message = format!("{lines} lines, more than {MAX_LINES}; split it by concept");
            findings.push(Finding::new(&file.path, message));
        }
    }
    findings
}

pub(crate) fn nothing_unfinished(tree: &Tree) -> Vec<Finding> {
    // Put together here, so that this file does not find itself.
    let remarks = [
        concat!("TO", "DO"),
        concat!("FIX", "ME"),
        concat!("XX", "X"),
    ];
    let macros = [
        concat!("dbg", "!"),
        concat!("todo", "!"),
        concat!("unimplemented", "!"),
    ];
    let mut findings = Vec::new();
    for file in &tree.files {
        let is_script = [".sh", ".awk", "/run"]
            .iter()
            .any(|end| file.path.ends_with(end));
        if file.is_rust() || is_script {
            for word in remarks {
                for at in occurrences(&file.text, word) {
                    let message =
                        format!("`{word}`; finish it, or file an issue and take the remark out");
                    findings.push(Finding::new(file.location(at), message));
                }
            }
        }
        for word in macros {
            for at in occurrences(&file.code, word) {
                let message = format!("`{word}` is for the time of writing; take it out");
                findings.push(Finding::new(file.location(at), message));
            }
        }
    }
    findings
}

pub(crate) fn top_level(tree: &Tree) -> Vec<Finding> {
    let mut others: Vec<_> = tree
        .files
        .iter()
        .filter_map(|file| file.path.split('/').next())
        .filter(|name| !TOP_LEVEL.contains(name))
        .collect();
    others.dedup();
    others
        .into_iter()
        .map(|name| {
            let message =
                "is not named by the design for the top level; put it beside what it belongs to";
            Finding::new(name, message)
        })
        .collect()
}

pub(crate) fn no_machine_paths(tree: &Tree) -> Vec<Finding> {
    let roots = [concat!("/wo", "rk/"), concat!("/ro", "ot/")];
    let mut findings = Vec::new();
    for file in tree.files.iter().filter(|file| file.path != "Cargo.lock") {
        for root in roots {
            for (at, _) in file.text.match_indices(root) {
                let before = file
                    .text
                    .get(..at)
                    .and_then(|text| text.chars().next_back());
                // Inside a longer path it is not at the root: `target/demo/…`, `{dir}/…`.
                let inside = |sign: char| sign.is_alphanumeric() || "_-.}*>~)]".contains(sign);
                if !before.is_some_and(inside) {
                    let message = format!(
                        "names `{root}…`, a path of one machine; make it relative or let the environment tell"
                    );
                    findings.push(Finding::new(file.location(at), message));
                }
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(findings: Vec<Finding>) -> Vec<String> {
        findings
            .into_iter()
            .map(|finding| finding.location)
            .collect()
    }

    #[test]
    fn a_header_must_be_the_first_thing() {
        let tree = Tree::of(&[
            ("a.rs", "//! A.\n"),
            ("b.rs", "use x;\n//! B.\n"),
            ("c.md", "C"),
        ]);
        assert_eq!(places(file_header(&tree)), ["b.rs:1"]);
    }

    #[test]
    fn a_file_may_have_600_lines_and_no_more() {
        let (fits, too_long) = ("//! x\n".repeat(600), "//! x\n".repeat(601));
        let tree = Tree::of(&[("fits.rs", &fits), ("long.rs", &too_long)]);
        assert_eq!(places(file_length(&tree)), ["long.rs"]);
    }

    #[test]
    fn unfinished_work_is_found_in_comments_and_code_but_not_in_prose() {
        let remark = format!(
            "//! A.\n// {}: later\nfn a() {{ {}() }}\n",
            concat!("TO", "DO"),
            concat!("dbg", "!")
        );
        let prose = format!(
            "//! About the macro {}\nconst A: &str = \"{}\";\n",
            concat!("dbg", "!"),
            concat!("todo", "!")
        );
        let tree = Tree::of(&[("a.rs", &remark), ("b.rs", &prose)]);
        assert_eq!(places(nothing_unfinished(&tree)), ["a.rs:2", "a.rs:3"]);
    }

    #[test]
    fn the_top_level_is_closed() {
        let tree = Tree::of(&[
            ("Cargo.toml", ""),
            ("notes.md", ""),
            ("scripts/a.sh", ""),
            ("tests/a.rs", "//!"),
        ]);
        assert_eq!(places(top_level(&tree)), ["notes.md", "scripts"]);
    }

    #[test]
    fn paths_of_one_machine_are_found_at_their_beginning_only() {
        let bad = format!(
            "a\nsee {}x and \"{}y\"",
            concat!("/wo", "rk/"),
            concat!("/ro", "ot/")
        );
        let good = format!(
            "target/demo{}x ${{dir}}{}y",
            concat!("/wo", "rk/"),
            concat!("/wo", "rk/")
        );
        let tree = Tree::of(&[("a.md", &bad), ("b.md", &good)]);
        assert_eq!(places(no_machine_paths(&tree)), ["a.md:2", "a.md:2"]);
    }
}
