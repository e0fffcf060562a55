//! Saved sessions, as clients read and write them.

use std::path::PathBuf;

use conjure_core::chat::Usage;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use conjure_config::AuthName;
use conjure_store::ThreadId;

/// A session that is to be saved.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewSession {
    /// Name of the session, which no other session has.
    #[serde(default)]
    pub name: Option<String>,
    /// The saved auth: its id, or its name as [`AuthRef`](conjure_config::AuthRef) writes it.
    pub auth: String,
    /// The model, as the provider names it.
    pub model: String,
    /// Where calls work; it must exist.
    pub working_dir: PathBuf,
    /// Thread that the session begins with.
    #[serde(default)]
    pub thread: ThreadChoice,
    /// Persona of the model.
    #[serde(default)]
    pub persona: PersonaCopy,
    /// Memory of the model: `{name, version, memory_text}`, or any other object.
    #[serde(default)]
    pub memory: Map<String, Value>,
    /// Backends, names, policy, budgets and limits, in the shape of the session file.
    #[serde(default)]
    pub tools: Map<String, Value>,
    /// MCP servers by name, each with its settings.
    #[serde(default)]
    pub mcps: Map<String, Value>,
}

impl NewSession {
    /// A session on a new thread, without persona, memory and MCP servers, and with the usual
    /// tools.
    pub fn new(
        auth: impl Into<String>,
        model: impl Into<String>,
        working_dir: impl Into<PathBuf>,
    ) -> Self {
        Self {
            name: None,
            auth: auth.into(),
            model: model.into(),
            working_dir: working_dir.into(),
            thread: ThreadChoice::New,
            persona: PersonaCopy::default(),
            memory: Map::new(),
            tools: Map::new(),
            mcps: Map::new(),
        }
    }
}

/// A persona as a session has it: a copy.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PersonaCopy {
    /// Name of the persona.
    pub name: String,
    /// Version of the persona.
    pub version: String,
    /// What the model is told.
    pub persona_text: String,
}

/// Choice of the thread that a session goes on with.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum ThreadChoice {
    /// A new thread.
    #[default]
    New,
    /// A thread that exists.
    Existing {
        /// The id of the thread.
        thread: ThreadId,
    },
    /// A fork of another thread.
    Fork {
        /// The id of the thread that is forked.
        thread: ThreadId,
        /// The last entry that the fork shows; the newest without it.
        #[serde(default)]
        upto: Option<u64>,
    },
}

/// What is to change about a session; what is absent stays.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SessionPatch {
    /// Name of the session; the empty text takes it away.
    pub name: Option<String>,
    /// The saved auth, as in [`NewSession::auth`].
    pub auth: Option<String>,
    /// The model.
    pub model: Option<String>,
    /// Where calls work.
    pub working_dir: Option<PathBuf>,
    /// Persona of the model.
    pub persona: Option<PersonaCopy>,
    /// Memory of the model.
    pub memory: Option<Map<String, Value>>,
    /// Backends, names, policy, budgets and limits, all of them.
    pub tools: Option<Map<String, Value>>,
    /// MCP servers, all of them.
    pub mcps: Option<Map<String, Value>>,
    /// When the session was last changed, as far as whoever changes it knows: where it was changed
    /// since, nothing is.
    #[serde(skip)]
    pub seen_ms: Option<i64>,
}

/// What becomes of a session's chat when the session is deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChatRetention {
    /// The threads of the session stay.
    Keep,
    /// The active thread of the session is deleted for good.
    Delete,
}

/// A saved session, and its state.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SessionView {
    /// Id of the session.
    pub id: String,
    /// Name of the session.
    pub name: Option<String>,
    /// The saved auth's id.
    pub auth_id: String,
    /// The saved auth's name; its provider is the session's.
    pub auth: AuthName,
    /// The model.
    pub model: String,
    /// Where calls work.
    pub working_dir: PathBuf,
    /// Persona of the model.
    pub persona: PersonaCopy,
    /// Memory of the model.
    pub memory: Map<String, Value>,
    /// Backends, names, policy, budgets and limits.
    pub tools: Map<String, Value>,
    /// MCP servers by name.
    pub mcps: Map<String, Value>,
    /// The active thread; nothing after it was deleted.
    pub thread: Option<ThreadView>,
    /// The newest entry, as `thread/seq`.
    pub latest_entry: Option<String>,
    /// The state of the session.
    pub state: SessionState,
    /// The turn that runs.
    pub turn: Option<String>,
    /// How many follow-ups wait.
    pub queued: usize,
    /// When it was made, in milliseconds since 1970.
    pub created_at_ms: i64,
    /// When it was last changed, in milliseconds since 1970.
    pub updated_at_ms: i64,
}

/// State of a session: idle, running, or waiting for a person.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SessionState {
    /// Nothing runs.
    #[default]
    Idle,
    /// A turn runs.
    Running,
    /// A turn waits for a person: a decision about a call, or an answer.
    Waiting,
}

/// A session's thread, with what its replies came to.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ThreadView {
    /// Id of the thread.
    pub id: ThreadId,
    /// Newest label of the thread; empty where it has none.
    pub label: String,
    /// The newest entry.
    pub last_seq: u64,
    /// When it last grew, in milliseconds since 1970.
    pub updated_at_ms: i64,
    /// How many turns it has.
    pub turns: u64,
    /// How many replies of models it has.
    pub replies: u64,
    /// Tokens of all replies.
    pub usage: Usage,
    /// Average time of a reply in milliseconds; nothing before the first.
    pub average_latency_ms: Option<u64>,
    /// Average tokens of a reply, input and output; nothing before the first.
    pub average_tokens: Option<u64>,
    /// What it cost so far, with what the prices leave open; nothing before the first turn.
    pub cost: Option<Value>,
}
