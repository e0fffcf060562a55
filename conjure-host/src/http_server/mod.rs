//! What every server over HTTP here has in common: who may reach it, and how many connections may
//! do so for how long.

mod access;
pub(crate) mod connections;
mod hosts;
mod patient;
mod places;
mod user_token;

pub use access::HttpAccess;
pub(crate) use access::Tokens;
pub(crate) use hosts::AllowedHosts;
pub(crate) use places::Visitor;
pub(crate) use user_token::read as read_user_token;
pub use user_token::{UserTokenError, user_token, user_token_file};
