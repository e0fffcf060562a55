//! The Conjure host, as a library: plugins, sessions, providers and what they stand on.
//!
//! The binary `conjure` is a thin user of it, and so is any program that embeds a host. What
//! needs no file, clock or network is in `conjure-core` instead.

pub mod api;
pub mod artifacts;
pub mod auths;
pub mod backend;
pub mod client;
pub mod describe;
pub mod doctor;
pub mod env;
pub mod fs;
mod host;
mod http_server;
pub mod manager;
pub mod mcp_server;
pub mod mcp_status;
pub mod outlook;
pub mod platform;
pub mod plugin;
pub mod project_trust;
pub mod provider;
pub mod replay;
pub mod session;
mod shared;
pub mod skill_folders;
pub mod store;
pub mod telemetry;

pub use conjure_import as mcp_import;
pub use host::{Host, HostBuilder, HostError, host_operations, plugin_create};
pub use http_server::{UserTokenError, user_token, user_token_file};
