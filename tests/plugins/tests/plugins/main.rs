//! The plugin loader against real libraries, which cargo builds for these tests.

mod abi;
mod calls;
mod in_place;
mod many;
mod refuse;
mod registry;
mod sources;
mod trust;
mod watch;
