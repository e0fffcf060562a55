//! Type names that are defined more than once; `cargo xtask tidy --figures --names` lists them.
//!
//! A name that two types have makes a reader ask which one is meant. Looks at structs, enums, unions,
//! traits and type aliases of the whole workspace outside tests, by the text of the lines that begin
//! them.

use std::collections::BTreeMap;

use super::Finding;
use super::tree::{File, Tree};

/// Names that several types have, each with the reason.
const REPEATED: [(&str, &str); 20] = [
    ("Confiner", "one for each operating system"),
    (
        "DirectoryEntry",
        "what is offered at a cursor; what an agent lists",
    ),
    ("Ends", "one for each operating system"),
    ("Manifest", "a plugin's; a registry's, whose own word it is"),
    (
        "Message",
        "the chat's; those of the SDK, which does not know the core",
    ),
    (
        "NewTurn",
        "the manager's; the body of a request that asks for one",
    ),
    (
        "Part",
        "the chat's; that of a result, which the SDK has; a step of a path into JSON",
    ),
    ("Place", "in a JSON value; of a plugin's crate"),
    ("Plugin", "across the ABI; the one that the test kit drives"),
    ("Prompts", "an author's functions; the reply that they give"),
    ("RequestTarget", "a provider's; a client's"),
    ("ResourceStream", "to a client; from a server"),
    (
        "Resources",
        "an author's functions; the reply that they give",
    ),
    ("Result", "an alias with a crate's own error"),
    ("Root", "a library's; an MCP client's, whose own word it is"),
    ("RunningCall", "in a worker; in the test kit"),
    ("Sandbox", "of a process; the protocol's"),
    ("Spent", "a plugin's; a report's"),
    ("Subscriptions", "a client's; an author's functions"),
    ("Tree", "one for each operating system"),
];

/// Folders whose files are tests or serve only tests.
const TEST_FOLDERS: [&str; 4] = ["tests", "examples", "fixtures", "fuzz_targets"];

/// A type name and the files that define it, one for each definition.
pub(crate) type Definitions<'a> = (&'a str, Vec<&'a str>);

/// The names with more than one definition outside tests, in their order.
pub(crate) fn defined_more_than_once(tree: &Tree) -> Vec<Definitions<'_>> {
    let mut names: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for file in tree.rust().filter(|file| !serves_tests(file)) {
        for name in file.shipped.lines().filter_map(defined_type) {
            names.entry(name).or_default().push(&file.path);
        }
    }
    names
        .into_iter()
        .filter(|(_, files)| files.len() > 1)
        .collect()
}

pub(crate) fn names_are_defined_once(tree: &Tree) -> Vec<Finding> {
    let is_known = |name: &str| REPEATED.iter().any(|(known, _)| *known == name);
    let repeated = defined_more_than_once(tree).into_iter();
    let unknown = repeated.filter(|(name, _)| !is_known(name));
    let finding = |(name, files): Definitions<'_>| {
        let message = format!(
            "`{name}` is defined in {} too; give one another name, or say in `REPEATED` why both have it",
            files.get(1..).unwrap_or_default().join(", ")
        );
        Finding::new(files.first().copied().unwrap_or_default(), message)
    };
    unknown.map(finding).collect()
}

pub(crate) fn serves_tests(file: &File) -> bool {
    let mut folders: Vec<&str> = file.path.split('/').collect();
    let name = folders.pop();
    name == Some("tests.rs") || folders.iter().any(|folder| TEST_FOLDERS.contains(folder))
}

/// The name of the type that this line defines. An indented `type` is an associated one.
fn defined_type(line: &str) -> Option<&str> {
    let mut words = line.trim_start();
    if let Some(rest) = words.strip_prefix("pub") {
        words = match rest.strip_prefix('(') {
            Some(scope) => scope.split_once(')')?.1,
            None => rest,
        };
        words = words.strip_prefix(' ')?;
    }
    words = words.strip_prefix("unsafe ").unwrap_or(words);
    let (keyword, rest) = words.split_once(' ')?;
    match keyword {
        "struct" | "enum" | "union" | "trait" => {}
        "type" if !line.starts_with(' ') => {}
        _ => return None,
    }
    let end = rest
        .find(|c: char| !c.is_alphanumeric() && c != '_')
        .unwrap_or(rest.len());
    let name = &rest[..end];
    name.starts_with(|c: char| c.is_ascii_uppercase())
        .then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_counts_as_often_as_it_is_defined_outside_tests() {
        let tree = Tree::of(&[
            ("a/src/lib.rs", "pub struct Twice;\nenum Once {}\n"),
            ("b/src/lib.rs", "pub(super) enum Twice {}\n"),
            (
                "c/src/lib.rs",
                "pub unsafe trait Twice {}\ntype Once2<T> = T;\n",
            ),
            ("d/tests/it.rs", "struct Once;\n"),
            ("e/src/tests.rs", "struct Once;\n"),
            (
                "f/src/lib.rs",
                "#[cfg(test)]\nmod tests {\n    struct Once;\n}\n",
            ),
        ]);
        assert_eq!(
            defined_more_than_once(&tree),
            [(
                "Twice",
                vec!["a/src/lib.rs", "b/src/lib.rs", "c/src/lib.rs"]
            )]
        );
    }

    #[test]
    fn a_name_that_is_defined_twice_needs_a_reason() {
        let tree = Tree::of(&[
            ("a/src/lib.rs", "pub struct Twice;\nstruct Tree;\n"),
            ("b/src/lib.rs", "pub struct Twice;\nstruct Tree;\n"),
        ]);
        let findings = names_are_defined_once(&tree);
        let places: Vec<&str> = findings
            .iter()
            .map(|found| found.location.as_str())
            .collect();
        assert_eq!(places, ["a/src/lib.rs"]);
        assert!(findings[0].message.contains("b/src/lib.rs"));
    }

    #[test]
    fn associated_types_and_texts_define_no_names() {
        let tree = Tree::of(&[(
            "a/src/lib.rs",
            "impl A for B {\n    type Item = u8;\n}\nimpl A for C {\n    type Item = u8;\n}\n\
             const A: &str = \"\nstruct Text;\n\";\nconst B: &str = \"\nstruct Text;\n\";\n",
        )]);
        assert_eq!(defined_more_than_once(&tree), []);
    }
}
