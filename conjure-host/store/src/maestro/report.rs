//! What came of an import: what is new, what was here, and what could not be carried over.

use std::collections::BTreeMap;

use serde::Serialize;

/// What came of an import.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct MaestroReport {
    /// Sessions that are new here, by their names or ids.
    pub sessions: Vec<String>,
    /// Sessions that were here already, and were left as they are.
    pub known_sessions: usize,
    /// Sessions that have no saved authentication that could be carried over, and were left out.
    pub without_auth: Vec<String>,
    /// Of the new ones, those that were given the authentication for such.
    pub given_auth: Vec<String>,
    /// Of the new ones, those that name no model.
    pub without_model: Vec<String>,
    /// Of the new ones, those that name no working directory, and got the one for such.
    pub without_working_dir: Vec<String>,
    /// Threads that are new here.
    pub threads: usize,
    /// Of these, the forks that share their beginning with another thread.
    pub forks: usize,
    /// Threads that were here already, and were left as they are.
    pub known_threads: usize,
    /// Turns of the new threads; those of a shared beginning count once.
    pub turns: u64,
    /// Entries of the new threads.
    pub entries: u64,
    /// Personas that are new here.
    pub personas: usize,
    /// MCP servers that are new here.
    pub mcp_servers: usize,
    /// MCP servers that were left out, since they come with what may be a secret.
    pub secret_mcp_servers: Vec<String>,
    /// What was left out or is not as it should be, by a word for programs, with how often.
    pub left_out: LeftOut,
}

/// Counts of what was left out or is not as it should be.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[serde(transparent)]
pub struct LeftOut(BTreeMap<&'static str, u64>);

/// What is counted: a word for programs, and one of it, for people.
const KINDS: [(&str, &str); 16] = [
    (
        "unreadable_snapshots",
        "snapshots whose messages cannot be read",
    ),
    (
        "shrunk_threads",
        "threads whose newest snapshot has fewer messages than an earlier one",
    ),
    (
        "gaps_and_doubles",
        "threads whose turns had gaps or doubles; they are counted anew",
    ),
    ("malformed_messages", "messages that are none"),
    ("empty_messages", "messages that say nothing"),
    ("parts", "parts of messages that are no text"),
    ("persona_messages", "system messages that the persona says"),
    ("outputs_without_call", "results of tools without a call"),
    (
        "calls_without_output",
        "calls without a result; they say so",
    ),
    ("unplaced_calls", "calls that no message asks for"),
    (
        "broken_forks",
        "forks whose beginning cannot be told; they stand alone",
    ),
    ("timelines", "timelines of events and frames"),
    ("settings", "settings of sessions that are no JSON objects"),
    ("tools", "settings of tools: choose tools anew"),
    ("mcps", "MCP servers of sessions that cannot be understood"),
    ("names", "names that were changed, being taken or too long"),
];

impl LeftOut {
    pub(super) fn count(&mut self, kind: &'static str) {
        self.add(kind, 1);
    }

    pub(super) fn add(&mut self, kind: &'static str, number: u64) {
        debug_assert!(KINDS.iter().any(|(known, _)| *known == kind), "{kind}");
        if number > 0 {
            *self.0.entry(kind).or_default() += number;
        }
    }

    pub(super) fn merge(&mut self, other: &Self) {
        for (kind, number) in &other.0 {
            self.add(kind, *number);
        }
    }

    /// How often something was left out, by its word.
    pub fn get(&self, kind: &str) -> u64 {
        self.0.get(kind).copied().unwrap_or_default()
    }

    /// What was left out, for people, with how often.
    pub fn told(&self) -> impl Iterator<Item = (&'static str, u64)> {
        KINDS.iter().filter_map(|(kind, told)| {
            let number = self.get(kind);
            (number > 0).then_some((*told, number))
        })
    }
}
