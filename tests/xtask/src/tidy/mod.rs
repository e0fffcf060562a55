//! The house rules that neither the compiler nor clippy knows, as one list.
//!
//! A rule looks at the whole tree and returns findings; each finding names its place, its
//! rule and what to do. `cargo xtask tidy` prints them, and a test of this crate fails on
//! them. Rules are about text and manifests: none needs a build.

mod call_path;
mod code_rules;
mod doc_comments;
mod docs;
mod folders;
mod links;
mod manifest_rules;
mod names;
mod private_names;
mod promises;
mod sentences;
mod text_rules;
mod tree;
mod words;

use anyhow::{Result, bail};

use crate::repo;
use tree::Tree;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Print the rules, each with its reason, and check nothing
    #[arg(long)]
    list: bool,
    /// Print the figures of the tree's structure, and check nothing
    #[arg(long)]
    figures: bool,
    /// With the figures: also the type names that are defined more than once, with their files
    #[arg(long, requires = "figures")]
    names: bool,
}

/// What the figure should be at most.
const MAX_FOLDERS: usize = 1;

/// One house rule.
struct Rule {
    /// How findings name it.
    name: &'static str,
    /// Why there is such a rule.
    reason: &'static str,
    check: fn(&Tree) -> Vec<Finding>,
}

/// One place where a rule is broken.
#[derive(Debug, PartialEq, Eq)]
struct Finding {
    /// File and, where it is known, line: `conjure-core/src/lib.rs:12`.
    location: String,
    /// What is wrong and what to do.
    message: String,
}

impl Finding {
    fn new(place: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            location: place.into(),
            message: message.into(),
        }
    }
}

const RULES: &[Rule] = &[
    Rule {
        name: "file-header",
        reason: "A file begins with two or three sentences: what it is, why it exists, what it does not do.",
        check: text_rules::file_header,
    },
    Rule {
        name: "file-length",
        reason: "One concept a file; a file that needs a table of contents is two files.",
        check: text_rules::file_length,
    },
    Rule {
        name: "nothing-unfinished",
        reason: "What is unfinished is an issue, not a remark in the code.",
        check: text_rules::nothing_unfinished,
    },
    Rule {
        name: "top-level",
        reason: "The top level holds what the design names, so that a stranger finds the way.",
        check: text_rules::top_level,
    },
    Rule {
        name: "no-machine-paths",
        reason: "The repository works wherever it is checked out.",
        check: text_rules::no_machine_paths,
    },
    Rule {
        name: "links-resolve",
        reason: "Documentation that points nowhere is worse than none.",
        check: links::links_resolve,
    },
    Rule {
        name: "pages-name-what-is-there",
        reason: "A page that names a file which is gone sends its reader looking.",
        check: docs::named_files_are_there,
    },
    Rule {
        name: "decisions-are-listed",
        reason: "A decision that no page lists is made a second time.",
        check: docs::decisions_are_listed,
    },
    Rule {
        name: "pages-for-authors-follow-each-other",
        reason: "Whoever writes a first plugin finds every page, and knows which one comes next.",
        check: docs::pages_of_the_book_follow_each_other,
    },
    Rule {
        name: "pictures-are-shown",
        reason: "A picture costs everybody who clones the repository; one that nobody sees is for nothing.",
        check: docs::pictures_are_shown,
    },
    Rule {
        name: "cases-have-tests",
        reason: "Tests are found by the numbers of the cases that they are named after.",
        check: docs::cases_have_tests,
    },
    Rule {
        name: "lints-silenced-with-reason",
        reason: "A silenced lint without a reason cannot be judged later.",
        check: code_rules::lints_silenced_with_reason,
    },
    Rule {
        name: "public-futures-are-boxed",
        reason: "The body of an `async fn` is compiled in each crate that awaits it, with all that it awaits itself.",
        check: code_rules::public_futures_are_boxed,
    },
    Rule {
        name: "no-ignored-tests",
        reason: "An ignored test is left out in silence; `LEFT OUT: <what>: <why>` is collected and told.",
        check: code_rules::no_ignored_tests,
    },
    Rule {
        name: "sentences-are-not-read",
        reason: "Words for people may change; what a program has to know is data.",
        check: sentences::sentences_are_not_read,
    },
    Rule {
        name: "doc-comments-name-the-thing",
        reason: "A reader who sees \"Why.\" above a field knows as much as before, and has to look for what \"it\" is.",
        check: doc_comments::doc_comments_name_the_thing,
    },
    Rule {
        name: "calls-go-the-listed-way",
        reason: "Whoever looks for why a call went wrong reads each function that it passes.",
        check: call_path::calls_go_the_listed_way,
    },
    Rule {
        name: "first-pages-say-where",
        reason: "A reader who opens a crate is told where to begin.",
        check: doc_comments::first_pages_say_where,
    },
    Rule {
        name: "core-is-pure",
        reason: "conjure-core does no I/O, reads no clock, spawns nothing and draws no random numbers.",
        check: code_rules::core_is_pure,
    },
    Rule {
        name: "core-dependencies",
        reason: "A dependency that does I/O would bring it into conjure-core.",
        check: manifest_rules::core_dependencies,
    },
    Rule {
        name: "wire-types-stay-home",
        reason: "A provider's wire types never leave its folder: the rest knows the canonical chat only.",
        check: code_rules::wire_types_stay_home,
    },
    Rule {
        name: "no-folder-cycles",
        reason: "A reader takes a crate folder by folder; two that know each other are one.",
        check: folders::no_folder_cycles,
    },
    Rule {
        name: "names-are-defined-once",
        reason: "A name that two types have makes a reader ask which one is meant.",
        check: names::names_are_defined_once,
    },
    Rule {
        name: "names-say-what-a-thing-is",
        reason: "A reader knows the field's words, and no private ones.",
        check: private_names::names_say_what_a_thing_is,
    },
    Rule {
        name: "host-layers",
        reason: "Arrows between the crates of the host go down only, and no face knows another one.",
        check: folders::host_layers,
    },
    Rule {
        name: "sdk-stands-alone",
        reason: "A plugin's author gets neither the core nor the host, and no plugin needs the host.",
        check: manifest_rules::sdk_stands_alone,
    },
    Rule {
        name: "abi-is-small",
        reason: "What conjure-abi depends on is frozen with it.",
        check: manifest_rules::abi_is_small,
    },
    Rule {
        name: "dependencies-are-used",
        reason: "A dependency that nothing uses is built, checked and updated for nothing.",
        check: manifest_rules::dependencies_are_used,
    },
    Rule {
        name: "readme-names-rust",
        reason: "The README, Cargo.toml and CI have one answer to which Rust is needed.",
        check: manifest_rules::readme_names_rust,
    },
    Rule {
        name: "host-files-by-wrapper",
        reason: "Errors of conjure_config::fs name the file; those of std::fs do not.",
        check: code_rules::host_files_by_wrapper,
    },
    Rule {
        name: "unsafe-has-known-homes",
        reason: "Only the loader, the SDK's export, what attacks them in tests, and changing the environment need unsafe code; there it is reviewed.",
        check: code_rules::unsafe_has_known_homes,
    },
    Rule {
        name: "promises-have-tests",
        reason: "A promise about security that no test keeps is a hope.",
        check: promises::promises_have_tests,
    },
];

/// The command: all findings, or the rules themselves.
pub(crate) fn run(args: &Args) -> Result<()> {
    if args.list {
        RULES
            .iter()
            .for_each(|rule| println!("{}\n    {}", rule.name, rule.reason));
        return Ok(());
    }
    if args.figures {
        let tree = Tree::read(&repo::root())?;
        let (folders, source) = folders::largest_cycle(&tree);
        println!(
            "folders of a crate in one cycle, largest: {folders} ({source}); at most {MAX_FOLDERS}"
        );
        let repeated = names::defined_more_than_once(&tree);
        println!(
            "type names defined more than once, outside tests: {}",
            repeated.len()
        );
        let (functions, files) = call_path::length();
        println!(
            "functions from a decoded call to the plugin's object: {functions} in {files} files; at \
             most {} in {}",
            call_path::MAX_FUNCTIONS,
            call_path::MAX_FILES
        );
        if args.names {
            for (name, files) in repeated {
                println!("    {name}: {}", files.join(", "));
            }
        }
        return Ok(());
    }
    check()
}

/// Checks this repository.
///
/// # Errors
/// When a rule is broken; what and where has been printed.
pub(crate) fn check() -> Result<()> {
    let tree = Tree::read(&repo::root())?;
    let findings = findings(&tree);
    for finding in &findings {
        println!("{finding}");
    }
    match findings.len() {
        0 => {
            eprintln!(
                "{} house rules hold in {} files.",
                RULES.len(),
                tree.files.len()
            );
            Ok(())
        }
        1 => bail!("1 house rule is broken; `cargo xtask tidy --list` tells why it is one"),
        count => {
            bail!("{count} places break house rules; `cargo xtask tidy --list` tells why they are")
        }
    }
}

/// All findings, as lines, in the order of the rules.
fn findings(tree: &Tree) -> Vec<String> {
    let lines = |rule: &Rule| -> Vec<String> {
        let found = (rule.check)(tree);
        let line = |f: Finding| format!("{}: [{}] {}", f.location, rule.name, f.message);
        found.into_iter().map(line).collect()
    };
    RULES.iter().flat_map(lines).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_repository_keeps_its_house_rules() {
        let tree = Tree::read(&repo::root()).unwrap();
        assert!(
            tree.files.len() > 20,
            "tidy looked at {} files only",
            tree.files.len()
        );
        let findings = findings(&tree);
        assert!(
            findings.is_empty(),
            "house rules are broken:\n{}",
            findings.join("\n")
        );
    }

    #[test]
    fn a_finding_names_place_rule_and_remedy() {
        let tree = Tree::of(&[("conjure-core/src/a.rs", "fn a() {}\n")]);
        let findings = findings(&tree);
        assert_eq!(
            findings,
            [
                "conjure-core/src/a.rs:1: [file-header] begins without `//!`; say what this file is, why it exists, what it does not do"
            ]
        );
    }
}
