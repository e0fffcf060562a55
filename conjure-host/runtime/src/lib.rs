//! The running host: sessions, calls, files, and saved sessions that run.
//!
//! [`Host`] is the builder and the way in. [`session`] runs one conversation, [`backend`] finds who
//! runs a call, [`artifacts`] knows every file of a session, [`manager`] keeps saved sessions going
//! whether anybody looks or not. Stands on `conjure-core`, which decides, and on the crates for
//! plugins, providers and the store. Knows no terminal and no server: those are faces, and use what
//! is public here. Begin at `host.rs`, then `session/handle.rs`.

pub mod artifacts;
pub mod backend;
mod changed_text;
pub mod describe;
mod host;
mod install_consent;
pub mod manager;
pub mod mcp_status;
mod one_call;
mod plugin_difference;
mod plugin_services;
mod plugin_trial;
pub mod replay;
pub mod session;
mod spans;
mod standalone_backend;
mod tool_diff;
mod tool_sessions;
pub mod uploads;

pub use changed_text::shortened_change;
pub use host::{Host, HostBuilder, HostError};
pub use install_consent::{InstallConsent, consent_to_add, consent_to_roll_back};
pub use one_call::OpenError;
pub use plugin_difference::{PluginDifference, version_step};
pub use plugin_services::plugin_services;
pub use plugin_trial::{
    PluginTrial, host_operations, plugin_create, required_settings, try_plugin,
};
pub use spans::TARGET as SPAN_TARGET;
pub use standalone_backend::StandaloneBackend;
pub use tool_diff::describe_tool;
