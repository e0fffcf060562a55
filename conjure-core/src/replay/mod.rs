//! Replay: a thread as a document, run again through the turn machine.
//!
//! [`record`] makes a [`Cassette`] of a log: its entries, each model request as its wire encodes
//! it, what the rules say of each call. [`replay`] drives the turn machine along it once more and
//! names the first thing that is otherwise. Sends nothing and runs no tool.

mod cassette;
mod check;
mod diff;
mod drive;
mod exchange;
mod lookahead;
mod machine_inputs;
mod old_sentences;
mod record;
mod rules;
mod setup;

pub use cassette::{
    CallOf, Cassette, CassetteError, Exchange, ExchangeKind, Judged, Step, VERSION,
};
pub use check::{Divergence, Elsewhere, Problem, Report, Unreplayed, What, replay};
pub use diff::{Change, diff};
pub use record::record;
pub use setup::{Recipient, RecordedTool, Setup};

#[cfg(test)]
mod tests;
