//! What came of an import: what is new, what was here, and what could not be carried over.

use std::collections::BTreeMap;

use serde::Serialize;

/// Outcome of an import.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct MaestroReport {
    /// Sessions that are new here, by their names or ids.
    pub sessions: Vec<String>,
    /// Sessions that were here already, and were left as they are.
    pub known_sessions: usize,
    /// Sessions that have no saved authentication that could be carried over, and were left out.
    pub without_auth: Vec<String>,
    /// New sessions that were given the authentication chosen for such.
    pub given_auth: Vec<String>,
    /// New sessions that name no model.
    pub without_model: Vec<String>,
    /// New sessions that name no absolute working directory, and were given the one chosen for such.
    pub without_working_dir: Vec<String>,
    /// Threads that are new here.
    pub threads: usize,
    /// Number of forks among them that share their beginning with another thread.
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
pub struct LeftOut(BTreeMap<Left, u64>);

impl LeftOut {
    pub(super) fn count(&mut self, kind: Left) {
        self.add(kind, 1);
    }

    pub(super) fn add(&mut self, kind: Left, number: u64) {
        if number > 0 {
            *self.0.entry(kind).or_default() += number;
        }
    }

    pub(super) fn merge(&mut self, other: &Self) {
        for (kind, number) in other.all() {
            self.add(kind, number);
        }
    }

    /// Number of things of a kind that were left out.
    pub fn get(&self, kind: Left) -> u64 {
        self.0.get(&kind).copied().unwrap_or_default()
    }

    /// Kinds of what was left out, with their numbers.
    pub fn all(&self) -> impl Iterator<Item = (Left, u64)> {
        self.0.iter().map(|(kind, number)| (*kind, *number))
    }
}

/// Kinds of what is left out or changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Left {
    /// Snapshots whose messages cannot be read.
    UnreadableSnapshots,
    /// Threads whose newest snapshot has fewer messages than an earlier one.
    ShrunkThreads,
    /// Threads whose turns had gaps or doubles.
    GapsAndDoubles,
    /// Messages and calls that are none.
    MalformedMessages,
    /// Messages that say nothing.
    EmptyMessages,
    /// Parts of messages that are no text.
    Parts,
    /// System messages that the persona says.
    PersonaMessages,
    /// Results of tools without a call.
    OutputsWithoutCall,
    /// Calls without a result.
    CallsWithoutOutput,
    /// Calls that no message asks for.
    UnplacedCalls,
    /// Forks whose beginning cannot be told.
    BrokenForks,
    /// Timelines of events and frames.
    Timelines,
    /// Settings of sessions that are no JSON objects.
    Settings,
    /// Settings of tools.
    Tools,
    /// MCP servers of sessions that cannot be understood, or may hold a secret.
    Mcps,
    /// Names that were changed.
    Names,
    /// Prompts that are no personas.
    Prompts,
}

impl Left {
    /// Name of the kind, for people, in the plural.
    pub fn describe(self) -> &'static str {
        match self {
            Self::UnreadableSnapshots => "snapshots whose messages cannot be read",
            Self::ShrunkThreads => {
                "threads whose newest snapshot has fewer messages than an earlier one"
            }
            Self::GapsAndDoubles => {
                "threads whose turns had gaps or doubles; they are counted anew"
            }
            Self::MalformedMessages => "messages that are none",
            Self::EmptyMessages => "messages that say nothing",
            Self::Parts => "parts of messages that are no text",
            Self::PersonaMessages => "system messages that the persona says",
            Self::OutputsWithoutCall => "results of tools without a call",
            Self::CallsWithoutOutput => "calls without a result; they say so",
            Self::UnplacedCalls => "calls that no message asks for",
            Self::BrokenForks => "forks whose beginning cannot be told; they stand alone",
            Self::Timelines => "timelines of events and frames",
            Self::Settings => "settings of sessions that are no JSON objects",
            Self::Tools => "settings of tools: choose tools anew",
            Self::Mcps => "MCP servers of sessions that cannot be understood",
            Self::Names => "names that were changed, being taken or too long",
            Self::Prompts => "prompts that are no personas",
        }
    }
}
