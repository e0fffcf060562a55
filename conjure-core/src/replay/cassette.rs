//! The form of a cassette: a thread as provider exchanges and tool results, in one JSON document.
//!
//! The steps are the thread's entries in their order, each with what went with it: the request
//! that a reply answers, what the rules said of a reply's calls, the arguments that a result is of.
//! Holds no credential and no header besides the content type.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::ReplaySetup;
use crate::log::{Entry, EntryBody};
use crate::turn::CallVerdict;
use crate::wire::{OmittedTool, Wire};

/// The version of the form that this version writes and reads.
pub const VERSION: u32 = 1;

/// A recorded thread.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cassette {
    /// The version of the form; see [`VERSION`].
    pub cassette: u32,
    /// The version of Conjure that wrote it.
    pub conjure: String,
    /// The thread's id.
    pub thread: String,
    /// What its requests are compiled with.
    pub setup: ReplaySetup,
    /// The thread's entries, in order.
    pub steps: Vec<CassetteStep>,
    /// What is not in it as it was, in sentences.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// One entry of the thread, with what went with it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CassetteStep {
    /// The entry's number in its thread.
    pub seq: u64,
    /// The turn that it belongs to.
    pub turn: u64,
    /// The model request that this entry ended: its reply, its failure, or what it was given up
    /// for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exchange: Option<ModelExchange>,
    /// What the routing table and the policy say of the reply's calls, in their order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub judged: Vec<Judged>,
    /// The call that this result is of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<CallOf>,
    /// SHA-256 of the file, in lower-case hex, where its bytes were at hand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    /// Why the turn machine cannot be driven from here to the end of the turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unreplayed: Option<String>,
    /// The entry, as in the log; a file without the place where it was.
    #[serde(flatten)]
    pub body: EntryBody,
}

/// A model request, as its wire encodes it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModelExchange {
    /// What the request asks for.
    pub kind: ExchangeKind,
    /// The provider.
    pub provider: String,
    /// The model that is asked.
    pub model: String,
    /// The wire.
    pub wire: Wire,
    /// Path of the request, below the base of the API.
    pub resource: String,
    /// The one header that is kept.
    pub content_type: String,
    /// Tokens of input that the turn machine expected, about.
    pub tokens: u64,
    /// The body.
    pub body: Value,
    /// What the wire recast, in sentences.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// Tools that the wire left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<OmittedTool>,
}

/// What a model request asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExchangeKind {
    /// The next reply of the conversation.
    Reply,
    /// A summary of its older part.
    Summary,
}

/// What becomes of a call by the routing table and the policy, with a person nearby.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Judged {
    /// The call.
    pub call_id: String,
    /// What becomes of it.
    #[serde(flatten)]
    pub verdict: CallVerdict,
}

/// The call that a result is of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallOf {
    /// The tool's public name.
    pub name: String,
    /// SHA-256 of its arguments as compact JSON, in lower-case hex.
    pub arguments_sha256: String,
}

/// A text that is no cassette which this version can read.
#[derive(Debug, thiserror::Error)]
pub enum CassetteError {
    /// The text is no JSON, or not of this form.
    #[error("this is no cassette: {source}; `conjure thread export ID --cassette FILE` writes one")]
    Form {
        /// What is wrong.
        #[from]
        source: serde_json::Error,
    },
    /// The cassette is of another version.
    #[error(
        "the cassette has version {found} and this version of Conjure reads version {VERSION}; \
         export the thread again with it"
    )]
    Version {
        /// The version that it has.
        found: u64,
    },
}

impl Cassette {
    /// Reads a cassette.
    ///
    /// # Errors
    /// [`CassetteError`].
    pub fn read(bytes: &[u8]) -> Result<Self, CassetteError> {
        let value: Value = serde_json::from_slice(bytes)?;
        match value.get("cassette").and_then(Value::as_u64) {
            Some(found) if found != u64::from(VERSION) => Err(CassetteError::Version { found }),
            _ => Ok(serde_json::from_value(value)?),
        }
    }

    /// The cassette as a file holds it: pretty JSON with a line end.
    ///
    /// # Errors
    /// None that these types can have.
    pub fn to_text(&self) -> Result<String, serde_json::Error> {
        let mut text = serde_json::to_string_pretty(self)?;
        text.push('\n');
        Ok(text)
    }

    /// The thread's entries.
    pub(super) fn entries(&self) -> Vec<Entry> {
        let entry = |step: &CassetteStep| Entry {
            seq: step.seq,
            turn: step.turn,
            at_ms: 0,
            body: step.body.clone(),
        };
        self.steps.iter().map(entry).collect()
    }
}
