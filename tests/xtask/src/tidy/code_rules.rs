//! Rules about Rust code: what may be used where.

use super::{
    Finding,
    tree::{File, Tree},
    words::{bracketed, occurrences, words},
};

/// Paths into the outside world that conjure-core must not use.
const NOT_IN_CORE: [&str; 20] = [
    "Instant::now",
    "RandomState",
    "SystemTime",
    "Timestamp::now",
    "Uuid::new_v4",
    "Uuid::now_v7",
    "Zoned::now",
    "getrandom::",
    "rand::",
    "reqwest::",
    "std::env",
    "std::fs",
    "std::io::stderr",
    "std::io::stdin",
    "std::io::stdout",
    "std::net",
    "std::os",
    "std::process",
    "std::thread",
    "tokio::",
];

/// Modules of `std` that a grouped import must not bring into conjure-core.
const NOT_IN_CORE_GROUPED: [&str; 6] = ["env", "fs", "net", "os", "process", "thread"];

/// Where unsafe code may stand: the loader, the SDK, tests that attack them, and the one place that
/// changes the environment, which no safe function does.
const UNSAFE_HOMES: [&str; 5] = [
    "conjure-host/config/src/platform/environment.rs",
    "conjure-host/plugins/src/",
    "skill-sdk/",
    "plugins/misbehaving/",
    "tests/",
];

/// A public function that gives what comes next, thousands of times: a box for each would cost more than code
/// that is there twice.
const NEXT: &str = "next";

/// Library crates of the host make the code of what they do asynchronously, and not each caller.
pub(crate) fn public_futures_are_boxed(tree: &Tree) -> Vec<Finding> {
    const ASYNC: &str = "pub async fn ";
    let mut findings = Vec::new();
    let in_library = |file: &&File| {
        let path = &file.path;
        path.starts_with("conjure-host/") && !path.starts_with("conjure-host/cli/")
    };
    for file in tree
        .rust()
        .filter(in_library)
        .filter(|file| !file.is_test())
    {
        for at in occurrences(&file.shipped, ASYNC) {
            let before = file.shipped.get(..at).unwrap_or_default();
            let attributes = before.rsplit(['{', '}', ';']).next().unwrap_or_default();
            let function = file.shipped.get(at + ASYNC.len()..).unwrap_or_default();
            let signature = function.split('{').next().unwrap_or_default();
            let (name, arguments) = signature.split_once('(').unwrap_or_default();
            let is_boxed = attributes.contains("#[boxed]");
            let first = arguments.trim_start();
            let takes_self = first
                .strip_prefix("mut ")
                .unwrap_or(first)
                .starts_with("self");
            if takes_self && is_boxed {
                let message = "drops fields that it does not name when it is called, not when it is done; leave `#[boxed]` away";
                findings.push(Finding::new(file.location(at), message));
            }
            // What is generic is compiled by who calls it in any case; the others the attribute does not take.
            let cannot_be = name.contains('<')
                || arguments.contains("impl ")
                || arguments.contains('\'')
                || takes_self;
            if name != NEXT && !cannot_be && !is_boxed {
                let message =
                    "is compiled anew in each crate that awaits it; write `#[boxed]` above it";
                findings.push(Finding::new(file.location(at), message));
            }
        }
    }
    findings
}

pub(crate) fn lints_silenced_with_reason(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.rust() {
        for attribute in ["#[allow(", "#![allow(", "#[expect(", "#![expect("] {
            for at in occurrences(&file.code, attribute) {
                let opening = at + attribute.find('[').unwrap_or_default();
                let inner = bracketed(&file.code, opening);
                if !words(inner).any(|word| word == "reason") {
                    let message = "silences a lint without a reason; add `reason = \"…\"`, or mend what the lint found";
                    findings.push(Finding::new(file.location(at), message));
                }
            }
        }
    }
    findings
}

pub(crate) fn no_ignored_tests(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.rust() {
        for at in occurrences(&file.code, "#[ignore") {
            // What another test runs in a child process is not left out.
            let as_child = |rest: &str| rest.starts_with("#[ignore = \"runs in a child");
            if file.text.get(at..).is_some_and(as_child) {
                continue;
            }
            let message =
                "ignores a test; where it cannot run, print `LEFT OUT: <what>: <why>` and return";
            findings.push(Finding::new(file.location(at), message));
        }
    }
    findings
}

pub(crate) fn core_is_pure(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree
        .rust()
        .filter(|file| file.path.starts_with("conjure-core/src/") && !file.is_test())
    {
        let mut uses = Vec::new();
        for path in NOT_IN_CORE {
            uses.extend(occurrences(&file.shipped, path).map(|at| (at, path.to_owned())));
        }
        for (at, group) in groups(file, "std::{") {
            let outside = words(group).find(|word| NOT_IN_CORE_GROUPED.contains(word));
            uses.extend(outside.map(|word| (at, format!("std::{word}"))));
        }
        for (at, path) in uses {
            let message = format!(
                "uses `{path}`; take the value as an argument, or return an action that the host performs"
            );
            findings.push(Finding::new(file.location(at), message));
        }
    }
    findings
}

pub(crate) fn wire_types_stay_home(tree: &Tree) -> Vec<Finding> {
    const WIRES: &str = "conjure-core/src/wire/";
    let folder = |file: &File| -> Option<String> {
        let inner = file.path.strip_prefix(WIRES)?;
        Some(inner.split_once('/')?.0.to_owned())
    };
    let mut providers: Vec<_> = tree.files.iter().filter_map(folder).collect();
    providers.dedup();
    let mut findings = Vec::new();
    for provider in &providers {
        let home = format!("{WIRES}{provider}/");
        let door = format!("{provider}::types");
        for file in tree.rust() {
            let is_door = file.path == format!("{home}mod.rs")
                || file.path == format!("{WIRES}{provider}.rs");
            if is_door {
                for at in occurrences(&file.code, "mod types") {
                    let line = file
                        .code
                        .get(..at)
                        .and_then(|code| code.lines().next_back());
                    if line.is_some_and(|line| {
                        line.trim_start().starts_with("pub") && !line.contains("pub(super)")
                    }) {
                        let message = "opens the wire types; make it `mod types;`";
                        findings.push(Finding::new(file.location(at), message));
                    }
                }
            } else if !file.path.starts_with(&home) {
                for at in occurrences(&file.code, &door) {
                    let message = format!(
                        "uses `{door}` outside of {home}; translate to the canonical chat there"
                    );
                    findings.push(Finding::new(file.location(at), message));
                }
            }
        }
    }
    findings
}

pub(crate) fn host_files_by_wrapper(tree: &Tree) -> Vec<Finding> {
    // The loader judges descriptors, and its own errors name the file; a platform is what the
    // wrapper stands on. The store and the vault have errors of their own, and stand alone. What
    // runs while a crate is built is no host yet.
    const EXEMPT_PATHS: [&str; 6] = [
        "config/src/fs.rs",
        "config/src/fs/",
        "config/src/platform/",
        "plugins/",
        "store/",
        "vault/",
    ];
    let is_host = |path: &str| {
        let rest = path.strip_prefix("conjure-host/");
        rest.is_some_and(|rest| {
            !rest.ends_with("/build.rs")
                && !EXEMPT_PATHS.iter().any(|other| rest.starts_with(other))
        })
    };
    let mut findings = Vec::new();
    for file in tree
        .rust()
        .filter(|file| is_host(&file.path) && !file.is_test())
    {
        let mut places: Vec<usize> = Vec::new();
        for module in ["std::fs", "tokio::fs"] {
            let uses = occurrences(&file.shipped, module);
            places.extend(uses.filter(|at| !names_types_only(&file.shipped, at + module.len())));
        }
        for group in ["std::{", "tokio::{"] {
            let with_fs =
                groups(file, group).filter(|(_, group)| words(group).any(|word| word == "fs"));
            places.extend(with_fs.map(|(at, _)| at));
        }
        for opening in ["File::open(", "File::create(", "File::create_new("] {
            places.extend(occurrences(&file.shipped, opening));
        }
        for at in places {
            let message = "touches files directly; use conjure_config::fs, whose errors name the file (and widen it where it lacks something)";
            findings.push(Finding::new(file.location(at), message));
        }
    }
    findings
}

pub(crate) fn unsafe_has_known_homes(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.rust() {
        if UNSAFE_HOMES.iter().any(|home| file.path.starts_with(home)) {
            continue;
        }
        for at in occurrences(&file.code, "unsafe") {
            let message = "unsafe code outside of its known homes, such as the loader; find a safe way, or say in `UNSAFE_HOMES` why there is none";
            findings.push(Finding::new(file.location(at), message));
        }
    }
    findings
}

/// The groups behind `opening`, such as `std::{`: where each begins, and its text.
fn groups<'a>(file: &'a File, opening: &'a str) -> impl Iterator<Item = (usize, &'a str)> {
    occurrences(&file.shipped, opening)
        .map(move |at| (at, bracketed(&file.shipped, at + opening.len() - 1)))
}

/// Whether what follows `std::fs` names types such as `File` only: they open nothing.
fn names_types_only(code: &str, behind: usize) -> bool {
    let Some(rest) = code.get(behind..).and_then(|rest| rest.strip_prefix("::")) else {
        return false;
    };
    let named = if rest.starts_with('{') {
        bracketed(rest, 0)
    } else {
        rest.split(|sign: char| !(sign.is_alphanumeric() || sign == '_'))
            .next()
            .unwrap_or_default()
    };
    let mut named = words(named).peekable();
    named.peek().is_some() && named.all(|word| word.starts_with(char::is_uppercase))
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
    fn a_silenced_lint_needs_a_reason() {
        let tree = Tree::of(&[(
            "a.rs",
            "//! A.\n#[allow(dead_code)]\nfn a() {}\n#[expect(\n    dead_code,\n    reason = \"later (really)\"\n)]\nfn b() {}\n#![allow(x)]\n",
        )]);
        assert_eq!(
            places(lints_silenced_with_reason(&tree)),
            ["a.rs:2", "a.rs:9"]
        );
    }

    #[test]
    fn a_public_future_is_boxed_unless_it_is_generic_or_the_next_of_many() {
        let code = "//! A.\nimpl A {\n/// B.\n#[boxed]\npub async fn a(&self) {}\npub async fn b() {}\n\
                    pub async fn c<T>(t: T) {}\npub async fn d(t: impl T) {}\npub async fn next() {}\n\
                    pub async fn e(t: T<'_>) {}\npub async fn f(self: &Arc<Self>) {}\n\
                    async fn g() {}\n/// B.\npub async fn h() {}\n\
                    pub async fn i(self) {}\n#[boxed]\npub async fn j(mut self) {}\n}\n";
        let tree = Tree::of(&[
            ("conjure-host/store/src/a.rs", code),
            ("conjure-host/cli/src/a.rs", code),
            ("skill-sdk/src/a.rs", code),
        ]);
        let at = |line: u32| format!("conjure-host/store/src/a.rs:{line}");
        assert_eq!(
            places(public_futures_are_boxed(&tree)),
            [at(6), at(14), at(17)]
        );
    }

    #[test]
    fn an_ignored_test_is_found() {
        let tree = Tree::of(&[("a.rs", "//! A.\n#[test]\n#[ignore = \"slow\"]\nfn a() {}\n")]);
        assert_eq!(places(no_ignored_tests(&tree)), ["a.rs:3"]);
    }

    #[test]
    fn core_uses_nothing_of_the_outside_but_its_tests_may() {
        let code = "//! No tokio, no std::fs.\nuse std::{collections::BTreeMap, env};\nfn a() { std::fs::read(\"x\"); }\nfn b() -> u64 { SystemTime::now() }\nuse std::time::Duration;\n#[cfg(test)]\nmod tests { use std::fs; }\n";
        let tree = Tree::of(&[
            ("conjure-core/src/a.rs", code),
            ("conjure-core/tests/a.rs", "//! T.\nuse std::fs;\n"),
            ("conjure-host/src/lib.rs", "//! H.\nuse tokio::time;\n"),
        ]);
        assert_eq!(
            places(core_is_pure(&tree)),
            [
                "conjure-core/src/a.rs:4",
                "conjure-core/src/a.rs:3",
                "conjure-core/src/a.rs:2"
            ]
        );
    }

    #[test]
    fn wire_types_are_used_in_their_folder_only() {
        let tree = Tree::of(&[
            (
                "conjure-core/src/wire/anthropic/mod.rs",
                "//! A.\npub mod types;\n",
            ),
            ("conjure-core/src/wire/anthropic/types.rs", "//! T.\n"),
            (
                "conjure-core/src/wire/anthropic/encode.rs",
                "//! E.\nuse super::types;\nuse crate::wire::anthropic::types::Block;\n",
            ),
            (
                "conjure-core/src/turn.rs",
                "//! T.\nuse crate::wire::anthropic::types::Block;\n",
            ),
        ]);
        assert_eq!(
            places(wire_types_stay_home(&tree)),
            [
                "conjure-core/src/wire/anthropic/mod.rs:2",
                "conjure-core/src/turn.rs:2"
            ]
        );
    }

    #[test]
    fn the_host_touches_files_through_its_wrapper() {
        let code = "//! A.\nuse std::fs::File;\nuse std::fs::{Metadata, read};\nfn a() { std::fs::write(p, b); tokio::fs::read(p); }\nuse crate::fs;\nfn b() { fs::read(p); File::open(p); }\nuse std::{fs, io};\nuse std::fs;\n";
        let tree = Tree::of(&[
            ("conjure-host/src/a.rs", code),
            ("conjure-host/config/src/fs.rs", "//! F.\nuse std::fs;\n"),
            ("tests/kit/src/lib.rs", "//! K.\nuse std::fs;\n"),
        ]);
        let mut lines = places(host_files_by_wrapper(&tree));
        lines.sort();
        let at = |line: u32| format!("conjure-host/src/a.rs:{line}");
        assert_eq!(lines, [at(3), at(4), at(4), at(6), at(7), at(8)]);
    }

    #[test]
    fn unsafe_code_stays_in_the_loader_and_the_sdk() {
        let tree = Tree::of(&[
            (
                "conjure-host/plugins/src/load.rs",
                "//! L.\nfn a() { unsafe { b() } }\n",
            ),
            (
                "conjure-host/src/lib.rs",
                "//! Nothing unsafe.\n#![forbid(unsafe_code)]\nunsafe fn a() {}\n",
            ),
        ]);
        assert_eq!(
            places(unsafe_has_known_homes(&tree)),
            ["conjure-host/src/lib.rs:3"]
        );
    }
}
