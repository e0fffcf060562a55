//! The Conjure host, as a library: plugins, sessions, providers and what they stand on.
//!
//! The binary `conjure` is a thin user of it, and so is any program that embeds a host. What
//! needs no file, clock or network is in `conjure-core` instead.

pub mod api;
pub mod artifacts;
pub mod backend;
pub mod client;
pub mod describe;
pub mod doctor;
mod host;
mod http_server;
pub mod manager;
pub mod mcp_server;
pub mod mcp_status;
pub mod outlook;
pub mod replay;
pub mod session;
mod shared;
pub mod telemetry;

pub use conjure_config::{env, fs, platform, project_trust, skill_folders};
pub use conjure_import as mcp_import;
pub use conjure_plugins as plugin;
pub use conjure_providers as provider;
pub use conjure_providers::auths;
pub use conjure_store as store;
pub use host::{Host, HostBuilder, HostError, host_operations, plugin_create};
pub use http_server::{UserTokenError, user_token, user_token_file};
