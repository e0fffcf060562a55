//! What a conversation costs, and why: a pure function of its log and of prices.
//!
//! Tokens are the provider's own count, in the buckets that it bills apart. Money is in US dollars
//! and as good as the prices that are given.

mod account;
mod price;

pub use account::{Account, Average, Cause, CauseCost, Cost, MissReason, ThreadCost, TurnCost};
pub use price::Price;

#[cfg(test)]
mod tests;
