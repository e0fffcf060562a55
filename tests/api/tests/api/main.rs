//! `conjure serve` as its clients meet it: a real server on loopback, one module a part of the API.
//!
//! Requests are written by hand, byte for byte, so that hostile ones can be written too.

// Clippy lets tests be blunt only where it sees that they are tests.
#[cfg(test)]
mod acceptance;
#[cfg(test)]
mod access;
#[cfg(test)]
mod attendance;
#[cfg(test)]
mod description;
#[cfg(test)]
mod ending;
#[cfg(test)]
mod events;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod fetching;
#[cfg(test)]
mod files;
#[cfg(test)]
mod folds;
#[cfg(test)]
mod held_tools;
#[cfg(test)]
mod hostile;
#[cfg(test)]
mod idempotency;
#[cfg(test)]
mod logins;
#[cfg(test)]
mod long_replies;
#[cfg(test)]
mod mcp;
#[cfg(test)]
mod mcp_imports;
#[cfg(test)]
mod page;
#[cfg(test)]
mod page_forms;
#[cfg(test)]
mod plugins;
#[cfg(test)]
mod postgres;
#[cfg(test)]
mod questions;
#[cfg(test)]
mod saved;
#[cfg(test)]
mod schemathesis;
#[cfg(test)]
mod secrets;
#[cfg(test)]
mod server;
#[cfg(test)]
mod sessions;
#[cfg(test)]
mod stage;
#[cfg(test)]
mod threads;
#[cfg(test)]
mod turns;
#[cfg(test)]
mod two_servers;
#[cfg(test)]
mod uploads;
mod versions;
#[cfg(test)]
mod wrong_bodies;
