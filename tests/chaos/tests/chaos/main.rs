//! What must hold when a host is killed, and when its clients come and go.
#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test is told at once"
)]

mod crashes;
mod followers;
mod kills;
mod seen;
mod soak;
mod streams;
mod swaps;
