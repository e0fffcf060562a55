//! What every server over HTTP here has in common: who may reach it, and how many connections may
//! do so for how long.

mod access;
pub(crate) mod connections;
mod patient;

pub use access::HttpAccess;
pub(crate) use access::Tokens;
