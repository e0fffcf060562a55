//! What a Conjure host is told, and how it touches this machine: the lowest layer of the host.
//!
//! Holds the session file ([`SessionSpec`]), the names of saved auths, every environment variable
//! ([`env`](mod@env)), skill folders on disk, which projects a person trusts, what differs between operating
//! systems ([`platform`]), files whose errors name them ([`fs`]), what an error says with its causes
//! ([`error_chain`]), JSON whose errors say where ([`json`]), and a box for what many threads share
//! ([`SyncBox`]). Reads and writes local files and the process's environment. Knows no database, no
//! network, no plugin and no session that runs. Begin at `session_file.rs`.

mod auth_name;
pub mod env;
pub mod error_chain;
pub mod file_name;
pub mod fs;
pub mod json;
pub mod mcp_settings;
pub mod platform;
mod plugin_spec;
pub mod project_trust;
mod sandbox;
mod session_file;
pub mod shown_name;
pub mod skill_archive;
mod skill_files;
pub mod skill_folders;
mod sync_box;

pub use auth_name::{AuthName, AuthRef, BadAuthName, OpenAuth, is_auth_name, is_provider_name};
pub use plugin_spec::{PermissionsSpec, PluginSpec, WorkingDirAccess};
pub use sandbox::{SandboxMode, SandboxSpec};
pub use session_file::{
    BackendSpec, BudgetSpec, CompactAt, HttpSpec, LimitSpec, PolicySpec, ProviderSpec, SessionSpec,
    SpecError, TimeoutSpec,
};
pub use sync_box::SyncBox;
