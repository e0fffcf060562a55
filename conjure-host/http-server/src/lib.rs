//! What every server over HTTP here has in common: who may reach it, and how many connections may
//! do so for how long.
//!
//! Holds the check of hosts, origins and tokens ([`HttpAccess`]), the bounds of connections
//! ([`connections`]), the token of this machine's user and those that are chosen for clients. Touches
//! sockets and the files of tokens; knows nothing of what is served. Begin at `access.rs`.

mod access;
mod address;
mod client_tokens;
pub mod connections;
mod hosts;
mod slots;
mod user_token;
mod write_timeout;

pub use access::{AccessTokens, HttpAccess};
pub use address::url;
pub use client_tokens::{ClientTokenError, client_token, client_tokens};
pub use hosts::AllowedHosts;
pub use slots::ConnectionHandle;
pub use user_token::read as read_user_token;
pub use user_token::{UserTokenError, user_token, user_token_file};
