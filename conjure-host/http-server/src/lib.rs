//! What every server over HTTP here has in common: who may reach it, and how many connections may
//! do so for how long.
//!
//! Holds the check of hosts, origins and tokens ([`HttpAccess`]), the bounds of connections
//! ([`connections`]) and the token of this machine's user. Touches sockets and one file of the data
//! directory; knows nothing of what is served. Begin at `access.rs`.

mod access;
mod address;
pub mod connections;
mod hosts;
mod patient;
mod slots;
mod user_token;

pub use access::{AccessTokens, HttpAccess};
pub use address::url;
pub use hosts::AllowedHosts;
pub use slots::Visitor;
pub use user_token::read as read_user_token;
pub use user_token::{UserTokenError, user_token, user_token_file};
