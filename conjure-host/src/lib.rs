//! The Conjure host, as a library: plugins, sessions, providers and what they stand on.
//!
//! The binary `conjure` is a thin user of it, and so is any program that embeds a host. What
//! needs no file, clock or network is in `conjure-core` instead.

pub mod fs;
pub mod platform;
pub mod plugin;
