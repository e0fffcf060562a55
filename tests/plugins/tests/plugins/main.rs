//! The plugin loader against real libraries, which cargo builds for these tests.
#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "everything in here is a test or helps one"
)]

mod abi;
mod altered;
mod attempts;
mod calls;
mod confined;
mod confined_metadata;
mod confined_root;
mod contributing;
mod executables;
mod executors;
mod granted;
mod granted_host_ops;
mod hostile_registries;
mod in_place;
mod indexes;
mod installed;
mod killed;
mod known;
mod left_behind;
mod lies;
mod many;
mod moving;
mod packaged_programs;
mod packages;
mod previews;
mod refuse;
mod registries;
mod registry;
mod returning;
mod sessions;
mod sources;
mod tampering;
mod targets;
mod tree_limits;
mod trust;
mod watch;
mod workers;
