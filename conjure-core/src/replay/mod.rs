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
mod model_outcomes;
mod old_sentences;
mod record;
mod rules;
mod setup;

pub use cassette::{
    CallOf, Cassette, CassetteError, CassetteStep, ExchangeKind, Judged, ModelExchange, VERSION,
};
pub use check::{
    Divergence, DivergenceKind, OtherWireReport, ReplayReport, Unreplayed, UnsendableRequest,
    replay,
};
pub use diff::{ValueDifference, diff};
pub use record::record;
pub use setup::{Recipient, RecordedTool, ReplaySetup};

#[cfg(test)]
mod tests;
