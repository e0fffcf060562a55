//! What replies cost, and why: the figures that an answer carries. How they are counted is in
//! [`crate::cost`].

use serde::{Deserialize, Serialize};

use super::Usage;

/// What replies cost.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Cost {
    /// Tokens, by bucket.
    #[serde(flatten)]
    pub usage: Usage,
    /// US dollars, of the tokens whose price is known.
    pub usd: f64,
    /// Tokens whose price is not known.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unpriced_tokens: u64,
}

/// Why tokens were paid that another course of things had spared.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "cause", rename_all = "snake_case")]
pub enum Cause {
    /// Input was paid in full although an earlier request had put it into the provider's cache.
    /// The money is what it cost more than a read from the cache.
    CacheMiss {
        /// What happened between the two requests.
        reason: MissReason,
    },
    /// Replies that broke off, or were begun again: paid, and of no use to the model.
    Retry,
    /// The definitions of the tools, which every request carries; estimated.
    Schemas,
    /// Summaries of what was folded.
    Summary,
    /// What plugins asked the session's model.
    Sampling,
    /// Work that backends gave to models of their own.
    Delegated,
}

/// Why a request found nothing, or less, in the provider's cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum MissReason {
    /// Another provider or model.
    Switched,
    /// Other tools.
    ToolsChanged,
    /// Other settings.
    SettingsChanged,
    /// The conversation was folded or unfolded.
    ViewChanged,
    /// More than five minutes had passed.
    Expired,
    /// The request began like the one before; the provider did not have it any more.
    NotFound,
}

/// What one cause cost.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CauseCost {
    /// The cause.
    #[serde(flatten)]
    pub cause: Cause,
    /// How often.
    pub times: u32,
    /// Tokens, input and output.
    pub tokens: u64,
    /// US dollars, where the price is known.
    pub usd: f64,
}

/// What a turn costs.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TurnCost {
    /// The turn, counted from 1.
    pub turn: u64,
    /// Replies, summaries among them.
    pub replies: u32,
    /// Requests that were made again before anything came: providers do not bill them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub retries: u32,
    /// All of it.
    #[serde(flatten)]
    pub cost: Cost,
    /// The parts that have a cause, which may overlap; in a fixed order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<CauseCost>,
}

fn is_zero<N: Default + PartialEq>(number: &N) -> bool {
    *number == N::default()
}
