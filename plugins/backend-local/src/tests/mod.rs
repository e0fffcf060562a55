//! The executor through the real ABI object: commands that really run, files that really are.

mod commands;
mod files;
#[cfg(target_os = "linux")]
mod guardian;
#[cfg(target_os = "linux")]
mod processes;
