//! Doc comments that name nothing, a question word or a pronoun in the place of the thing or at its
//! beginning, and first pages of crates that do not say where to begin.

use super::{
    Finding,
    tree::{File, Tree},
};

/// What says nothing when it stands alone.
const EMPTY: [&str; 18] = [
    "why",
    "which",
    "where",
    "what",
    "who",
    "whose",
    "when",
    "how",
    "it",
    "this",
    "that",
    "these",
    "those",
    "them",
    "so many",
    "as there",
    "how it is",
    "how it is with it",
];

/// Beginnings of a doc comment that stand for the thing and do not name it.
const PRONOUNS: [&str; 26] = [
    "It ",
    "Its ",
    "They ",
    "Their ",
    "Them ",
    "Those ",
    "The same ",
    "The same,",
    "The same.",
    "How it is",
    "How they are",
    "Whom ",
    "Whose ",
    "Which ",
    "Of ",
    "In which ",
    "To whom ",
    "For whom ",
    "Since when",
    "Until when",
    "Why not.",
    "Why not,",
    "Why not ",
    "Where it ",
    "What it is",
    "And ",
];

/// Where texts stay as they are: they are part of what is frozen.
const FROZEN: &str = "skill-sdk/src/protocol/";

/// What begins like a pronoun and is the words for an argument of a tool, in examples.
const EXAMPLE: &str = "Whom to greet";

pub(crate) fn doc_comments_name_the_thing(tree: &Tree) -> Vec<Finding> {
    let empty = tree.rust().flat_map(empty_comments);
    let of_ours = |file: &&File| !file.path.starts_with(FROZEN);
    empty
        .chain(tree.rust().filter(of_ours).flat_map(pronouns_first))
        .collect()
}

/// How a first page says where to begin.
const BEGINNINGS: [&str; 2] = ["Begin at", "is the way in"];

/// Crates whose first page tells an author how to use it, and plugins that are an example or a test.
const NO_BEGINNING: [&str; 3] = ["skill-sdk/src/", "plugins/skill-", "plugins/misbehaving/"];

pub(crate) fn first_pages_say_where(tree: &Tree) -> Vec<Finding> {
    let is_page = |file: &&File| {
        let path = &file.path;
        let crates = ["conjure-core/", "conjure-host/", "plugins/", "skill-sdk/"];
        path.ends_with("/src/lib.rs")
            && crates.iter().any(|start| path.starts_with(start))
            && !NO_BEGINNING.iter().any(|start| path.starts_with(start))
            && !file.is_test()
            && !path.contains("/examples/")
    };
    let says_where = |file: &&File| {
        let lines = file.text.lines().map_while(|line| line.strip_prefix("//!"));
        let page = lines.map(str::trim).collect::<Vec<_>>().join(" ");
        BEGINNINGS.iter().any(|words| page.contains(words))
    };
    let silent = tree.rust().filter(is_page).filter(|file| !says_where(file));
    let message =
        "the first page does not say where to begin; add `Begin at` with a file or an item";
    silent
        .map(|file| Finding::new(file.location(0), message))
        .collect()
}

fn empty_comments(file: &File) -> Vec<Finding> {
    let finding = |(at, text): (usize, String)| {
        let words = text.trim_end_matches(['.', '?', ':']).to_lowercase();
        EMPTY.contains(&words.as_str()).then(|| {
            let message = format!("says only \"{text}\"; name the thing, and what it is for");
            Finding::new(file.location(at), message)
        })
    };
    paragraphs(file).into_iter().filter_map(finding).collect()
}

/// Doc comments whose first sentence begins with a pronoun, a question word or an "of".
fn pronouns_first(file: &File) -> Vec<Finding> {
    let mut findings = Vec::new();
    let (mut at, mut goes_on) = (0, false);
    for line in file.text.split_inclusive('\n') {
        let text = doc_text(line);
        if let Some(text) = text.filter(|_| !goes_on)
            && !text.starts_with(EXAMPLE)
            && let Some(pronoun) = PRONOUNS.iter().find(|word| text.starts_with(**word))
        {
            let message = format!(
                "begins with \"{}\"; begin with the thing itself: \"{text}\"",
                pronoun.trim()
            );
            findings.push(Finding::new(file.location(at), message));
        }
        goes_on = text.is_some();
        at += line.len();
    }
    findings
}

/// The paragraphs of a file's doc comments, each with where it begins. A heading is none.
fn paragraphs(file: &File) -> Vec<(usize, String)> {
    let mut paragraphs: Vec<(usize, String)> = Vec::new();
    let (mut at, mut goes_on) = (0, false);
    for line in file.text.split_inclusive('\n') {
        let text = doc_text(line).filter(|text| !text.is_empty() && !text.starts_with('#'));
        if let Some(text) = text {
            match paragraphs.last_mut().filter(|_| goes_on) {
                Some((_, paragraph)) => *paragraph = format!("{paragraph} {text}"),
                None => paragraphs.push((at, text.to_owned())),
            }
        }
        goes_on = text.is_some();
        at += line.len();
    }
    paragraphs
}

/// What a line of a doc comment says; nothing for any other line.
fn doc_text(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let text = line
        .strip_prefix("///")
        .or_else(|| line.strip_prefix("//!"))?;
    (!text.starts_with('/')).then(|| text.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_first_page_that_does_not_say_where_to_begin_is_found() {
        let tree = Tree::of(&[
            (
                "conjure-host/a/src/lib.rs",
                "//! A.\n//!\n//! It is small. Begin\n//! at `b.rs`.\n",
            ),
            (
                "conjure-host/b/src/lib.rs",
                "//! B.\n\n// Begin at `c.rs`.\n",
            ),
            ("plugins/skill-c/src/lib.rs", "//! C.\n"),
            ("conjure-host/a/src/b.rs", "//! B.\n"),
        ]);
        let findings = first_pages_say_where(&tree);
        let places: Vec<&str> = findings
            .iter()
            .map(|found| found.location.as_str())
            .collect();
        assert_eq!(places, ["conjure-host/b/src/lib.rs:1"]);
    }

    #[test]
    fn a_comment_that_begins_with_a_pronoun_is_found_and_later_sentences_are_not() {
        let text = "//! The same for one.\n\n\
                    struct A {\n    /// Whom it asks.\n    a: u8,\n    /// Items of a list.\n\
                    \x20   /// Of them the newest stay.\n    b: u8,\n    /// Whom to greet\n    c: u8,\n}\n";
        let paths = ["a.rs", "skill-sdk/src/protocol/a.rs"];
        let tree = Tree::of(&paths.map(|path| (path, text)));
        let findings = doc_comments_name_the_thing(&tree);
        let places: Vec<&str> = findings
            .iter()
            .map(|found| found.location.as_str())
            .collect();
        assert_eq!(places, ["a.rs:1", "a.rs:4"]);
    }

    #[test]
    fn a_paragraph_of_one_question_word_or_pronoun_is_found_and_one_that_goes_on_is_not() {
        let text = "//! Where.\n\n\
                    struct A {\n    /// Why.\n    a: u8,\n    /// Why it failed.\n    b: u8,\n\
                    \x20   /// Where\n    /// it lies.\n    c: u8,\n}\n\
                    //// Why.\n// Why.\n\
                    /// Reads one.\n///\n/// # Errors\n/// As there.\nfn d() {}\n\
                    /// How it is with it.\nfn e() {}\n";
        let tree = Tree::of(&[("a.rs", text), ("b.md", "/// Why.\n")]);
        let findings: Vec<Finding> = tree.rust().flat_map(empty_comments).collect();
        let places: Vec<&str> = findings
            .iter()
            .map(|found| found.location.as_str())
            .collect();
        assert_eq!(places, ["a.rs:1", "a.rs:4", "a.rs:17", "a.rs:19"]);
    }
}
