//! Code that reads sentences which were written for people.

use std::collections::HashMap;

use super::{
    Finding,
    tree::{File, Tree},
    words::occurrences,
};

/// Ways to look for a text in another.
const READERS: [&str; 8] = [
    ".starts_with(",
    ".ends_with(",
    ".contains(",
    ".strip_prefix(",
    ".strip_suffix(",
    ".split_once(",
    ".find(",
    ".trim_start_matches(",
];

/// Where sentences are read that others wrote, so nothing else tells the reason, and the one file
/// that knows what this program wrote before it had reasons.
const READ_THERE: [&str; 4] = [
    "conjure-core/src/wire/",
    "conjure-host/packages/src/docker_auth.rs",
    "conjure-host/plugins/src/worker/end.rs",
    "conjure-core/src/replay/old_sentences.rs",
];

pub(crate) fn sentences_are_not_read(tree: &Tree) -> Vec<Finding> {
    let of_host = |file: &&File| {
        let path = &file.path;
        (path.starts_with("conjure-core/src/") || path.starts_with("conjure-host/"))
            && !file.is_test()
            && !READ_THERE.iter().any(|place| path.starts_with(place))
    };
    let constants: HashMap<&str, &str> = tree.rust().filter(of_host).flat_map(constants).collect();
    let mut findings = Vec::new();
    for file in tree.rust().filter(of_host) {
        for reader in READERS {
            for at in occurrences(&file.shipped, reader) {
                let argument = file.text.get(at + reader.len()..).unwrap_or_default();
                let read =
                    literal(argument).or_else(|| constants.get(last_name(argument)).copied());
                if let Some(sentence) = read.filter(|text| is_sentence(text)) {
                    let message = format!(
                        "reads the sentence \"{sentence}\"; let whoever wrote it give the reason as data"
                    );
                    findings.push(Finding::new(file.place(at), message));
                }
            }
        }
    }
    findings
}

/// The plain string literal that an argument begins with.
fn literal(argument: &str) -> Option<&str> {
    let rest = argument.trim_start().strip_prefix('"')?;
    Some(rest.split_once('"')?.0)
}

/// The constants of a file that are one plain string, with their names.
fn constants(file: &File) -> impl Iterator<Item = (&str, &str)> {
    occurrences(&file.shipped, "const ").filter_map(|at| {
        let (name, rest) = file
            .text
            .get(at..)?
            .strip_prefix("const ")?
            .split_once(": &str =")?;
        Some((name, literal(rest)?))
    })
}

/// The name at the end of the path that an argument begins with.
fn last_name(argument: &str) -> &str {
    let is_path = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    let end = argument.find(|c| !is_path(c)).unwrap_or(argument.len());
    let path = argument.get(..end).unwrap_or_default();
    path.rsplit(':').next().unwrap_or(path)
}

/// Three words in a row: what people write to people.
fn is_sentence(text: &str) -> bool {
    let is_word = |word: &str| word.len() > 1 && word.chars().all(char::is_alphabetic);
    let words: Vec<bool> = text.split([' ', ':', ',', '.']).map(is_word).collect();
    words.windows(3).any(|three| three.iter().all(|word| *word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_that_is_compared_is_found_and_a_word_of_a_format_is_not() {
        let tree = Tree::of(&[
            (
                "conjure-host/cli/src/a.rs",
                "//! A.\nfn a(why: &str) -> bool { why.contains(\"there is no program\") }\n",
            ),
            (
                "conjure-host/cli/src/b.rs",
                "//! B.\nfn b(x: &str) -> bool { x.starts_with(\"rustc version \") }\n\
                 #[cfg(test)]\nmod tests { fn c(x: &str) -> bool { x.contains(\"as it is told\") } }\n",
            ),
            (
                "conjure-core/src/turn/words.rs",
                "//! W.\npub(crate) const TOO_LONG: &str =\n    \"The talk is too long. \";\n",
            ),
            (
                "conjure-core/src/replay/d.rs",
                "//! D.\nfn d(x: &str) -> bool { x.starts_with(words::TOO_LONG) }\n",
            ),
            (
                "conjure-core/src/wire/x/errors.rs",
                "//! C.\nfn c(x: &str) -> bool { x.contains(\"prompt is too long\") }\n",
            ),
        ]);
        let findings = sentences_are_not_read(&tree);
        let places: Vec<&str> = findings.iter().map(|found| found.place.as_str()).collect();
        assert_eq!(
            places,
            [
                "conjure-host/cli/src/a.rs:2",
                "conjure-core/src/replay/d.rs:2"
            ]
        );
    }
}
