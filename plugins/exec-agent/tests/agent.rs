//! The agent as it is shipped, over pipes: streaming, limits, process trees, files, and its end.

#![cfg(target_os = "linux")]

#[cfg(test)]
#[path = "agent/client.rs"]
mod client;
#[cfg(test)]
#[path = "agent/commands.rs"]
mod commands;
#[cfg(test)]
#[path = "agent/escapes.rs"]
mod escapes;
#[cfg(test)]
#[path = "agent/keeping.rs"]
mod keeping;
#[cfg(test)]
#[path = "agent/supervised.rs"]
mod supervised;
