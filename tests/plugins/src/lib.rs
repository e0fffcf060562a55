//! Builds small plugin crates, and runs test cases in child processes.
//!
//! For the tests of this crate. The crates are workspaces of their own with a lock file of their
//! own, so what they are built with is not what the host is built with. A helper that cannot do
//! its work panics, because it only ever runs in a test.
#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    reason = "helpers of tests fail by panicking"
)]

mod build;
mod child;
mod loading;
mod packed;
mod rollback;
mod signed;
mod versioned;

pub use build::{Plugin, locked, report_left_out, sdk_copy, workspace};
pub use child::{Exit, run_child};
pub use loading::{Bench, Versions, envelope};
pub use packed::{FileEntry, repacked, with_entry_from, with_padding};
pub use rollback::roll_back;
pub use signed::{Publisher, Team};
pub use versioned::versioned;
