//! What comes of a turn that ends well or is cut short.

use conjure_core::chat::Usage;
use conjure_core::log::TurnOutcome;

/// The result of a turn: its text, outcome and usage.
#[derive(Debug, Clone, PartialEq)]
pub struct TurnSummary {
    /// The turn.
    pub turn_id: String,
    /// What the model said last.
    pub text: String,
    /// How the turn ended: completed, or cut short.
    pub outcome: TurnOutcome,
    /// Tokens of all its rounds.
    pub usage: Usage,
    /// The stop reason as the provider gave it.
    pub stop_reason: Option<String>,
}
