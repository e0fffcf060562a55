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

/// The crates whose code decides something.
const CHECKED_CRATES: [&str; 4] = [
    "conjure-core/src/",
    "conjure-host/",
    "plugins/",
    "skill-sdk/",
];

/// Where sentences are read that others wrote, so that nothing else tells the reason.
const ALLOWED_PATHS: [&str; 13] = [
    // What providers answer: several have one status for many reasons.
    "conjure-core/src/wire/",
    // What this program wrote before it had reasons.
    "conjure-core/src/replay/old_sentences.rs",
    // What this program wrote into a person's message, which is one text in the log.
    "conjure-host/cli/src/chat_shell.rs",
    // What the JSON parser says, whose errors have no fields.
    "conjure-host/config/src/json/terms.rs",
    // What a credential helper of Docker's prints.
    "conjure-host/packages/src/docker_auth.rs",
    // The first line of a minisign signature, as its format has it.
    "conjure-host/packages/src/signature.rs",
    // The version that rustc writes into what it compiles.
    "conjure-host/plugins/src/elf/mod.rs",
    // What Rust's runtime prints before it ends a process without memory.
    "conjure-host/plugins/src/worker/end.rs",
    // What the container engine says beside a status.
    "plugins/backend-docker/src/engine.rs",
    "plugins/backend-docker/src/owner.rs",
    // What a cluster says beside a 403, which is one for rights, quotas and policies.
    "plugins/backend-kubernetes/src/explain.rs",
    // What `ssh` says: it ends with one code for all of its failures.
    "plugins/backend-ssh/src/explain.rs",
    "plugins/backend-ssh/src/reason.rs",
];

pub(crate) fn sentences_are_not_read(tree: &Tree) -> Vec<Finding> {
    let of_host = |file: &&File| {
        let path = &file.path;
        CHECKED_CRATES.iter().any(|crates| path.starts_with(crates))
            && !file.is_test()
            && !ALLOWED_PATHS.iter().any(|place| path.starts_with(place))
    };
    let mut everywhere: HashMap<&str, Vec<&str>> = HashMap::new();
    for (name, text) in tree.rust().filter(of_host).flat_map(constants) {
        everywhere.entry(name).or_default().push(text);
    }
    let mut findings = Vec::new();
    for file in tree.rust().filter(of_host) {
        // A file's own constant goes before one of the same name elsewhere.
        let own: HashMap<&str, &str> = constants(file).collect();
        let of_constant = |name: &str| match own.get(name) {
            Some(text) => vec![*text],
            None => everywhere.get(name).cloned().unwrap_or_default(),
        };
        for reader in READERS {
            for at in occurrences(&file.shipped, reader) {
                let argument = file.text.get(at + reader.len()..).unwrap_or_default();
                let read = match literal(argument) {
                    Some(text) => vec![text],
                    None => of_constant(last_name(argument)),
                };
                if let Some(sentence) = read.into_iter().find(|text| is_sentence(text)) {
                    let message = format!(
                        "reads the sentence \"{sentence}\"; let whoever wrote it give the reason as data"
                    );
                    findings.push(Finding::new(file.location(at), message));
                }
            }
        }
    }
    findings
}

/// The string literal that an argument begins with, or that a format of it begins with.
fn literal(argument: &str) -> Option<&str> {
    let argument = argument.trim_start();
    let argument = argument.strip_prefix('&').unwrap_or(argument);
    let argument = argument.strip_prefix("format!(").unwrap_or(argument);
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

/// Two words in a row on one line: what people write to people. What is joined by dots is a name.
fn is_sentence(text: &str) -> bool {
    let is_word = |word: &str| {
        let word = word.trim_end_matches([':', ',', '.', ';']);
        matches!(word, "a" | "A" | "I") || word.len() > 1 && word.chars().all(char::is_alphabetic)
    };
    let is_line = |line: &str| {
        let words: Vec<bool> = line.split(' ').map(is_word).collect();
        words.windows(2).any(|two| two.iter().all(|word| *word))
    };
    // A break of the line, or how it is written in a literal.
    text.split('\n')
        .flat_map(|line| line.split("\\n"))
        .any(is_line)
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
                "//! B.\nfn b(x: &str) -> bool { x.starts_with(\"user.conjure.copy\") }\n\
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
                "plugins/e/src/e.rs",
                "//! E.\nfn e(x: &str) -> bool { x.contains(\"to work\") }\n",
            ),
            (
                "plugins/e/src/f.rs",
                "//! F.\nconst TOO_LONG: &str = \"/long\";\n\
                 fn f(x: &str) -> bool { x.starts_with(TOO_LONG) }\n",
            ),
            (
                "plugins/g/src/g.rs",
                "//! G.\nfn g(x: &str, n: u8) -> bool {\n    x.starts_with(&format!(\"it is {n}\"))\n        || x.contains(\"I ran `\")\n        || x.contains(\"a\\nno\\nb\")\n}\n",
            ),
            (
                "conjure-core/src/wire/x/errors.rs",
                "//! C.\nfn c(x: &str) -> bool { x.contains(\"prompt is too long\") }\n",
            ),
        ]);
        let findings = sentences_are_not_read(&tree);
        let places: Vec<&str> = findings
            .iter()
            .map(|found| found.location.as_str())
            .collect();
        assert_eq!(
            places,
            [
                "conjure-host/cli/src/a.rs:2",
                "conjure-core/src/replay/d.rs:2",
                "plugins/e/src/e.rs:2",
                "plugins/g/src/g.rs:3",
                "plugins/g/src/g.rs:4"
            ]
        );
    }
}
