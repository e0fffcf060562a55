//! The command line as a person meets it: the real binary, one module a verb.
//!
//! Outputs are kept as inline snapshots, so that a test reads as a story. What differs from run to
//! run is replaced in them.

// Clippy lets tests be blunt only where it sees that they are tests.
#[cfg(test)]
mod acp;
#[cfg(test)]
mod approval;
#[cfg(test)]
mod attachments;
#[cfg(test)]
mod auth;
#[cfg(test)]
mod auth_address;
#[cfg(test)]
mod bad_input;
#[cfg(test)]
mod call;
#[cfg(test)]
mod certificates;
#[cfg(test)]
mod chat;
#[cfg(test)]
mod completions;
#[cfg(test)]
mod data_dir;
mod docker;
#[cfg(test)]
mod docs;
#[cfg(test)]
mod doctor;
#[cfg(test)]
mod errors;
#[cfg(test)]
mod events;
#[cfg(test)]
mod examples;
#[cfg(test)]
mod files;
#[cfg(test)]
mod help;
#[cfg(test)]
mod hosted;
#[cfg(test)]
mod hot_add;
#[cfg(test)]
mod keyring;
#[cfg(test)]
mod mcp;
#[cfg(test)]
mod mcp_import;
#[cfg(test)]
mod named_things;
#[cfg(test)]
mod odd_replies;
#[cfg(test)]
mod output_schema;
#[cfg(test)]
mod plugin;
#[cfg(test)]
mod plugin_check;
#[cfg(test)]
mod plugin_create;
#[cfg(test)]
mod plugin_dev;
#[cfg(test)]
mod plugin_test;
#[cfg(test)]
mod plugin_test_faults;
#[cfg(test)]
mod policy;
#[cfg(test)]
mod policy_commands;
#[cfg(test)]
mod policy_shells;
#[cfg(test)]
mod private_files;
#[cfg(test)]
mod provider;
#[cfg(test)]
mod providers;
#[cfg(test)]
mod questions;
#[cfg(test)]
mod replay;
#[cfg(test)]
mod routes;
#[cfg(test)]
mod run;
#[cfg(test)]
mod saved_things;
#[cfg(test)]
mod session;
#[cfg(test)]
mod session_answer;
#[cfg(test)]
mod session_server;
#[cfg(test)]
mod session_waiting;
#[cfg(test)]
mod shared_dir;
mod skill;
#[cfg(test)]
mod skill_hostile;
#[cfg(test)]
mod skill_remote;
#[cfg(test)]
mod skill_trust;
#[cfg(test)]
mod stage;
#[cfg(test)]
mod started_programs;
#[cfg(test)]
mod switching;
#[cfg(test)]
mod telemetry;
#[cfg(test)]
mod terminal;
#[cfg(test)]
mod terminal_approval;
#[cfg(test)]
mod terminal_going_on;
#[cfg(test)]
mod terminal_images;
#[cfg(test)]
mod terminal_keys;
#[cfg(test)]
mod terminal_resize;
#[cfg(test)]
mod terminal_run;
#[cfg(test)]
mod terminal_saved;
#[cfg(test)]
mod terminal_widths;
#[cfg(test)]
mod thread_entries;
#[cfg(test)]
mod threads;
#[cfg(test)]
mod wire;
