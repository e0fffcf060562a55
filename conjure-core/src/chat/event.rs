//! Events: what subscribers of a thread see while a turn runs.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::cost::TurnCost;
use super::{ArtifactRef, Usage};

/// An event's number in its thread: `epoch.seq`, never used twice.
///
/// The epoch grows each time the thread is opened, so a number that was promised before a crash
/// is never given to something else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct EventId {
    /// How often the thread was opened.
    pub epoch: u64,
    /// Counts from 1 in each epoch.
    pub seq: u64,
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.epoch, self.seq)
    }
}

/// What happens in a turn, in the field names of the canonical schema v1.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Event {
    /// A turn begins.
    TurnStarted {
        /// Id of the turn.
        turn_id: String,
    },
    /// A model request leaves.
    Round {
        /// Number of the request; counts from 1 in each turn.
        round: u32,
        /// The provider.
        provider: String,
        /// The model.
        model: String,
        /// Version of the routing table.
        table: u64,
    },
    /// A piece of thought.
    Thinking {
        /// The text.
        delta: String,
    },
    /// A piece of the answer.
    Content {
        /// The text.
        delta: String,
    },
    /// The model asks for calls.
    FunctionCall {
        /// The calls, in the model's order.
        calls: Vec<CallAnnounced>,
    },
    /// A call waits for a person's decision.
    Approval {
        /// The call.
        call: CallAnnounced,
        /// The rule that asks.
        reason: String,
    },
    /// A call was decided about. One that is allowed runs when the calls before it are decided about
    /// too; one that is denied has its result then.
    ApprovalOver {
        /// The call.
        call_id: String,
        /// Whether it may run.
        allowed: bool,
    },
    /// A plugin or a server asks the person something.
    Question(QuestionAsked),
    /// A question is over.
    QuestionOver {
        /// The question.
        id: String,
        /// `accept`, `decline`, or `cancel` where nobody answered.
        action: String,
    },
    /// A call began to run.
    CallStarted {
        /// The call.
        call_id: String,
        /// The backend instance that runs it.
        backend: String,
        /// The plugin and its version, when one is behind it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        plugin: Option<String>,
    },
    /// Live output of a call.
    ToolOutput {
        /// The call.
        call_id: String,
        /// `stdout`, `stderr` or `progress`.
        stream: String,
        /// The text; bytes that are not UTF-8 are replaced.
        chunk: String,
    },
    /// A call has its result.
    FunctionCallOutput(CallOutput),
    /// A file was made.
    File {
        /// The file.
        artifact: ArtifactRef,
        /// The backend instance that made it.
        source: String,
        /// The call that made it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        call_id: Option<String>,
    },
    /// Tokens of the turn so far.
    Usage(UsageEvent),
    /// What the turn cost, before it is over; where a model answered in it.
    Cost {
        /// The turn.
        turn: TurnCost,
        /// All turns of the thread so far, as one.
        thread: TurnCost,
    },
    /// Something that a person should know.
    Notice {
        /// What the person is told.
        text: String,
    },
    /// Something failed.
    Error(ErrorEvent),
    /// The turn is over.
    Done {
        /// Id of the turn.
        turn_id: String,
        /// Outcome of the turn, such as `completed`, `cancelled`, `limit`, `failed`.
        outcome: String,
        /// The stop reason as the provider gave it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        stop_reason: Option<String>,
        /// The answer's text.
        text: String,
    },
}

/// A call as it is announced.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CallAnnounced {
    /// Id of the call.
    pub id: String,
    /// The tool's public name.
    pub name: String,
    /// Arguments of the call.
    pub arguments: Value,
}

/// A question to the person.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct QuestionAsked {
    /// Id of the question.
    pub id: String,
    /// The plugin that asks; a server's question names the server in `message`.
    pub plugin: String,
    /// The call during which the question is asked, where one asks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call_id: Option<String>,
    /// What the person is asked.
    pub message: String,
    /// JSON Schema of the form to fill in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<Value>,
    /// A page to visit instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
}

/// A call's result, for subscribers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CallOutput {
    /// The call.
    pub call_id: String,
    /// The tool's public name.
    pub name: String,
    /// The backend instance that ran it; absent when it never ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backend: Option<String>,
    /// What the model reads of it, as text.
    pub output: String,
    /// Whether it failed.
    pub is_error: bool,
    /// From start to result, in milliseconds.
    #[serde(default)]
    pub duration_ms: u64,
}

/// Tokens, with the field names of the canonical schema v1 beside our five numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct UsageEvent {
    /// All input.
    pub prompt_tokens: u64,
    /// All output.
    pub completion_tokens: u64,
    /// Both.
    pub total_tokens: u64,
    /// The five numbers.
    #[serde(flatten)]
    pub usage: Usage,
}

impl From<Usage> for UsageEvent {
    fn from(usage: Usage) -> Self {
        Self {
            prompt_tokens: usage.prompt_tokens(),
            completion_tokens: usage.output,
            total_tokens: usage.total(),
            usage,
        }
    }
}

/// A failure, for subscribers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ErrorEvent {
    /// What failed, why, and what to do.
    pub error: String,
    /// A word for programs, such as `overloaded`, `max_iterations`.
    pub kind: String,
}
