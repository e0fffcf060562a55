//! The backends of a session: what they offer, and how a call reaches the one that runs it.
//!
//! A [`Toolbox`] holds a session's backends and makes a [`ToolSnapshot`] of them: a routing table and
//! behind each public name the instance that runs it. A snapshot never changes; a hot-added skill
//! makes a new one.

mod active_call;
mod approval_id;
pub(crate) mod approved_tools;
mod attached;
mod attached_files;
mod attaching;
mod backend_catalog;
pub(crate) mod backend_lease;
pub(crate) mod catalogs;
pub(crate) mod contributors;
mod executing;
mod gone_skills;
mod held_files;
mod held_of_backend;
pub(crate) mod instances;
mod known_tools;
pub(crate) mod lease;
mod offers;
pub(crate) mod permission_check;
mod plain_words;
pub(crate) mod plugin_grants;
mod plugin_http;
pub mod questions;
pub mod readers;
mod report;
pub(crate) mod reports;
pub mod request_context;
mod request_media;
pub mod results;
pub(crate) mod run;
pub(crate) mod sampling;
mod server_status;
pub(crate) mod services;
pub(crate) mod shared_leases;
pub(crate) mod shown_file;
mod skills_prompt;
mod snapshot;
pub(crate) mod sources;
mod staged_files;
mod toolbox;
mod toolbox_error;
pub(crate) mod transitions;
pub(crate) mod watching;
mod working_dirs;

pub use approved_tools::ApprovedTools;
pub use attached::BackendStatus;
pub use known_tools::{HeldTool, KnownDefinition};
pub use report::CallReport;
pub use run::LiveOutput;
pub(crate) use server_status::{is_settled, is_unlisted, servers};
pub use services::{Asker, Nobody};
pub use snapshot::ToolSnapshot;
pub use toolbox::Toolbox;
pub use toolbox_error::ToolboxError;
pub(crate) use toolbox_error::names;
