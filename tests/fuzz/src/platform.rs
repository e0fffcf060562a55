//! What the reader of a plugin's file asks of the system, as the host has it on Linux.

#[path = "../../../conjure-host/src/platform/users.rs"]
mod users;

pub use users::{current_user, is_private_group};

/// What a shared library is here.
pub const LIBRARY_FORMAT: &str = "an ELF shared library";
