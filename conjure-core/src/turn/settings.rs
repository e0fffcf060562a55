//! What a turn is run with, as far as the machine cares.

use serde::{Deserialize, Serialize};

/// Settings of a turn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TurnSettings {
    /// The provider.
    pub provider: String,
    /// The model.
    pub model: String,
    /// The most model requests a turn; 25 by default.
    pub max_iterations: u32,
    /// The most continuations of a paused reply a turn; 10 by default.
    pub max_pauses: u32,
    /// What a turn may use up.
    pub budget: TurnBudget,
    /// When the log is compacted.
    pub compaction: CompactionTrigger,
    /// Tokens of input at which a summary is due whatever earlier ones left, where the model's window is
    /// known: more would leave no room for the reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub full_at: Option<u64>,
    /// Revision of the host's settings that these follow from; the machine only hands it back.
    #[serde(skip)]
    pub revision: u64,
}

impl TurnSettings {
    /// Defaults for a provider and a model.
    pub fn new(provider: impl Into<String>, model: impl Into<String>) -> Self {
        Self {
            provider: provider.into(),
            model: model.into(),
            max_iterations: 25,
            max_pauses: 10,
            budget: TurnBudget::default(),
            compaction: CompactionTrigger::default(),
            full_at: None,
            revision: 0,
        }
    }
}

/// When the log is compacted: a summary then stands for its older part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CompactionTrigger {
    /// Never.
    Never,
    /// When the provider says that the conversation is too long for the model.
    #[default]
    Refused,
    /// Before a request that would have so many tokens of input, and when the provider says so.
    At(u64),
}

/// What a turn may use up. Time and money are watched by the host, which has clock and prices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TurnBudget {
    /// Tokens, input and output, of all rounds.
    pub tokens: Option<u64>,
    /// Calls that run.
    pub calls: Option<u32>,
}
