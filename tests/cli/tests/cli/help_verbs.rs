//! Every verb has a page of help.

use crate::help::help;

/// Every verb, as it is written after `conjure`.
const VERBS: &[&str] = &[
    "",
    "run",
    "chat",
    "call",
    "routes",
    "plugin",
    "plugin list",
    "plugin inspect",
    "plugin check",
    "plugin new",
    "skill",
    "skill list",
    "skill validate",
    "skill show",
    "skill upload",
    "skill remote",
    "skill remote list",
    "skill remote download",
    "skill remote delete",
    "skill trust",
    "mcp",
    "mcp serve",
    "mcp list",
    "mcp doctor",
    "mcp import",
    "mcp login",
    "mcp logout",
    "docker",
    "docker build",
    "doctor",
    "models",
    "session",
    "session create",
    "session list",
    "session show",
    "session set",
    "session memory",
    "session memory show",
    "session memory set",
    "session memory edit",
    "session memory clear",
    "session check",
    "session new-chat",
    "session use",
    "session fork",
    "session tools",
    "session follow",
    "session cancel",
    "session waiting",
    "session approve",
    "session deny",
    "session answer",
    "session turns",
    "session delete",
    "persona",
    "persona list",
    "persona show",
    "persona create",
    "persona set",
    "persona remove",
    "policy",
    "policy check",
    "replay",
    "thread",
    "thread list",
    "thread show",
    "thread check",
    "thread cost",
    "thread fork",
    "thread rename",
    "thread clear",
    "thread export",
    "thread import",
    "thread compact",
    "thread unfold",
    "serve",
    "db",
    "db check",
    "db backup",
    "db export",
    "db import",
    "db rollback",
    "auth",
    "auth add",
    "auth replace",
    "auth list",
    "auth test",
    "auth rename",
    "auth remove",
    "auth rotate",
    "files",
    "files list",
    "files save",
    "files remote",
    "files remote list",
    "files remote delete",
    "wire",
    "wire decode",
    "wire encode",
    "completions",
    "help",
];

#[test]
fn every_verb_has_help_and_no_verb_is_missing_here() {
    for verb in VERBS.iter().filter(|verb| **verb != "help") {
        let text = help(verb);
        assert!(text.contains("Usage: conjure"), "{verb}: {text}");
        let listed = text.split_once("Commands:\n").map_or("", |(_, rest)| {
            rest.split_once("\n\n").map_or(rest, |(list, _)| list)
        });
        for line in listed.lines() {
            // Descriptions that go on in the next line stand further to the right.
            let Some(name) = line
                .strip_prefix("  ")
                .filter(|rest| !rest.starts_with(' '))
            else {
                continue;
            };
            let name = name.split_whitespace().next().unwrap();
            let known = format!("{verb} {name}");
            assert!(name == "help" || VERBS.contains(&known.trim()), "{known}");
        }
    }
}
