//! What a conversation costs, and why: a pure function of its log and of prices.
//!
//! Tokens are the provider's own count, in the buckets that it bills apart. Money is in US dollars
//! and as good as the prices that are given.

mod account;
mod price;

pub use crate::chat::{Cause, CauseCost, Cost, MissReason, TurnCost};
pub use account::{Account, Average, ThreadCost};
pub use price::Price;

#[cfg(test)]
mod tests;
