//! The backends of a session: what they offer, and how a call reaches the one that runs it.
//!
//! A [`Toolbox`] holds a session's backends and makes a [`ToolSnapshot`] of them: a routing table and
//! behind each public name the instance that runs it. A snapshot never changes; a hot-added skill
//! makes a new one.

mod active_call;
mod approval_files;
mod approval_id;
pub(crate) mod approved_tools;
mod attached_backend;
mod attached_files;
mod backend_attacher;
mod backend_catalog;
pub(crate) mod backend_changes;
mod backend_holds;
pub(crate) mod backend_lease;
pub(crate) mod catalogs;
pub(crate) mod contributors;
mod error_text;
mod executing;
pub(crate) mod instances;
mod known_tools;
pub(crate) mod lease;
mod offers;
pub(crate) mod permission_check;
pub(crate) mod plugin_grants;
mod plugin_http;
pub mod questions;
pub mod readers;
mod removed_skills;
mod report;
pub(crate) mod reports;
pub mod request_context;
mod request_media;
mod resource_owners;
pub mod results;
pub(crate) mod run;
pub(crate) mod sampling;
mod server_status;
pub(crate) mod services;
pub(crate) mod shared_leases;
pub(crate) mod shown_file;
mod skills_prompt;
mod snapshot;
mod source_requests;
pub(crate) mod sources;
mod staged_files;
mod toolbox;
mod toolbox_error;
pub(crate) mod transitions;
mod working_dirs;

pub use approved_tools::ApprovedTools;
pub use attached_backend::BackendStatus;
pub use known_tools::{HeldTool, KnownDefinition};
pub use report::CallReport;
pub use resource_owners::SourceName;
pub use run::LiveOutput;
pub(crate) use server_status::{is_settled, is_unlisted, servers};
pub use services::{Asker, NoAsker};
pub use snapshot::ToolSnapshot;
pub use toolbox::Toolbox;
pub use toolbox_error::ToolboxError;
pub(crate) use toolbox_error::names;
