//! The domain of Conjure: values in, values out.
//!
//! Canonical chat, the log of a thread, the turn state machine, the routing table, skill folders,
//! policy, and the provider wires. No I/O, no clock, no threads, no randomness: the host performs
//! what this crate decides. Begin at `turn/input.rs` for what a turn is, and at
//! `log/entry.rs` for what a thread is.

pub mod address_scope;
pub mod chat;
pub mod context;
pub mod cost;
pub mod exact_numbers;
pub mod foreign_text;
pub mod label;
pub mod log;
mod model_family;
pub mod numerals;
pub mod repair;
pub mod replay;
pub mod request;
pub mod routing;
pub mod sentence;
pub mod skill_folder;
pub mod switch;
pub mod turn;
pub mod uri_template;
pub mod wire;
mod wire_name;
