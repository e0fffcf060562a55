//! The plugin loader against real libraries, which cargo builds for these tests.

mod abi;
mod calls;
mod sources;
