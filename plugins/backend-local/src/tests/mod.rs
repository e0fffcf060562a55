//! The executor through the real ABI object: commands that really run, files that really are.

mod commands;
#[cfg(target_os = "linux")]
mod confine;
mod files;
#[cfg(target_os = "linux")]
mod host_ends;
#[cfg(target_os = "linux")]
mod processes;
