//! The command line as a person meets it: the real binary, one module a verb.
//!
//! Outputs are kept as inline snapshots, so that a test reads as a story. What differs from run to
//! run is replaced in them.

mod approval;
mod call;
mod chat;
mod completions;
mod help;
mod hot_add;
mod plugin;
mod plugin_new;
mod provider;
mod routes;
mod run;
mod skill;
mod stage;
